"""`tsmalloc stats`, `purge`, `set`, and `top` of a command: actions on a running process."""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from prompt import on_terminal, ran, wait_until

from tsmlab import paths

SOURCE = Path(__file__).with_name("steered_program.c")
MB = 1 << 20


def compiled(folder, *options):
    target = folder / "steered"
    include = paths.repository_root() / "include"
    flags = ("-O1", "-fPIE", "-pthread", "-I", include)
    subprocess.run(["gcc", *flags, SOURCE, "-o", target, *options], check=True)
    return target


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    # The tool purges even what the engine itself would keep: 49 MB are more than its surplus.
    return compiled(tmp_path_factory.mktemp("steered"))


def tell(verb, *arguments, **options):
    return ran(paths.tool("tsmalloc"), verb, *arguments, **options)


def told(verb, *arguments):
    finished = tell(verb, *arguments)
    assert (finished.returncode, finished.stderr) == (0, ""), finished
    return finished.stdout


def refusal(verb, *arguments, status=2, **options):
    """The only line of output."""
    finished = tell(verb, *arguments, **options)
    assert (finished.returncode, finished.stdout) == (status, ""), finished
    assert finished.stderr.startswith("tsmalloc: ")
    assert finished.stderr.count("\n") == 1
    return finished.stderr


def ask(process, line):
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()
    return process.stdout.readline().decode().rstrip("\n")


def resident(pid):
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0]


# --- stats ----------------------------------------------------------------------------------------


def test_stats_are_those_that_the_process_has_of_itself(start, program):
    process = start(program, "obey")
    inside = json.loads(ask(process, "stats"))
    outside = json.loads(told("stats", "--json", process.pid))
    assert outside == inside
    assert inside["large_blocks"] >= MB
    text = told("stats", process.pid)
    prometheus = told("stats", "--prometheus", process.pid)
    for figure in inside.values():
        if isinstance(figure, int):
            assert re.search(rf"^ *{figure}  ", text, re.MULTILINE)
            assert re.search(rf" {figure}$", prometheus, re.MULTILINE)


def is_kernel_thread(pid):
    """Whether a process has no memory (in a container, kernel threads' numbers are reused)."""
    with contextlib.suppress(OSError):
        return not Path(f"/proc/{pid}/maps").read_bytes()
    return False


def test_stats_again_and_again(start, program):
    process = start(program, "obey")
    ask(process, "get LIMIT")  # the first line makes a buffer
    looks = [
        json.loads(line)
        for line in told(
            "stats", "--json", "--interval", "0.001", "--count", "50", process.pid
        ).splitlines()
    ]
    assert len(looks) == 50
    assert looks[0] == looks[-1] == json.loads(ask(process, "stats"))
    pipe = subprocess.PIPE
    command = [paths.tool("tsmalloc"), "stats", "--json", "--interval", "0.01", str(process.pid)]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as stats:
        assert json.loads(stats.stdout.readline()) == looks[0]
        process.kill()
        process.wait()
        _, said = stats.communicate(timeout=20)
    assert stats.returncode == 0
    assert "has ended" in said


# --- purge ----------------------------------------------------------------------------------------


def purged(process, *options):
    answer = json.loads(told("purge", "--json", *options, process.pid))
    assert (answer["schema"], answer["pid"]) == ("tsmalloc-purge/1", process.pid)
    return answer


def test_free_pages_go_back_and_blocks_stay(start, program):
    process = start(program, "obey")
    before = json.loads(told("explain", "--json", process.pid))["resident"]
    assert before["free_pages"] > 4 * MB
    rss = resident(process.pid)
    answer = purged(process)
    assert abs(answer["bytes"] - before["free_pages"]) < MB
    assert answer["refused_bytes"] == 0
    assert answer["stops"] >= 1
    assert rss - resident(process.pid) > answer["bytes"] - MB
    assert json.loads(told("explain", "--json", process.pid))["resident"]["free_pages"] < MB // 4
    assert ask(process, "check") == "whole"
    assert purged(process)["bytes"] < MB // 4
    # Purged memory can be allocated again.
    for _ in range(3):
        assert ask(process, "work") == "done"
        purged(process)
    assert ask(process, "check") == "whole"
    assert "MiB returned" in told("purge", process.pid)


