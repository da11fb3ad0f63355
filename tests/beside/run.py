#!/usr/bin/env python3
"""Runs programs under drop-in libraries beside another preloaded library that hooks libc.

    run.py --lib build/release/lib/libtsmalloc.so
    run.py --lib .../libtsmalloc.so --hook mmap --mode lock --order hook:lib --stacks
    run.py --lib .../libtsmalloc-secure.so --hook each --jobs 4

The library of hooks (hooks.c) is compiled here: it hooks each function that the libraries under
test import, so nobody has to keep a list. `--lib none` runs the programs under libc's own malloc,
which checks the tests themselves. `--hook` is all (at once), each (one after the other), or names.
A run that has not ended after `--timeout` seconds counts as a hang; `--stacks` then prints where its
threads are, by gdb.
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

HERE = Path(__file__).resolve().parent
SKIPPED = 77  # the exit status that CMake takes for a skipped test

# What is imported and not hooked, each with its reason.
NOT_HOOKED = {
    r"_ITM_.*|__gmon_start__": "nobody defines them",
    r"__gxx_personality_v0|__cxa_(begin|end)_catch|_Z.*": "defined in C++ programs only",
    r"__cxa_finalize": "start-up files call it as the process ends, after the hooks' own end",
    r"stderr|(__)?environ|__progname|program_invocation_.*": "variables",
}
# Hooked though no library may import them: announced.c sees them, and the programs call them.
ALWAYS_HOOKED = ("madvise", "mmap", "mremap", "munmap")

# What a hook does, and what keeps it from calling itself.
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
    "profile": {"TSMALLOC_PROFILE": "on"},
    "guard": {"TSMALLOC_GUARD_SAMPLE": "100"},
    "background": {"TSMALLOC_BACKGROUND": "on"},
}
COMPILER_OPTIONS = "-std=gnu17 -D_GNU_SOURCE -O1 -g -fno-builtin -Wall -Wextra -pthread".split()


@dataclass(frozen=True)
class Case:
    """One run of the battery."""

    library: Path | None
    hook: str
    mode: str
    order: str
    options: str

    def __str__(self) -> str:
        library = self.library.name if self.library else "libc"
        if self.library and self.library.parent.name == "counted":
            library = f"counted/{library}"
        return f"{library} {self.options}, hook {self.hook}, {self.mode}, {self.order}"


@dataclass(frozen=True)
class Ended:
    """How a program ended: None if it was killed as a hang."""

    status: int | None
    output: str

    def fault(self, seconds: float) -> str | None:
        """What is wrong about it, in a line; or None."""
        if self.status == 0:
            return None
        if self.status is None:
            how = f"hangs (killed after {seconds:g} s)"
        elif self.status < 0:
            how = f"dies of {signal.Signals(-self.status).name}"
        else:
            how = f"exits with status {self.status}"
        said = self.output.strip()
        return f"{how}: {said}" if said else how


def imports(library: Path) -> set[str]:
    """The undefined dynamic symbols of a library, without versions."""
    command = ["nm", "--dynamic", "--undefined-only", str(library)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines()}


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


def build_program(name: str, compiler: str, folder: Path) -> Path:
    """Compiles a program, where CMake has not."""
    program = folder / name
    command = [compiler, *COMPILER_OPTIONS, HERE / f"{name}.c", "-o", program, "-ldl"]
    subprocess.run(command, check=True)
    return program


def stacks_of(group: int) -> str:
    """Where the threads of all processes of a group are."""
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
    """Runs a program in a folder of its own."""
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
            # Children that a hung process forked, too.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        output.seek(0)
        return Ended(status, output.read().decode(errors="replace")[:3000] + stack)


@dataclass(frozen=True)
class Bench:
    """What a run needs: the programs, the hooks, and how long a run may take."""

    hooks: Path
    programs: dict[str, Path]
    seconds: float
    stacks: bool

    def battery(self, case: Case) -> Ended:
        """One run of beside.c."""
        mode, guard = MODES[case.mode]
        variables = {"BESIDE_MODE": mode, "BESIDE_GUARD": guard, **OPTIONS[case.options]}
        if case.hook != "all":
            variables["BESIDE_HOOK"] = case.hook
        preloaded = [self.hooks] + ([case.library] if case.library else [])
        if case.order == "lib:hook":
            preloaded.reverse()
        variables["LD_PRELOAD"] = ":".join(map(str, preloaded))
        command: list[str | Path] = [self.programs["beside"]]
        if case.hook == "all" and case.options == "background":
            command.append("--idle")
        elif case.hook != "all":
            command.append("--brief")
        return run(command, variables, self.seconds, self.stacks)


def cases(arguments: argparse.Namespace, names: Sequence[str]) -> Iterator[Case]:
    """The runs of the battery that were asked for."""
    hooks = [
        hook
        for asked in arguments.hook or ["all"]
        for hook in (names if asked == "each" else [asked])
    ]
    for library in arguments.lib:
        options = arguments.options or ["plain"]
        if library and library.name != "libtsmalloc.so":
            options = ["plain"]
        for case in itertools.product(
            [library], hooks, arguments.mode or MODES, arguments.order or ORDERS, options
        ):
            yield Case(*case)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--lib", action="append", required=True, help="a drop-in library, or none")
    add("--hook", action="append", help="all (the default), each, or the name of a function")
    add("--mode", action="append", choices=MODES, help="default: all")
    add("--order", action="append", choices=ORDERS, help="default: both")
    add("--options", action="append", choices=OPTIONS, help="of the engine; default: plain")
    add("--timeout", type=float, default=20, metavar="SECONDS", help="default: 20")
    add("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at a time")
    add("--stacks", action="store_true", help="where the threads of a hang are, by gdb")
    add("--most-faults", type=int, default=10, help="stop after so many; default: 10")
    add("--programs", type=Path, metavar="FOLDER", help="where the programs are; default: compile")
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
        programs = {
            name: arguments.programs / name
            if arguments.programs
            else build_program(name, arguments.cc, folder)
            for name in ("beside",)
        }
        hooks = build_hooks(names, arguments.cc, folder)
        bench = Bench(hooks, programs, arguments.timeout, arguments.stacks)
        faults = runs = 0
        with ThreadPoolExecutor(arguments.jobs) as pool:
            todo = list(cases(arguments, names))
            for case, ended in zip(todo, pool.map(bench.battery, todo), strict=True):
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
