"""How `measure` ends what it started: timeouts, signals, leftover processes; and whether it sees
the preloaded libraries.
"""

import os
import signal
import subprocess

import pytest
from measured import measure, parse, run
from prompt import is_alive, ran, start, wait_until

from tsmlab import paths


class TestTimeout:
    def test_a_program_that_ends_in_time_is_untouched(self):
        answer = measure(["sleep", "0.1"], "--timeout", "30.5")
        assert (answer["timed_out"], answer["exit_code"]) == (False, 0)
        assert answer["timeout_ns"] == 30_500_000_000

    @pytest.mark.parametrize(
        ("script", "exit_code", "number", "least_seconds"),
        [
            ("trap 'exit 7' TERM; while :; do sleep 0.05; done", 7, None, 0.3),
            ("kill -STOP $$", None, signal.SIGTERM, 0.3),
            ("trap '' TERM; while :; do sleep 0.05; done", None, signal.SIGKILL, 2.3),
        ],
    )
    def test_sigterm_comes_first_and_sigkill_later(self, script, exit_code, number, least_seconds):
        answer = measure(["sh", "-c", script], "--timeout", "0.3")
        assert answer["timed_out"]
        assert (answer["exit_code"], answer["signal"]) == (exit_code, number)
        assert answer["wall_ns"] >= least_seconds * 1e9

    def test_grandchild_that_ignores_sigterm(self, tmp_path):
        note = tmp_path / "pid"
        stubborn = f"trap '' TERM; echo $$ > {note}; while :; do sleep 0.05; done"
        script = 'setsid sh -c "$1" & sleep 60; echo not reached'
        answer = measure(["sh", "-c", script, "sh", stubborn], "--timeout", "0.5")
        assert (answer["timed_out"], answer["signal"]) == (True, signal.SIGTERM.value)
        assert answer["left_behind"] >= 1  # the shell, and perhaps the sleep that it just started
        assert not is_alive(int(note.read_text()))


class TestWhatTheRootLeavesRunning:
    def test_is_waited_for(self, tmp_path):
        trace = tmp_path / "trace"
        answer = measure(["sh", "-c", f"setsid sh -c 'sleep 0.2; touch {trace}' & exit 3"])
        assert (answer["exit_code"], answer["left_behind"]) == (3, 0)
        assert trace.exists()

    def test_is_killed_when_it_stays(self, tmp_path):
        note = tmp_path / "pid"
        daemon = f"(setsid sh -c 'echo $$ > {note}; exec sleep 60' &) ; "
        wait = f"while [ ! -s {note} ]; do sleep 0.01; done"
        answer = measure(["sh", "-c", daemon + wait])
        assert (answer["exit_code"], answer["left_behind"]) == (0, 1)
        assert not is_alive(int(note.read_text()))


