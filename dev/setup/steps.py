"""The steps of a set-up: check the tools; then make .venv and build the libraries, both at once.

The first use of ./tsmalloc shows what happens and for how long, and when a step fails, what to do
about it. It does not install system packages: all that are missing are listed in one apt command.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, MappingProxyType

import progress
import state

MINIMUM_CMAKE = (3, 25)
OLD_COMPILER = "the C++ compiler is too old: install g++ 12, clang++ 16 or newer"
# The oldest major version of each compiler with enough C++20, newest names first.
COMPILERS = {"g++": 12, "clang++": 16}
GOOGLETEST_HEADERS = ("/usr/include/gtest/gtest.h", "/usr/local/include/gtest/gtest.h")
ZSTD_HEADERS = ("/usr/include/zstd.h", "/usr/local/include/zstd.h")
LOG_LINES_SHOWN = 15
VENV_REMEDY = "sudo apt install python3-venv, then start again."
PIP_REMEDY = (
    "The first use downloads the Python packages: check that the network (or pip's mirror) works, "
    "then start again; later uses need no network.\nIf it works, there may be no binary package "
    f"for Python {sys.version_info.major}.{sys.version_info.minor} on this machine: all are "
    "there for "
    "CPython 3.11 to 3.13 on x86-64 and ARM64."
)
BUILD_REMEDY = (
    "If the compiler ran out of memory, close other programs and start again; to try another "
    "compiler: rm -r build/release; CXX=clang++ CC=clang ./tsmalloc list"
)


class SetupError(Exception):
    """A step failed: what happened, and what to do about it."""

    def __init__(self, message: str, remedy: str, output: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy
        self.output = output


class Work:
    """Shared by the steps of one set-up: the checkout, the display, and the processes."""

    def __init__(self, checkout: state.Checkout, lock: int) -> None:
        self.checkout = checkout
        self.display = progress.Display()
        self._lock = lock
        self._guard = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def start(self, command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[str]:
        # The user's preloaded libraries and an outer make's job server are not meant for these
        # programs.
        dropped = {"LD_PRELOAD", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"}
        inherited = {name: value for name, value in os.environ.items() if name not in dropped}
        with self._guard:
            if self._stopped:
                raise KeyboardInterrupt
            child = subprocess.Popen(
                command,
                cwd=self.checkout.root,
                env=inherited | dict(environment),
                stdin=subprocess.DEVNULL,  # the user's stdin belongs to the program that runs later
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=[self._lock],
                process_group=0,
            )
            self._running.add(child)
        return child

    def end(self, child: subprocess.Popen[str]) -> None:
        """Ends a child that is still running, and all processes that it started."""
        terminate(child)
        child.wait()
        with self._guard:
            self._running.discard(child)

    def stop(self) -> None:
        """Ends every step's child, and lets no other start."""
        with self._guard:
            self._stopped = True
            for child in self._running:
                terminate(child)

    def at_once(self, one: Callable[[], None], other: Callable[[], None]) -> None:
        """Runs two steps at the same time. The first failure ends both, and is raised."""
        failures: list[BaseException] = []

        def guarded(step: Callable[[], None]) -> None:
            try:
                step()
            except BaseException as failure:  # raised again below
                failures.append(failure)
                self.stop()

        thread = threading.Thread(target=guarded, args=(one,))
        thread.start()
        guarded(other)
        guarded(thread.join)
        thread.join()
        if failures:
            raise failures[0]


def terminate(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)


