"""The classes of misuse.c under several allocators, as a Markdown table.

results/ has such tables.

Usage: table.py PROGRAM NAME=LIBRARY.so...   (NAME= for libc's own)
"""

from __future__ import annotations

import os
import subprocess
import sys


def outcomes(program: str, library: str) -> dict[str, str]:
    """What becomes of each class under a library; of libc's own malloc, if it is empty."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "MALLOC_CHECK_")}
    if library:
        environment["LD_PRELOAD"] = library
    result = subprocess.run(
        [program], env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    if "cannot be preloaded" in result.stderr:
        sys.exit(f"table.py: {library} cannot be preloaded")
    return dict(line.split("\t") for line in result.stdout.splitlines())


def main(arguments: list[str]) -> int:
    """Prints the table."""
    program, *named = arguments
    columns = {}
    for argument in named:
        name, _, library = argument.partition("=")
        columns[name] = outcomes(program, library)
    print("| misuse | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for row in next(iter(columns.values())):
        print(f"| {row} | " + " | ".join(column[row] for column in columns.values()) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
