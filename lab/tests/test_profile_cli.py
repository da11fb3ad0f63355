"""`tsmalloc profile`: each verb's output, files and exit status, and bad input."""

import contextlib
import gzip
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import prompt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profile_fixtures import File, Row, Site, Writer, sampled
from prompt import ran
from refusals import mentions

from tsmlab.errors import EXIT_OK, EXIT_REGRESSION, EXIT_USAGE, UserError
from tsmlab.profile import messages, model
from tsmlab.profile.sites import Stacks, gather
from tsmlab.profile.symbols import look_up

MALLOC, NEW, PUT, GROW, MAIN, RUN = range(0x1001, 0x1007)
NAMES = {
    MALLOC: [("malloc", "", 0)],
    NEW: [("operator new(unsigned long)", "", 0)],
    PUT: [("std::allocator<Item>::allocate(unsigned long)", "alloc.h", 90), ("put", "src/a.c", 7)],
    GROW: [("grow", "src/a.c", 21)],
    RUN: [("run", "src/b.c", 5)],
    MAIN: [("main", "src/main.c", 40)],
}
SITES = [
    Site((MALLOC, GROW, RUN, MAIN), 100, 900_000, 500_000, age_ms=7_200_000),
    Site((MALLOC, GROW, MAIN), 3000, 9_000, 4_000, age_ms=60_000),
    Site((MALLOC, NEW, PUT, RUN, MAIN), 48, 800_000, 200_000, age_ms=500),
    Site((MALLOC, RUN, RUN, MAIN), 64 << 20, 3, 1),
]


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """run(*arguments, status=0) returns the out and err of `tsmalloc profile` in an empty
    folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    return prompt.in_process("profile", capfd)


@pytest.fixture
def profile(written):
    return written("p.pb")


@pytest.fixture
def written(tmp_path):
    """written(name, ...) writes a profile, by default of SITES, and returns its path."""

    def write(name, rows=None, names=NAMES, **more):
        rows = sampled(SITES, 1) if rows is None else rows
        return Writer(rows, names=names, **more).write(tmp_path / name)

    return write


def answer(run, *arguments, status=EXIT_OK):
    found = json.loads(run(*arguments, "--json", status=status).out)
    assert found["schema"] == "tsmalloc-profile/1"
    return found


def sites(run, *arguments, **more):
    return answer(run, *arguments, **more)["sites"]


def estimate(rows, *sites, live=True):
    return sum(
        (row.live if live else row.allocs) * row.site.size / row.site.probability
        for row in rows
        if row.site in sites
    )


@pytest.mark.parametrize("of", ["inuse", "alloc"])
def test_sums_of_functions(run, profile, of):
    rows, live = sampled(SITES, 1), of == "inuse"
    found = answer(run, "show", profile, "--type", of)
    by_name = {site["function"]: site for site in found["sites"]}
    first, second, third, huge = SITES
    # The sites of a function itself, and of all that it calls.
    expected = {
        "grow": ([first, second], [first, second]),
        "put": ([third], [third]),
        "run": ([huge], [first, third, huge]),  # once, though it appears twice
        "main": ([], SITES),
    }
    assert by_name.keys() == expected.keys()
    for name, site in by_name.items():
        for part, own in zip((site["flat"], site["cumulative"]), expected[name], strict=True):
            assert part["bytes"] == pytest.approx(estimate(rows, *own, live=live), abs=1)
            assert part["low"] <= part["bytes"] <= part["high"]
    assert found["total"]["bytes"] == pytest.approx(estimate(rows, *SITES, live=live), abs=1)
    assert found["type"] == of


CPP, RUSTC = "/usr/include/c++/12", "/rustc/0a1b2c/library"
# By language: the names and files of frames, innermost first; what begins with a space is a
# library's.
LANGUAGES = {
    "C++": f"""
 std::vector<Item, std::allocator<Item> >::reserve @ {CPP}/bits/vector.tcc
