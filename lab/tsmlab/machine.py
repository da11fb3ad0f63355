"""A description of the machine when a comparison starts: facts that numbers may depend on."""

import os
import platform
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tsmlab.system_libraries import run_tool


@dataclass(frozen=True)
class Machine:
    """cores: online; usable_cores: those this process may run on (cpusets and taskset count)."""

    system: str | None
    kernel: str
    architecture: str
    cpu: str | None
    cores: int
    usable_cores: int
    memory_bytes: int | None
    swap_bytes: int | None
    transparent_hugepages: str | None
    governor: str | None
    address_randomisation: int | None
    cgroup_memory_limit_bytes: int | None
    cgroup_cpu_limit: float | None
    libc: str | None
    python: str
    load_at_start: float


def describe(root: Path = Path("/")) -> Machine:
    """Reads the description from the files below `root` (other folders only in tests)."""
    meminfo = _read(root / "proc/meminfo") or ""
    return Machine(
        system=_match(r'^PRETTY_NAME="?(.*?)"?$', _read(root / "etc/os-release")),
        kernel=platform.release(),
        architecture=platform.machine(),
        cpu=_match(r"^model name\s*: (.*)$", _read(root / "proc/cpuinfo")),
        cores=os.cpu_count() or 1,
        usable_cores=len(os.sched_getaffinity(0)),
        memory_bytes=_kibibytes("MemTotal", meminfo),
        swap_bytes=_kibibytes("SwapTotal", meminfo),
        transparent_hugepages=_match(
            r"\[(\w+)\]", _read(root / "sys/kernel/mm/transparent_hugepage/enabled")
        ),
        governor=_read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        address_randomisation=_whole(_read(root / "proc/sys/kernel/randomize_va_space")),
        cgroup_memory_limit_bytes=_cgroup_memory_limit(root),
        cgroup_cpu_limit=_cgroup_cpu_limit(root),
        libc=libc(),
        python=platform.python_version(),
        load_at_start=os.getloadavg()[0],
    )


def difference(one: Machine, other: Machine, facts: Iterable[str]) -> str | None:
    """The first of these facts in which two machines differ: "cpu was X, is Y"; None if they are
    equal."""
    for fact in facts:
        then, now = getattr(one, fact), getattr(other, fact)
        if then != now:
            return f"{fact} was {then}, is {now}"
    return None


def available_bytes(root: Path = Path("/")) -> int | None:
    """How much memory a program could get now without swapping; None if unknown."""
    free = _kibibytes("MemAvailable", _read(root / "proc/meminfo") or "")
    known = [size for size in (free, _cgroup_memory_limit(root)) if size is not None]
    return min(known, default=None)


def _cgroup_folders(root: Path, controller: str) -> list[Path]:
    """The folders of this process's cgroup, innermost first: version 2's tree, then version 1's."""
    folders = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            base = root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            base = root / "sys/fs/cgroup" / controller
        else:
            continue
        inner = base / group.lstrip("/")
        chain = [inner, *inner.parents]
        folders += chain[: chain.index(base) + 1]
    return folders


def _cgroup_memory_limit(root: Path) -> int | None:
    limits = [
        limit
        for folder in _cgroup_folders(root, "memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (limit := _whole(_read(folder / name))) is not None
    ]
    # Version 1 says "no limit" with a number near 2^63.
    return min((limit for limit in limits if limit < 1 << 60), default=None)


def _cgroup_cpu_limit(root: Path) -> float | None:
    """How many CPUs' worth of time the cgroup may use."""
    limits = []
    for folder in _cgroup_folders(root, "cpu"):
        if (both := _read(folder / "cpu.max")) is not None:
            quota_text, _, period_text = both.partition(" ")
            quota, period = _whole(quota_text), _whole(period_text)
        else:
            quota = _whole(_read(folder / "cpu.cfs_quota_us"))
            period = _whole(_read(folder / "cpu.cfs_period_us"))
        if quota is not None and quota > 0 and period:
            limits.append(quota / period)
    return min(limits, default=None)


def libc() -> str | None:
    """The C library with its version: "glibc 2.41"."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _match(pattern: str, text: str | None) -> str | None:
    found = re.search(pattern, text or "", re.MULTILINE)
    return found[1] if found else None


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _kibibytes(key: str, meminfo: str) -> int | None:
    value = _whole(_match(rf"^{key}:\s*(\d+) kB$", meminfo))
    return None if value is None else value * 1024


# --- memory that the host has yet to give to a virtual machine ------------------------------------


SHARE_OF_FREE = 0.5
# Makes the kernel write every page, then exits.
TOUCH = """
import mmap, sys
flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE
mmap.mmap(-1, int(sys.argv[1]), flags=flags)
"""


def touch(wanted_bytes: int) -> int:
    """Touches memory and frees it, so that the host provides its pages now, which takes
    milliseconds each, instead of during the first measurement. Returns how much: at most half of
    what is free. Uses another process, so that programs started here do not inherit its size.
    Failing is not an error: the measurements then begin on a cold machine."""
    free = available_bytes() or 0
    size = min(wanted_bytes, int(free * SHARE_OF_FREE))
    if size <= 0:
        return 0
    done = run_tool([sys.executable, "-I", "-S", "-c", TOUCH, str(size)])
    return size if done.returncode == 0 else 0
