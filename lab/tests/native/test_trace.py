"""The program `trace`: its output, and its exit status (the format itself is tested in C++). And
the corpus in lab/traces/: complete, small, and as its README describes each trace.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from prompt import ran
from refusals import mentions, refused

from tsmlab import paths
from tsmlab.traces import files
from tsmlab.traces.analysis import analyse

FOLDER = paths.data_dir() / "traces"
TRACES = sorted(FOLDER.glob("*.tstrace"))
MAX_BYTES = 600_000
FORKS = FOLDER / "forks.tstrace"


def trace(*arguments, status=0):
    return ran(paths.tool("trace"), *arguments, status=status, errors="replace")


def test_info_tells_of_processes():
    answer = json.loads(trace("info", FORKS).stdout)
    assert answer["schema"] == "tsmalloc-trace-info/2"
    assert answer["finished"] is True
    assert answer["file_bytes"] == FORKS.stat().st_size
    first, *children = answer["images"]
    assert (first["birth"], first["parent"], first["end"]) == ("root", None, "exited")
    assert first["program"].startswith("python3")
    assert [(child["birth"], child["parent"]) for child in children] == [("fork", 0)] * 4
    assert answer["events"] == sum(image["events"] for image in answer["images"])


def test_the_example_in_the_document_reads_a_trace(tmp_path):
    text = (paths.repository_root() / "docs" / "formats" / "trace.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    script = tmp_path / "example.py"
    if shutil.which("zstd") is None:
        example = example.replace('"zstd", "-dcq"', f'"{paths.tool("trace")}", "unpack"')
    script.write_text(example)
    done = ran(sys.executable, script, FORKS, status=0)
    counted = {int(a): int(b) for a, b in re.findall(r"image (\d+): (\d+) events", done.stdout)}
    assert counted == {image.number: image.events for image in files.read_whole_trace(FORKS).images}
    events = np.concatenate([e for _, image, _, e in files.chunks(FORKS) if image == 0])
    frees = int(np.count_nonzero(events["kind"] == files.FREE))
    assert f"{frees} frees" in done.stdout.splitlines()[0]


def test_unpack_is_what_zstd_makes_of_the_file():
    command = [paths.tool("trace"), "unpack", FORKS]
    unpacked = subprocess.run(command, capture_output=True, check=True).stdout
    assert unpacked.startswith(b"TSTR")
    zstd = shutil.which("zstd")
    if zstd is None:
        pytest.skip("zstd is not installed")
    assert unpacked == subprocess.run([zstd, "-dcq", FORKS], capture_output=True, check=True).stdout


@pytest.mark.parametrize("command", ["info", "unpack"])
def test_what_cannot_be_read_has_a_remedy(tmp_path, command):
    whole = FORKS.read_bytes()
    broken = {
        "foreign": b"not a trace\n" * 100,
        "empty": b"",
        "older": b"\x89TST\r\n\x1a\n old",
        "cut": whole[: len(whole) // 2],
        "flipped": whole[:-40] + bytes([whole[-40] ^ 8]) + whole[-39:],
    }
    for name, content in broken.items():
        file = tmp_path / name
        file.write_bytes(content)
        run = trace(command, file, status=1)
        assert run.stderr.count("\n") == 1
        mentions(run.stderr, str(file), "record")
        with refused(str(file)) as caught:
            if command == "info":
                files.read_whole_trace(file)
            else:
                list(files.chunks(file))
        assert "record" in caught.value.remedy.lower()
    assert "No such file" in trace(command, "/none", status=1).stderr
    assert "not a regular file" in trace(command, "/tmp", status=1).stderr


def test_usage():
    assert trace("--help").stdout.startswith("usage: trace unpack")
    for arguments in ([], ["nothing", FORKS], ["info"], ["info", FORKS, FORKS]):
        assert "usage: trace unpack" in trace(*arguments, status=2).stderr


def test_a_full_disk_is_an_error_and_a_reader_that_has_enough_is_none():
    command = [paths.tool("trace"), "unpack", FORKS]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 1
    assert "No space left" in run.stderr
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""


# --- the corpus -----------------------------------------------------------------------------------


def described():
    """The traces in the README's table, with their events."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"(?m)^\| `(\w+)` \|.*\| ([\d,]+) \|[^|]*\|$", text)
    return {name: int(events.replace(",", "")) for name, events in rows}


