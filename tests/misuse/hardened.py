"""The hardened library stops every class of misuse in the programs of this folder.

Runs the classes of misuse.c and hardened.c under it, and checks the messages. For its promises see
docs/guarantees.md.

Usage: hardened.py MISUSE HARDENED AT_EXIT LIBRARY.so
"""

from __future__ import annotations

import signal
import sys

from checks import (
    AT_ONCE,
    LATER,
    REPORTED,
    REPORTED_LATER,
    expect,
    expect_report,
    finish,
    only,
    outcomes,
    reports,
    run,
)

GUARDED = "crashes"  # at the access itself
ZEROS = "zeros are read"
WAITS = "waits"
NOTHING = "nothing"

# The outcome of each class unless the faulty call itself is stopped.
MISUSE = {
    "write after free": {LATER},
    "40 writes after free of 3 kB": {LATER},
    "40 writes past the end of 3 kB": {LATER},
}
HARDENED = {
    "overflow of 1 byte, whole pages": {GUARDED},
    "overflow of a page, aligned to 1 MiB": {GUARDED},
    "overflow of 1 MiB": {GUARDED},
    # The byte after a block is zero, which terminates strings, so another zero there changes
    # nothing.
    "overflow of a zero": {NOTHING},
    "overflow of a zero, odd size": {NOTHING},
    "overflow of a zero, 300 kB": {NOTHING},
    "unterminated string": {ZEROS},
    "unterminated string, odd size": {ZEROS},
    "unterminated string, 1 byte short of a slot": {ZEROS},
    "unterminated string, odd size of 5 kB": {ZEROS},
    "unterminated string, 64 KiB": {ZEROS},
    "unterminated string, 300 kB": {ZEROS},
    # Behind the last slot of a slab there is a guard, and before the first one.
    "overflow by a string": {AT_ONCE, GUARDED},
    "underflow": {AT_ONCE, GUARDED},
    "underflow, 300 kB": {GUARDED},
    "write past the end after shrinking realloc": {GUARDED},
    "read past the end after shrinking realloc": {GUARDED},
    "read of 0 bytes": {GUARDED},
    "write to 0 bytes": {GUARDED},
    "read after free": {ZEROS},
    "read after free, 300 kB": {GUARDED},
    "write after free, 300 kB": {GUARDED},
    "write after free, 300 kB, others between": {GUARDED},
    # Detected when the slot is reused, and the class waits for that.
    "write after free, then 100000 others": {AT_ONCE},
    "write after free, then 20000 frees": {LATER},
    "contents of a new block": {ZEROS},
    "contents of new 300 kB": {ZEROS},
    "malloc after free": {WAITS},
    "malloc after free, 300 kB": {WAITS},
}


def check_classes(library: str, program: str, promises: dict[str, set[str]], least: int) -> None:
    """Each class is stopped or, if the user asks, reported without any effect."""
    found = outcomes(library, program)
    expect(len(found) >= least, f"at least {least} classes", len(found))
    expect(promises.keys() <= found.keys(), "each class that is promised something", found)
    for name, seen in found.items():
        promised = promises.get(name, {AT_ONCE})
        expect(seen in promised, f"{name}: {' or '.join(promised)}", seen)
    found = outcomes(library, program, ON_MISUSE="continue")
    for name, seen in found.items():
        promised = promises.get(name, {AT_ONCE})
        going_on = {{AT_ONCE: REPORTED, LATER: REPORTED_LATER}.get(p, p) for p in promised}
        expect(seen in going_on, f"{name}, continue: {' or '.join(going_on)}", seen)


# Programs' classes, with the function, a word of the misuse, and the block size.
MESSAGES = (
    ("hardened", "overflow of 1 byte", "free", "buffer overflow", 120),
    ("hardened", "overflow, then realloc", "realloc", "buffer overflow", 120),
    ("hardened", "underflow to a block in use", "free", "buffer underflow", 120),
    ("hardened", "write after free, then 100000 others", ".*later call ", "free memory", 120),
    ("hardened", "sized delete, smaller size", "sized free", "size", 504),
    ("misuse", "free of a variable", "free", "not allocated by tsmalloc", None),
    ("misuse", "double free, the block handed out again", "free", "double free", 56),
)


def check_messages(library: str, programs: dict[str, str]) -> None:
    """A line with function, address, misuse, size and remedy is printed."""
    for program, name, *said in MESSAGES:
        result = run(library, programs[program], name)
        expect(result.returncode == -signal.SIGABRT, f"{name} aborts", result)
        expect_report(only(reports(result)), *said)
        if name == "overflow of 1 byte":
            expect("-fsanitize=address" in result.stderr, "what finds the culprit", result)


def check_choices(library: str, hardened: str) -> None:
    """TSMALLOC_ON_MISUSE applies here too."""
    name = "overflow of 8 bytes"
    result = run(library, hardened, name, ON_MISUSE="silent")
    expect(result.returncode == 0 and result.stderr == "", "silent says nothing", result)
    result = run(library, hardened, name, ON_MISUSE="abort")
    expect(result.returncode == -signal.SIGABRT, "abort aborts", result)


def check_exit(library: str, at_exit: str) -> None:
    """Misuse that no call detects is found at exit, unless turned off; on request, leaks too."""
    for case, misuse in (
        ("write after free", "free memory"),
        ("overflow", "buffer overflow"),
        ("overflow of 300 kB", "buffer overflow"),
    ):
        result = run(library, at_exit, case)
        expect(result.returncode == -signal.SIGABRT, f"{case} aborts at exit", result)
        expect_report(only(result.stderr.splitlines()), ".*at exit ", misuse)
        result = run(library, at_exit, case, ON_MISUSE="continue")
        expect(result.returncode == 0 and "detected at exit" in result.stderr, "continue", result)
        result = run(library, at_exit, case, AT_EXIT="off")
        expect(result.returncode == 0 and result.stderr == "", "off says nothing", result)
    for case, in_use in (("none", "0 blocks with 0"), ("three blocks", "3 blocks with 300110")):
        result = run(library, at_exit, case)
        expect(result.returncode == 0 and result.stderr == "", "no misuse, no word", result)
        result = run(library, at_exit, case, AT_EXIT="leaks")
        expect(result.returncode == 0 and in_use in only(reports(result)), in_use, result)


def main(arguments: list[str]) -> int:
    """Runs all checks; 1 if one failed."""
    misuse, hardened, at_exit, library = arguments
    check_classes(library, misuse, MISUSE, 32)
    check_classes(library, hardened, HARDENED, 72)
    check_messages(library, {"misuse": misuse, "hardened": hardened})
    check_choices(library, hardened)
    check_exit(library, at_exit)
    return finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
