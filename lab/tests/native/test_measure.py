"""The native launcher: how a program ended, what it cost, and what was set up for it.

Memory and process trees are tested in their own files.
"""

import os
import signal
import sys

import pytest
from measured import measure, parse, run
from prompt import script
from refusals import mentions

NO_LOADER = "its interpreter or dynamic loader does not exist"

FIELDS = {
    *("schema", "spawn_error", "pid", "timeout_ns", "exit_code", "signal", "timed_out"),
    *("interrupted", "left_behind", "wall_ns", "user_ns", "system_ns", "minor_faults"),
    *("major_faults", "voluntary_switches", "involuntary_switches", "peak_rss_bytes"),
    *("tree_peak_rss_bytes", "tree_peak_pss_bytes", "samples", "preloaded", "sampling_ns"),
}
MEASURED = {
    *("pid", "wall_ns", "user_ns", "system_ns", "minor_faults", "major_faults"),
    *("voluntary_switches", "involuntary_switches", "peak_rss_bytes"),
}


def test_a_run_is_one_line_with_every_field():
    answer = measure(["true"])
    assert set(answer) == FIELDS
    calm = {"spawn_error": None, "timed_out": False, "interrupted": False, "timeout_ns": None}
    calm |= {"schema": "tsmalloc-measure/1", "left_behind": 0}
    assert {field: answer[field] for field in calm} == calm
    assert all(answer[field] is not None for field in MEASURED)


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_code(code):
    answer = measure(["sh", "-c", f"exit {code}"])
    assert (answer["exit_code"], answer["signal"]) == (code, None)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGINT])
def test_death_by_signal(number):
    answer = measure(["sh", "-c", f"kill -{number.value} $$"])
    assert (answer["exit_code"], answer["signal"]) == (None, number.value)
    assert answer["interrupted"] is False


@pytest.mark.parametrize(
    ("arguments", "number", "message"),
    [
        ("-- /does/not/exist", 2, "execute /does/not/exist: No such file or directory"),
        ("--env PATH=/usr/bin -- no-such-one", 2, "execute no-such-one: No such file or directory"),
        ("-- HERE/plain", 13, "execute HERE/plain: Permission denied"),
        ("-- HERE", 13, "execute HERE: Permission denied"),
        ("-- HERE/script", 2, f"execute HERE/script: {NO_LOADER}"),
        ("--cwd HERE -- ./script", 2, f"execute ./script: {NO_LOADER}"),
        ("--cwd /no/such/folder -- true", 2, "enter /no/such/folder: No such file or directory"),
        ("--stdin /no/such/file -- true", 2, "open /no/such/file: No such file or directory"),
        ("--stdout /no/such/file -- true", 2, "open /no/such/file: No such file or directory"),
        ("--stderr /no/such/file -- true", 2, "open /no/such/file: No such file or directory"),
    ],
)
def test_programs_that_cannot_start(tmp_path, arguments, number, message):
    """These are results: status 0, a named error, and null for everything that was not measured."""
    (tmp_path / "plain").write_text("#!/bin/sh\n")
    script(tmp_path / "script", "#!/no/such/interpreter\n")
    here = str(tmp_path)
    done = run(*arguments.replace("HERE", here).split())
    answer = parse(done.stdout)
    assert set(answer) == FIELDS
    assert {field for field in MEASURED if answer[field] is not None} == set()
    assert (answer["exit_code"], answer["signal"], answer["samples"]) == (None, None, 0)
    assert answer["spawn_error"] == {"errno": number, "message": message.replace("HERE", here)}


class TestWrongUsage:
    """Status 1, a sentence on stderr that names the problem, nothing started, nothing written."""

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            ((), "no command to run"),
            (("--",), "no command to run"),
            (("--no-such-option", "true"), "no-such-option"),
            (("--timeout", "soon", "true"), "--timeout"),
            (("--timeout", "-1", "true"), "'-1'"),
            (("--timeout", "nan", "true"), "'nan'"),
            (("--timeout", "0", "true"), "--timeout"),
            (("--sample-ms", "5x", "true"), "'5x'"),
            (("--env", "NOVALUE", "true"), "--env needs KEY=VALUE, not 'NOVALUE'"),
            (("--env", "=x", "true"), "--env needs KEY=VALUE, not '=x'"),
            (("--unset", "A=B", "true"), "--unset"),
            (("--preload", "/no/such/lib.so", "true"), "cannot preload '/no/such/lib.so': No such"),
            (("--preload", "", "true"), "cannot preload ''"),
        ],
    )
    def test_is_explained(self, arguments, said):
        done = run(*arguments, status=1)
        assert done.stdout == b""
        mentions(done.stderr.decode(), said, "--help")

    @pytest.mark.parametrize("name", ["with space.so", "with:colon.so"])
    def test_library_name_that_would_be_split(self, tmp_path, name):
        (tmp_path / name).touch()
        done = run("--preload", tmp_path / name, "--", "true", status=1)
        assert name in done.stderr.decode()

    def test_output_that_cannot_be_opened_starts_nothing(self, tmp_path):
        trace = tmp_path / "trace"
        done = run("--output", "/no/such/folder/out.json", "--", "touch", trace, status=1)
        assert "/no/such/folder/out.json: No such file" in done.stderr.decode()
        assert not trace.exists()

    def test_help(self):
        done = run("--help")
        assert all(f"--{name}" in done.stdout.decode() for name in ("output", "preload", "timeout"))


