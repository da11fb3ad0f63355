"""Has the machine give memory to us before anything is measured.

Why: on a virtual machine, memory that no program has touched yet is often not there: the host adds
each page at its first touch, which takes milliseconds where a page fault takes microseconds. The
first program to use much memory would pay for that, whatever its allocator.
Refuses to: touch more than half of what is free, or to do so in this process, whose size the
programs that it starts should not see.
"""

import os
import subprocess
import sys

from tsmlab import machine

SHARE_OF_FREE = 0.5
# The kernel writes every page, and the process ends.
TOUCH = """
import mmap, sys
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
mmap.mmap(-1, int(sys.argv[1]), flags=flags)
"""


def touch(wanted_bytes: int) -> int:
    """Touches memory and gives it back; returns how much, which is less where too little is free.
    Failing is no error: the measurements then begin with a cold machine."""
    free = machine.available_bytes() or 0
    size = min(wanted_bytes, int(free * SHARE_OF_FREE))
    if size <= 0:
        return 0
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", TOUCH, str(size)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
    )
    return size if done.returncode == 0 else 0
