"""The outcome of the attack techniques in techniques.c under each library.

Techniques that succeed under a library are listed here: it promises nothing against them.

Usage: techniques.py TECHNIQUES tsmalloc|secure LIBRARY.so
"""

from __future__ import annotations

import sys

from checks import AT_ONCE, LATER, REPORTED, expect, finish, outcomes
from hardened import GUARDED

FAILS = "fails"
SUCCEEDS = "succeeds"
# The technique fails, and the damage is detected or not; in a debug build, perhaps at once.
IN_VAIN = {AT_ONCE, FAILS, LATER, "crashes later"}

# The outcome of each technique that is not stopped at once.
PROMISES: dict[str, dict[str, set[str]]] = {
    "tsmalloc": {
        "double free, another thread and the owner": {SUCCEEDS},
        "use after free, the next malloc": {SUCCEEDS},
        "use after free, 100000 mallocs": {SUCCEEDS},
        "use after free of 300 kB, the next malloc": {SUCCEEDS},
        "use after free of 300 kB, 10000 mallocs": {SUCCEEDS},
        "use after free, other sizes": {SUCCEEDS},
        "free of another's block, the next malloc": {SUCCEEDS},
        "free of another's block, 100000 mallocs": {SUCCEEDS},
        "free of another's 300 kB, the next malloc": {SUCCEEDS},
        # The technique reads the key of a free block.
        "tcache poisoning, stack with a free block's key": {SUCCEEDS},
        "safe-link bypass": {GUARDED, *IN_VAIN},
        "list head near its blocks": IN_VAIN,
        "unsorted bin into the stack": IN_VAIN,
        "unsorted bin attack": IN_VAIN,
        "large bin attack": IN_VAIN,
        "house of lore": IN_VAIN,
        # It might be another allocator's memory.
        "tcache house of spirit, mapping": {REPORTED},
        "overlapping chunks": IN_VAIN,
        "overlapping chunks, a free block": IN_VAIN,
        "house of einherjar, a null byte": IN_VAIN,
        "unsafe unlink, a null byte": IN_VAIN,
        "house of force": IN_VAIN,
        "mmap overlapping chunks": IN_VAIN,
        "calloc of a secret": IN_VAIN,
        "sized delete, smaller size": IN_VAIN,
        "overflow into a neighbour in use": {SUCCEEDS},
        "read of a neighbour": {SUCCEEDS},
        "read of a neighbour as a string": {SUCCEEDS},
        "read after free": {SUCCEEDS},
        "contents of the last block": {SUCCEEDS},
        "contents of blocks of another size": {SUCCEEDS},
        "contents of the last 300 kB": {SUCCEEDS},
        "address of a block": {SUCCEEDS},
        "address of the library": {FAILS},
    },
    "secure": {
        # A block waits before it is reused, but not forever.
        "use after free, the next malloc": {FAILS},
        "use after free, 100000 mallocs": {SUCCEEDS},
        "use after free of 300 kB, the next malloc": {FAILS},
        # Rarely, its addresses are returned to the system instead.
        "use after free of 300 kB, 10000 mallocs": {SUCCEEDS, FAILS},
        "use after free, other sizes": {FAILS},
        "free of another's block, 100000 mallocs": {SUCCEEDS},
        "tcache poisoning, stack": {LATER},
        "tcache poisoning, variable": {LATER},
        "tcache poisoning, block in use": {LATER},
        "tcache poisoning, 300 kB in use": {LATER},
        "tcache poisoning, stack with a free block's key": {LATER},
        "safe-link bypass": {LATER},
        "overflow into a link": {LATER},
        # The byte is 0 anyway.
        "null byte into a link": {FAILS},
        "fastbin reverse into tcache": {LATER},
        "list head near its blocks": {FAILS},
        "unsorted bin into the stack": {LATER},
        "unsorted bin attack": {LATER},
        "large bin attack": {LATER},
        "house of lore": {LATER},
        "overlapping chunks, a free block": {LATER},
        # No neighbour has a size field that the zero could change.
        "house of einherjar, a null byte": {FAILS},
        "unsafe unlink, a null byte": {FAILS},
        "house of force": {LATER},
        "mmap overlapping chunks": {GUARDED},
        "calloc of a secret": {LATER},
        # The overflow is detected when the block is freed, but the neighbour is used before that.
        "overflow into a neighbour in use": {SUCCEEDS},
        "read of a neighbour": {SUCCEEDS},
        "read of a neighbour as a string": {FAILS},
        "read after free": {FAILS},
        "contents of the last block": {FAILS},
        "contents of blocks of another size": {FAILS},
        "contents of the last 300 kB": {FAILS},
        "address of a block": {FAILS},
        "address of the library": {FAILS},
    },
}


def check(program: str, library: str, promises: dict[str, set[str]]) -> None:
    """Each technique has the promised outcome; none succeeds because errors are only reported."""
    found = outcomes(library, program)
    expect(promises.keys() < found.keys(), "each technique that is promised something", found)
    for name, seen in found.items():
        promised = promises.get(name, {AT_ONCE})
        expect(seen in promised, f"{name}: {' or '.join(sorted(promised))}", seen)
    for name, seen in outcomes(library, program, ON_MISUSE="continue").items():
        may_succeed = SUCCEEDS in promises.get(name, ())
        expect(may_succeed or seen != SUCCEEDS, f"{name}, continue: does not succeed", seen)


def check_others(program: str) -> None:
    """The techniques are real: many succeed under libc's own malloc."""
    found = outcomes("", program)
    expect(list(found.values()).count(SUCCEEDS) >= 10, "10 that succeed without us", found)


def main(arguments: list[str]) -> int:
    """Runs all checks; 1 if one failed."""
    program, name, library = arguments
    check(program, library, PROMISES[name])
    check_others(program)
    return finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