def test_output_file_is_replaced_or_a_full_disk_told(tmp_path):
    output = tmp_path / "out.json"
    output.write_text("x" * 100_000)
    done = run("--output", output, "--", "echo", "from the program")
    assert done.stdout == b"from the program\n"
    assert parse(output.read_bytes())["exit_code"] == 0
    done = run("--output", "/dev/full", "--", "true", status=125)
    assert "No space left on device" in done.stderr.decode()


class TestEnvironment:
    def test_variables_are_set_and_removed_in_order(self, tmp_path):
        seen = tmp_path / "seen"
        edits = ["--env", "A=1=2", "--env", "B=", "--unset", "C", "--env", "D=x", "--unset", "D"]
        run(*edits, "--stdout", seen, "--", "env", env={"C": "c", "A": "old"})
        lines = seen.read_text().splitlines()
        assert "A=1=2" in lines
        assert "B=" in lines
        assert not any(line.startswith(("C=", "D=")) for line in lines)

    def test_path_for_the_search_is_the_programs(self, tmp_path):
        script(tmp_path / "only-here", "#!/bin/sh\nexit 5\n")
        assert measure(["only-here"], "--env", f"PATH={tmp_path}:/bin")["exit_code"] == 5

    def test_preloads_go_before_what_is_there(self, tmp_path, build):
        first = build("first.c", "int first;", "-shared", "-fPIC")
        second = build("second.c", "int second;", "-shared", "-fPIC")
        third = build("third.c", "int third;", "-shared", "-fPIC")
        seen = tmp_path / "seen"
        options = ["--preload", first, "--preload", second, "--env", f"LD_PRELOAD={third}"]
        run(*options, "--stdout", seen, "--", "env")
        assert f"LD_PRELOAD={first}:{second}:{third}" in seen.read_text().splitlines()


class TestStandardStreams:
    def test_redirections_and_inheritance(self, tmp_path):
        (tmp_path / "in").write_text("fed\n")
        options = [f"--{name}={tmp_path / name[3:]}" for name in ("stdin", "stdout", "stderr")]
        done = run(*options, "--", "sh", "-c", "cat; echo complaint >&2")
        assert parse(done.stdout)["exit_code"] == 0
        assert (tmp_path / "out").read_text() == "fed\n"
        assert (tmp_path / "err").read_text() == "complaint\n"
        done = run("--output", tmp_path / "json", "--", "sh", "-c", "echo out; echo err >&2")
        assert (done.stdout, done.stderr) == (b"out\n", b"err\n")

    def test_redirections_are_relative_to_the_caller(self, tmp_path):
        inner = tmp_path / "inner"
        inner.mkdir()
        script(inner / "program", "#!/bin/sh\npwd\n")
        run("--cwd", inner, "--stdout", "out", "--", "./program", cwd=tmp_path)
        assert (tmp_path / "out").read_text() == f"{inner}\n"


class TestWhatTheProgramInherits:
    """None of the launcher's own settings may reach the program."""

    def test_no_signals_files_or_session_are_inherited(self, tmp_path):
        seen = tmp_path / "seen"
        ask = "import os, signal; print(signal.pthread_sigmask(0, []), os.getsid(0) == os.getpid())"
        run("--stdout", seen, "--", sys.executable, "-c", ask)
        assert seen.read_text() == "set() True\n"
        output = tmp_path / "json"
        streams = ("--output", output, "--stdout", seen, "--stdin", "/dev/null")
        run(*streams, "--", "ls", "/proc/self/fd")
        assert seen.read_text().split() == ["0", "1", "2", "3"]  # the last one is ls reading


class TestTimes:
    def test_wall_time_covers_the_program(self):
        assert measure(["sleep", "0.2"])["wall_ns"] >= 200_000_000

    def test_processor_time_includes_children(self, build):
        burn = """
        static void burn(void) { while (clock() < 0.2 * CLOCKS_PER_SEC) {} }
        int main(void) { if (fork() == 0) { burn(); return 0; } burn(); wait(0); return 0; }
        """
        answer = measure([build("burn.c", burn)])
        # The kernel may account in ticks of 4 to 10 ms.
        assert answer["user_ns"] + answer["system_ns"] >= 2 * 180_000_000

    def test_voluntary_switches(self):
        sleeps = "select undef, undef, undef, 0.001 for 1..50"
        assert measure(["perl", "-e", sleeps])["voluntary_switches"] >= 50


@pytest.mark.parametrize(
    "name",
    [
        'quote " and backslash \\',
        "newline \n tab \t bell \a unit \x1f delete \x7f",
        "umlaut ä, euro €, clef 𝄞",
        os.fsdecode(b"latin-1 \xe9, lone lead \xc3, lone continuation \x80"),
        os.fsdecode(
            b"overlong \xc0\xaf \xe0\x80\xaf, surrogate \xed\xa0\x80, too high \xf4\x90\x80\x80"
        ),
        os.fsdecode(b"cut short \xe2\x82"),
        "/".join(("ä" * 120, "b" * 250, "\n" * 250)),  # longer than any buffer
    ],
)
def test_any_name_survives_json(name):
    done = run("--", os.fsencode(f"/no/{name}"))
    message = parse(done.stdout)["spawn_error"]["message"]
    assert os.fsencode(message) == os.fsencode(f"execute /no/{name}: No such file or directory")