def test_a_static_stripped_program(start, tmp_path):
    static = compiled(tmp_path, "-static", "-s", paths.library("libtsmalloc.a"))
    process = start(static, "obey", library=None)
    assert purged(process)["bytes"] > 4 * MB
    told("set", process.pid, "LIMIT=3G")
    assert ask(process, "get LIMIT") == "3G"
    assert json.loads(ask(process, "stats")) == json.loads(told("stats", "--json", process.pid))
    assert ask(process, "check") == "whole"


def test_what_waits_is_not_disturbed(start, program):
    """Many kinds of system calls, interrupted by constant stops, while threads allocate."""
    process = start(program, "waits", "0")
    stops = 0
    gigabytes = 0
    while stops < 60:
        stops += purged(process)["stops"]
        gigabytes = gigabytes % 7 + 1
        told("set", process.pid, f"LIMIT={gigabytes}G")
    process.stdin.close()
    assert process.wait(timeout=60) == 0


def test_a_stopped_process_stays_stopped(start, program):
    process = start(program, "obey")
    os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: state_of(process.pid) == "T")
    assert purged(process)["bytes"] > 4 * MB
    told("set", process.pid, "LIMIT=3G")
    wait_until(lambda: state_of(process.pid) == "T")
    time.sleep(0.1)
    assert state_of(process.pid) == "T"
    os.kill(process.pid, signal.SIGCONT)
    assert ask(process, "check") == "whole"
    assert ask(process, "get LIMIT") == "3G"


def test_a_process_that_is_stopped_meanwhile_stays_stopped(start, program):
    process = start(program, "obey")
    for number in range(60):
        assert ask(process, "work") == "done"
        with subprocess.Popen(
            [paths.tool("tsmalloc"), "purge", str(process.pid)], stdout=subprocess.DEVNULL
        ) as purge:
            time.sleep(number % 20 * 0.0002)
            os.kill(process.pid, signal.SIGSTOP)
        assert purge.returncode == 0
        wait_until(lambda: state_of(process.pid) == "T")
        os.kill(process.pid, signal.SIGCONT)
    assert ask(process, "check") == "whole"


def test_a_process_whose_first_thread_has_ended(start, program):
    process = start(program, "headless")
    wait_until(lambda: state_of(process.pid) == "Z")
    assert purged(process)["bytes"] > 4 * MB
    told("set", process.pid, "LIMIT=3G")
    assert ask(process, "work") == "done"
    assert ask(process, "get LIMIT") == "3G"
    assert ask(process, "check") == "whole"


def test_a_first_thread_that_ends_meanwhile(start, program, tmp_path):
    process = start(program, "headless", "400000")
    stats = told("stats", "--json", "--interval", "0.02", "--count", "40", process.pid)
    assert stats.count("\n") == 40
    process = start(program, "headless", "400000")
    file = tmp_path / "profile.pb"
    took = tell("profile", "--seconds", "0.8", "--output", file, process.pid)
    assert took.returncode == 0, took.stderr
    assert file.exists()
    assert "TSMALLOC_PROFILE=off" in told("set", process.pid)


def test_locked_memory_is_refused_by_the_system(start, program):
    try:
        process = start(program, "lock")
    except AssertionError:
        pytest.skip("this user may not lock memory")
    finished = tell("purge", "--json", process.pid)
    assert finished.returncode == 2
    assert "locked memory (mlock)" in finished.stderr
    answer = json.loads(finished.stdout)
    assert answer["bytes"] == 0
    assert answer["refused_bytes"] > 0


def test_a_sandbox_is_left_alone(start, program):
    strict = start(program, "strict")
    wait_until(lambda: "Seccomp:\t1" in Path(f"/proc/{strict.pid}/status").read_text())
    for options in ((), ("--force",)):
        assert "runs under seccomp" in refusal("purge", *options, strict.pid)
    assert strict.poll() is None


def test_a_filter_that_allows_it(start, program):
    process = start(program, "filter")
    if json.loads(told("stats", "--json", process.pid))["purged_bytes"] == 0:
        assert "--force does it" in refusal("purge", process.pid)
    assert purged(process, "--force")["bytes"] > 4 * MB


