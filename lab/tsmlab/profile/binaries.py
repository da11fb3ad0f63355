"""The files that hold a mapping's symbols, and the file addresses of its memory addresses.

The file that a profile names may have been replaced, stripped or deleted, and symbols of another
build are worse than none: a file is used only if its build id is the profile's or, if neither has
one, if it is older than the process.
"""

import bisect
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from tsmlab import elf
from tsmlab.profile.model import Mapping, Profile, printable

DEBUG_FOLDER = Path("/usr/lib/debug")
PAGE = 4096
# The kernel counts in hundredths of a second, and the clock may have been adjusted since.
SLACK_NANOS = 1_000_000_000
_FUNCTION_TYPES = (0, 2, 10)  # none (assembly), function, indirect function


class SymbolTable:
    """The functions of an ELF file's symbol tables, by address."""

    def __init__(self, file: ELFFile) -> None:
        found: dict[int, tuple[int, bytes]] = {}
        for names, symbols in elf.symbol_tables(file):
            for at, kind, section, value, size in symbols:
                if section == 0 or value == 0 or kind & 15 not in _FUNCTION_TYPES:
                    continue
                name = names[at : names.find(b"\0", at)]
                if name and not name.startswith((b"$", b".L")):  # not arm64's mapping symbols
                    found[value] = max(found.get(value, (0, b"")), (size, name))
        self._starts = sorted(found)
        self._entries = [found[start] for start in self._starts]

    def name(self, address: int) -> str | None:
        """The function that contains an address. One without a size ends where the next begins."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        size, name = self._entries[at]
        if size and address >= self._starts[at] + size:
            return None
        return name.decode(errors="backslashreplace")


@dataclass(frozen=True)
class Segment:
    address: int
    offset: int
    file_size: int
    executable: bool


@dataclass(frozen=True)
class Binary:
    """The headers of an ELF file that symbols need."""

    path: Path
    build_id: str
    segments: tuple[Segment, ...]
    debug: bool  # has line information itself
    alternate: bool  # shares parts of its line information with other files (dwz)
    debug_link: str

    @cached_property
    def symbols(self) -> SymbolTable:
        return elf.read(self.path, SymbolTable)

    def address(self, mapping: Mapping, address: int) -> int | None:
        """Converts an address in memory to an address of the file."""
        offset = address - mapping.start + mapping.offset
        inside = [
            each
            for each in self.segments
            if each.offset // PAGE * PAGE <= offset < each.offset + each.file_size
        ]
        # Two segments may share a page of the file.
        best = max(inside, key=lambda each: each.executable, default=None)
        return None if best is None else best.address + offset - best.offset

    def address_without_offsets(self, mapping: Mapping, address: int) -> int | None:
        """The same for a file of debug information only, whose offsets are its own."""
        code = [s for s in self.segments if s.executable]
        if len(code) != 1:
            return None
        return code[0].address // PAGE * PAGE + address - mapping.start


def read(path: Path) -> Binary | None:
    """None for a file that is not a valid ELF file, or cannot be read."""
    try:
        binary = elf.read(path, partial(_read, path))
        if path.is_relative_to("/proc"):
            _ = binary.symbols  # now, because the process may end later
        return binary
    except (elf.NotElf, OSError):
        return None


def _read(path: Path, file: ELFFile) -> Binary:
    build_id = ""
    for section in file.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                # Other machines number their types differently: take the probe's number.
                if (note["n_name"], note["n_type"]) == ("GNU", "NT_GNU_BUILD_ID"):
                    build_id = note["n_desc"]
    names = {section.name for section in file.iter_sections()}
    link: Any = file.get_section_by_name(".gnu_debuglink")
    link_name = link.data().partition(b"\0")[0] if link is not None else b""
    return Binary(
        path=path,
        build_id=build_id,
        segments=tuple(
            Segment(s["p_vaddr"], s["p_offset"], s["p_filesz"], bool(s["p_flags"] & 1))
            for s in file.iter_segments()
            if s["p_type"] == "PT_LOAD"
        ),
        debug=bool(names & {".debug_info", ".zdebug_info"}),
        alternate=".gnu_debugaltlink" in names,
        debug_link=link_name.decode(errors="surrogateescape"),
    )


class Origin:
    """The process of a profile, if it still runs. Process IDs are reused: it is the same process
    only if it began before the profile was taken."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._folder = Path(f"/proc/{profile.pid}")
        began = _began_nanos(self._folder)
        self.runs = began is not None and began <= profile.time_nanos + SLACK_NANOS
        self.began_nanos = profile.process_began_nanos or (began if self.runs else None)

    def files(self, mapping: Mapping) -> Iterator[tuple[Path, bool]]:
        """Candidates for a mapping's file, and whether each is certainly the mapped one: a path may
        lead to another file now, or in this mount namespace."""
        if self.runs:
            yield self._folder / f"map_files/{mapping.start:x}-{mapping.limit:x}", True  # for root
            program = self._folder / "exe"
            try:
                if str(program.readlink()).removesuffix(" (deleted)") == mapping.file:
                    yield program, True
            except OSError:
                pass  # it has ended, or belongs to another user
            yield self._folder / "root" / mapping.file.lstrip("/"), False
        yield Path(mapping.file), False

    def named_since(self, path: Path) -> bool:
        """Whether a file's content or name may have changed since the process began."""
        status = path.stat()
        since = self.began_nanos or self._profile.time_nanos - self._profile.duration_nanos
        return max(status.st_mtime_ns, status.st_ctime_ns) > since + SLACK_NANOS // 100

    def perf_map(self) -> tuple[Path | None, str]:
        """The file of symbol names written by the process's JIT; or why it is not used."""
        path, latest = Path(f"/tmp/perf-{self._profile.pid}.map"), self._profile.time_nanos
        if self.runs:
            path, latest = self._folder / f"root/tmp/perf-{self._own_number()}.map", time.time_ns()
        try:
            written = path.stat().st_mtime_ns
        except OSError:
            return None, ""
        # A virtual machine may write its last names after the profile was taken.
        latest += 60 * SLACK_NANOS
        if self.began_nanos is None or not self.began_nanos - SLACK_NANOS <= written <= latest:
            return None, f"no names from {path}: it was written by another process with this ID"
        return path, ""

    def _own_number(self) -> str:
        """The process's ID in its own namespace."""
        status = (self._folder / "status").read_text(errors="replace")
        (line,) = (line for line in status.splitlines() if line.startswith("NSpid:"))
        return line.split()[-1]


