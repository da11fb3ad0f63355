"""The counter of system calls: it agrees with strace, changes nothing that the program can notice,
and ends with the program however that ends.

Exact numbers come from programs that make the calls themselves; what the loader and the C library
add is the same in every run, and subtracted by a run without the calls.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from measured import parse
from prompt import is_alive, ran, wait_until

from tsmlab import paths

Build = Callable[..., Path]
Count = Callable[..., dict[str, Any]]

WATCHED = ("futex", "mmap", "munmap", "mremap", "brk", "madvise", "sched_yield")


def refusal() -> str | None:
    """Why nothing can be traced here, if that is so."""
    done = ran(paths.build_dir() / "bin" / "syscalls", "--", "true")
    return done.stderr if done.returncode == 126 else None


pytestmark = pytest.mark.skipif(refusal() is not None, reason="nothing may be traced here")


def run(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs syscalls with these arguments, with an empty standard input."""
    tool = paths.tool("syscalls")
    return ran(tool, *arguments, status=status, timeout=60, stdin=subprocess.DEVNULL)


@pytest.fixture
def count(tmp_path: Path) -> Count:
    """count(command, *options) is the answer about a command."""

    def count_command(command: list[str | Path], *options: str | Path) -> dict[str, Any]:
        answer = tmp_path / "answer"
        run("--output", answer, "--stdout", "/dev/null", *options, "--", *command)
        return parse(answer.read_bytes())

    return count_command


