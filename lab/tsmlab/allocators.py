"""The allocators that can be used here: ours, the C library's, installed ones, the user's own."""

import difflib
import fnmatch
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tsmlab import __version__, elf, fetched, machine, paths, system_libraries
from tsmlab.errors import UserError

Family = Literal["tsmalloc", "hardened", "libc", "system", "fetched", "user"]

# The allocators that `tsmalloc fetch` has a recipe for.
FETCHABLE = ("mimalloc", "mimalloc2", "jemalloc", "snmalloc", "rpmalloc", "tcmalloc")
# The engine has no strategy or fit to choose.
ENGINE = "tsmalloc"
# The hardened library has none either, and is in no group: comparisons of speed leave it out.
SECURE = "tsmalloc-secure"
SHORT_NAMES = {"secure": SECURE}
STRATEGIES = {
    "lock": "one heap behind one lock",
    "rwlock": "one heap behind a readers-writer lock",
    "nolock": "a heap per thread, locked only to grow",
    "arenas": "several locked heaps; uses the first one that is free",
    "cached": "thread caches over one locked heap",
    "lockfree": "one heap, compare-and-swap instead of locks",
}
FITS = ("first", "best", "worst")

GROUPS: Mapping[str, frozenset[Family]] = {
    "ours": frozenset({"tsmalloc"}),
    "system": frozenset({"libc", "system", "fetched"}),
    "all": frozenset({"tsmalloc", "libc", "system", "fetched", "user"}),
}


