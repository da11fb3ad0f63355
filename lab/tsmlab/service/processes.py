"""Reads /proc for a tree of processes: cost and memory, who listens, whose malloc it uses."""

import contextlib
import os
import re
import stat
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from tsmlab.service.supervisor import descendants

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK_SECONDS = 1.0 / os.sysconf("SC_CLK_TCK")
LISTENING = "0A"
# Pauses between two reads of resident memory, and between two searches for processes: the first
# number, or more, up to the second, where watching would take more than this share of the
# processor time that the server takes.
SERIES_SECONDS, SERIES_SHARE = (0.1, 1.0), 0.004
TREE_SECONDS, TREE_SHARE = (1.0, 4.0), 0.003
FREE_SECONDS = 0.003  # of a processor: until watching has taken that, memory's pauses are shortest
# The kernel's totals for a process: user, system (ticks) and faults, including children that have
# been waited for.
STAT_FIELDS = {"user": (11, 13), "system": (12, 14), "faults": (7, 8, 9, 10)}


@dataclass(frozen=True)
class TreeSnapshot:
    """The tree at the begin or end of a phase. Seconds and counts are sums since its start.
    pss_bytes divides shared memory between processes, so that prefork servers are not counted
    several times."""

    at_seconds: float
    user_seconds: float
    system_seconds: float
    faults: int
    switches: int
    threads: int
    processes: int
    rss_bytes: int
    pss_bytes: int

    @property
    def cpu_seconds(self) -> float:
        return self.user_seconds + self.system_seconds

    @property
    def shared_bytes(self) -> float:
        """The resident bytes of a process, on average, that PSS counts in other processes."""
        return (self.rss_bytes - self.pss_bytes) / max(1, self.processes)


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _total(words: list[str], name: str) -> int:
    return sum(int(words[field]) for field in STAT_FIELDS[name])


def snapshot(supervisor: int, at_seconds: float) -> TreeSnapshot:
    sums = dict.fromkeys(STAT_FIELDS, 0)
    counts = dict.fromkeys(("threads", "switches", "rss", "pss"), 0)
    stats = {pid: _stat(pid) for pid in descendants(supervisor)}
    tree = {pid: words for pid, words in stats.items() if words and words[0] not in "ZX"}
    for pid, words in tree.items():
        for name in STAT_FIELDS:
            sums[name] += _total(words, name)
        for name, number in _memory(pid):
            counts[name] += number
        with contextlib.suppress(OSError):
            for status in Path(f"/proc/{pid}/task").glob("*/status"):
                counts["threads"] += 1
                found = re.findall(r"ctxt_switches:\s*(\d+)", status.read_text())
                counts["switches"] += sum(map(int, found))
    own = _stat(supervisor)  # what it has waited for: daemons that have ended
    for name, fields in STAT_FIELDS.items() if own else ():
        waited = fields[1:] if len(fields) == 2 else (fields[1], fields[3])
        sums[name] += sum(int(own[field]) for field in waited)
    return TreeSnapshot(
        at_seconds=round(at_seconds, 4),
        user_seconds=sums["user"] * TICK_SECONDS,
        system_seconds=sums["system"] * TICK_SECONDS,
        faults=sums["faults"],
        switches=counts["switches"],
        threads=counts["threads"],
        processes=len(tree),
        rss_bytes=counts["rss"],
        pss_bytes=counts["pss"] or counts["rss"],
    )


def _memory(pid: int) -> Iterator[tuple[str, int]]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        for name, number in re.findall(r"^(Rss|Pss): +(\d+) kB", text, re.MULTILINE):
            yield name.lower(), int(number) * 1024


def peak_resident_bytes_of(pids: list[int]) -> int | None:
    """The kernel's high-water mark, if the tree is one process."""
    if len(pids) != 1:
        return None
    with contextlib.suppress(OSError):
        if found := re.search(r"VmHWM:\s*(\d+)", Path(f"/proc/{pids[0]}/status").read_text()):
            return int(found[1]) * 1024
    return None


class Watcher(threading.Thread):
    """Records the resident bytes of the tree and the number of its processes, ten times a second or
    less, from /proc/PID/statm, which takes no lock that the server needs."""

    def __init__(self, supervisor: int, start: float) -> None:
        super().__init__(daemon=True)
        self.series: list[tuple[float, int, int]] = []  # seconds, bytes, processes
        self.seconds = 0.0  # of a processor
        self._supervisor = supervisor
        self._start = start
        self._end = threading.Event()
        self._files: dict[int, int] = {}  # statm, open, by process

    def run(self) -> None:
        pause = SERIES_SECONDS[0]
        tree_pause, searched_at = 0.0, 0.0
        busy, cpu = 0.0, 0.0  # processors that the server uses, its processor time so far
        try:
            while not self._end.wait(pause):
                before = time.thread_time()
                now = time.monotonic() - self._start
                if now - searched_at >= tree_pause or not self._files:
                    used = self._search()
                    busy = max(0.0, used - cpu) / (now - searched_at)
                    cpu, searched_at = used, now
                    spent = time.thread_time() - before
                    tree_pause = pause_after(TREE_SECONDS, spent, TREE_SHARE * busy)
                    self.seconds += spent
                    before += spent
                if pages := list(filter(None, map(_resident_pages, self._files.values()))):
                    self.series.append((round(now, 3), sum(pages) * PAGE, len(pages)))
                spent = time.thread_time() - before
                self.seconds += spent
                free = self.seconds < FREE_SECONDS
                pause = pause_after(SERIES_SECONDS, spent, 1.0 if free else SERIES_SHARE * busy)
        finally:
            for file in self._files.values():
                os.close(file)

    def _search(self) -> float:
        """Finds the tree, and its processor time."""
        pids = descendants(self._supervisor)
        for pid in self._files.keys() - set(pids):
            os.close(self._files.pop(pid))
        for pid in pids:
            if pid not in self._files:
                with contextlib.suppress(OSError):
                    self._files[pid] = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
        stats = list(filter(None, map(_stat, self._files)))
        return TICK_SECONDS * sum(_total(w, "user") + _total(w, "system") for w in stats)

    def stop(self) -> None:
        self._end.set()
        if self.is_alive():
            self.join()