def strace_counts(command: list[str | Path], folder: Path) -> dict[str, tuple[int, int]]:
    """Calls and errors by name, as `strace -f -c` has them."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    report = folder / "strace"
    ran("strace", "-f", "-c", "-o", report, *command, stdin=subprocess.DEVNULL)
    counts = {}
    for line in report.read_text().splitlines():
        found = re.fullmatch(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(\d*)\s*(\w+)", line)
        if found:
            counts[found[3]] = (int(found[1]), int(found[2] or 0))
    assert counts, report.read_text()
    return counts


# Detached threads, so that no join decides by chance whether it has to wait; argv: threads, rounds.
FUTEXES = """
#include <linux/futex.h>
static int word;
static long rounds;
static atomic_int done;
static void* work(void* none) {
  for (long i = 0; i < rounds; ++i) {
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
    if (i % 2) syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, 0, 0, 0);  /* it is not 5 */
    if (i % 4 == 0) {
      char* p = mmap(0, 12288, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      madvise(p, 4096, MADV_DONTNEED);
      madvise(p, 8192, MADV_FREE);
      madvise(p, 8192, MADV_NOHUGEPAGE);
      p = mremap(p, 12288, 8192, 0);
      munmap(p, 8192);
    }
  }
  ++done;
  pause();
  return none;
}
int main(int argc, char** argv) {
  int threads = atoi(argv[1]);
  rounds = atol(argv[2]);
  pthread_attr_t detached;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  for (int i = 0; i < threads; ++i) {
    pthread_t thread;
    pthread_create(&thread, &detached, work, 0);
  }
  while (done < threads) nanosleep(&(struct timespec){0, 1000000}, 0);
  return 0;
}
"""

# Children of children, by fork, vfork and posix_spawn, that move their breaks; argv: depth.
FAMILY = """
extern char** environ;
int main(int argc, char** argv) {
  int depth = atoi(argv[1]);
  char next[12];
  char* arguments[] = {argv[0], next, 0};
  sprintf(next, "%d", depth - 1);
  if (depth == 0) return 0;
  if (fork() == 0) { if (sbrk(40960) == (void*)-1) _exit(1); sbrk(-8192); _exit(0); }
  if (vfork() == 0) { execv(argv[0], arguments); _exit(1); }
  pid_t pid;
  if (posix_spawn(&pid, argv[0], 0, 0, arguments, environ)) return 1;
  int status, failed = 0;
  while (wait(&status) > 0) failed |= status;
  return failed != 0;
}
"""


class TestAgainstStrace:
    @pytest.mark.parametrize("what", ["threads", "processes", "a shell with pipes and jobs"])
    def test_all_calls(self, build: Build, count: Count, tmp_path: Path, what: str) -> None:
        script = "for i in 1 2 3; do ls / | cat | wc -l; done; (sleep 0.01; true) & wait"
        command: list[str | Path] = {
            "threads": [build("futexes.c", FUTEXES, "-pthread"), "8", "1000"],
            "processes": [build("family.c", FAMILY), "4"],
        }.get(what, ["sh", "-c", script])
        ours = {n: (c["calls"], c["errors"]) for n, c in count(command)["calls"].items()}
        traced = strace_counts(command, tmp_path)
        assert ours == {name: traced.get(name, (0, 0)) for name in WATCHED}

    def test_python_with_threads_and_children(self, count: Count, tmp_path: Path) -> None:
        script = "import subprocess; [subprocess.run(['true']) for _ in range(3)]; x=[1]*3000000"
        command: list[str | Path] = ["/usr/bin/python3", "-S", "-E", "-c", script]
        ours, traced = count(command)["calls"], strace_counts(command, tmp_path)
        for name in ("mmap", "munmap", "brk"):
            assert (ours[name]["calls"], ours[name]["errors"]) == traced.get(name, (0, 0))


class TestFigures:
    def test_bytes_and_errors(self, build: Build, count: Count) -> None:
        program = build("futexes.c", FUTEXES, "-pthread")
        idle = count([program, "4", "0"])["calls"]
        busy = count([program, "4", "400"])["calls"]
        more = {
            (name, figure): number - idle[name][figure]
            for name, figures in busy.items()
            for figure, number in figures.items()
            if figure != "wait_ns"
        }
        assert {key: number for key, number in more.items() if number} == {
            ("futex", "calls"): 4 * 600,
            ("futex", "errors"): 4 * 200,
            ("mmap", "calls"): 400,
            ("mmap", "bytes"): 400 * 12288,
            ("madvise", "calls"): 1200,
            ("madvise", "bytes"): 400 * 12288,
            ("madvise", "dontneed_bytes"): 400 * 4096,
            ("madvise", "free_bytes"): 400 * 8192,
            ("mremap", "calls"): 400,
            ("mremap", "bytes"): 400 * 8192,
            ("munmap", "calls"): 400,
            ("munmap", "bytes"): 400 * 8192,
        }

    def test_threads_and_processes(self, build: Build, count: Count) -> None:
        answer = count([build("futexes.c", FUTEXES, "-pthread"), "7", "1"])
        assert (answer["threads"], answer["processes"]) == (8, 1)
        answer = count([build("family.c", FAMILY), "2"])
        # Depth 2 has three children, two of them of depth 1 with three each.
        assert (answer["threads"], answer["processes"]) == (10, 10)

    def test_break_of_a_child_begins_at_its_parents(self, build: Build, count: Count) -> None:
        program = build("family.c", FAMILY)
        leaf, node = (count([program, depth])["calls"]["brk"] for depth in ("0", "1"))
        # Three images of the program, and one fork that raises and lowers.
        assert node["bytes"] == 3 * leaf["bytes"] + 40960
        assert node["lowered_bytes"] == 3 * leaf["lowered_bytes"] + 8192

    def test_waiting_time(self, build: Build, count: Count) -> None:
        source = """
        #include <linux/futex.h>
        int main(void) {
          int word = 1;
          struct timespec patience = {0, 300000000};
          syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 1, &patience, 0, 0);
          syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, 0, 0, 0);
          return 0;
        }
        """
        futex = count([build("waits.c", source)])["calls"]["futex"]
        assert (futex["calls"], futex["errors"]) == (2, 1)  # it timed out
        assert 300_000_000 <= futex["wait_ns"] < 2_000_000_000

    def test_many_threads_and_calls_in_reasonable_time(self, build: Build, count: Count) -> None:
        begin = time.monotonic()
        answer = count([build("futexes.c", FUTEXES, "-pthread"), "32", "600"])
        assert answer["calls"]["futex"]["calls"] >= 32 * 900
        assert answer["threads"] == 33
        assert time.monotonic() - begin < 30

    def test_preloading_and_environment(self, count: Count, tmp_path: Path) -> None:
        out = tmp_path / "out"
        library = paths.library("libtsmalloc.so")
        script = 'echo "$LD_PRELOAD $A ${B-none}"; cat; pwd; echo e >&2'
        (tmp_path / "in").write_text("input\n")
        options = ["--preload", library, "--env", "A=1", "--unset", "B", "--stdout", out]
        options += ["--stdin", tmp_path / "in", "--cwd", "/", "--stderr", tmp_path / "err"]
        count(["sh", "-c", script], *options)
        assert out.read_text() == f"{library} 1 none\ninput\n/\n"
        assert (tmp_path / "err").read_text() == "e\n"


class TestSignals:
    """The program cannot tell that it is traced by what its signals do."""

    @pytest.mark.parametrize(
        ("script", "exit_code", "number"),
        [
            ("exit 7", 7, None),
            ("kill -KILL $$", None, signal.SIGKILL),
            ("kill -SEGV $$", None, signal.SIGSEGV),
            ("kill -TRAP $$", None, signal.SIGTRAP),
            ("trap 'exit 9' USR1; kill -USR1 $$; sleep 5", 9, None),
            ("trap '' TERM; kill -TERM $$; exit 4", 4, None),
            ("sh -c 'kill -ABRT $$'; exit $(($? - 128))", int(signal.SIGABRT), None),
        ],
    )
    def test_ends(
        self, count: Count, script: str, exit_code: int | None, number: int | None
    ) -> None:
        answer = count(["sh", "-c", script], "--stderr", "/dev/null")
        assert (answer["exit_code"], answer["signal"]) == (exit_code, number)

    def test_stop_and_go_on(self, count: Count, build: Build) -> None:
        source = """
        static volatile int children, continued;
        static void on_child(int s) { ++children; }
        static void on_continue(int s) { ++continued; }
        int main(void) {
          struct sigaction action = {.sa_handler = on_child, .sa_flags = SA_RESTART};
          sigaction(SIGCHLD, &action, 0);
          action.sa_handler = on_continue;
          pid_t child = fork();
          if (child == 0) {
            sigaction(SIGCONT, &action, 0);
            raise(SIGSTOP);
            raise(SIGSTOP);
            _exit(continued == 2 ? 0 : 3);
          }
          int status;
          for (int i = 0; i < 2; ++i) {
            if (waitpid(child, &status, WUNTRACED) != child || !WIFSTOPPED(status)) return 10 + i;
            if (WSTOPSIG(status) != SIGSTOP) return 20 + i;
            usleep(50000);                       /* it must still be stopped */
            if (waitpid(child, &status, WNOHANG | WUNTRACED) != 0) return 30 + i;
            kill(child, SIGCONT);
          }
          if (waitpid(child, &status, 0) != child || status != 0) return 40;
          return children >= 3 ? 0 : 50;         /* two stops and one end */
        }
        """
        assert count([build("stops.c", source)])["exit_code"] == 0

    def test_interrupted_calls_are_repeated(self, count: Count, build: Build) -> None:
        source = """
        static atomic_int seen, go;
        static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
        static void on_signal(int s) { ++seen; }
        static void* wait_for_lock(void* none) {
          go = 1;
          pthread_mutex_lock(&lock);
          pthread_mutex_unlock(&lock);
          return none;
        }
        int main(void) {
          struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
          sigaction(SIGUSR1, &action, 0);
          pthread_mutex_lock(&lock);
          pthread_t thread;
          pthread_create(&thread, 0, wait_for_lock, 0);
          while (!go) usleep(1000);
          usleep(50000);
          for (int i = 0; i < 20; ++i) {
            pthread_kill(thread, SIGUSR1);
            while (seen == i) usleep(1000);
            usleep(1000);
          }
          pthread_mutex_unlock(&lock);
          pthread_join(thread, 0);
          return seen == 20 ? 0 : 1;
        }
        """
        answer = count([build("restarts.c", source, "-pthread")])
        assert answer["exit_code"] == 0
        assert answer["calls"]["futex"]["calls"] >= 20


class TestProcesses:
    def test_exec_from_a_thread(self, count: Count, build: Build) -> None:
        target = build("futexes.c", FUTEXES, "-pthread")
        source = f"""
        static atomic_int begun;
        static void* sleep_on(void* none) {{ ++begun; pause(); return none; }}
        static void* become(void* none) {{
          while (begun != 4) usleep(1000);
          execl("{target}", "futexes", "3", "100", (char*)0);
          return none;
        }}
        int main(void) {{
          pthread_t threads[5];
          for (int i = 0; i < 4; ++i) pthread_create(&threads[i], 0, sleep_on, 0);
          pthread_create(&threads[4], 0, become, 0);
          pthread_join(threads[0], 0);
          return 1;
        }}
        """
        answer = count([build("becomes.c", source, "-pthread")])
        assert answer["exit_code"] == 0
        assert (answer["threads"], answer["processes"]) == (6 + 3, 1)
        assert answer["calls"]["munmap"]["bytes"] >= 3 * 25 * 8192

    def test_forks_from_busy_threads(self, count: Count, build: Build) -> None:
        source = """
        static void* work(void* none) {
          for (int i = 0; i < 25; ++i) {
            pid_t child = fork();
            if (child == 0) { free(malloc(300000)); _exit(0); }
            int status = 1;
            if (waitpid(child, &status, 0) != child || status) exit(1);
          }
          return none;
        }
        int main(void) {
          pthread_t threads[4];
          for (int i = 0; i < 4; ++i) pthread_create(&threads[i], 0, work, 0);
          for (int i = 0; i < 4; ++i) pthread_join(threads[i], 0);
          return 0;
        }
        """
        answer = count([build("forks.c", source, "-pthread")])
        assert (answer["exit_code"], answer["processes"], answer["threads"]) == (0, 101, 105)
        assert answer["calls"]["mmap"]["calls"] >= 100

    def test_timeout_ends_the_whole_tree(self, count: Count, tmp_path: Path) -> None:
        script = f"trap '' TERM; (trap '' TERM; echo $$ > {tmp_path}/p; sleep 60) & sleep 60"
        begin = time.monotonic()
        answer = count(["sh", "-c", script], "--timeout", "0.3")
        assert answer["timed_out"]
        assert time.monotonic() - begin < 10
        assert not is_alive(int((tmp_path / "p").read_text()))

    def test_timeout_of_a_busy_and_of_a_stopped_program(self, count: Count, build: Build) -> None:
        busy: list[str | Path] = [build("futexes.c", FUTEXES, "-pthread"), "4", "100000000"]
        for command in (busy, ["sh", "-c", "kill -STOP $$"]):
            answer = count(command, "--timeout", "0.3")
            assert (answer["timed_out"], answer["signal"]) == (True, signal.SIGTERM)

    def test_what_the_root_leaves_behind_is_ended(self, count: Count) -> None:
        answer = count(["sh", "-c", "setsid sleep 60 & exit 0"])
        assert (answer["exit_code"], answer["left_behind"]) == (0, 1)

    def test_interrupt(self, tmp_path: Path) -> None:
        note, answer = tmp_path / "note", tmp_path / "answer"
        command = ["sh", "-c", f"echo x > {note}; sleep 60"]
        process = subprocess.Popen([paths.tool("syscalls"), "--output", answer, "--", *command])
        wait_until(note.exists)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
        assert '"interrupted": true' in answer.read_text()

    def test_nothing_outlives_a_killed_tracer(self, tmp_path: Path) -> None:
        note = tmp_path / "note"
        command = ["sh", "-c", f"(echo $$ > {note}; sleep 60) & sleep 60"]
        process = subprocess.Popen([paths.tool("syscalls"), "--", *command])
        wait_until(lambda: note.exists() and note.read_text().endswith("\n"))
        process.kill()
        process.wait(timeout=30)
        wait_until(lambda: not is_alive(int(note.read_text())))


class TestFailures:
    def test_program_or_folder_that_does_not_exist(self, count: Count) -> None:
        answer = count(["/no/such/program"])
        assert answer["spawn_error"]["errno"] == 2
        assert (answer["exit_code"], answer["signal"]) == (None, None)
        assert answer["calls"]["mmap"]["calls"] == 0
        assert "enter /no/such" in count(["true"], "--cwd", "/no/such")["spawn_error"]["message"]

    @pytest.mark.parametrize(
        "arguments", [[], ["--timeout", "0", "--", "true"], ["--sample-ms", "1", "--", "true"]]
    )
    def test_wrong_usage(self, arguments: list[str]) -> None:
        assert "syscalls --help" in run(*arguments, status=1).stderr

    @pytest.mark.parametrize(("output", "status"), [("/no/such/file", 1), ("/dev/full", 125)])
    def test_output_that_cannot_be_written(self, output: str, status: int) -> None:
        done = run("--output", output, "--", "true", status=status)
        assert done.stderr.startswith("syscalls: cannot write")

    @pytest.mark.parametrize("refused", ["ptrace", "seccomp"])
    def test_containers_that_refuse(self, build: Build, refused: str) -> None:
        source = f"""
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        int main(int argc, char** argv) {{
          struct sock_filter code[] = {{
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_{refused}, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)}};
          struct sock_fprog filter = {{4, code}};
          prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
          if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 1;
          execv(argv[1], argv + 1);
          return 2;
        }}
        """
        jail = build("jail.c", source)
        done = ran(jail, paths.tool("syscalls"), "--", "sh", "-c", "echo it ran", status=126)
        assert done.stdout == ""
        assert refused in done.stderr
        assert "--cap-add=SYS_PTRACE" in done.stderr

    def test_under_a_tracer_that_follows_children(self) -> None:
        if shutil.which("strace") is None:
            pytest.skip("strace is not installed")
        strace = ("strace", "-f", "-o", "/dev/null")
        ran(*strace, paths.tool("syscalls"), "--", "true", status=126)


def test_descriptors_do_not_leak(count: Count, tmp_path: Path) -> None:
    out = tmp_path / "out"
    count(["ls", "/proc/self/fd"], "--stdout", out)
    assert out.read_text().split() == ["0", "1", "2", "3"]  # 3 is the listing's own


def test_no_signal_stays_blocked_or_ignored(count: Count, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"]
    # The runner of the tests may ignore a signal, and that is passed on.
    without = ran(*command, status=0).stdout
    count(command, "--stdout", out)
    assert out.read_text() == without
