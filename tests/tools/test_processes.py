"""Verbs for several processes at once: by number, as a tree, as a cgroup."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prompt import merged, on_terminal, ran, rollup, wait_until
from refusals import mentions

from tsmlab import paths

MB = 1 << 20
WHOLE = 40_000 * 1024  # in explained_program, "small"

# A server of 20 processes that fill their own memory, and share what the first one filled.
PREFORK = """
import os, time
shared = [bytes(990) for _ in range(20000)]
filled, fills = os.pipe()
for i in range(19):
    if os.fork() == 0:
        own = [bytes(990) for _ in range(1000 * i)]
        os.write(fills, b".")
        time.sleep(600)
        os._exit(0)
    os.read(filled, 1)
os.write(1, b"ready\\n")
time.sleep(600)
"""


@pytest.fixture
def group():
    """A cgroup with memory accounting."""
    for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
        path = Path(root) / f"tsmalloc-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            path.mkdir()
            if (path / "memory.stat").exists():
                break
            path.rmdir()
    else:
        pytest.skip("this user may not make control groups that count memory")
    yield path
    wait_until(lambda: not (path / "cgroup.procs").read_text())
    path.rmdir()


def prefork(start, joins=""):
    script = f'{joins}exec "$0" -I -S -c "$1"'
    return start("sh", "-c", script, sys.executable, PREFORK)


def tell(*arguments, **options):
    return ran(paths.tool("tsmalloc"), *arguments, **options)


def lines_of(*arguments):
    told = tell(*arguments)
    assert (told.returncode, told.stderr) == (0, ""), told
    return [json.loads(line) for line in told.stdout.splitlines()]


def test_a_tree_adds_up_to_what_it_has(start):
    root = prefork(start)
    *rows, total = lines_of("explain", "--json", "--tree", root.pid)
    assert len(rows) == total["processes"] == 20
    assert (total["schema"], total["without_engine"]) == ("tsmalloc-sum/1", 0)
    assert root.pid in {row["pid"] for row in rows}
    for row in rows:
        assert sum(row["pss"].values()) == pytest.approx(row["pss_bytes"], abs=100)
        assert row["pss_bytes"] == pytest.approx(rollup(row["pid"], "Pss"), rel=0.02, abs=MB // 2)
        assert row["pss_anon_bytes"] == pytest.approx(rollup(row["pid"], "Pss_Anon"), rel=0.01)
        assert row["pss_bytes"] < row["resident_bytes"]
    for key in ("pss_bytes", "pss_anon_bytes"):
        assert total[key] == sum(row[key] for row in rows)
    for part, bytes_ in total["pss"].items():
        assert bytes_ == sum(row["pss"][part] for row in rows)
    # The shared 20 MB count once; each child has 0 to 18 MB of its own.
    assert total["pss"]["small_blocks"] == pytest.approx(1024 * (20000 + 1000 * 171), rel=0.1)
    assert sum(row["resident"]["small_blocks"] for row in rows) > 500 * MB


def test_a_group_adds_up_to_its_own_count(group, start):
    """Within 2% of `anon`, or `rss`, in memory.stat."""
    prefork(start, f"echo $$ >{group}/cgroup.procs && ")
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    anonymous = int(stat.get("anon", stat.get("total_rss", "0")))
    began = time.process_time() + sum(os.times()[2:4])
    *rows, total = lines_of("explain", "--json", "--cgroup", group)
    cpu = time.process_time() + sum(os.times()[2:4]) - began
    assert len(rows) == 20
    assert total["pss_anon_bytes"] == pytest.approx(anonymous, rel=0.02)
    assert total["cgroup_anon_bytes"] == pytest.approx(anonymous, rel=0.02)
    off = abs(total["pss_anon_bytes"] / anonymous - 1)
    print(f"20 processes: {100 * off:.2f}% off memory.stat, in {cpu:.2f} s of CPU time")
    named = tell("explain", "--cgroup", group.name).stdout
    mentions(named, "20 processes", "by memory.stat")


def test_a_table_of_known_and_unknown_processes(start, program):
    small, large = start(program, "small"), start(program, "large")
    plain = start(program, "small", library=None)
    told = tell("explain", small.pid, large.pid, plain.pid)
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    assert max(map(len, lines)) <= 115
    head = lines[0].split()[2:]
    rows = {line.split()[0]: line.split() for line in lines[1:5]}
    assert set(rows) == {str(small.pid), str(large.pid), str(plain.pid), "sum"}
    figures = {pid: dict(zip(head, row[1:], strict=False)) for pid, row in rows.items()}
    assert float(figures[str(small.pid)]["program"]) == pytest.approx(WHOLE / MB, rel=0.05)
    assert figures[str(plain.pid)]["program"] == "-"
    assert float(figures[str(plain.pid)]["heap"]) == pytest.approx(WHOLE / MB, rel=0.05)
    for column in ("PSS", "anon", "files"):
        each = [float(figures[str(p.pid)][column]) for p in (small, large, plain)]
        assert float(figures["sum"][column]) == pytest.approx(sum(each), abs=0.2)
    assert "3 processes" in lines[4]
    assert "1 without tsmalloc" in told.stdout


def test_what_cannot_be_read_has_a_line_and_the_others_a_row(start, program):
    process = start(program, "little")
    ended = subprocess.Popen(["true"])
    ended.wait()
    for verb in ("explain", "stats", "purge"):
        told = tell(verb, "--json", ended.pid, process.pid)
        assert told.returncode == 2
        assert told.stderr.count("\n") == 1
        assert f"no process {ended.pid}" in told.stderr
        assert process.pid in [json.loads(line).get("pid") for line in told.stdout.splitlines()]


@pytest.mark.skipif(os.getuid() != 0, reason="only root has another user to be")
def test_no_rights_to_some(start, program):
    process = start(program, "little")
    who = {"user": 65534, "group": 65534, "extra_groups": ()}
    told = tell("explain", process.pid, process.pid + 1_000_000, **who)
    assert told.returncode == 2
    assert f"process {process.pid}: " in told.stderr
    assert "--cap-add=SYS_PTRACE" in told.stderr
    assert f"no process {process.pid + 1_000_000}" in told.stderr
    assert told.stderr.count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("explain", "--cgroup", "no/such.group"), 2, "no/such.group: .*/sys/fs/cgroup"),
        (("explain", "--cgroup"), 1, "--cgroup: .*explain --help"),
        (("top", "--tree", "x"), 1, "x: .*top --help"),
        (("top", "--pages", "1", "2"), 1, "one process .*top --help"),
        (("explain", "--map", "1", "2"), 1, "one process .*explain --help"),
        (("explain", "--html", "/no/folder/x.html", "PID"), 1, "/no/folder/x.html: .*--html FILE"),
        (("explain", "--map", "--prometheus", "PID"), 1, "--prometheus: .*explain --help"),
        (("profile", "take", "--output", "one.pb", "1", "2"), 1, "one.pb: .*--output.* DIR/"),
        (("top", "1", "--", "true"), 1, "--: .*top --help"),
        (("top", "--"), 1, "--: .*top --help"),
        (("top", "--interval", "0.0001", "1"), 1, "--interval: .*0.0001.*top --help"),
        (("top", "--count", "0", "1"), 1, "--count: .*'0'.*top --help"),
        (("top", "--count"), 1, "--count: .*top --help"),
        (("top", "--all", "1"), 1, "--all: .*top --help"),
    ],
)
def test_wrong_usage(start, program, arguments, status, said):
    pid = str(start(program, "little").pid)
    told = tell(*[pid if each == "PID" else each for each in arguments])
    assert (told.returncode, told.stdout) == (status, "")
    assert re.search(said, told.stderr), told.stderr
    assert told.stderr.count("\n") == 1


def test_stats_of_several(start, program):
    processes = [start(program, "small"), start(program, "large")]
    pids = [process.pid for process in processes]
    rows = lines_of("stats", "--json", *pids)
    for row, pid in zip(rows, pids, strict=True):
        assert row.pop("pid") == pid
        assert [row] == lines_of("stats", "--json", pid)
    table = tell("stats", *pids).stdout.splitlines()
    mapped = sum(row["mapped_bytes"] for row in rows) / MB
    assert float(table[-1].split()[1]) == pytest.approx(mapped, abs=0.1)
    text = tell("stats", "--prometheus", *pids).stdout
    for row, pid in zip(rows, pids, strict=True):
        labels = f'pid="{pid}",command="explained"'
        assert f"tsmalloc_mapped_bytes{{{labels}}} {row['mapped_bytes']}\n" in text
        assert f'tsmalloc_bytes{{{labels},part="bins"}} {row["bins"]}\n' in text
    heads = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(heads) == len(set(heads)) > 5


def test_prometheus_of_several(start, program):
    pids = [start(program, "small").pid, start(program, "small", library=None).pid]
    text = tell("explain", "--prometheus", *pids).stdout
    for pid, part in zip(pids, ("small_blocks", "heap"), strict=True):
        for metric in ("resident_bytes", "pss_bytes"):
            line = rf'tsmalloc_{metric}{{pid="{pid}",command="explained",part="{part}"}} (\d+)'
            assert int(re.search(line, text)[1]) == pytest.approx(WHOLE, rel=0.05)


def test_purge_of_several(start, program):
    pids = [start(program, "freed").pid for _ in range(2)]
    rows = lines_of("purge", "--json", *pids)
    assert [row["pid"] for row in rows] == pids
    assert all(row["bytes"] == pytest.approx(3 * MB, rel=0.1) for row in rows)
    assert tell("purge", *pids).stdout.splitlines()[-1].startswith("0.0 MiB ")


def test_profiles_of_several_are_taken_at_once(start, program, tmp_path):
    pids = [start(program, "little").pid for _ in range(3)]
    output = f"{tmp_path}/new/"
    words = ("profile", "take", "--seconds", 3, "--output", output)
    status, said = merged(paths.tool("tsmalloc"), *words, *pids)
    assert status == 0, said
    begun_and_done = [line.split()[0] for line in said.splitlines()]
    assert begun_and_done == ["sampling"] * 3 + ["Process"] * 3
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        f"tsmalloc.{pid}.pb" for pid in pids
    }
    for pid in pids:
        assert "TSMALLOC_PROFILE=off" in tell("set", pid).stdout


def test_top_of_several(start, program):
    pids = [start(program, "small").pid, start(program, "little").pid]
    told = tell("top", "--count", 2, "--interval", 0.05, *pids)
    [_, first, second] = [line.split() for line in told.stdout.splitlines()]
    assert float(first[2]) == float(second[2]) == pytest.approx(WHOLE / MB, rel=0.05)
    rows = lines_of("top", "--json", "--count", 2, "--interval", 0.05, *pids)
    assert [row["schema"] for row in rows] == [
        *("tsmalloc-explain/1", "tsmalloc-explain/1", "tsmalloc-sum/1")
    ] * 2


def screen_of(*arguments):
    """What `top` draws."""
    screen = on_terminal(
        paths.tool("tsmalloc"), "top", "--interval", "0.01", "--count", "2", *arguments
    )
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen)


def test_screens_of_top(start, program):
    pids = [start(program, "sparse").pid, start(program, "little", library=None).pid]
    screen = screen_of(*pids)
    assert all(re.search(rf"^ *{pid} .* explained", screen, re.MULTILINE) for pid in pids)
    assert "2 processes" in screen
    pages = screen_of("--pages", pids[0])
    assert re.search(r"^[0-9a-f]{13}  -{16,}", pages, re.MULTILINE)
    assert "sparse slabs, at most 1/4 used" in pages


def test_processes_that_come_and_go(start, program):
    first = start(program, "little")
    second = start(program, "little")
    command = [paths.tool("tsmalloc"), "top", "--json", "--interval", "0.05"]
    pipe = subprocess.PIPE
    watch = [*command, str(first.pid), str(second.pid)]
    with subprocess.Popen(watch, stdout=pipe, stderr=pipe, text=True) as top:

        def next_sum():
            while (row := json.loads(top.stdout.readline()))["schema"] != "tsmalloc-sum/1":
                pass
            return int(row["processes"])

        assert next_sum() == 2
        first.kill()
        first.wait()
        while next_sum() == 2:
            pass
        second.kill()
        second.wait()
        _, errors = top.communicate(timeout=60)
    assert top.returncode == 2
    assert "none of these processes is left" in errors
    assert errors.count("\n") == 1


# --- the map -------------------------------------------------------------------------------------

SLAB, LARGE, FREE, CACHED = range(4)


def map_of(process):
    [answer] = lines_of("explain", "--map", "--json", process.pid)
    assert answer["schema"] == "tsmalloc-map/1"
    return answer


@pytest.mark.parametrize("what", ["sparse", "large", "freed", "ended", "waiting", "little"])
def test_pieces_tile_the_heap_and_add_up(start, program, what):
    answer = map_of(start(program, what))
    pieces = answer["pieces"]
    end = 0
    for page, pages, *_ in pieces:
        assert page == end
        end = page + pages
    assert end * answer["page_bytes"] == answer["mapped_bytes"]
    parts = answer["resident"]
    in_pieces = sum(parts.values()) - sum(
        parts[each] for each in ("heap", "files", "stacks", "shared", "other_mappings", "tables")
    )
    # The rest of the last huge page is not a piece.
    assert 0 <= in_pieces - sum(piece[3] for piece in pieces) <= 2 * MB
    for page, pages, kind, resident, *slab in pieces:
        assert 0 <= resident <= pages * answer["page_bytes"], page
        assert bool(slab) == (kind == SLAB)
        if slab:
            block, blocks, used, ended, site = slab
            assert used <= blocks <= pages * answer["page_bytes"] // block
            assert (ended in (0, 1), site) == (True, -1)
    slabs = [piece for piece in pieces if piece[2] == SLAB]
    assert len(slabs) == answer["slabs"]
    assert sum(piece[2] == LARGE for piece in pieces) == answer["large_block_count"]
    of_class = [piece for piece in slabs if piece[4] == 1024]
    used = {"sparse": 1 / 8, "ended": 1 / 4, "waiting": 1 / 4}.get(what)
    if used is not None:
        assert sum(piece[6] for piece in of_class) == pytest.approx(40_000 * used, rel=0.02)
        assert {piece[7] for piece in of_class} == {int(what == "ended")}


def test_the_map_of_a_terminal_and_of_a_pipe(start, program):
    process = start(program, "sparse")
    told = tell("explain", "--map", process.pid)
    assert (told.returncode, told.stderr) == (0, "")
    lines = told.stdout.splitlines()
    rows = [line for line in lines if re.match(r"[0-9a-f]{13}  ", line)]
    assert max(map(len, rows)) <= 80
    drawn = "".join(row.split()[1] for row in rows)
    assert drawn.count("-") > 0.9 * len(drawn)
    assert "\x1b" not in told.stdout
    [of_class] = [line.split() for line in lines if line.split()[:1] == ["1024"]]
    assert int(of_class[1]) == int(of_class[4]) == 2500  # slabs, all of them sparse
    assert int(of_class[-1]) == 5000  # blocks that keep them in use
    assert "\x1b[31m-" in on_terminal(paths.tool("tsmalloc"), "explain", "--map", process.pid)


def test_a_profile_names_what_keeps_sparse_slabs(start, program, monkeypatch):
    monkeypatch.setenv("TSMALLOC_PROFILE", "256K")
    answer = map_of(start(program, "sparse"))
    sites = {piece[8] for piece in answer["pieces"] if piece[2] == SLAB}
    assert -1 in sites
    known = [answer["pinned_by"][site] for site in sites - {-1}]
    assert known
    assert all(site["module"] == "explained" for site in known)


def test_the_page_has_the_map(start, program, tmp_path):
    odd = tmp_path / '<!--"&'
    shutil.copy(program, odd)
    process = start(odd, "sparse")
    page = tmp_path / "heap.html"
    told = tell("explain", "--html", page, process.pid)
    assert (told.returncode, told.stderr) == (0, "")
    text = page.read_text(encoding="utf-8")
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert json.loads(found[1]) == map_of(process)
    assert "http" not in text, "it stands alone"
    assert text.count("</script>") == 2


def test_no_map_without_an_engine(start, program):
    told = tell("explain", "--map", start(program, "small", library=None).pid)
    assert (told.returncode, told.stdout) == (2, "")
    assert "tsmalloc run -- PROGRAM" in told.stderr