def test_a_thread_that_stays_in_the_kernel(start, program):
    process = start(program, "vfork")
    wait_until(lambda: state_of(process.pid) == "D")
    rss = resident(process.pid)
    began = time.monotonic()
    assert "cannot be stopped" in refusal("purge", process.pid)
    assert "cannot be stopped" in refusal("set", process.pid, "LIMIT=1G")
    assert time.monotonic() - began < 5
    # The kernel batches page counts of a running process.
    assert abs(resident(process.pid) - rss) < MB
    assert "TSMALLOC_LIMIT=auto\n" in told("set", process.pid)


def test_a_process_that_is_traced(start, program, build):
    trace = build(
        "trace.c",
        """
        #include <stdlib.h>
        #include <sys/ptrace.h>
        #include <unistd.h>
        int main(int count, char** arguments) {
          (void)count;
          if (ptrace(PTRACE_SEIZE, atoi(arguments[1]), 0, 0) != 0) return 1;
          if (write(1, "ready\\n", 6) != 6) return 1;
          for (;;) pause();
        }
        """,
    )
    process = start(program, "obey")
    tracer = start(trace, str(process.pid), library=None)
    for verb in (("purge", process.pid), ("set", process.pid, "LIMIT=1G")):
        assert f" process {tracer.pid}, " in refusal(*verb)
    assert ask(process, "get LIMIT") == "auto"


# --- set ------------------------------------------------------------------------------------------


def test_options_change_in_the_process(start, program):
    process = start(program, "obey")
    options = dict(line.split("=") for line in told("set", process.pid).splitlines())
    assert options["TSMALLOC_LIMIT"] == "auto"
    assert options["TSMALLOC_BACKGROUND"] == "off"
    assert options == {name: ask(process, f"get {name}") for name in options}
    changed = told("set", process.pid, "LIMIT=2G", "TSMALLOC_HARD_LIMIT=50%")
    assert changed == "TSMALLOC_LIMIT=2G\nTSMALLOC_HARD_LIMIT=50%\n"
    assert ask(process, "get LIMIT") == "2G"
    assert ask(process, "get HARD_LIMIT") == "50%"
    for limits in (("LIMIT=1G", "HARD_LIMIT=1G"), ("LIMIT=2G", "HARD_LIMIT=4G")):
        told("set", process.pid, *limits)
        told("set", process.pid, "LIMIT=1M", "HARD_LIMIT=1M")
        told("set", process.pid, *reversed(limits))


def threads(pid):
    """The names of the process's threads, except those that end meanwhile."""
    names = []
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            names.append(path.read_text().strip())
    return names


def test_a_background_thread_begins_and_ends(start, program):
    process = start(program, "obey")
    for value, count in (("on", 1), ("off", 0), ("on", 1)):
        told("set", process.pid, f"BACKGROUND={value}")
        ask(process, "work")
        wait_until(lambda n=count: threads(process.pid).count("tsmalloc") == n)


def test_a_process_of_large_blocks_alone_follows(start, program):
    process = start(program, "large")
    told("set", process.pid, "BACKGROUND=on")
    wait_until(lambda: "tsmalloc" in threads(process.pid))
    told("set", process.pid, "PROFILE=64K")
    told("set", process.pid, "BACKGROUND=off")
    wait_until(lambda: "tsmalloc" not in threads(process.pid))
    told("set", process.pid, "PROFILE=off")


def test_in_another_pid_namespace(start, program):
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system lets nobody make namespaces")
    outer = start(*unshare, program, "obey")
    child = int(Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0])
    told("set", child, "BACKGROUND=on")
    ask(outer, "work")
    wait_until(lambda: threads(child).count("tsmalloc") == 1)
    assert json.loads(told("purge", "--json", child))["pid"] == child
    assert json.loads(told("explain", "--json", child))["resident"]["large_blocks"] >= MB
    assert ask(outer, "check") == "whole"


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (["LIMITS=1G"], "LIMITS=1G: .*tsmalloc set PID"),
        (["LIMIT"], "LIMIT: .*NAME=VALUE"),
        (["LIMIT=much"], r"LIMIT=much: .*auto\|off\|BYTES\|N%"),
        (["THP=never", "BACKGROUND=perhaps"], r"BACKGROUND=perhaps: .*auto\|off\|on"),
        (["HARD_LIMIT=1G", "LIMIT=2G"], "LIMIT=2G: .*HARD_LIMIT"),
        (["SHOW=1"], "SHOW=1: .*start"),
        (["--now"], "--now: .*set --help"),
    ],
)
def test_wrong_values_change_nothing(start, program, assignments, said):
    process = start(program, "obey")
    before = told("set", process.pid)
    assert re.search(said, refusal("set", process.pid, *assignments, status=1))
    assert told("set", process.pid) == before
    assert "LIMIT" not in refusal("set", process.pid, "THP=maybe", status=1)