def _began_nanos(folder: Path) -> int | None:
    """When a process began, in nanoseconds since 1970; None if there is none."""
    try:
        fields = (folder / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    ticks = int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    return time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME) + ticks


@dataclass(frozen=True)
class MappedBinary:
    """The loaded file, the file with its line information, and a note about them."""

    loaded: Binary | None
    lines: Binary | None
    note: str = ""
    doubt: str = ""  # about the names that were found

    def address(self, mapping: Mapping, address: int) -> int | None:
        if self.loaded is not None:
            return self.loaded.address(mapping, address)
        return self.lines.address_without_offsets(mapping, address) if self.lines else None

    def symbol(self, address: int) -> str | None:
        """The function at an address of the file, from the symbol tables."""
        files = (each for each in (self.lines, self.loaded) if each is not None)
        return next((name for each in files if (name := each.symbols.name(address))), None)


def find(mapping: Mapping, origin: Origin, debug_folder: Path = DEBUG_FOLDER) -> MappedBinary:
    loaded, note, doubt = _loaded(mapping, origin)
    if loaded is not None and loaded.debug:
        return MappedBinary(loaded, loaded, doubt=doubt)
    build_id = mapping.build_id
    places = [debug_folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug"]
    if loaded is not None and loaded.debug_link:
        own = Path(mapping.file).resolve().parent
        folders = (own, own / ".debug", debug_folder / own.relative_to("/"))
        places += [folder / loaded.debug_link for folder in folders]
    separate = (read(place) for place in places) if build_id else ()
    lines = next((f for f in separate if f and f.debug and f.build_id == build_id), None)
    return MappedBinary(loaded, lines or loaded, "" if lines else note, doubt)


def _loaded(mapping: Mapping, origin: Origin) -> tuple[Binary | None, str, str]:
    """The mapped file, if it exists; why it does not; and why it may be another one."""
    named = printable(mapping.file)
    remedy = "link with -Wl,--build-id, or run `tsmalloc profile symbolize` while the program runs"
    note = ""
    for path, is_mapped in origin.files(mapping):
        found = read(path)
        if found is None:
            reason = "cannot be read" if os.path.exists(path) else "does not exist"  # noqa: PTH110 (raises)
        elif found.build_id != mapping.build_id:
            ids = (each[:12] or "no build id" for each in (found.build_id, mapping.build_id))
            reason = f"is not the build that was profiled ({' instead of '.join(ids)})"
        elif mapping.build_id or is_mapped:
            return found, "", ""
        elif not origin.named_since(path):
            doubt = f"{named} has no build id, so it may be a different build: {remedy}"
            return found, "", doubt
        else:
            reason = f"has changed since the program started, and has no build id: {remedy}"
        note = f"{named} {reason}"  # about the last candidate, the path itself
    return None, note, ""