def set_up(checkout: state.Checkout, parts: frozenset[str], for_development: bool) -> int:
    """Brings .venv and the parts of the build up to date; reports failures, and returns an exit
    status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        check_tools(checkout, parts, for_development)
        with exclusive(checkout) as lock:
            work = Work(checkout, lock)
            work.at_once(
                lambda: set_up_python(work, for_development),
                lambda: set_up_build(work, parts, for_development),
            )
    except SetupError as error:
        print(f"{error.output}tsmalloc: {error}", file=sys.stderr)
        print("".join(f"  {line}\n" for line in error.remedy.splitlines()), end="", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"tsmalloc: setup cannot write: {error}", file=sys.stderr)
        print("  Free some space, or copy this directory to a writable place.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("tsmalloc: setup interrupted; the next use resumes it", file=sys.stderr)
        return 130
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == _interrupt:
                signal.signal(number, signal.SIG_DFL)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def check_tools(checkout: state.Checkout, parts: frozenset[str], for_development: bool) -> None:
    """Reports all missing tools for these parts at once."""
    missing = []
    problems = []
    if not state.read(checkout.python_stamp) and importlib.util.find_spec("ensurepip") is None:
        missing.append("python3-venv")
    if parts and "TSMALLOC_BUILD_DIR" not in os.environ:
        if shutil.which("cmake") is None:
            missing.append("cmake")
        elif version_of("cmake") < MINIMUM_CMAKE:
            problems.append(
                "cmake is older than 3.25: install a newer one, from your system's "
                "backports or with: pip install cmake"
            )
        if shutil.which("make") is None and os.environ.get("CMAKE_GENERATOR") is None:
            missing.append("make")
        lacking, wrong = check_compiler()
        missing += lacking
        problems += wrong
        if "traces" in parts and not any(map(os.path.exists, ZSTD_HEADERS)):
            missing.append("libzstd-dev")
    if for_development and not any(map(os.path.exists, GOOGLETEST_HEADERS)):
        missing.append("libgtest-dev")
    if not missing and not problems:
        return
    remedy = [f"sudo apt install {' '.join(missing)}"] if missing else []
    raise SetupError("some tools are missing on this machine.", "\n".join(remedy + problems))


def check_compiler() -> tuple[list[str], list[str]]:
    """The missing package of the C++ compiler, and what is wrong with the installed one."""
    if chosen := os.environ.get("CXX"):
        wrong = unfit(chosen)
        return [], [wrong] if wrong else []
    if find_compiler() is not None:
        return [], []
    missing = [] if shutil.which("g++") else ["g++"]
    is_old = any(map(shutil.which, COMPILERS))
    return missing, [OLD_COMPILER] if is_old else []


def version_of(tool: str) -> tuple[int, ...]:
    """The first dotted number that `tool --version` prints; (0,) if it prints none."""
    try:
        run = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return (0,)
    found = re.search(r"\d+(\.\d+)+", run.stdout)
    return tuple(int(part) for part in found.group().split(".")) if found else (0,)


def find_compiler() -> str | None:
    """The C++ compiler to use: the first one that is new enough, with or without a version in its
    name."""
    for name, oldest in COMPILERS.items():
        numbered = [f"{name}-{number}" for number in range(oldest + 12, oldest - 1, -1)]
        for candidate in (name, *numbered):
            if shutil.which(candidate) and version_of(candidate) >= (oldest,):
                return candidate
    return None


def unfit(command: str) -> str | None:
    """Why the compiler that the user chose cannot be used; None if it can, or is unknown."""
    words = shlex.split(command)
    needed = "g++ 12, clang++ 16 or newer"
    if not words or shutil.which(words[0]) is None:
        return f"CXX={command} was not found: unset CXX, or set it to {needed}"
    run = subprocess.run([*words, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"\d+(\.\d+)+", run.stdout)
    family = "clang++" if "clang" in run.stdout else "g++"
    if family == "g++" and "Free Software Foundation" not in run.stdout:
        return None
    if found is None or int(found.group().split(".")[0]) >= COMPILERS[family]:
        return None
    return (
        f"CXX={command} is {family} {found.group()}, which is too old: unset CXX, or set it to "
        f"{needed}"
    )


def compiler_choice() -> dict[str, str]:
    """Passes the compiler that was found to CMake, unless the user has chosen one."""
    compiler = find_compiler()
    if compiler is None or os.environ.get("CXX"):
        return {}
    c_compiler = compiler.replace("clang++", "clang").replace("g++", "gcc")
    return {"CXX": compiler, "CC": os.environ.get("CC", c_compiler)}


@contextlib.contextmanager
def exclusive(checkout: state.Checkout) -> Iterator[int]:
    """Allows only one set-up of a checkout at a time. Yields the lock, for the steps' processes to
    hold.

    They inherit it so that, if this process is killed, the next set-up waits until they stop
    writing.
    """
    os.makedirs(os.path.dirname(checkout.lock), exist_ok=True)
    lock = os.open(checkout.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("tsmalloc: waiting for another setup of this directory", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


def set_up_python(work: Work, for_development: bool) -> None:
    checkout = work.checkout
    if state.python_is_current(checkout, for_development):
        return
    keys = state.python_key(checkout, False)
    if for_development:
        keys += state.python_key(checkout, True)
    version = keys.partition(" requirements")[0]
    reusable = state.read(checkout.python_stamp).startswith(version)
    reusable = reusable and os.access(checkout.python, os.X_OK)
    remove(checkout.python_stamp)
    # The base interpreter, since the one that runs this may be the very .venv that is recreated.
    base = getattr(sys, "_base_executable", sys.executable)
    with Step(work, "packages", "Python packages (.venv)") as step:
        if not reusable:
            step.run([base, "-I", "-m", "venv", "--clear", checkout.venv], VENV_REMEDY)
        step.run(
            [
                checkout.python,
                "-I",
                "-m",
                "pip",
                "install",
                "--disable-pip-version-check",
                "--no-input",
                "--progress-bar=off",
                "--no-compile",  # most modules are never imported
                "--require-hashes",
                "--only-binary=:all:",
                "-r",
                checkout.requirements(for_development),
            ],
            PIP_REMEDY,
        )
        link_package(checkout)
    write_whole(checkout.python_stamp, keys)


def link_package(checkout: state.Checkout) -> None:
    """Makes .venv import the lab from the checkout, by a relative path that survives a move."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = os.path.join(checkout.venv, "lib", version, "site-packages")
    write_whole(os.path.join(site, "tsmlab.pth"), "../../../../lab\n")


