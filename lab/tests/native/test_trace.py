"""The program `trace`: what it prints of known traces, and how it ends.

The format itself is tested in C++ (trace/). Here a program writes traces whose contents are known.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prompt import ran

from tsmlab import paths

Sample = Callable[[str], Path]

KNOWN_TEXT = """\
0 0 100 0 malloc 0 24 -
0 1 200 0 calloc 1 48 -
0 2 300 0 aligned 2 5 4096
0 3 400 0 realloc 0 4096 -
0 4 500 0 refused - 4611686018427387904 -
0 5 600 1 thread_begin 0 - -
0 6 700 1 free 1 - -
0 7 800 1 thread_end - - -
0 8 900 0 fork 1 - -
1 0 50 0 free 2 - -
"""


def trace(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs the program."""
    return ran(paths.tool("trace"), *arguments, status=status)


def objects(run: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_print_writes_a_line_for_each_event_asked_for(sample: Sample) -> None:
    run = trace("print", sample("known"))
    assert run.stderr == ""
    assert run.stdout == KNOWN_TEXT
    run = trace("print", "--image", "0", "--from=3", "--count", "2", sample("known"))
    assert run.stdout.splitlines() == KNOWN_TEXT.splitlines()[3:5]


def test_print_as_json_has_what_the_kind_has(sample: Sample) -> None:
    events = objects(trace("print", "--json", sample("known")))
    assert len(events) == 10
    common = {"image": 0, "thread": 0}
    first = {"event": 0, "time_ns": 100, "kind": "malloc", "object": 0, "size": 24}
    assert events[0] == common | first
    assert events[2]["alignment"] == 4096
    assert events[4]["size"] == 2**62
    assert "object" not in events[4]
    assert events[5]["creator"] == 0
    assert set(events[7]) == {"image", "event", "time_ns", "thread", "kind"}
    assert events[8]["child"] == 1
    last = {"event": 0, "time_ns": 50, "kind": "free", "object": 2}
    assert events[9] == common | last | {"image": 1}


def test_info_tells_of_images_and_totals(sample: Sample) -> None:
    file = sample("known")
    run = trace("info", "--json", "--kinds", file)
    assert run.stderr == ""
    (answer,) = objects(run)
    assert answer["schema"] == "tsmalloc-trace-info/1"
    assert answer["whole"] is True
    assert answer["file_bytes"] == file.stat().st_size
    assert (answer["events"], answer["objects"], answer["read_events"]) == (10, 3, 10)
    mother, child, daughter = answer["images"]
    assert mother["program"] == "mother"
    assert mother["allocator"] == "libc.so.6"
    assert (mother["threads"], mother["events"], mother["end"]) == (2, 9, "exited")
    assert (mother["parent"], mother["fork_event"]) == (None, None)
    assert (child["birth"], child["parent"], child["fork_event"]) == ("fork", 0, 8)
    assert (child["first_object"], child["begin_ns"], child["end_ns"]) == (3, 1000, 60)
    assert (daughter["birth"], daughter["end"], daughter["events"]) == ("exec", "killed", 0)
    assert daughter["program"] == 'daughter "\udcff\n'
    assert answer["kinds"]["malloc"] == {"calls": 1, "bytes": 24}
    assert answer["kinds"]["refused"] == {"calls": 1, "bytes": 2**62}
    assert answer["kinds"]["free"] == {"calls": 2, "bytes": 0}


def test_info_for_people(sample: Sample) -> None:
    run = trace("info", "--kinds", sample("known"))
    lines = run.stdout.splitlines()
    assert len(lines[0].split()) == 9
    assert lines[1].split() == [
        *("0", "-", "root", "exited", "2", "9", "3", "2", "mother", "on", "libc.so.6")
    ]
    assert 'daughter "??' in lines[3]
    assert "10 events, 3 objects" in run.stdout
    assert "calloc                  1                  48" in lines


def test_check_of_whole_and_unfinished_traces(sample: Sample) -> None:
    run = trace("check", sample("known"))
    assert run.stdout == "whole: 3 images, 10 events\n"
    file = sample("unfinished")
    assert "recorder was killed" in trace("check", file, status=1).stdout
    assert trace("print", file, status=1).stdout == KNOWN_TEXT


def test_check_writes_a_line_for_each_damage(sample: Sample, tmp_path: Path) -> None:
    content = bytearray(sample("known").read_bytes())
    magic = b"\xd5TC\x01\x02\0\0\0"  # of a chunk of events
    first = content.index(magic)
    second = content.index(magic, first + 1)
    content[first + 85] ^= 4
    content[second + 85] ^= 4
    file = tmp_path / "damaged"
    file.write_bytes(content)
    run = trace("check", file, status=1)
    one, other, summary = run.stdout.splitlines()
    assert one.startswith(f"at byte {first}: ")
    assert "events 0 to 8 of image 0 (9)" in one
    assert other.startswith(f"at byte {second}: ")
    assert "event 0 of image 1" in other
    assert "Copy the file once more" in one
    assert summary == "damaged: 3 images, 10 events, of which 10 are lost"
    assert trace("check", "--quiet", file, status=1).stdout == ""

    printed = trace("print", file, status=1)
    assert [line.split(":")[0] for line in printed.stdout.splitlines()] == [
        "# image 0, from event 0 on, 9 lost",
        "# image 1, from event 0 on, 1 lost",
    ]
    assert "trace check" in printed.stderr
    (gap, _) = objects(trace("print", "--json", file, status=1))
    assert (gap["image"], gap["lost_from"], gap["lost"]) == (0, 0, 9)
    told = trace("info", "--kinds", file, status=1)
    assert "10 events" in told.stdout


@pytest.mark.parametrize("command", ["print", "info", "check"])
def test_what_is_no_trace_has_a_remedy(tmp_path: Path, command: str) -> None:
    file = tmp_path / "foreign"
    file.write_text("not a trace\n" * 100)
    for name, part in ((file, "is no trace"), (tmp_path, "directory"), ("/none", "No such file")):
        run = trace(command, name, status=1)
        assert part in run.stderr
        assert "tsmalloc record" in run.stderr
        assert run.stdout == ""


def test_wrong_usage() -> None:
    for arguments in (
        *(["print"], ["print", "a", "b"], ["check", "--no-such", "a"], ["info", "--kinds=3", "a"]),
        *(["print", "--image", "x", "a"], ["print", "--image"], ["print", "--from=-1", "a"]),
    ):
        run = trace(*arguments, status=2)
        assert "--help" in run.stderr
    for arguments in ([], ["nothing"]):
        assert "usage: trace COMMAND" in trace(*arguments, status=2).stderr


@pytest.mark.parametrize("command", ["print", "info", "check"])
def test_help(command: str) -> None:
    assert command in trace("--help").stdout
    run = trace(command, "--help")
    assert run.stdout.startswith(f"usage: trace {command} ")


def test_a_full_disk_is_an_error(sample: Sample) -> None:
    command = [paths.tool("trace"), "print", sample("known")]
    with Path("/dev/full").open("w") as full:
        run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert run.returncode == 1
    assert "No space left" in run.stderr
