"""Runs misuse.c, hardened.c, techniques.c and traps.c under allocators, for the tables of
docs/misuse.md and docs/traps.md.

Usage: table.py [--write] PROGRAM... NAME=LIBRARY.so[:VARIABLE=VALUE]...   (NAME= for libc's own)

Prints each program's table; with --write, it replaces the one between its two marks in its page.
In the column "tsmalloc", what misuse.py promises is bold. A crash in the call at fault counts as
stopped at once. Techniques that succeed are counted, and bold; traps that pass are counted.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from misuse import PROMISES

DOCS = Path(__file__).resolve().parents[2] / "docs"
AT_ONCE = ("stopped at once", "crashes")
SUCCEEDS = "succeeds"


def outcomes(program: str, library: str) -> dict[str, str]:
    """The outcome of each class under a library, or under libc's own malloc if it is empty."""
    environment = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "MALLOC_CHECK_")}
    path, *settings = re.split(r":(?=[A-Z_]+=)", library)
    environment |= dict(setting.split("=", 1) for setting in settings)
    if path:
        environment["LD_PRELOAD"] = path
    result = subprocess.run(
        [program], env=environment, capture_output=True, text=True, timeout=600, check=True
    )
    if "cannot be preloaded" in result.stderr:
        sys.exit(f"table.py: {library} cannot be preloaded")
    return dict(line.split("\t") for line in result.stdout.splitlines())


def table(program: str, columns: dict[str, dict[str, str]]) -> list[str]:
    """The lines of a program's table."""

    row, counted, what = "misuse", AT_ONCE, AT_ONCE[0]
    if program == "techniques":
        row, counted, what = "technique", (SUCCEEDS,), SUCCEEDS
    if program == "traps":
        row, counted, what = "pitfall", ("passes",), "passes"

    def cell(name: str, misuse: str) -> str:
        outcome = columns[name][misuse]
        is_promised = name == "tsmalloc" and PROMISES.get(misuse) == outcome
        is_bold = outcome == SUCCEEDS or (is_promised and "misuse" in program)
        return f"**{outcome}**" if is_bold else outcome

    def count(name: str) -> str:
        matching = sum(outcome in counted for outcome in columns[name].values())
        return f"{matching} of {len(columns[name])}"

    return [
        f"| {row} | " + " | ".join(columns) + " |",
        "|---" * (len(columns) + 1) + "|",
        f"| *{what}* | " + " | ".join(count(name) for name in columns) + " |",
        *(
            f"| {misuse} | " + " | ".join(cell(name, misuse) for name in columns) + " |"
            for misuse in next(iter(columns.values()))
        ),
    ]


def main(arguments: list[str]) -> int:
    """Prints or writes the tables."""
    writes = "--write" in arguments
    programs = [each for each in arguments if "=" not in each and each != "--write"]
    allocators = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    if not programs or not allocators:
        print(__doc__, file=sys.stderr)
        return 2
    for program in programs:
        path = DOCS / ("traps.md" if Path(program).name == "traps" else "misuse.md")
        if not Path(program).is_file():
            sys.exit(f"table.py: {program} is not built: docs/{path.name} tells how")
        columns = {name: outcomes(program, library) for name, library in allocators.items()}
        lines = "\n".join(table(Path(program).name, columns))
        if not writes:
            print(lines)
            continue
        mark = f"<!-- {Path(program).name}.c -->\n"
        before, _, after = path.read_text().split(mark)
        path.write_text(f"{before}{mark}\n{lines}\n\n{mark}{after}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