# --- what is refused ------------------------------------------------------------------------------


VERBS = ("explain", "stats", "purge", "set")


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_to_look_at(start, program, verb):
    ended = subprocess.Popen(["true"])
    ended.wait()
    for none in (ended.pid, 4_000_000):
        assert "no process" in refusal(verb, none)
    if verb == "explain":  # which reports the kernel's figures for any process
        with subprocess.Popen(["true"]) as zombie:
            os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
            assert "has ended" in refusal(verb, zombie.pid)
    else:
        assert "does not run on tsmalloc" in refusal(verb, start(program, "obey", library=None).pid)
        if os.getuid() == 0 and is_kernel_thread(2):
            assert "a kernel thread" in refusal(verb, 2)
    for wrong in ("", "x", "0", "-1", "--yaml 1", "--json --prometheus 1"):
        assert f"tsmalloc {verb} " in refusal(verb, *wrong.split(), status=1)
    assert told(verb, "--help").startswith(f"Usage: tsmalloc {verb} ")


@pytest.mark.skipif(os.getuid() != 0, reason="only root has another user to be")
@pytest.mark.parametrize("verb", VERBS)
def test_no_rights(start, program, verb):
    process = start(program, "obey")
    said = refusal(verb, process.pid, user=65534, group=65534, extra_groups=())
    for remedy in ("use sudo", "kernel.yama.ptrace_scope", "SYS_PTRACE"):
        assert remedy in said


# --- top of a command -----------------------------------------------------------------------------


def test_top_starts_a_command(program):
    finished = tell("top", "--interval", "0.1", "--", program, "obey", input="check\n" * 3)
    assert finished.stdout == "ready\n" + "whole\n" * 3
    held = tell("top", "--interval", "0.1", "--count", "2", "--", program, "waits", "0.5")
    assert (held.returncode, held.stdout) == (0, "ready\n")
    lines = held.stderr.splitlines()
    assert lines[0].split() == (
        ["MiB", "at", "resident", "program", "in", "slabs", "waiting", "ended", "kept", "outside"]
    )
    assert len(lines) == 3
    assert float(lines[2].split()[1]) > 10


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["sh", "-c", "sleep 0.3; exit 7"], 7),
        (["sh", "-c", "sleep 0.3; kill -9 $$"], 128 + 9),
        (["/is/not/there"], 127),
        (["/etc/passwd"], 126),
    ],
)
def test_top_ends_as_its_command_does(command, status):
    finished = tell("top", "--json", "--count", "1", "--", *command)
    assert finished.returncode == status
    assert finished.stderr.count("\n") == (1 if status in (126, 127) else 0)
    assert finished.stdout.count("tsmalloc-explain/1") == (0 if status in (126, 127) else 1)


def test_a_command_that_is_over_before_a_look():
    finished = tell("top", "--", "true")
    assert finished.returncode == 0
    assert "before it could be inspected" in finished.stderr or "resident" in finished.stderr


def test_a_signal_to_top_reaches_its_command(program):
    command = [paths.tool("tsmalloc"), "top", "--", program, "obey"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as top:
        assert top.stdout.readline() == b"ready\n"
        top.stderr.readline()  # the first sample
        top.send_signal(signal.SIGTERM)
        assert top.wait(timeout=20) == 128 + signal.SIGTERM


def test_the_output_of_a_command_follows_the_screen(program):
    command = ["top", "--interval", "0.1", "--", program, "waits", "0.5"]
    said = on_terminal(paths.tool("tsmalloc"), *command)
    begin, end = said.index("\x1b[?1049h"), said.index("\x1b[?1049l")
    assert begin < end < said.index("ready")
    assert said.count("ready") == 1
