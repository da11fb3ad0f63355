"""Where a profile comes from: its process, if that still runs, and when it began.

A file of the same name may be another build, or lie in another mount namespace, and the number of a
process is used again. What the kernel has mapped is the file itself, also if it was replaced. A
process is that of the profile only if it has had its number since then.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tsmlab.profile.model import Mapping, Profile

PROC = Path("/proc")
# The kernel counts in hundredths of a second, and the clock may have been set by some.
SLACK_NANOS = 1_000_000_000
# A virtual machine may write its last names behind the profile.
LATE_NANOS = 60 * SLACK_NANOS
_MAP = re.compile(rb"(\w+)-(\w+) \S+ (\w+) (\w+):(\w+) (\d+) +(/.*)")


@dataclass(frozen=True)
class Mapped:
    """A line of /proc/PID/maps."""

    range: str  # as the kernel writes it
    device: int
    inode: int
    path: bytes


class Origin:
    """The process of a profile; in a `with`, which ends the paths of its files."""

    def __init__(self, profile: Profile, proc: Path = PROC) -> None:
        self.began_nanos = profile.process_began_nanos
        self.samples_since_nanos = profile.time_nanos - profile.duration_nanos
        self.taken_nanos = profile.time_nanos
        self.pid = profile.pid
        self._folder = proc / str(profile.pid)
        self._maps: dict[tuple[int, int], Mapped] = {}
        self._files = ExitStack()
        began = None if profile.pid is None else _began_nanos(self._folder)
        self.runs = began is not None and began <= profile.time_nanos + SLACK_NANOS
        if self.runs:
            self._maps = _maps(self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def mapped_file(self, mapping: Mapping) -> Path | None:
        """The very file of a mapping, by a path that leads to it until the `with` ends, also if the
        process has ended by then."""
        found = self._maps.get((mapping.start, mapping.offset))
        if found is None:
            return None
        ways = (
            self._folder / "map_files" / found.range,  # for root
            self._folder / "exe",
            self._folder / "root" / os.fsdecode(found.path.lstrip(b"/").replace(b"\\012", b"\n")),
        )
        for way in ways:
            try:
                file = way.open("rb")
            except OSError:
                continue
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) == (found.device, found.inode) or way == ways[0]:
                self._files.enter_context(file)
                return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")
            file.close()
        return None

    def named_since(self, path: Path) -> bool:
        """Whether a file's content or its name may have changed since the process began."""
        status = path.stat()
        since = self.samples_since_nanos if self.began_nanos is None else self.began_nanos
        return max(status.st_mtime_ns, status.st_ctime_ns) > since + SLACK_NANOS // 100

    def perf_map(self) -> tuple[Path | None, str]:
        """The file of names of the process's JIT, if it is there; or why it is not used."""
        if self.pid is None:
            return None, ""
        if self.runs and self._maps:
            path = self._folder / "root/tmp" / f"perf-{_own_number(self._folder, self.pid)}.map"
            earliest, latest = self.began_nanos or _began_nanos(self._folder), time.time_ns()
        else:
            path = Path(f"/tmp/perf-{self.pid}.map")
            earliest, latest = self.began_nanos, self.taken_nanos + LATE_NANOS
        try:
            written = path.stat().st_mtime_ns
        except OSError:
            return None, ""
        if earliest is None or not earliest - SLACK_NANOS <= written <= latest + SLACK_NANOS:
            return None, f"no names of {path}: another process of this number has written it"
        return path, ""


def _began_nanos(folder: Path) -> int | None:
    """When a process began, since 1970; None if there is none."""
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    ticks = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + ticks


def _own_number(folder: Path, pid: int) -> int:
    """The number that a process has in its own namespace."""
    found = re.search(r"(?m)^NSpid:.*\t(\d+)$", (folder / "status").read_text(errors="replace"))
    return int(found[1]) if found else pid


def _maps(folder: Path) -> dict[tuple[int, int], Mapped]:
    """The mapped files of a process, by where they begin in memory and in the file."""
    try:
        lines = (folder / "maps").read_bytes().split(b"\n")
    except OSError:
        return {}
    found = {}
    for line in lines:
        if match := _MAP.fullmatch(line):
            start, limit, offset = (int(match[n], 16) for n in (1, 2, 3))
            device = os.makedev(int(match[4], 16), int(match[5], 16))
            where = f"{start:x}-{limit:x}"
            found[start, offset] = Mapped(where, device, int(match[6]), match[7])
    return found