def test_the_readme_lists_each():
    assert sorted(described()) == [trace.stem for trace in TRACES]
    assert len(TRACES) >= 8


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
class TestTrace:
    def test_it_is_whole_and_small_and_its_analysis_adds_up(self, trace):
        assert trace.stat().st_size <= MAX_BYTES
        contents = files.read_whole_trace(trace)
        assert contents.is_finished
        assert sum(image.events for image in contents.images) == described()[trace.stem]
        found = analyse(trace)
        allocated, freed = found.amount("allocations"), found.amount("frees")
        assert allocated.objects == freed.objects + found.left_own.objects
        assert max(point.highest_bytes for point in found.curve) == found.peak.bytes
        assert sum(bucket.at_peak_bytes for bucket in found.buckets) == found.peak.bytes
        assert sum(bucket.allocations for bucket in found.buckets) == allocated.objects
        assert sum(bucket.allocated_bytes for bucket in found.buckets) == allocated.bytes
        assert found.is_finished

    @pytest.mark.parametrize("schedule", ["asap", "recorded", "stride"])
    def test_it_is_replayed(self, trace, schedule):
        """redis has threads that make no calls, and therefore no turn in the recorded order."""
        done = ran(paths.tool("replay"), "--schedule", schedule, trace, status=0)
        assert json.loads(done.stdout)["matches"]


@pytest.mark.parametrize(
    "name", ["git", *(pytest.param(name, marks=pytest.mark.long) for name in ("perl", "sqlite3"))]
)
def test_the_bound_of_memory_can_be_attained(name):
    """With the whole future known, objects can be placed within 2% of the most live bytes: the
    lower bound of `replay` is almost attainable. First the objects alive at the peak, side by side
    in the order of their births; then the others, the largest first, each at the lowest address
    that is free for its whole life."""
    begins, ends, sizes = objects_of(FOLDER / f"{name}.tstrace")
    live = np.zeros(max(ends) + 1, dtype=np.int64)
    np.add.at(live, begins, sizes)
    np.add.at(live, ends, -sizes)
    peak = int(np.argmax(np.cumsum(live)))
    bound = int(np.cumsum(live)[peak])
    at_peak = (begins <= peak) & (ends > peak)
    addresses = np.full(len(sizes), -1, dtype=np.int64)
    addresses[at_peak] = np.cumsum(sizes[at_peak]) - sizes[at_peak]
    placed = list(np.flatnonzero(at_peak))
    others = list(np.flatnonzero(~at_peak))
    others.sort(key=lambda i: (-sizes[i], begins[i]))
    known = np.array(placed + others)
    for count, one in enumerate(others, start=len(placed)):
        before = known[:count]
        met = before[(begins[before] < ends[one]) & (ends[before] > begins[one])]
        met = met[np.argsort(addresses[met])]
        tops = np.concatenate([[0], np.maximum.accumulate(addresses[met] + sizes[met])])
        room = np.concatenate([addresses[met], [1 << 60]]) - tops
        addresses[one] = tops[int(np.argmax(room >= sizes[one]))]
    assert int(np.max(addresses + sizes)) <= 1.02 * bound + 4096


def objects_of(trace):
    """Begin and end, in events, and the size rounded up to 16 of each object; a resize starts a new
    object."""
    begins: list[int] = []
    ends: list[int] = []
    sizes: list[int] = []
    live: dict[int, int] = {}  # by slot
    number = 0
    for event in np.concatenate([events for _, _, _, events in files.chunks(trace)]):
        number += 1
        kind, slot = int(event["kind"]), int(event["slot"])
        if kind in (files.FREE, files.REALLOC):
            ends[live.pop(slot)] = number
        if kind <= files.REALLOC:
            live[slot] = len(begins)
            begins.append(number)
            ends.append(-1)
            sizes.append(max(16, -(-int(event["size"]) // 16) * 16))
    last = number + 1
    return (
        np.array(begins),
        np.array([last if end < 0 else end for end in ends]),
        np.array(sizes, dtype=np.int64),
    )
