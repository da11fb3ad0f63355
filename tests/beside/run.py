#!/usr/bin/env python3
"""Runs programs under drop-in libraries, with another preloaded library that hooks libc.

    run.py --lib build/release/lib/libtsmalloc.so
    run.py --lib .../libtsmalloc.so --hook mmap --mode lock --order hook:lib --stacks
    run.py --lib .../libtsmalloc-secure.so --hook each --jobs 4

It compiles the library of hooks (hooks.c), which hooks each function that the libraries under test
import, so nobody has to keep a list. `--lib none` runs the programs under libc's own malloc, which
checks the tests themselves. `--hook` is all (at once), each (one after the other), or names. A run
that takes longer than `--timeout` seconds counts as a hang; `--stacks` then prints its threads'
stacks with gdb.

The programs: beside.c uses the heap in every way; announced.c checks that hooks of munmap and
madvise learn of all pages that go away, and are called without a lock; strict.c checks which system
calls are made.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from imports import imports

HERE = Path(__file__).resolve().parent
BUILT = HERE.parents[1] / "build" / "release" / "beside"
SKIPPED = 77  # the exit status that CMake treats as a skipped test

# Imports that are not hooked, each with its reason.
NOT_HOOKED = {
    r"_ITM_.*|__gmon_start__": "nobody defines them",
    r"__gxx_personality_v0|__cxa_(begin|end)_catch|_Z.*": "defined in C++ programs only",
    r"__cxa_finalize": "start-up files call it as the process ends, after the hooks' own end",
    r"stderr|(__)?environ|__progname|program_invocation_.*": "variables",
}
# Hooked although no library may import them: announced.c watches them, and the programs call them.
ALWAYS_HOOKED = ("madvise", "mmap", "mremap", "munmap")

# What a hook does, and what keeps it from recursing.
MODES = {
    "allocate": ("allocate", "flag"),
    "unguarded": ("allocate", "depth"),
    "lock": ("lock", "flag"),
    "dlsym": ("dlsym", "flag"),
    "fail": ("fail", "flag"),
}
ORDERS = ("hook:lib", "lib:hook")
OPTIONS: dict[str, dict[str, str]] = {
    "plain": {},
    "profile": {"TSMALLOC_PROFILE": "16K"},
    "guard": {"TSMALLOC_GUARD_SAMPLE": "100"},
    "background": {"TSMALLOC_BACKGROUND": "on"},
    "quiet": {"TSMALLOC_BACKGROUND": "off"},
}
PROGRAMS = ("beside", "announced", "strict")
COMPILER_OPTIONS = ("-std=gnu17", "-D_GNU_SOURCE", "-O1", "-g", "-fno-builtin", "-Wall", "-pthread")


# Which libraries announce pages that go away. (libc's own malloc calls nothing that can be hooked.)
ANNOUNCING = re.compile(r"libtsmalloc(-.*)?\.so")

# System calls beyond those that strict.c allows, by library; listed in docs/guarantees.md
# (Kernels).
PAGE_MAP = ("openat", "pread64", "close", "fcntl", "msync")
LIMITS = ("openat", "read", "close")
BACKGROUND = ("rt_sigprocmask", "clone3", "clone", "rseq", "set_robust_list", "prctl", "getpid")
SANDBOXES: dict[str, tuple[str, ...]] = {
    "libc": ("getrandom", "openat", "read", "close"),
    "libtsmalloc.so": (*PAGE_MAP, *LIMITS),
    "libtsmalloc-secure.so": ("getrandom", "msync"),
    **{
        f"libtsmalloc-arenas-{fit}.so": ("sched_getaffinity",) for fit in ("first", "best", "worst")
    },
}
MOMENTS = ("preinit", "main", "threads")


def short_name(library: Path | None) -> str:
    """Its file name, for messages."""
    if library is None:
        return "libc"
    name = library.name.partition(".so")[0] + ".so"  # without its version
    return f"counted/{name}" if library.parent.name == "counted" else name


@dataclass(frozen=True)
class Case:
    """One run of a program: a set of beside.c's runs, or announced.c or strict.c."""

    library: Path | None
    program: str
    hook: str
    mode: str
    order: str
    options: str

    def __str__(self) -> str:
        what = f"hook {self.hook}, {self.mode}, {self.order}" if self.hook else self.mode
        return f"{short_name(self.library)}, {self.options}: {self.program}: {what}"


@dataclass(frozen=True)
class Ended:
    """How a program ended: None if it was killed as a hang."""

    status: int | None
    output: str

    def fault(self, seconds: float) -> str | None:
        """What is wrong with it, in a line; or None."""
        if self.status in (0, SKIPPED):
            return None
        if self.status is None:
            how = f"hangs (killed after {seconds:g} s)"
        elif self.status < 0:
            how = f"dies of {signal.Signals(-self.status).name}"
        else:
            how = f"exits with status {self.status}"
        said = self.output.strip()
        return f"{how}: {said}" if said else how


def hooked(libraries: Iterable[Path]) -> list[str]:
    """The functions to hook."""
    names = set(ALWAYS_HOOKED).union(*map(imports, libraries))
    return sorted(name for name in names if not any(re.fullmatch(p, name) for p in NOT_HOOKED))