std::vector<Item> const& Store::put<std::less<int> >(Item const&) @ src/store.cpp
std::hash<Item>::operator()(Item const&) const @ src/store.h
main @ src/main.cpp""",
    # The last one with the line of merged code.
    "C++, inlined, of types without linkage": f"""
 allocate @ {CPP}/bits/new_allocator.h
 _M_create<fill(int)::<lambda()> > @ {CPP}/bits/std_function.h
 std::vector<(anonymous namespace)::Item>::back() @
operator() @ src/store.cpp
 operator() @ {CPP}/bits/std_thread.h
fill(int) @ {CPP}/bits/new_allocator.h""",
    "libc++": """
 std::__1::vector<Item>::reserve @
Store::operator std::string() @""",
    "C": """
 getline @ /usr/include/x86_64-linux-gnu/bits/stdio.h
read_all @ src/read.c""",
    "C, static": """
 __vasprintf_internal @
 ___asprintf @
say @ src/say.c""",
    "Rust": f"""
 <hashbrown::raw::RawTable<T>>::reserve @ /cargo/hashbrown-0.15.2/src/raw/mod.rs
 <alloc::vec::Vec<u8>>::push @ {RUSTC}/alloc/src/vec/mod.rs
store::put @ src/store.rs
 std::panicking::catch_unwind @ {RUSTC}/std/src/panicking.rs
main @""",
    "alone": """
