"""Every trap of traps.c holds under the library, with the housekeeper as it comes, and always on.

Usage: traps.py PROGRAM LIBRARY.so
"""

from __future__ import annotations

import os
import subprocess
import sys

# The option asks for a thread.
NOT_WITH = {"on": {"one thread stays one"}}
NOT_HERE = "cannot be tried here"


def main(program: str, library: str) -> int:
    """Prints what does not hold."""
    broken = 0
    for background in ("auto", "on"):
        environment = {**os.environ, "LD_PRELOAD": library, "TSMALLOC_BACKGROUND": background}
        run = subprocess.run(
            [program], env=environment, capture_output=True, text=True, timeout=500, check=True
        )
        outcomes = dict(line.split("\t") for line in run.stdout.splitlines())
        if len(outcomes) < 16:
            sys.exit(f"traps.py: {program} names {len(outcomes)} traps")
        for trap, outcome in outcomes.items():
            if outcome in ("holds", NOT_HERE) or trap in NOT_WITH.get(background, ()):
                continue
            print(f"TSMALLOC_BACKGROUND={background}: {trap}: {outcome}")
            broken += 1
    return 1 if broken else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
