"""`tsmalloc record`: its checks beforehand, its messages afterwards, and its exit statuses."""

import json
import signal
from pathlib import Path

import prompt
import pytest
from refusals import mentions

from tsmlab import paths
from tsmlab.errors import EXIT_INTERRUPTED, EXIT_PROGRAM_FAILED, EXIT_USAGE
from tsmlab.traces.recording import Recording


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """run(*arguments, status=0) returns the out and err of `tsmalloc record` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    yield prompt.in_process("record", capfd)
    signal.signal(signal.SIGTERM, before)


def info(trace):
    return json.loads(prompt.ran(paths.tool("trace"), "info", trace, status=0).stdout)


def test_trace_has_the_programs_name_and_input_reaches_it(run):
    out, err = run("--", "perl", "-e", "print 6 * 7")
    assert out == "42"
    mentions(err, "perl.tstrace: ", " on libc.so.6: ")
    assert info(Path("perl.tstrace"))["events"] > 100
    Path("input").write_text("hello")
    assert run("--input", "input", "-o", "t.tstrace", "cat").out == "hello"


def test_json_quiet_and_an_allocator_of_ones_own(run, build):
    assert run("-q", "-o", "t.tstrace", "true") == ("", "")
    library = build("libmine.so.c", "int mine;", "-shared", "-fPIC")
    own = ("--allocator", f"mine={library}", "-a", "mine")
    answer = json.loads(run(*own, "-f", "--json", "-o", "t.tstrace", "true").out)
    assert (answer["trace"], answer["exit_code"]) == ("t.tstrace", 0)
    assert answer["events"] == sum(image["events"] for image in answer["images"])
    assert answer["images"][0]["allocator"] == "libc.so.6"
    assert "nobodys" in run("-a", "nobodys", "-f", "true", status=EXIT_USAGE).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sh", "-c", "exit 3"], "exit 3"),
        (["sh", "-c", "kill -9 $$"], "SIGKILL"),
        (["--timeout", "0.2", "sleep", "60"], "timed out"),
    ],
)
def test_program_that_fails_or_runs_out_of_time(run, words, said):
    assert said in run("-o", "t.tstrace", *words, status=EXIT_PROGRAM_FAILED).err
    assert info(Path("t.tstrace"))["events"] > 10
    run("-i", "-f", "-o", "t.tstrace", *words)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/no/such/program"], "/no/such/program"),
        (["-o", "old", "true"], "old already exists"),
        (["-o", "no/such/folder/t", "true"], "no such directory"),
        (["-o", ".", "true"], "is a directory"),
        (["--ring-mib", "1000", "true"], "too large"),
        (["--", "--"], "no program"),
        ([], "PROGRAM"),
    ],
)
def test_wrong_usage(run, build, arguments, message):
    Path("old").write_text("precious")
    assert message in run(*arguments, status=EXIT_USAGE).err
    program = build("static.c", "int main(void) { return 0; }", "-static")
    assert "static" in run(program, status=EXIT_USAGE).err
    assert sorted(path.name for path in Path().iterdir()) == ["old"]
    assert Path("old").read_text() == "precious"


def test_unrecorded_programs_are_told(run):
    said = run("-o", "t.tstrace", "env", "-i", "/bin/sleep", "0.4").err
    assert "warning: sleep " in said


def test_full_disk_is_told():
    raw = {
        **dict.fromkeys(("spawn_error", "timeout_ns", "signal")),
        **dict.fromkeys(("timed_out", "interrupted"), False),
        **dict.fromkeys(("exit_code", "left_behind", "trace_bytes", "events"), 0),
        "schema": "tsmalloc-record/1",
        "wall_ns": 5,
        "write_error": "cannot write",
        "images": [],
        "unrecorded": [{"program": "x"}],
        "images_without_place": 2,
        "images_without_room": 3,
    }
    recording = Recording.from_json(Path("t"), raw)
    said = "\n".join(recording.warnings())
    mentions(said, "x was not recorded", "2 programs", "3 programs")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_keeps_the_trace(tmp_path, number):
    trace = tmp_path / "t.tstrace"
    script = "while true; do echo $(echo x) > /dev/null; sleep 0.01; done"
    with prompt.start("record", "-o", trace, "--", "sh", "-c", script) as process:
        prompt.wait_until(lambda: trace.exists() and trace.stat().st_size >= 500)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert process.returncode == EXIT_INTERRUPTED
    assert str(trace) in err
    assert info(trace)["events"] > 10