std::locale::classic() @
 _start @""",
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_calls_of_the_libraries_are_their_callers(run, written, language):
    for module in ("libc.so.6", "libstdc++.so.6.0.30", "libc.musl-x86_64.so.1", "ld-linux.so.2"):
        assert model.Frame("f", module=module).is_of_library
        assert not model.Frame("f", module=f"my{module}").is_of_library
    lines = LANGUAGES[language].splitlines()[1:]
    frames = [tuple(map(str.strip, line.split("@"))) for line in lines]
    rows = [Row(Site((1,), 64, 9, 9), 9, 9)]
    names = {1: [(name, file, 1) for name, file in frames]}
    path = written("l.pb", rows, names)
    own = [name for line, (name, _) in zip(lines, frames, strict=True) if line[0] != " "]
    for options, expected in (([], own), (["--library"], [name for name, _ in frames])):
        (site,) = sites(run, "leaks", path, *options)
        assert [re.sub(r" [^ ]+:1$", "", line) for line in site["stack"]] == expected


def with_pinned(*bytes_each):
    rows = sampled(SITES[:3], 1)
    for row, each in zip(rows, bytes_each, strict=True):
        row.pinned = each * row.live / row.site.probability
    return rows


@pytest.fixture
def pinned(written):
    """One of two sites pins a megabyte with each of its samples, and the other one a kilobyte."""
    return written("pinned.pb", with_pinned(1 << 20, 1 << 10, 0))


def test_what_sites_pin(run, pinned):
    rows = sampled(SITES[:3], 1)
    first, second = (row.live / row.site.probability for row in rows[:2])
    found = answer(run, "show", pinned, "--type", "pinned", "--by", "stack")
    sums = [site["flat"]["bytes"] for site in found["sites"]]
    assert sums == [pytest.approx(first * (1 << 20)), pytest.approx(second * (1 << 10))]
    assert found["objects"] == round(first + second)
    for site, row, each in zip(found["sites"], rows, (1 << 20, 1 << 10), strict=False):
        p = row.site.probability
        assert site["flat"]["samples"] == row.live
        assert site["flat"]["variance"] == pytest.approx(
            row.live * (each / p) ** 2 * (1 - p), rel=1e-3
        )
    out = run("show", pinned, "--type", "pinned").out
    assert re.search(r"(?m)^[\d.]+[GT] ±\S+% free in slabs, pinned by \d+k objects of", out)
    assert "up to 2.00K" in out
    out = run("show", pinned).out
    assert re.search(r"(?m)^[\d.]+[GT] ±\S+% more are free beside them, in slabs", out)
    assert len(run("folded", pinned, "--type", "pinned").out.splitlines()) == 2
    run("flame", pinned, "--type", "pinned", "-o", pinned.with_suffix(".html"))
    assert "free in slabs, pinned by" in pinned.with_suffix(".html").read_text()


def test_profiles_that_do_not_know_what_is_pinned(run, written):
    for more in ({"has_pinned": False}, {"comments": ("pid 1", "command x", "kind peak")}):
        path = written("other.pb", **more)
        assert "--type pinned" not in run("show", path).out
        for verb in ("show", "folded"):
            out, err = run(verb, path, "--type", "pinned", status=EXIT_USAGE)
            assert (out, "pinned" in err) == ("", True), err


def test_table(run, profile):
    out = run("show", profile).out
    assert re.match(r"server \(pid 4711\), .* 2026-09-21 14:13:20 UTC$", out.splitlines()[0])
    assert re.search(
        r"(?m)^\d+M live ±[\d.]+%, \d+k objects, \d+ samples; blocks take .* more$", out
    )
    assert re.search(r"(?m)±\d+% +\d+% +[\d.]+M +±\d+% +.*grow src/a\.c:21$", out)
    assert "512K on average" in out
    assert not re.search("malloc|operator new", out)
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize("width", [40, 80, 200])
def test_table_fits(run, written, width, monkeypatch):
    path = written("l.pb", names={**NAMES, GROW: [("x" * 300, "src/" + "y" * 30 + ".c", 21)]})
    monkeypatch.setenv("COLUMNS", str(width))
    for by in ("function", "line", "stack"):
        table = run("show", path, "--by", by).out.split("\n\n")[1].splitlines()
        assert max(map(len, table)) <= max(width, 72)


def test_by_line_and_stack_and_top(run, profile):
    lines = [(s["function"], s["line"]) for s in sites(run, "show", profile, "--by", "line")]
    assert ("grow", 21) in lines
    stacks = [s["stack"] for s in sites(run, "show", profile, "--by", "stack")]
    assert ["grow src/a.c:21", "run src/b.c:5", "main src/main.c:40"] in stacks
    assert len(stacks) == 4
    out = run("show", profile, "--by", "stack", "--top", "1").out
    assert re.search(r"3 more.*--top N", out)
    assert "< main src/main.c:40" in out


def test_what_was_dropped_and_cut_is_told(run, written):
    rows = [Row(Site((MALLOC, GROW), 100, 4, 4, cut=True), 4, 4), Row(SITES[0], 12, 12)]
    comments = ("pid 1", "command x", "dropped 1234", "kind limit")
    out = run("show", written("d.pb", rows, comments=comments)).out
    mentions(out, "1,234 samples", "25% ", "[stack truncated here]", "x (pid 1), near its limit")
    # The file may want frames dropped.
    path = written("d.pb", drop_frames="malloc|grow")
    functions = {site["function"] for site in sites(run, "show", path)}
    assert "grow" not in functions
    assert "operator new(unsigned long)" in functions


def test_empty_profile(run, written):
    path = written("e.pb", [])
    assert "No samples" in run("show", path).out
    for verb in (["leaks"], ["diff", path], ["leaks", path], ["folded"]):
        run(*verb, path)
    run("flame", path, "-o", "e.html")
    run("symbolize", path, "-o", "e2.pb")
    run("show", path, "--json")


def test_what_began_late_says_what_it_does_not_cover(run, written):
    rows = sampled(SITES, 1)
    blocks = round(sum(row.live * row.site.block / row.site.probability for row in rows))

    def began_late(name, *more):
        comments = ("pid 1", "command x", "kind now", "began_after_ms 180000", "paused_ms 0")
        return written(name, rows, comments=(*comments, *more))

    path = began_late("late.pb", f"in_use {blocks + 500_000_000}")
    for verb in ("show", "leaks"):
        out = " ".join(run(verb, path).out.split())
        assert re.search("13:13:20 UTC, 3 min .*477M", out)
    assert run("diff", path, path).out.count("477M") == 2
    found = answer(run, "show", path)["profile"]
    assert (found["began_after_seconds"], found["paused_seconds"]) == (180.0, 0.0)
    assert found["uncovered_bytes"] == pytest.approx(500_000_000, abs=2)
    run("flame", path, "-o", "late.html")
    assert "477M" in Path("late.html").read_text()
    # At the peak, the bytes in use are not known.
    assert "earlier allocations" in run("show", began_late("peak.pb")).out
    # The rest may be chance.
    early = began_late("e.pb", f"in_use {blocks}")
    assert answer(run, "show", early)["profile"]["uncovered_bytes"] == 0


@pytest.mark.parametrize(
    ("ids", "told"),
    [
        (("ab", "ab"), []),
        (("ab", "cd"), ["is a different"]),
        (("", ""), ["may be a different"]),
    ],
)
def test_changes_between_builds_are_marked(run, written, ids, told):
    files = []
    for pid, build_id in enumerate(ids, 1):
        code = [File(0x1000, 0x2000, "/srv/server", build_id=build_id)]
        comments = (f"pid {pid}", "command server", "kind exit")
        files.append(written(f"{pid}.pb", files=code, comments=comments))
    notes = [note for note in answer(run, "diff", *files)["notes"] if note.startswith("server")]
    assert len(notes) == len(told)
    assert all(words in note for words, note in zip(told, notes, strict=True))


def test_processes_that_began_at_other_times_share_no_samples(run, written):
    """The first process of every container has ID 1."""
    comments = ("pid 1", "command server", "kind now", "began_after_ms 0", "paused_ms 0")
    files = [
        written(name, comments=comments, time_nanos=Writer.time_nanos + later * 10**9)
        for name, later in (("a.pb", 0), ("b.pb", 3_600))
    ]
    assert answer(run, "diff", *files)["same_process"] is False
    assert "another process" in run("leaks", *files).out


# --- two profiles --------------------------------------------------------------------------------


@pytest.fixture
def grown(tmp_path):
    """One process twice, ten minutes apart: `grow` below `run` has 100 MB more."""
    before = sampled(SITES, 1)
    more = sampled([Site(SITES[0].stack, 100, 1_000_000, 1_000_000)], 7)[0].live
    after = [
        Row(r.site, r.allocs + more, r.live + more) if r.site == SITES[0] else r for r in before
    ]
    first = Writer(before, names=NAMES)
    second = Writer(after, names=NAMES, time_nanos=first.time_nanos + 600 * 10**9)
    return first.write(tmp_path / "a.pb"), second.write(tmp_path / "b.pb.gz", packed_file=True)


def test_diff(run, grown):
    found = answer(run, "diff", *grown)
    assert (found["same_process"], found["seconds"]) == (True, 600.0)
    largest, *others = found["sites"]
    assert (largest["function"], largest["verdict"]) == ("grow", "grew")
    assert largest["change"]["low"] <= 100_000_000 <= largest["change"]["high"]
    assert all(s["change"] == {"bytes": 0, "low": 0, "high": 0} for s in others)
    out = run("diff", *grown).out
    assert re.search(r"(?m)^change  \+[\d.]+M \[\+[\d.]+M, \+[\d.]+M\], grew$", out)
    assert re.search(r"(?m)grew +[\d.]+M +[\d.]+M +grow src/a.c:21$", out)
    found = answer(run, "diff", *reversed(grown))
    assert (found["sites"][0]["verdict"], found["same_process"]) == ("shrank", False)


def test_diff_of_what_is_pinned(run, pinned, written):
    """For one process: the first site pins a third of what it did, the second one as much as
    before."""
    rows = with_pinned((1 << 20) / 3, 1 << 10, 0)
    path = written("later.pb", rows, time_nanos=1_790_000_600_000_000_000)
    found = answer(run, "diff", pinned, path, "--type", "pinned", "--by", "stack")
    assert (found["type"], found["same_process"]) == ("pinned", True)
    first, second = found["sites"]
    estimate_now = first["after"]["bytes"]
    assert first["before"]["bytes"] == pytest.approx(3 * estimate_now)
    assert first["change"]["bytes"] == pytest.approx(-2 * estimate_now)
    assert (first["verdict"], second["verdict"]) == ("shrank", "")
    assert first["objects"] == pytest.approx(rows[0].live / rows[0].site.probability, rel=0.01)
    assert second["change"]["low"] < 0 < second["change"]["high"]
    assert "errors add up" in run("diff", pinned, path, "--type", "pinned").out


def test_leaks_of_one_look(run, profile):
    out = run("leaks", profile).out
    assert re.search(r"(?m)2 h +grow src/a.c:21$", out)
    assert "< run src/b.c:5 < main src/main.c:40" in out
    ages = {s["age_seconds"] and round(s["age_seconds"], 3) for s in sites(run, "leaks", profile)}
    assert ages == {7200.0, 60.0, 0.5, None}
    assert "--exit-code" in run("leaks", profile, "--exit-code", status=EXIT_USAGE).err


def test_leaks_of_two_looks(run, grown):
    out = run("leaks", *grown).out
    assert re.search(r"live ±[\d.]+%; in 10 min \+[\d.]+M \[.*\], grew", out)
    assert re.search(
        r"(?m)^\+[\d.]+M \[\+[\d.]+M, \+[\d.]+M\] +\+[\d.]+M/h .* grow src/a.c:21$", out
    )
    assert "3 other sites" in out
    run("leaks", grown[0], grown[0], "--exit-code")
    assert "earlier one first" in run("leaks", *reversed(grown), status=EXIT_USAGE).err
    (first, *_) = sites(run, "leaks", *grown, "--exit-code", status=EXIT_REGRESSION)
    assert first["verdict"] == "grew"
    assert "another process" not in out


# --- files for other tools ------------------------------------------------------------------------


def test_folded(run, profile):
    lines = dict(line.rsplit(" ", 1) for line in run("folded", profile).out.splitlines())
    assert set(lines) == {"main;run;grow", "main;grow", "main;run;put", "main;run;run"}
    whole = estimate(sampled(SITES, 1), *SITES)
    assert sum(map(int, lines.values())) == pytest.approx(whole, abs=4)
    lines = run("folded", profile, "--type", "alloc", "--library").out.splitlines()
    assert any(line.startswith("main;run;put ") for line in lines)


def test_symbolized_profiles_say_the_same_anywhere(run, tmp_path):
    source, program = tmp_path / "p.c", tmp_path / "program"
    source.write_text("int main(void) {\n  return 0;\n}\n")
    flags = ("-g", "-static", "-no-pie", "-Wl,--build-id=none")
    ran("gcc", *flags, "-o", program, source, status=0)
    start = int(re.search(r"(?m)^(\w+) T main$", ran("nm", program, status=0).stdout)[1], 16)
    code = File(start & ~0xFFF, (start | 0xFFF) + 1, str(program), (start & ~0xFFF) - 0x400000)
    rows = [Row(Site((start + 2, 0x99), 100, 9, 9), 9, 9)]
    writer = Writer(rows, [code], time_nanos=time.time_ns(), duration_nanos=0)
    path = writer.write(tmp_path / "p.pb")
    assert "1 of 2 addresses" in run("symbolize", path, "-o", "named.pb.gz").out
    before = sites(run, "show", path)
    program.unlink()
    assert sites(run, "show", "named.pb.gz") == before
    assert (before[0]["function"], before[0]["file"]) == ("main", str(source))
    assert "--force" in run("symbolize", path, "-o", "named.pb.gz", status=EXIT_USAGE).err
    assert "0 of 2" in run("symbolize", "-f", path, "-o", "named.pb.gz").out
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.skipif(shutil.which("pprof") is None, reason="google/pprof is not installed")
def test_pprof_reads_symbolized_profiles(run, profile):
    run("symbolize", profile, "-o", "named.pb.gz")
    for options in (["-top"], ["-raw"], ["-top", f"-diff_base={profile}"]):
        done = ran("pprof", "-symbolize=none", *options, "named.pb.gz", status=0)
        assert "grow" in done.stdout or "-diff_base" in options[-1]


# --- the page ------------------------------------------------------------------------------------


def page_data():
    page = Path("p.html").read_text()
    return json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])


def assert_nested(nodes):
    """No node has less than its children, up to rounding; all have intervals."""
    inside = [0] * len(nodes)
    for node in nodes[1:]:
        inside[node[0]] += node[4]
    assert inside[0] == pytest.approx(nodes[0][4], abs=len(nodes))
    for node, of_children in zip(nodes, inside, strict=True):
        assert of_children <= node[4] + len(nodes)
        assert node[5] <= node[4] <= node[6]


def test_page_stands_alone(run, profile):
    assert run("flame", profile, "-o", "p.html").out == "p.html\n"
    page = Path("p.html").read_text()
    assert len(page) < 30_000
    assert not re.search(r"(?:src|href)=\"(?!data:|#)", page)
    nodes = page_data()["nodes"]
    assert nodes[0][4] == pytest.approx(estimate(sampled(SITES, 1), *SITES), abs=1)
    assert_nested(nodes)
    run("flame", profile, "-o", "p.html", status=EXIT_USAGE)
    run("flame", profile, "-f", "-o", "p.html", "--type", "alloc")
    run("flame", profile, "-o", "/no/such/p.html", status=EXIT_USAGE)


def test_names_are_no_markup(run, written):
    evil = "</script><script>alert(1)</script>"
    names = {**NAMES, GROW: [(evil, evil, 1)]}
    path = written("evil.pb", names=names, comments=("pid 1", f"command {evil}"))
    run("flame", path, "-o", "p.html")
    assert "<script>alert" not in Path("p.html").read_text()


def test_pages_of_large_profiles_stay_small(run, written):
    count, first = 10_000, 0x10000
    names = {first + n: [(f"function_{n}", f"src/file_{n % 90}.cpp", n)] for n in range(count)}
    rows = [
        Row(Site((first + n, first + n // 3, first + n // 50), 64, 1, 1), 1 + n % 7, 1 + n % 7)
        for n in range(count)
    ]
    run("flame", written("large.pb", rows, names), "-o", "p.html")
    assert Path("p.html").stat().st_size < 1_000_000
    nodes = page_data()["nodes"]
    assert len(nodes) < (count + count // 3 + count // 50) / 2
    whole = sum(row.live * row.site.size / row.site.probability for row in rows)
    assert nodes[0][4] == pytest.approx(whole, rel=1e-6)
    assert_nested(nodes)


@pytest.mark.parametrize("width", [375, 1280])
def test_page_in_a_browser(run, profile, browser, width):
    run("flame", profile, "-o", "p.html")
    boxes = "[...document.querySelectorAll('#graph>div')]"
    for theme in ("light", "dark"):
        browser.open(Path("p.html"), width, theme=theme)
        assert browser.complaints == []
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        assert browser.evaluate(f"{boxes}.length") == 7
    # By keyboard: from the root to main to its largest child, which then fills the width.
    browser.evaluate(f"{boxes}[0].focus()")
    active = "document.activeElement"
    browser.press("ArrowDown", 40)
    assert browser.evaluate(f"{active}.textContent") == "main"
    assert "(95%)" in browser.evaluate("document.getElementById('detail').textContent")
    browser.press("ArrowDown", 40)
    browser.press("Enter", 13)
    chosen = browser.evaluate(f"{active}.textContent")
    assert chosen == "run"
    graph = browser.evaluate("document.getElementById('graph').clientWidth")
    assert browser.evaluate(f"{active}.offsetWidth") == graph
    browser.press("Escape", 27)
    assert browser.evaluate(f"{active}.textContent") == "all"
    browser.evaluate(
        "document.getElementById('search').value = 'GROW';"
        "document.getElementById('search').dispatchEvent(new Event('input'))"
    )
    assert browser.evaluate(f"{boxes}.filter(e => e.matches('.match')).length") == 2
    assert "%" in browser.evaluate("document.getElementById('found').textContent")
    browser.allow_scripts(False)
    browser.open(Path("p.html"), width)
    assert browser.evaluate("document.getElementById('tools').hidden") is True
    assert "grow src/a.c:21" in browser.evaluate("document.querySelector('table').innerText")
    browser.allow_scripts(True)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b"MALLOC_PROFILE", ""),
        (b"\x1f\x8b\x08nonsense", "decompressing"),
        (gzip.compress(Writer(sampled(SITES, 1)).data())[:-10], "truncated"),
        (b"\x7fELF\x02\x01\x01", ""),
        (b"\x30\x01", "it contains nothing"),
    ],
)
def test_other_files(run, tmp_path, data, reason):
    path = tmp_path / "file"
    path.write_bytes(data)
    out, err = run("show", path, status=EXIT_USAGE)
    assert (out, "is not a heap profile" in err, reason in err) == ("", True, True), err


def test_files_that_cannot_be_read(run, tmp_path, profile, monkeypatch):
    assert "none.pb" in run("show", "none.pb", status=EXIT_USAGE).err
    assert "Is a directory" in run("show", tmp_path, status=EXIT_USAGE).err

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)  # root may read everything
    assert "Permission denied" in run("show", profile, status=EXIT_USAGE).err


def test_damaged_and_others_profiles_are_refused(run, tmp_path):
    def without_labels(message):
        """A heap profile like Go's: its errors cannot be computed."""
        for sample in message.sample:
            del sample.label[:]

    def without_a_block(message):
        message.sample[0].label[1].num = 0

    path = tmp_path / "bad.pb"
    for change, told in (
        (without_labels, "labels"),
        (lambda message: message.sample[0].location_id.append(99), "is damaged"),
        (lambda message: message.comment.append(9999), "is damaged"),
        (without_a_block, "is damaged"),
    ):
        message = messages.Message()
        message.ParseFromString(Writer(sampled(SITES, 1)).data())
        change(message)
        path.write_bytes(message.SerializeToString())
        assert told in run("show", path, status=EXIT_USAGE).err