class TestInterruption:
    """A signal to measure ends the tree and still produces a result."""

    @pytest.fixture
    def started(self, tmp_path):
        def start(script, *, interrupts="default"):
            note = tmp_path / "pid"
            # The test runner may ignore SIGINT, as a shell's background jobs do, and SIGHUP.
            command = ["env", "--default-signal=HUP,TERM", f"--{interrupts}-signal=INT"]
            command += [paths.tool("measure")]
            command += ["--stderr", note, "--stdout", "/dev/null", "--"]
            command += ["sh", "-c", f"echo $$ >&2; {script}"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
            return process, int(note.read_text())

        return start

    def test_the_tree_ends_when_the_lab_is_killed(self, tmp_path):
        note = tmp_path / "pid"
        script = f"echo $$ > {note}.new; mv {note}.new {note}; exec sleep 600"
        env = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
        lab = start("compare", "-a", "glibc", "--", "sh", "-c", script, env=env)
        wait_until(note.exists)
        lab.kill()
        lab.communicate()
        wait_until(lambda: not is_alive(int(note.read_text())))

    def test_another_parent_is_refused(self):
        done = ran(paths.tool("measure"), "--parent", "1", "--", "true", status=1)
        assert "--parent 1" in done.stderr

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_is_reported(self, started, number):
        process, pid = started("sleep 60")
        process.send_signal(number)
        answer = parse(process.communicate(timeout=60)[0])
        assert process.returncode == 0
        assert (answer["interrupted"], answer["timed_out"]) == (True, False)
        assert answer["signal"] == signal.SIGTERM.value
        assert not is_alive(pid)

    def test_second_signal_kills(self, started, tmp_path):
        trace = tmp_path / "trace"
        process, _ = started(f"trap 'touch {trace}' TERM; while :; do sleep 0.05; done")
        process.send_signal(signal.SIGTERM)
        while not trace.exists():
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        answer = parse(process.communicate(timeout=60)[0])
        assert (answer["interrupted"], answer["signal"]) == (True, signal.SIGKILL.value)

    def test_an_ignored_signal_stays_ignored(self, started):
        process, _ = started("sleep 0.5", interrupts="ignore")
        process.send_signal(signal.SIGINT)
        answer = parse(process.communicate(timeout=60)[0])
        assert (answer["interrupted"], answer["exit_code"]) == (False, 0)

    def test_program_does_not_outlive_a_killed_measure(self, started):
        process, pid = started("exec sleep 60")
        process.kill()
        process.communicate(timeout=60)
        wait_until(lambda: not is_alive(pid))


class TestPreloadProof:
    """Each requested library is reported as loaded, or as missing."""

    @pytest.fixture
    def library(self, build):
        return build("library.so.c", "int answer(void) { return 42; }", "-shared", "-fPIC")

    @pytest.mark.parametrize("options", [[], ["--sample-ms", "0"]])
    def test_mapped(self, library, options):
        answer = measure(["sleep", "0.5"], "--preload", library, *options)
        assert answer["preloaded"] == [{"path": str(library), "mapped": True}]

    @pytest.mark.parametrize("flag", ["-static", "-static-pie"])
    def test_static_program(self, build, library, flag):
        program = build("static.c", "int main(void) { return usleep(500000); }", flag)
        answer = measure([program], "--preload", library)
        assert answer["preloaded"] == [{"path": str(library), "mapped": False}]

    def test_library_that_the_loader_refuses(self, library, tmp_path):
        broken = tmp_path / "broken.so"
        broken.write_text("no library")
        options = ["--preload", library, "--preload", broken, "--stderr", tmp_path / "complaint"]
        answer = parse(run(*options, "--", "sleep", "0.5").stdout)
        assert [each["mapped"] for each in answer["preloaded"]] == [True, False]
        assert "cannot be preloaded" in (tmp_path / "complaint").read_text()

    def test_symbolic_link_is_passed_on_as_it_is(self, library, tmp_path):
        spaced = tmp_path / "a folder"
        spaced.mkdir()
        (spaced / "real.so").write_bytes(library.read_bytes())
        link = tmp_path / "link.so"
        link.symlink_to(spaced / "real.so")
        done = run("--preload", link, "--", "sh", "-c", "echo $LD_PRELOAD >&2; sleep 0.5")
        assert done.stderr.decode() == f"{link}\n"
        assert parse(done.stdout)["preloaded"] == [{"path": str(link), "mapped": True}]

    def test_bare_name_is_searched(self, library, tmp_path):
        (tmp_path / "libfound.so").write_bytes(library.read_bytes())
        search = f"LD_LIBRARY_PATH={tmp_path}"
        answer = measure(["sleep", "0.5"], "--preload", "libfound.so", "--env", search)
        assert answer["preloaded"] == [{"path": "libfound.so", "mapped": True}]

    def test_relative_path_is_made_absolute(self, library):
        options = ["--preload", f"./{library.name}", "--cwd", "/"]
        done = run(*options, "--", "sleep", "0.5", cwd=library.parent)
        expected = f"{library.parent}/./{library.name}"
        assert parse(done.stdout)["preloaded"] == [{"path": expected, "mapped": True}]

    def test_nothing_is_claimed_if_nothing_ran(self, library):
        answer = measure(["/no/such/program"], "--preload", library)
        assert answer["preloaded"] == [{"path": str(library), "mapped": None}]
