"""Whether files need a name newer than glibc 2.28, or than the C++ library of that time.

Reads the symbol versions of ELF files with binutils' `readelf`, without running them. For their
behaviour under an older glibc see docs/adr/0035-names-of-glibc-2.28.md.

Usage: glibc_2_28.py FILE...
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

# The last versions that manylinux_2_28 allows; a family missing here belongs to no such system.
LAST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}


def readelf(files: list[str]) -> str:
    """The dynamic symbols of all files, by one process: starting it takes longer than reading."""
    command = ["readelf", "--wide", "--dyn-syms", *files]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode != 0 or run.stderr:
        raise SystemExit(f"glibc_2_28.py: {run.stderr.strip()}")
    return run.stdout


def too_new(listing: str, only_file: str) -> Iterator[str]:
    """A line for each name in readelf's listing that is too new."""
    file = only_file  # readelf prints a file's name only if it gets several
    for line in listing.splitlines():
        if heading := re.fullmatch(r"File: (.+)", line):
            file = heading[1]
        # Num: Value Size Type Bind Vis Ndx Name@Version (Number)
        columns = line.split()
        if len(columns) < 8 or columns[6] != "UND" or "@" not in columns[7]:
            continue
        name, _, version = columns[7].partition("@")
        family, _, number = version.partition("_")
        if family not in LAST:
            yield f"{file}: needs {name} of {version}, which no old system has"
        elif tuple(map(int, number.split("."))) > LAST[family]:
            yield f"{file}: needs {name} of {version}; its former version: src/os/glibc_2_28.h"


def main(files: list[str]) -> int:
    """Check every file named; 1 if one needs too new a name."""
    if not files:
        print("usage: glibc_2_28.py FILE...", file=sys.stderr)
        return 2
    try:
        faults = list(too_new(readelf(files), files[0]))
    except FileNotFoundError:
        print("glibc_2_28.py: no readelf; install binutils", file=sys.stderr)
        return 2
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
