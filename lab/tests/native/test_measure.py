"""The native launcher: how a program ended, what it cost, and what was set up for it; its memory,
exact for one process and sampled for trees; how its processes are ended; and whether the preloaded
libraries were loaded.
"""

import json
import os
import signal
import subprocess
import sys

import pytest
from elftools.elf.elffile import ELFFile
from prompt import is_alive, ran, script, start, wait_until
from refusals import mentions

from tsmlab import paths


def run(*arguments, status=0, env=None, cwd=None):
    """Runs measure with these arguments, with an empty standard input."""
    done = subprocess.run(
        [paths.tool("measure"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        env=os.environ | (env or {}),
        cwd=cwd,
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


def parse(line):
    """A tool's output, which must be one line."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return dict(json.loads(line))


def measure(command, *options):
    """The output for a command whose own output is discarded."""
    return parse(run(*options, "--stdout", "/dev/null", "--", *command).stdout)


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


SIGNALS = [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL, signal.SIGINT]


@pytest.mark.parametrize(
    ("shell", "ended"),
    [(f"exit {code}", (code, None)) for code in (0, 1, 42, 255)]
    + [(f"kill -{number.value} $$", (None, number.value)) for number in SIGNALS],
)
def test_exit_code_or_signal(shell, ended):
    answer = measure(["sh", "-c", shell])
    assert (answer["exit_code"], answer["signal"]) == ended
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


# --- memory ---------------------------------------------------------------------------------------

MIB = 1 << 20
# Resident memory of a small dynamic program besides its data, plus the kernel's error: its counters
# are kept per CPU that the process ran on, each up to a few hundred KiB off.
OVERHEAD = 5 * MIB

# hog MIB MS [children]: touches this much memory, starts children that inherit it untouched, waits.
HOG = """
int main(int argc, char** argv) {
  size_t size = (size_t)atol(argv[1]) << 20;
  prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
  char* p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return 1;
  for (size_t i = 0; i < size; i += 4096) p[i] = 1;
  int children = argc > 3 ? atoi(argv[3]) : 0;
  for (int i = 0; i < children; ++i) if (fork() == 0) { usleep(1000 * atoi(argv[2])); _exit(0); }
  usleep(1000 * atoi(argv[2]));
  while (wait(0) > 0) {}
  return 0;
}
"""


@pytest.fixture
def hog(build):
    return build("hog.c", HOG)


@pytest.mark.parametrize("size", [16, 100, 400])
@pytest.mark.parametrize("sample_ms", ["0", "10"])
def test_peak_of_one_process(hog, size, sample_ms):
    answer = measure([hog, str(size), "0"], "--sample-ms", sample_ms)
    assert size * MIB - OVERHEAD < answer["peak_rss_bytes"] < size * MIB + OVERHEAD
    assert answer["minor_faults"] >= size * MIB // 4096


def test_memory_that_was_given_back_counts(build):
    source = """
    int main(void) {
      size_t size = 64 << 20;
      char* p = mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      memset(p, 1, size);
      return munmap(p, size);
    }
    """
    answer = measure([build("giveback.c", source)], "--sample-ms", "0")
    assert 64 * MIB - OVERHEAD < answer["peak_rss_bytes"] < 64 * MIB + OVERHEAD


# The trap that `measure` avoids: for a program started directly from Python, the kernel reports at
# least Python's own peak.
LAUNCHER = """
import json, os, resource, subprocess, sys
held = bytearray(int(sys.argv[1]) << 20)
for i in range(0, len(held), 4096):
    held[i] = 1
line = subprocess.run([sys.argv[2], "--", "/bin/true"], stdout=subprocess.PIPE, check=True).stdout
child = os.posix_spawn("/bin/true", ["true"], {})
direct = os.wait4(child, 0)[2].ru_maxrss << 10
print(json.dumps([json.loads(line)["peak_rss_bytes"], direct]))
"""


def test_peak_does_not_depend_on_the_size_of_the_launcher():
    def launch(held_mib):
        command = [sys.executable, "-c", LAUNCHER, str(held_mib), str(paths.tool("measure"))]
        through_measure, direct = json.loads(
            subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=60).stdout
        )
        return through_measure, direct

    small, _ = launch(10)
    large, direct_from_large = launch(1000)
    assert direct_from_large > 1000 * MIB, "the control shows no trap to avoid"
    assert abs(large - small) < MIB
    assert large < OVERHEAD


def test_the_program_is_static():
    with paths.tool("measure").open("rb") as file:
        kinds = {segment["p_type"] for segment in ELFFile(file).iter_segments()}
    assert "PT_INTERP" not in kinds


class TestTrees:
    def test_the_largest_process_is_told_from_the_sum(self, hog):
        answer = measure(["sh", "-c", f"{hog} 40 1000 & {hog} 60 1000; wait"])
        assert answer["exit_code"] == 0
        assert 60 * MIB - OVERHEAD < answer["peak_rss_bytes"] < 60 * MIB + OVERHEAD
        assert 100 * MIB - OVERHEAD < answer["tree_peak_rss_bytes"] < 100 * MIB + 3 * OVERHEAD
        assert 100 * MIB - OVERHEAD < answer["tree_peak_pss_bytes"] < 100 * MIB + 3 * OVERHEAD

    def test_shared_memory_counts_once_in_pss(self, hog):
        answer = measure([hog, "50", "1000", "2"])
        assert 50 * MIB - OVERHEAD < answer["peak_rss_bytes"] < 50 * MIB + OVERHEAD
        assert 150 * MIB - OVERHEAD < answer["tree_peak_rss_bytes"] < 150 * MIB + 3 * OVERHEAD
        assert 50 * MIB - OVERHEAD < answer["tree_peak_pss_bytes"] < 50 * MIB + 3 * OVERHEAD

    def test_orphans_of_another_session_are_of_the_tree(self, hog):
        answer = measure(["sh", "-c", f"setsid sh -c '{hog} 70 300 &' & sleep 0.6"])
        assert 70 * MIB - OVERHEAD < answer["peak_rss_bytes"] < 70 * MIB + OVERHEAD
        assert answer["tree_peak_rss_bytes"] > 70 * MIB - OVERHEAD
        assert answer["left_behind"] == 0

    def test_children_of_threads_are_found(self, build, hog):
        source = """
        static void* start(void* command) { return (void*)(long)system(command); }
        int main(int argc, char** argv) {
          pthread_t thread;
          pthread_create(&thread, 0, start, argv[argc - 1]);
          return pthread_join(thread, 0);
        }
        """
        program = build("threads.c", source, "-pthread")
        answer = measure([program, f"exec {hog} 30 300"])
        assert answer["tree_peak_rss_bytes"] > 30 * MIB


class TestSampling:
    def test_sampling_off_on_and_at_an_interval(self, hog):
        answer = measure(["sleep", "0.1"], "--sample-ms", "0")
        assert (answer["tree_peak_rss_bytes"], answer["tree_peak_pss_bytes"]) == (None, None)
        assert (answer["samples"], answer["sampling_ns"]) == (0, 0)
        answer = measure([hog, "20", "400"])
        assert answer["samples"] >= 1
        assert answer["tree_peak_pss_bytes"] > 0
        assert answer["sampling_ns"] > 0
        assert answer["peak_rss_bytes"] >= 20 * MIB
        answer = measure(["sleep", "0.5"], "--sample-ms", "200")
        assert 1 <= answer["samples"] <= 4  # after 1 ms, then no more often than every 200 ms


# --- processes ------------------------------------------------------------------------------------


class TestTimeout:
    def test_a_program_that_ends_in_time_is_untouched(self):
        answer = measure(["sleep", "0.1"], "--timeout", "30.5")
        assert (answer["timed_out"], answer["exit_code"]) == (False, 0)
        assert answer["timeout_ns"] == 30_500_000_000

    @pytest.mark.parametrize(
        ("shell", "exit_code", "number", "least_seconds"),
        [
            ("trap 'exit 7' TERM; while :; do sleep 0.05; done", 7, None, 0.3),
            ("kill -STOP $$", None, signal.SIGTERM, 0.3),
            ("trap '' TERM; while :; do sleep 0.05; done", None, signal.SIGKILL, 2.3),
        ],
    )
    def test_sigterm_comes_first_and_sigkill_later(self, shell, exit_code, number, least_seconds):
        answer = measure(["sh", "-c", shell], "--timeout", "0.3")
        assert answer["timed_out"]
        assert (answer["exit_code"], answer["signal"]) == (exit_code, number)
        assert answer["wall_ns"] >= least_seconds * 1e9

    def test_grandchild_that_ignores_sigterm(self, tmp_path):
        note = tmp_path / "pid"
        stubborn = f"trap '' TERM; echo $$ > {note}; while :; do sleep 0.05; done"
        shell = 'setsid sh -c "$1" & sleep 60; echo not reached'
        answer = measure(["sh", "-c", shell, "sh", stubborn], "--timeout", "0.5")
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
        def start(shell, *, interrupts="default"):
            note = tmp_path / "pid"
            # The test runner may ignore SIGINT, as a shell's background jobs do, and SIGHUP.
            command = ["env", "--default-signal=HUP,TERM", f"--{interrupts}-signal=INT"]
            command += [paths.tool("measure")]
            command += ["--stderr", note, "--stdout", "/dev/null", "--"]
            command += ["sh", "-c", f"echo $$ >&2; {shell}"]
            process = subprocess.Popen(command, stdout=subprocess.PIPE)
            wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
            return process, int(note.read_text())

        return start

    def test_the_tree_ends_when_the_lab_is_killed(self, tmp_path):
        note = tmp_path / "pid"
        shell = f"echo $$ > {note}.new; mv {note}.new {note}; exec sleep 600"
        env = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
        lab = start("compare", "-a", "glibc", "--", "sh", "-c", shell, env=env)
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
