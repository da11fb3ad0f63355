"""The allocators that distributions ship: their libraries, packages and versions."""

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tsmlab import paths


@dataclass(frozen=True)
class KnownLibrary:
    """An allocator that may be installed: file name patterns, the preferred one first."""

    name: str
    patterns: tuple[str, ...]
    packages: tuple[str, ...]  # Debian's names for it, the newest first
    summary: str


@dataclass(frozen=True)
class Package:
    name: str
    version: str

    @property
    def upstream_version(self) -> str:
        """The version without the distribution's epoch, revision and repacking mark."""
        without_epoch = self.version.partition(":")[2] or self.version
        upstream = without_epoch.rpartition("-")[0] or without_epoch
        return re.sub(r"[+~.]?(ds|dfsg|really)[\w.~]*$", "", upstream)


KNOWN = (
    KnownLibrary(
        "jemalloc",
        ("libjemalloc.so.2", "libjemalloc.so"),
        ("libjemalloc2",),
        "size classes, arenas, thread caches, decay",
    ),
    KnownLibrary(
        "mimalloc",
        ("libmimalloc.so.3", "libmimalloc.so.2", "libmimalloc.so"),
        ("libmimalloc3", "libmimalloc2.0"),
        "a free list per page, sharded by thread",
    ),
    KnownLibrary(
        "tcmalloc",
        ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so"),
        ("libtcmalloc-minimal4",),
        "gperftools: thread caches over central lists",
    ),
    # The proxy replaces malloc; libtbbmalloc itself only has functions of its own.
    KnownLibrary(
        "tbbmalloc",
        ("libtbbmalloc_proxy.so.2", "libtbbmalloc_proxy.so"),
        ("libtbbmalloc2",),
        "oneTBB: a heap per thread, size classes",
    ),
    KnownLibrary("snmalloc", ("libsnmallocshim*.so",), (), "message passing between threads"),
    KnownLibrary("rpmalloc", ("librpmalloc*.so",), (), "a heap per thread, spans of pages"),
    KnownLibrary("hoard", ("libhoard.so",), (), "superblocks, per-processor heaps"),
    KnownLibrary(
        "scudo",
        ("libscudo*.so", "libclang_rt.scudo_standalone*.so"),
        (),
        "LLVM's hardened allocator",
    ),
)

# Tried in this order; the first symbol in the library is used.
VERSION_PROBE = """
import ctypes
library = ctypes.CDLL(None)
if hasattr(library, "mi_version"):
    number = library.mi_version()
    # 212 is 2.1.2; from 2.2 on there are two digits for each part: 20203 is 2.2.3.
    parts = (number // 100, number // 10 % 10, number % 10)
    if number >= 1000:
        parts = (number // 10000, number // 100 % 100, number % 100)
    print(*parts, sep=".")
elif hasattr(library, "mallctl"):
    text, size = ctypes.c_char_p(), ctypes.c_size_t(ctypes.sizeof(ctypes.c_char_p))
    if library.mallctl(b"version", ctypes.byref(text), ctypes.byref(size), None, 0) == 0:
        print(text.value.decode().partition("-")[0])
elif hasattr(library, "tc_version"):
    library.tc_version.restype = ctypes.c_char_p
    print(library.tc_version(None, None, None).decode().removeprefix("gperftools "))
"""
PROBE_TIMEOUT_SECONDS = 5.0


def installed() -> list[tuple[KnownLibrary, Path]]:
    found = []
    candidates = _candidates()
    for known in KNOWN:
        path = next((p for q in known.patterns if (p := _best_match(q, candidates))), None)
        if path is not None:
            found.append((known, path))
    return found


def package_of(name: str) -> str | None:
    """The Debian package of the known allocator `name`, if this system has packages."""
    known = next((k for k in KNOWN if k.name == name), None)
    if known is None or not known.packages or shutil.which("apt-get") is None:
        return None
    return _available_package(known.packages)


def missing_packages() -> list[str]:
    present = {known.name for known, _ in installed()}
    absent = (package_of(known.name) for known in KNOWN if known.name not in present)
    return [package for package in absent if package is not None]