@dataclass(frozen=True)
class Allocator:
    """An allocator that a program can be run under.

    The path can go into LD_PRELOAD; None means the C library's own allocator.
    """

    name: str
    path: Path | None
    family: Family
    version: str
    package: str | None = None
    env: Mapping[str, str] = field(default_factory=dict, hash=False)
    summary: str = ""

    @property
    def sha256(self) -> str | None:
        return None if self.path is None else file_sha256(self.path)

    def environment(self) -> dict[str, str]:
        """This process's environment, plus the variables for running a program under the
        allocator."""
        found = {**os.environ, **self.env}
        if self.path is not None:
            found["LD_PRELOAD"] = ":".join(filter(None, (str(self.path), found.get("LD_PRELOAD"))))
        return found


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def discover(extra: Sequence[str] = (), *, versions: bool = True) -> list[Allocator]:
    """All usable allocators, always in the same order; `extra` holds the user's own (see parse).

    Without `versions` the package database is not queried, which is faster.
    """
    hardened = "hardened, detects heap corruption, not fast: guards, canaries, quarantine"
    found = _built(_summaries(), "tsmalloc") + _built([(SECURE, hardened)], "hardened")
    found += [glibc(), *_installed(versions), *_fetched()]
    found += [parse(text, found) for text in extra]
    names = [allocator.name for allocator in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(
            f"the allocator name {twice} is used twice.",
            "Give your own library another name: --allocator NAME=PATH.so",
        )
    return found


def own_names() -> list[str]:
    return [name for name, _ in _summaries()]


def glibc() -> Allocator:
    version = (machine.libc() or "?").removeprefix("glibc ")
    summary = "the C library's own: arenas with thread caches"
    return Allocator("glibc", None, "libc", version, "libc6", summary=summary)


def parse(text: str, known: Iterable[Allocator] = ()) -> Allocator:
    """Parses NAME=PATH.so, optionally followed by environment variables:
    NAME=PATH.so:KEY=VALUE... Instead of a path, one of the known allocators can be named."""
    name, equals, rest = text.partition("=")
    form = (
        "Write NAME=PATH.so, or NAME=ALLOCATOR with one of `tsmalloc list`; append :KEY=VALUE to "
        "set an environment variable."
    )
    if not equals or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
        raise UserError(f"cannot parse --allocator {text!r}.", form)
    if name in GROUPS:
        raise UserError(f"{name} is a group of allocators, not one.", "Choose another name.")
    location, *settings = re.split(r":(?=[A-Za-z_][A-Za-z0-9_]*=)", rest)
    env = dict(setting.split("=", 1) for setting in settings)
    if named := [each for each in known if each.name == location]:
        env = {**named[0].env, **env}
        return replace(named[0], name=name, family="user", env=env, summary=rest)
    path = Path(location).expanduser().absolute()
    if not path.is_file():
        raise UserError(f"allocator {name}: {path} is not a file.", form)
    if not system_libraries.is_loadable_library(path):
        raise UserError(
            f"allocator {name}: {path} is not a shared library for this machine.",
            "It must be an ELF shared library for the same architecture as the program.",
        )
    version = system_libraries.version_from_library(path) or "?"
    return Allocator(
        name, paths.preloadable(path), "user", version, env=env, summary="given by --allocator"
    )


# Libraries that an allocator may depend on without getting its malloc from them.
NO_ALLOCATORS = (
    "libc.",
    "libm.",
    "libgcc_s.",
    "libstdc++.",
    "libpthread.",
    "libdl.",
    "librt.",
    "ld-",
)


def check_malloc(allocators: Iterable[Allocator]) -> None:
    """Raises UserError for a user's library that neither defines malloc nor depends on a library
    that may: a program under it would be measured with glibc's malloc."""
    for each in allocators:
        if each.family != "user" or each.path is None:
            continue
        try:
            facts = elf.read_facts(each.path)
        except elf.NotElf:
            continue  # the loader will report it
        if facts.defines_malloc or any(not n.startswith(NO_ALLOCATORS) for n in facts.needed):
            continue
        raise UserError(
            f"allocator {each.name}: {each.path} does not define malloc, so programs would keep "
            "glibc's.",
            "Build it to replace malloc; allocators have an option for that.",
        )


def select(spec: Sequence[str], available: Sequence[Allocator]) -> list[Allocator]:
    """The allocators that names, globs (lock-*) and groups (ours, system, all) select, in that
    order.

    Each item may hold several, separated by commas.
    """
    wanted = [part.strip() for item in spec for part in item.split(",") if part.strip()]
    if not wanted:
        raise UserError("no allocator given.", "`tsmalloc list` lists them.")
    chosen: dict[str, Allocator] = {}
    for part in wanted:
        group = GROUPS.get(part)
        matches = [
            a
            for a in available
            if (fnmatch.fnmatchcase(a.name, part) if group is None else a.family in group)
        ]
        if not matches:
            raise _unknown(part, available)
        chosen.update((a.name, a) for a in matches)
    return list(chosen.values())


def select_or_default(spec: Sequence[str], available: Sequence[Allocator]) -> list[Allocator]:
    """Like select(); by default the engine, the installed allocators, and the user's own: those
    that are meant for production."""
    own = [each.name for each in available if each.family == "user"]
    return select(spec or [ENGINE, "system", *own], available)


def with_reference(
    name: str, chosen: list[Allocator], available: Sequence[Allocator]
) -> tuple[Allocator, list[Allocator]]:
    """The reference of this name, and all compared allocators, which always include it."""
    reference = find(name, available)
    return reference, chosen if reference in chosen else [reference, *chosen]


def advice(chosen: Sequence[str]) -> list[str]:
    missing = [] if chosen else system_libraries.missing_packages()
    return [f"more allocators with: sudo apt install {' '.join(missing)}"] if missing else []


def find(name: str, available: Sequence[Allocator]) -> Allocator:
    for wanted in (name, SHORT_NAMES.get(name)):
        for allocator in available:
            if allocator.name == wanted:
                return allocator
    raise _unknown(name, available)


def _unknown(name: str, available: Sequence[Allocator]) -> UserError:
    if name in (*own_names(), SECURE, *SHORT_NAMES):
        return UserError(
            f"the allocator {name} is missing from {paths.library_dir()}.", paths.remedy()
        )
    known = [allocator.name for allocator in available] + sorted(GROUPS)
    remedy = "`tsmalloc list` lists all allocators."
    if package := system_libraries.package_of(name):
        remedy = f"To install it: sudo apt install {package}"
    elif name in FETCHABLE and not any(each.name.startswith(f"{name}-") for each in available):
        remedy = f"To build it: tsmalloc fetch {name}"
    elif near := difflib.get_close_matches(name, known, n=1):
        remedy = f"Did you mean {near[0]}? {remedy}"
    elif shutil.which(name):
        remedy = f"To run the program of that name: tsmalloc run -- {name} ... {remedy}"
    return UserError(f"unknown allocator {name!r}.", remedy)


def own_library(name: str) -> str:
    return f"lib{name}.so" if name in (ENGINE, SECURE) else f"libtsmalloc-{name}.so"


def _summaries() -> Iterator[tuple[str, str]]:
    yield ENGINE, "the engine: thread bins over slabs, one page heap"
    for strategy, summary in STRATEGIES.items():
        for fit in FITS:
            yield f"{strategy}-{fit}", f"{summary}; {fit} fit"


def _built(summaries: Iterable[tuple[str, str]], family: Family) -> list[Allocator]:
    return [
        Allocator(name, paths.preloadable(path), family, __version__, summary=summary)
        for name, summary in summaries
        if (path := paths.library_dir() / own_library(name)).is_file()
    ]


def _fetched() -> Iterator[Allocator]:
    for manifest, library in fetched.present():
        yield Allocator(
            manifest.folder,
            paths.preloadable(library),
            "fetched",
            manifest.version,
            env=manifest.environment,
            summary=manifest.summary,
        )


def _installed(versions: bool) -> list[Allocator]:
    libraries = system_libraries.installed()
    packages = system_libraries.packages_of([path for _, path in libraries]) if versions else {}
    found = []
    for known, path in libraries:
        package = packages.get(path)
        version = package.upstream_version if package else None
        if version is None and versions:
            version = system_libraries.version_from_library(path)
        found.append(
            Allocator(
                known.name,
                paths.preloadable(path),
                "system",
                version or "?",
                package.name if package else None,
                summary=known.summary,
            )
        )
    return found