def build_hooks(names: Sequence[str], compiler: str, folder: Path) -> Path:
    """Compiles the library of hooks."""
    lines = [f"  X({index}, {name})" for index, name in enumerate(names)]
    header = "#define HOOKED_NAMES(X) \\\n" + " \\\n".join(lines) + "\n"
    (folder / "hooked_names.h").write_text(header)
    library = folder / "libhooks.so"
    command = [compiler, *COMPILER_OPTIONS, "-shared", "-fPIC", f"-I{folder}"]
    subprocess.run([*command, HERE / "hooks.c", "-o", library, "-ldl"], check=True)
    return library


def stacks_of(group: int) -> str:
    """The stacks of all threads in a process group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) != group:
                continue
        except ProcessLookupError:
            continue
        command = ["gdb", "-p", folder.name, "-batch", "-ex", "thread apply all backtrace 30"]
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        found += [line for line in text.splitlines() if re.match(r"Thread|#", line)]
    return "\n".join(found)


def run(
    command: Sequence[str | Path], variables: dict[str, str], seconds: float, stacks: bool
) -> Ended:
    """Runs a program in a directory of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TSMALLOC_")}
    with (
        tempfile.TemporaryDirectory() as folder,
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            command,
            env=kept | variables,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        status: int | None = None
        stack = ""
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            stack = stacks_of(process.pid) if stacks else ""
        finally:
            # Including children that a hung process forked.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return Ended(status, output.read().decode(errors="replace")[:3000] + stack)


@dataclass(frozen=True)
class Bench:
    """What runs need: the programs, the hooks, and the time limit."""

    hooks: Path
    programs: Path
    seconds: float
    stacks: bool
    is_brief: bool

    def run(self, case: Case) -> Ended:
        """Runs a case."""
        command: list[str | Path] = [self.programs / case.program]
        variables = dict(OPTIONS[case.options])
        preloaded = [case.library] if case.library else []
        if case.program == "strict":
            calls = SANDBOXES.get(short_name(case.library), ())
            command += [case.mode, *calls, *(BACKGROUND if case.options != "quiet" else ())]
        else:
            preloaded.insert(0 if case.order == "hook:lib" else len(preloaded), self.hooks)
        if case.program == "announced":
            variables["BESIDE_MODE"] = "helper"
        if case.program == "beside":
            variables["BESIDE_MODE"], variables["BESIDE_GUARD"] = MODES[case.mode]
            if case.hook != "all":
                variables["BESIDE_HOOK"] = case.hook
            if case.options == "background" and case.hook == "all":
                command.append("--idle")
            elif self.is_brief or case.hook != "all":
                command.append("--brief")
        variables["LD_PRELOAD"] = ":".join(map(str, preloaded))
        return run(command, variables, self.seconds, self.stacks)


def cases(arguments: argparse.Namespace, names: Sequence[str]) -> Iterator[Case]:
    """The runs that were asked for."""
    hooks = [
        hook
        for asked in arguments.hook or ["all"]
        for hook in (names if asked == "each" else [asked])
    ]
    for library in arguments.lib:
        is_engine = library and library.name == "libtsmalloc.so"
        options = (arguments.options or ["plain"]) if is_engine else ["plain"]
        orders = arguments.order or ORDERS
        for program in arguments.program or PROGRAMS:
            if program == "beside":
                modes = arguments.mode or MODES
                for hook, mode, order, option in itertools.product(hooks, modes, orders, options):
                    yield Case(library, program, hook, mode, order, option)
            elif program == "announced" and ANNOUNCING.fullmatch(short_name(library)):
                for order, option in itertools.product(orders, options):
                    yield Case(library, program, "", order, order, option)
            elif program == "strict":
                for moment, option in itertools.product(MOMENTS, [*options, "quiet"]):
                    if is_engine or option == "quiet":
                        yield Case(library, program, "", moment, "", option)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--lib", action="append", required=True, help="a drop-in library, or none")
    add("--program", action="append", choices=PROGRAMS, help="default: all three")
    add("--hook", action="append", help="all (the default), each, or the name of a function")
    add("--mode", action="append", choices=MODES, help="default: all")
    add("--order", action="append", choices=ORDERS, help="default: both")
    add("--options", action="append", choices=OPTIONS, help="of the engine; default: plain")
    add("--timeout", type=float, default=20, metavar="SECONDS", help="default: 20")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at a time")
    add("--stacks", action="store_true", help="where the threads of a hang are, by gdb")
    add("--most-faults", type=int, default=10, help="stop after so many; default: 10")
    add("--brief", action="store_true", help="less of everything")
    add("--programs", type=Path, default=BUILT, help="their folder; default: build/release/beside")
    add("--cc", default="cc", help="the compiler of the hooks")
    arguments = parser.parse_args()
    arguments.lib = [None if lib == "none" else Path(lib).absolute() for lib in arguments.lib]
    return arguments


def main() -> int:
    """1 if a run failed."""
    arguments = parse()
    if platform.machine() != "x86_64":
        print("skipped: the trampolines of the hooks are written for x86-64")
        return SKIPPED
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        names = hooked(filter(None, arguments.lib))
        hooks = build_hooks(names, arguments.cc, folder)
        bench = Bench(
            hooks, arguments.programs, arguments.timeout, arguments.stacks, arguments.brief
        )
        faults = runs = 0
        with ThreadPoolExecutor(arguments.jobs) as pool:
            todo = list(cases(arguments, names))
            for case, ended in zip(todo, pool.map(bench.run, todo), strict=True):
                runs += 1
                if fault := ended.fault(arguments.timeout):
                    print(f"{case}: {fault}", flush=True)
                    faults += 1
                    if faults == arguments.most_faults:
                        pool.shutdown(wait=False, cancel_futures=True)
                        break
    print(f"{runs} runs, {faults} failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
