"""The files that hold a mapping's symbols, and where an address of it lies in them.

The file that a profile names may have been replaced, stripped, or be gone, and symbols of another
build are worse than none: a file is never used whose build id is not the profile's, or, if neither
has one, that is newer than the process.
"""

import bisect
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from tsmlab.profile.model import Mapping, printable
from tsmlab.profile.origin import Origin

DEBUG_FOLDER = Path("/usr/lib/debug")
PAGE = 4096
_SYMBOLS_64 = [("name", "u4"), ("info", "u1"), ("other", "u1"), ("section", "u2")]
_LAYOUTS = {
    64: np.dtype([*_SYMBOLS_64, ("value", "u8"), ("size", "u8")]),
    32: np.dtype([("name", "u4"), ("value", "u4"), ("size", "u4"), *_SYMBOLS_64[1:]]),
}
_FUNCTION_TYPES = (0, 2, 10)  # none (assembly), function, indirect function


class SymbolTable:
    """The functions of an ELF file's symbol tables, by address."""

    def __init__(self, elf: ELFFile) -> None:
        found: dict[int, tuple[int, bytes]] = {}
        for table in elf.iter_sections():
            if table["sh_type"] not in {"SHT_SYMTAB", "SHT_DYNSYM"}:
                continue
            layout = _LAYOUTS[elf.elfclass].newbyteorder("<" if elf.little_endian else ">")
            data = table.data()
            entries = np.frombuffer(data[: len(data) // layout.itemsize * layout.itemsize], layout)
            kinds = np.isin(entries["info"] & 15, _FUNCTION_TYPES)
            entries = entries[kinds & (entries["section"] != 0) & (entries["value"] != 0)]
            names = elf.get_section(table["sh_link"]).data()
            for value, size, at in zip(
                *(entries[key].tolist() for key in ("value", "size", "name")), strict=True
            ):
                name = names[at : names.find(b"\0", at)]
                if name and not name.startswith((b"$", b".L")):  # not arm64's mapping symbols
                    found[value] = max(found.get(value, (0, b"")), (size, name))
        self._starts = sorted(found)
        self._entries = [found[start] for start in self._starts]

    def name(self, address: int) -> str | None:
        """The function that an address lies in. One without a size ends where the next begins."""
        at = bisect.bisect_right(self._starts, address) - 1
        if at < 0:
            return None
        size, name = self._entries[at]
        if size and address >= self._starts[at] + size:
            return None
        return name.decode(errors="backslashreplace")


@dataclass(frozen=True)
class Segment:
    """A part of the file that is loaded."""

    address: int
    offset: int
    file_size: int
    memory_size: int
    executable: bool

    def at_offset(self, offset: int) -> bool:
        """Whether the pages of the segment hold this offset of the file."""
        return self.offset // PAGE * PAGE <= offset < self.offset + self.file_size


@dataclass(frozen=True)
class Binary:
    """The headers of an ELF file, as far as symbols need them."""

    path: Path
    build_id: str
    segments: tuple[Segment, ...]
    debug: bool  # it has lines itself
    alternate: bool  # parts of its lines are in a file that several share (dwz)
    debug_link: tuple[str, int] | None

    @cached_property
    def symbols(self) -> SymbolTable:
        with self.path.open("rb") as file:
            return SymbolTable(ELFFile(file))

    def address(self, mapping: Mapping, address: int) -> int | None:
        """Where an address in memory lies in the file, in the file's own addresses."""
        loads = self.segments
        if not loads:
            return None
        first = loads[0]
        whole = mapping.offset == 0 and mapping.limit - mapping.start > _pages(first.file_size)
        if whole and not first.executable:  # one mapping stands for all of the file's
            return first.address // PAGE * PAGE + address - mapping.start
        offset = address - mapping.start + mapping.offset
        inside = [s for s in loads if s.at_offset(offset)]
        # Two segments may share a page of the file.
        best = next((s for s in inside if s.executable), inside[0] if inside else None)
        return None if best is None else best.address + offset - best.offset

    def address_without_offsets(self, mapping: Mapping, address: int) -> int | None:
        """Likewise, for a file of debug information alone, whose offsets are its own."""
        code = [s for s in self.segments if s.executable]
        if len(code) != 1:
            return None
        return code[0].address // PAGE * PAGE + address - mapping.start


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def read(path: Path) -> Binary | None:
    """None for a file that is no ELF file, is damaged, or cannot be read."""
    try:
        with path.open("rb") as file:
            return _read(path, file) if file.read(4) == b"\x7fELF" else None
    except Exception:
        # As in elf.py: the parser is written for sound files, and stumbles over others anyhow.
        return None


def _read(path: Path, file: BinaryIO) -> Binary:
    elf = ELFFile(file)
    build_id = ""
    for section in elf.iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                # Others number their types themselves: that of a probe is the same.
                if (note["n_name"], note["n_type"]) == ("GNU", "NT_GNU_BUILD_ID"):
                    build_id = note["n_desc"]
    names = {section.name for section in elf.iter_sections()}
    link: Any = elf.get_section_by_name(".gnu_debuglink")
    return Binary(
        path=path,
        build_id=build_id,
        segments=tuple(
            Segment(
                s["p_vaddr"], s["p_offset"], s["p_filesz"], s["p_memsz"], bool(s["p_flags"] & 1)
            )
            for s in elf.iter_segments()
            if s["p_type"] == "PT_LOAD"
        ),
        debug=bool(names & {".debug_info", ".zdebug_info"}),
        alternate=".gnu_debugaltlink" in names,
        debug_link=_debug_link(link.data(), elf.little_endian) if link is not None else None,
    )


def _debug_link(data: bytes, little_endian: bool) -> tuple[str, int]:
    name, _, _ = data.partition(b"\0")
    order = "little" if little_endian else "big"
    return name.decode(errors="surrogateescape"), int.from_bytes(data[-4:], order)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Found:
    """The file that is loaded, the one with its lines, and what is to be said of them."""

    loaded: Binary | None
    lines: Binary | None
    note: str = ""
    doubt: str = ""  # of the names that there are

    def address(self, mapping: Mapping, address: int) -> int | None:
        if self.loaded is not None:
            return self.loaded.address(mapping, address)
        return self.lines.address_without_offsets(mapping, address) if self.lines else None

    def symbol(self, address: int) -> str | None:
        """The function at the file's address, by the symbol tables."""
        files = (each for each in (self.lines, self.loaded) if each is not None)
        return next((name for each in files if (name := each.symbols.name(address))), None)


def find(mapping: Mapping, origin: Origin, debug_folder: Path = DEBUG_FOLDER) -> Found:
    """The files of a mapping."""
    mapped = origin.mapped_file(mapping)
    loaded = read(mapped or mapping.path) if mapping.path.is_absolute() else None
    note, doubt = _trust(mapping, loaded, mapped, origin)
    if note:
        loaded = None
    if loaded is not None and loaded.debug:
        return Found(loaded, loaded, doubt=doubt)
    lines = next(_debug_files(mapping, loaded, debug_folder), None)
    return Found(loaded, lines or loaded, "" if lines else note, doubt)


def _trust(
    mapping: Mapping, loaded: Binary | None, mapped: Path | None, origin: Origin
) -> tuple[str, str]:
    """Why a file is not used, and why it may be another one."""
    named = printable(mapping.file)
    if loaded is None:
        is_there = (mapped or mapping.path).exists()
        return f"{named} {'cannot be read' if is_there else 'is not there'}", ""
    if loaded.build_id != mapping.build_id:
        kinds = ((each or "no build id")[:12] for each in (loaded.build_id, mapping.build_id))
        return f"{named} is another build than the one profiled ({' instead of '.join(kinds)})", ""
    if mapping.build_id or mapped is not None:
        return "", ""
    remedy = "link with -Wl,--build-id, or run `tsmalloc profile symbolize` while the program runs"
    if origin.named_since(mapping.path):
        return f"{named} has changed since the program began, and has no build id: {remedy}", ""
    return "", f"{named} has no build id, so that it may be another build: {remedy}"


def _debug_files(mapping: Mapping, loaded: Binary | None, folder: Path) -> Iterator[Binary]:
    """Separate files of debug information, of this build."""
    build_id = mapping.build_id or (loaded.build_id if loaded else "")
    if len(build_id) > 2:
        found = read(folder / ".build-id" / build_id[:2] / f"{build_id[2:]}.debug")
        if found is not None and found.build_id == build_id and found.debug:
            yield found
    if loaded is None or loaded.debug_link is None:
        return
    name, checksum = loaded.debug_link
    own = mapping.path.resolve().parent
    for each in (own / name, own / ".debug" / name, folder / own.relative_to("/") / name):
        found = read(each)
        if found is None or not found.debug:
            continue
        if found.build_id == build_id if build_id else zlib.crc32(each.read_bytes()) == checksum:
            yield found