def set_up_build(work: Work, parts: frozenset[str], for_development: bool) -> None:
    checkout = work.checkout
    if "TSMALLOC_BUILD_DIR" in os.environ:
        return
    if state.build_is_current(checkout, parts) and not for_development:
        return
    # Computed before the build: a source that changes during it is compiled again next time.
    key = state.build_key(checkout)
    stamp = state.read(checkout.build_stamp)
    finished = state.built_parts(checkout, key)
    if parts <= finished:
        finished = frozenset()  # files of this part are gone, and maybe those of others
    cache = os.path.join(checkout.build, "CMakeCache.txt")
    here = f"CMAKE_HOME_DIRECTORY:INTERNAL={checkout.root}\n" in state.read(cache)
    fresh = not (stamp and here)
    configure = ["cmake", "--preset", "release", *(["--fresh"] if fresh else [])]
    if for_development:
        configure += ["-DTSMALLOC_TESTS=ON", "-DTSMALLOC_WERROR=ON"]
    elif fresh:
        # Users need no GoogleTest, and a newer compiler's new warnings must not stop a set-up.
        configure += ["-DTSMALLOC_TESTS=OFF", "-DTSMALLOC_WERROR=OFF"]
    elif "\nTSMALLOC_WERROR:BOOL=OFF\n" in state.read(cache):
        configure.append("-DTSMALLOC_WERROR=OFF")  # the preset's ON would recompile everything
    jobs = len(os.sched_getaffinity(0))
    build = ["cmake", "--build", "--preset", "release", "-j", str(jobs)]
    if not for_development:
        build += ["--target", *(f"part_{part}" for part in sorted(parts))]
    if stamp.startswith(state.BUILDING):
        # A compiler killed while writing may have left half an object file that looks up to date.
        build.append("--clean-first")
        finished = frozenset()
    with Step(work, "build", "the allocators (build/release)") as step:
        step.run(configure, BUILD_REMEDY, compiler_choice() if fresh else {})
        write_whole(checkout.build_stamp, state.build_stamp(finished, key, state.BUILDING))
        try:
            step.run(build, BUILD_REMEDY)
        except (SetupError, KeyboardInterrupt):
            write_whole(checkout.build_stamp, state.build_stamp(finished, key))
            raise
    write_whole(checkout.build_stamp, state.build_stamp(parts | finished, key))


class Step:
    """One named step of the set-up: shows its progress and saves all its output in a log."""

    def __init__(self, work: Work, log: str, name: str) -> None:
        self._work = work
        self._log = work.checkout.log(log)
        self._name = name

    def __enter__(self) -> Step:
        remove(self._log)
        self._work.display.start(self._name)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._work.display.finish(self._name, "done" if kind is None else "stopped")

    def run(
        self,
        command: list[str],
        remedy: str,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Runs a command to its end; if it fails, raises SetupError with the end of its output."""
        tail: deque[str] = deque(maxlen=LOG_LINES_SHOWN)
        with open(self._log, "a", encoding="utf-8") as log:
            log.write(f"\n$ {' '.join(command)}\n")
            child = self._work.start(command, environment)
            try:
                assert child.stdout is not None
                for line in child.stdout:
                    log.write(line)
                    tail.append(line)
                    self._work.display.show(self._name, line)
                status = child.wait()
            finally:
                self._work.end(child)
        if status != 0:
            raise SetupError(
                f"setting up {self._name} failed: {os.path.basename(command[0])} exited with "
                f"status {status}.",
                f"{remedy}\nFull log: {self._log}",
                "".join(f"  | {line}" for line in tail),
            )


def remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.remove(path)


def write_whole(path: str, text: str) -> None:
    """Writes a file atomically, so that no reader sees half of it."""
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(temporary, path)