@settings(
    deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(at=st.integers(0, 2000), junk=st.binary(min_size=1, max_size=6), end=st.integers(0, 4000))
def test_damaged_profiles_are_read_or_refused(tmp_path, at, junk, end):
    data = bytearray(Writer(sampled(SITES, 1), names=NAMES).data())
    at %= len(data)
    data[at : at + len(junk)] = junk
    path = tmp_path / "damaged.pb"
    path.write_bytes(data if end > len(data) else data[:end])
    with contextlib.suppress(UserError):
        found = model.read(path)
        gather(found, Stacks(found, look_up(found)), "function", "inuse")


BYTES = st.integers(0, 1 << 40)
STACK = st.lists(st.integers(1, (1 << 64) - 1), max_size=70)
ROWS = st.lists(st.tuples(STACK, st.integers(0, 1 << 47), BYTES, BYTES, st.booleans()), max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS, st.integers(1, 1 << 40), st.booleans())
def test_round_trip(tmp_path, given_rows, interval, packed_file):
    """Everything that the library may write is read back unchanged."""
    rows = [Row(Site(tuple(s), size, a, b, cut=cut), a, b) for s, size, a, b, cut in given_rows]
    path = Writer(rows, interval=interval).write(tmp_path / "r.pb", packed_file)
    found = model.read(path)
    for row, read in zip(rows, found.rows, strict=True):
        addresses = tuple(found.locations[each].address + 1 for each in read.stack)
        assert addresses == row.site.stack
        assert (read.bytes, read.block) == (row.site.size, row.site.block)
        assert (read.allocs, read.live, read.cut) == (row.allocs, row.live, row.site.cut)
        assert read.interval == found.period == interval
    out = tmp_path / "again.pb.gz"
    out.write_bytes(messages.packed(messages.read(path)))
    assert model.read(out).rows == found.rows


def test_mistakes_are_named(run, profile):
    for arguments, words, status in (
        (["p.pb"], "Did you mean tsmalloc profile show p.pb?", EXIT_USAGE),
        (["--", "./not-there"], "not-there", 127),
        (["symbolize", profile, "-o", "/no/such/x.pb"], "mkdir -p /no/such", EXIT_USAGE),
    ):
        out, err = run(*arguments, status=status)
        assert (out, words in err) == ("", True), err


# --- a program -----------------------------------------------------------------------------------

# Replaces the library: writes the profiles of some processes to the path given.
PROGRAM = """\
import os, shutil, sys
output = os.environ["TSMALLOC_PROFILE_OUTPUT"]
for number, source in enumerate(sys.argv[2:]):
    shutil.copy(source, output.replace("%p", str(4000 + number)))
print(os.environ["TSMALLOC_PROFILE"], "libtsmalloc.so" in os.environ["PRELOADED"])
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    without_engine = 'PRELOADED=$LD_PRELOAD exec env -u LD_PRELOAD "$0" "$@"'
    return ["--", "sh", "-c", without_engine, sys.executable, "-I", str(tmp_path / "program.py")]


@pytest.fixture
def two(written):
    comments = ("pid 12", "command helper")
    small = written("small.pb", sampled(SITES[1:2], 1), comments=comments)
    return [str(small), str(written("large.pb"))]


def test_profile_of_a_program(run, program, two, tmp_path):
    kept = tmp_path / "kept"
    out, err = run("-o", f"{kept}/", "--interval", "64K", *program, "7", *two, status=7)
    assert out == "64K True\n"  # the program's own
    mentions(err, "server (pid 4711)", "grow src/a.c:21", f"profile    {kept}/tsmalloc.4001.pb")
    assert re.search(rf"helper \(pid 12\) allocated [\d.]+M: {kept}/tsmalloc.4000.pb", err)
    assert str(kept) in run("run", "-o", kept, *program, "0", *two, status=EXIT_USAGE).err
    file = tmp_path / "server.pb"
    err = run("-o", file, *program, "0", *two).err
    mentions(err, f"profile    {file}", "-o DIR/ keeps all")
    assert file.read_bytes() == Path(two[1]).read_bytes()
    out, err = run("-o", file, *program, "0", *two, status=EXIT_USAGE)
    assert (out, str(file) in err) == ("", True)  # before the program starts
    run("-f", "-o", file, *program, "0", two[0])
    assert file.read_bytes() == Path(two[0]).read_bytes()
    out, err = run("-o", "/no/such/x.pb", *program, "0", *two, status=EXIT_USAGE)
    assert (out, "/no/such" in err) == ("", True)
    os.mkfifo(pipe := tmp_path / "pipe")
    with ThreadPoolExecutor() as pool:
        read = pool.submit(pipe.read_bytes)
        run("-o", pipe, *program, "0", *two)
        assert read.result() == Path(two[1]).read_bytes()
    assert pipe.is_fifo()
    err = run("-o", "/dev/full", *program, "0", *two, status=EXIT_USAGE).err
    assert "/dev/full: No space left on device" in err
    rescued = re.search(r"(?m) (/\S+\.pb)\.$", err)
    assert Path(rescued[1]).read_bytes() == Path(two[1]).read_bytes()
    Path(rescued[1]).unlink()
    assert Path("/dev/full").is_char_device()


def test_profiles_are_gone_if_nobody_keeps_them(run, program, two, monkeypatch, tmp_path):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    out, err = run(*program, "0", *two)
    assert out == "on True\n"
    assert "-o FILE keeps it" in err
    assert list((tmp_path / "tmp").iterdir()) == []
    out = run("run", "--json", "--by", "stack", *program, "3", *two, status=3).out.splitlines()
    assert json.loads(out[-1])["by"] == "stack"


def test_program_without_a_profile(run, program):
    err = run(*program, "0", status=EXIT_USAGE).err
    assert "(exit status 0)" in err
    run(*program, "9", status=9)
    damaged = Path("damaged.pb")
    damaged.write_bytes(b"no")
    assert "warning: " in run(*program, "0", damaged, status=EXIT_USAGE).err


def test_signals_reach_the_program(tmp_path):
    """SIGTERM to the command ends the program, whose status is reported; SIGINT is left to the
    program."""
    script = tmp_path / "wait.py"
    script.write_text(
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\n"
        "time.sleep(60)\n"
    )
    child = prompt.start("profile", "--", sys.executable, script)
    prompt.wait_until((tmp_path / "ready").exists)
    child.send_signal(signal.SIGINT)  # to the command only: it continues to wait
    time.sleep(0.1)
    assert child.poll() is None
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=30)
    assert child.returncode == 42
