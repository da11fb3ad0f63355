"""A foreign pointer or a double free is reported, and an option decides whether it is fatal.

Runs the classes of misuse.c, under a library or linked with it, and checks the messages of each.
How misuse is detected is in docs/adr/0018-misuse-checks.md.

Usage: misuse.py PROGRAM [LIBRARY.so]
"""

from __future__ import annotations

import functools
import re
import signal
import sys
from collections.abc import Callable

from checks import (
    AT_ONCE,
    LATER,
    REPORTED,
    REPORTED_LATER,
    Result,
    expect,
    expect_report,
    finish,
    only,
    reports,
)
from checks import outcomes as outcomes_under
from checks import run as run_under

# What the normal build promises for each class. A class that is missing has no promise: what
# happens then depends on what the program does next.
PROMISES = {
    "double free": AT_ONCE,
    "double free, another free between": AT_ONCE,
    "double free of 300 kB": AT_ONCE,
    "double free of 64 MiB": AT_ONCE,
    "double free by another thread": AT_ONCE,
    "double free of an ended thread's block": AT_ONCE,
    "free here, then in another thread": LATER,
    "free in two other threads": AT_ONCE,
    "free of the stack": AT_ONCE,
    "free of the first thread's stack by another": AT_ONCE,
    "free of the environment": AT_ONCE,
    "free of a variable": AT_ONCE,
    "free of a thread's variable": AT_ONCE,
    "free of a mapping": REPORTED,
    "free of an unmapped address": AT_ONCE,
    "free of libc's own block": REPORTED,
    "free of a misaligned pointer": AT_ONCE,
    "free inside a block": AT_ONCE,
    "free inside another thread's block": AT_ONCE,
    "free inside 300 kB": AT_ONCE,
    "free of a page inside 300 kB": AT_ONCE,
    "realloc of a freed block": AT_ONCE,
    "realloc of freed 300 kB": AT_ONCE,
    "realloc inside a block": AT_ONCE,
    "realloc of a variable": AT_ONCE,
    "usable size of freed 300 kB": AT_ONCE,
    "usable size of a variable": AT_ONCE,
    "sized free, wrong size": AT_ONCE,
    "write after free": LATER,
}

Run = Callable[..., Result]


def check_table(library: str, program: str) -> None:
    """Each class has the promised outcome."""
    outcomes = outcomes_under(library, program)
    for name, promise in PROMISES.items():
        expect(outcomes.get(name) == promise, f"{name}: {promise}", outcomes.get(name))
    expect("hangs" not in outcomes.values(), "no class hangs", outcomes)
    # Misuse that is reported at once has had no effect: the program may continue.
    outcomes = outcomes_under(library, program, ON_MISUSE="continue")
    for name, promise in PROMISES.items():
        goes_on = REPORTED_LATER if promise == LATER else REPORTED
        expect(outcomes.get(name) == goes_on, f"{name}, continue: {goes_on}", outcomes)


def check_messages(run: Run, is_linked: bool) -> None:
    """The first line has function, pointer, misuse, size and remedy; a backtrace follows."""
    foreign = run("free of libc's own block")
    expect(foreign.returncode == 0, "a program that frees a pointer of libc's survives", foreign)
    expect_report(only(reports(foreign)), "free", "another allocator")
    if not is_linked:
        trace = foreign.stderr.splitlines()[1:]
        expect(
            any("misuse" in line and re.search(r"\[0x[0-9a-f]+\]$", line) for line in trace),
            "a backtrace leads to the program",
            foreign.stderr,
        )

    double = run("double free")
    expect(double.returncode == -signal.SIGABRT, "a double free aborts", double)
    expect_report(only(reports(double)), "free", "double free", 48)
    expect("-fsanitize=address" in double.stderr, "what finds the culprit is named", double)
    expect_report(only(reports(run("realloc of a freed block"))), "realloc", "free")


def check_choices(run: Run) -> None:
    """TSMALLOC_ON_MISUSE decides what happens, and each kind is reported once."""
    result = run("double free", ON_MISUSE="continue")
    expect(result.returncode == 0 and len(reports(result)) == 1, "continue goes on", result)
    for name in ("double free", "free of a variable", "free inside 300 kB"):
        result = run(name, ON_MISUSE="silent")
        expect(result.returncode == 0 and result.stderr == "", "silent says nothing", result)
    result = run("free of libc's own block", ON_MISUSE="abort")
    expect(result.returncode == -signal.SIGABRT, "abort aborts at a foreign pointer", result)
    expect(len(reports(result)) == 1, "and says why, once", result)
    result = run("free of a variable", ON_MISUSE="continue")  # three times
    expect(result.returncode == 0 and len(reports(result)) == 1, "once is enough", result)
    result = run("realloc of a variable", ON_MISUSE="continue")
    expect("realloc(0x" in result.stderr, "the function is named", result)
    result = run("usable size of a variable", ON_MISUSE="continue")
    expect("malloc_usable_size(0x" in result.stderr, "the function is named", result)


def check_guards(run: Run) -> None:
    """With TSMALLOC_GUARD_SAMPLE, an invalid write crashes, with both call stacks."""
    for name, what in (
        (
            "40 writes after free of 3 kB",
            r"tsmalloc: use after free: 0x\w+, of a sampled block of \d+ .*",
        ),
        (
            "40 writes past the end of 3 kB",
            r"tsmalloc: access outside of a block in use: 0x\w+, .*",
        ),
    ):
        result = run(name, GUARD_SAMPLE="1")
        expect(result.returncode == -signal.SIGSEGV, f"{name} dies as it would", result)
        said = reports(result)
        expect(bool(said) and re.fullmatch(what, said[0]) is not None, what, said)
        headings = ["tsmalloc: it was allocated here:", "tsmalloc: and freed here:"]
        is_freed = name.startswith("40 writes after free")
        expect(said[1:] == headings[: 2 if is_freed else 1], "whose call stacks", result.stderr)
    result = run("free of libc's own block", GUARD_SAMPLE="1")
    expect(result.returncode == 0, "a foreign pointer is survived", result)


def main(arguments: list[str]) -> int:
    """Runs all checks; 1 if one failed."""
    program = arguments[0]
    is_linked = len(arguments) == 1
    library = "" if is_linked else arguments[1]
    run = functools.partial(run_under, library, program)
    check_table(library, program)
    check_messages(run, is_linked)
    check_choices(run)
    check_guards(run)
    return finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
