"""A static program with the engine linked in contains no other malloc.

The linker takes whole members of libc.a: if the program, or libc, refers to one name of libc's
malloc that the engine lacks, all of it is linked. Then either the names clash or half of the calls
go to the wrong heap. The check looks for functions that only glibc's malloc.o has.

Usage: one_malloc.py [--expect-libc] PROGRAM...    (with libc's own, to show that it is found)
"""

from __future__ import annotations

import subprocess
import sys

# Local to malloc.o in every glibc since 2.3.
LIBC_MALLOC = {"_int_malloc", "_int_free", "sysmalloc", "main_arena"}


def symbols(program: str) -> list[str]:
    """All names of a program, including local ones."""
    result = subprocess.run(["nm", program], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in result.stdout.splitlines() if line.strip()]


def main(arguments: list[str]) -> int:
    """Checks the programs; 1 if something is wrong."""
    expects_libc = arguments[:1] == ["--expect-libc"]
    status = 0
    for program in arguments[expects_libc:]:
        names = symbols(program)
        found = LIBC_MALLOC.intersection(names)
        if bool(found) != expects_libc or names.count("malloc") != 1:
            print(f"{program}: libc's malloc: {sorted(found)}; malloc: {names.count('malloc')}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