def packages_of(files: Sequence[Path]) -> Mapping[Path, Package]:
    """Which installed package each file belongs to, for those that belong to one."""
    if not files or shutil.which("dpkg-query") is None:
        return {}
    # The database has real paths, and on a merged system either with or without /usr before them.
    real = {file: str(file.resolve()) for file in files}
    asked = {path for name in real.values() for path in (name, name.removeprefix("/usr"))}
    owners: dict[str, str] = {}
    for line in _output(["dpkg-query", "--search", *sorted(asked)]).splitlines():
        package, colon, path = line.partition(": ")
        if colon:
            owners[path] = package.partition(",")[0]
    if not owners:
        return {}
    line_format = "${binary:Package} ${Package} ${Version}\n"
    shown = _output(
        ["dpkg-query", "--show", f"--showformat={line_format}", *sorted(set(owners.values()))]
    )
    # A package may be listed with its architecture (libjemalloc2:amd64) or without.
    packages: dict[str, Package] = {}
    for line in shown.splitlines():
        qualified, name, version = line.split(" ")
        packages[qualified] = packages[name] = Package(name, version)
    found = {}
    for file, name in real.items():
        owner = owners.get(name) or owners.get(name.removeprefix("/usr"))
        if owner is not None and (package_found := packages.get(owner)):
            found[file] = package_found
    return found


def version_from_library(path: Path) -> str | None:
    """The version that the allocator itself reports; None if it reports none."""
    environment = {"LD_PRELOAD": str(paths.preloadable(path)), "PATH": os.environ.get("PATH", "")}
    text = _output([sys.executable, "-I", "-S", "-c", VERSION_PROBE], environment).strip()
    return text if re.fullmatch(r"\d+(\.\d+)+", text) else None


def is_loadable_library(path: Path) -> bool:
    """Whether this is a shared ELF library for the current machine."""
    try:
        with path.open("rb") as file:
            header = file.read(20)
    except OSError:
        return False
    own = _own_elf_header()
    shared_object = 3
    # Class and byte order are in bytes 4 and 5, the type in 16 and 17, the machine in 18 and 19.
    return (
        len(header) == 20
        and header[:6] == own[:6]
        and header[18:20] == own[18:20]
        and header[16 if own[5] == 1 else 17] == shared_object
    )


@functools.cache
def _own_elf_header() -> bytes:
    with Path("/proc/self/exe").open("rb") as file:
        return file.read(20)


def _candidates() -> list[Path]:
    """All files in the loader's cache, then those in the usual folders."""
    listed = []
    search_path = os.pathsep.join([os.environ.get("PATH", ""), "/sbin", "/usr/sbin"])
    if ldconfig := shutil.which("ldconfig", path=search_path):
        for line in _output([ldconfig, "-p"]).splitlines():
            _, arrow, path = line.partition(" => ")
            if arrow:
                listed.append(Path(path))
    folders = []
    for prefix in (Path("/usr/local/lib"), Path("/usr/lib"), Path("/usr/lib64"), Path("/opt/lib")):
        folders += [prefix / str(sysconfig.get_config_var("MULTIARCH") or "."), prefix]
    folders += sorted(Path("/usr/lib").glob("llvm-*/lib/clang/*/lib/linux"), key=natural_order)
    for folder in folders:
        if folder.is_dir():
            listed += sorted(folder.glob("lib*alloc*.so*"))
            listed += sorted(folder.glob("lib*hoard*.so*")) + sorted(folder.glob("lib*scudo*.so*"))
    return listed


def _best_match(pattern: str, candidates: Sequence[Path]) -> Path | None:
    """The first match in the loader's own order; if in versioned folders, the newest."""
    matches = [p for p in candidates if p.match(pattern) and is_loadable_library(p)]
    versioned = [p for p in matches if "llvm" in str(p)]
    plain = [p for p in matches if p not in versioned]
    if plain:
        return plain[0]
    return max(versioned, key=natural_order, default=None)


def natural_order(path: Path) -> list[tuple[int, str]]:
    """Sorts numbers within a path as numbers: llvm-9 before llvm-16."""
    parts = re.split(r"(\d+)", str(path))
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _available_package(packages: Sequence[str]) -> str:
    """The first of some packages in the package lists, by default the first."""
    if len(packages) == 1:
        return packages[0]  # the query takes half a second
    shown = _output(["apt-cache", "show", "--no-all-versions", *packages])
    known = re.findall(r"(?m)^Package: (\S+)", shown)
    return next((package for package in packages if package in known), packages[0])


def run_tool(
    command: Sequence[str],
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs one of the system's programs without input, in the C locale, and without the libraries
    that are preloaded here."""
    kept = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment if environment is not None else kept | {"LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_seconds,
        check=False,
    )


def _output(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """A command's output; empty if it cannot run. Ignores the exit status."""
    try:
        return run_tool(command, None, environment, PROBE_TIMEOUT_SECONDS).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
