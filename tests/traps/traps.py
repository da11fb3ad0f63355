"""Runs every trap of traps.c under the library twice: with its default settings; and with the
background thread always on and a heap profile that samples every 4 KiB on average.

Usage: traps.py PROGRAM LIBRARY.so
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

# The option asks for a thread.
NOT_WITH = {"on": {"a single thread stays single"}}
NOT_HERE = "cannot be tried here"


# They start before main, or run on after it.
EARLY_AND_LATE = ("threads in a constructor", "threads after exit")


def run(library: str, *command: str, **options: str) -> str:
    """What a program prints with these options."""
    environment = {**os.environ, "LD_PRELOAD": library}
    environment |= {f"TSMALLOC_{name}": value for name, value in options.items()}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=500, check=True
    )
    return done.stdout


def main(program: str, library: str) -> int:
    """Prints what does not pass."""
    broken = []
    with tempfile.TemporaryDirectory() as folder:
        profile = {"PROFILE": "4K", "PROFILE_OUTPUT": f"{folder}/%p"}
        for options in ({}, {"BACKGROUND": "on", **profile}):
            said = run(library, program, **{"BACKGROUND": "auto", **options})
            outcomes = dict(line.split("\t") for line in said.splitlines())
            if len(outcomes) < 19:
                sys.exit(f"traps.py: {program} names {len(outcomes)} traps")
            excepted = NOT_WITH.get(options.get("BACKGROUND", ""), set())
            broken += [
                f"{options}: {trap}: {outcome}"
                for trap, outcome in outcomes.items()
                if outcome not in ("passes", NOT_HERE) and trap not in excepted
            ]
        for trap in (*EARLY_AND_LATE, *NOT_WITH["on"]):
            output = Path(folder) / "profile"
            said = run(library, program, trap, PROFILE="4K", PROFILE_OUTPUT=str(output))
            if said or not output.exists() or output.stat().st_size < 1000:
                broken.append(f"{trap}: {said or 'no profile'}")
            output.unlink(missing_ok=True)
    print("\n".join(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