def pause_after(seconds: tuple[float, float], spent: float, share: float) -> float:
    """So long that what was spent is this share of it, within limits."""
    shortest, longest = seconds
    return min(longest, max(shortest, spent / share if share > 0.0 else longest))


def _resident_pages(statm: int) -> int:
    with contextlib.suppress(OSError):
        return int(os.pread(statm, 256, 0).split()[1])
    return 0  # the process has ended


def listeners(port: int | None = None) -> dict[str, int]:
    """The listening TCP sockets of this machine: ports by inode number."""
    found = {}
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
                fields = line.split()
                at = int(fields[1].rpartition(":")[2], 16)
                if fields[3] == LISTENING and port in (None, at):
                    found[fields[9]] = at
    return found


def listening_processes(pids: list[int], port: int | None) -> list[int]:
    """The processes that listen on the port, or on any if it is None."""
    sockets = {f"socket:[{inode}]" for inode in listeners(port)}
    found = []
    for pid in pids if sockets else ():
        with contextlib.suppress(OSError):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(entry.readlink()) in sockets:
                        found.append(pid)
                        break
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return "?"


_MAPPING = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ \d+ +(/.*)")


def hidden_from(pid: int, file: str) -> Path | None:
    """The file, or a folder on its path, that the process's user may not read; None if it may."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
        ids = dict(line.split(":", 1) for line in lines.splitlines() if ":" in line)
        user = int(ids["Uid"].split()[1])
        groups = {int(ids["Gid"].split()[1]), *map(int, ids["Groups"].split())}
        if user == 0:
            return None
        path = Path(os.path.realpath(file))
        for part in (*reversed(path.parents), path):
            found = part.stat()
            needed = stat.S_IROTH if part == path else stat.S_IXOTH
            shift = 6 if found.st_uid == user else 3 if found.st_gid in groups else 0
            if not found.st_mode >> shift & needed:
                return part
    except (OSError, KeyError, ValueError):
        pass
    return None


def mapped_files(pid: int) -> list[tuple[int, int, int, str]]:
    """Begin, end, offset and path of each file mapping."""
    text = Path(f"/proc/{pid}/maps").read_text()
    return [
        (int(m[1], 16), int(m[2], 16), int(m[3], 16), m[4])
        for m in map(_MAPPING.match, text.splitlines())
        if m
    ]


def malloc_library(pid: int) -> str | None:
    """The file whose malloc the process uses: where the C library's own calls of malloc lead, and
    therefore those of all its libraries. None if unknown. It is read from the process's memory, so
    nothing needs to run twice."""
    with contextlib.suppress(OSError, StopIteration, struct.error, ELFError):
        maps = mapped_files(pid)
        libc = next(m[3] for m in maps if re.search(r"/libc(\.so\.6|-2\.\d+\.so)$", m[3]))
        found = _resolve_malloc(pid, libc, maps)
        # A program linked to a fixed address makes libraries call malloc through a stub of its own.
        if found and found == str(Path(f"/proc/{pid}/exe").readlink()):
            found = _resolve_malloc(pid, found, maps) or found
        return found
    return None


def _resolve_malloc(pid: int, caller: str, maps: list[tuple[int, int, int, str]]) -> str | None:
    base = next(begin for begin, _, offset, path in maps if path == caller and not offset)
    fixed, slots = _slots(f"/proc/{pid}/root{caller}")
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for slot in slots:
            memory.seek(slot if fixed else base + slot)
            (address,) = struct.unpack("=Q", memory.read(8))
            for begin, end, _, path in maps:
                if begin <= address < end:
                    return path
    return None


def _slots(library: str) -> tuple[bool, list[int]]:
    """Whether its addresses are fixed, and where it stores the address of malloc."""
    with Path(library).open("rb") as file:
        elf = ELFFile(file)
        sections = {each.name: each for each in elf.iter_sections()}
        strings = sections[".dynstr"].data()
        names = np.frombuffer(sections[".dynsym"].data(), np.uint32)[::6]
        suffix_offsets = [m.start() for m in re.finditer(rb"malloc\0", strings)]
        alike = np.flatnonzero(np.isin(names, suffix_offsets)).tolist()
        symbols = [n for n in alike if strings[names[n] :].startswith(b"malloc\0")]
        found: list[int] = []
        for name in (".rela.plt", ".rela.dyn"):
            data = sections[name].data() if name in sections else b""
            entries = np.frombuffer(data, np.uint64).reshape(-1, 3)
            found += entries[np.isin(entries[:, 1] >> np.uint64(32), symbols), 0].tolist()
        return elf["e_type"] == "ET_EXEC", found
