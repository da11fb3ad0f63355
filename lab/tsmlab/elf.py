"""ELF files: their symbols, and whether an allocator can be preloaded into one."""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import TypeVar

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import Section
from elftools.elf.segments import InterpSegment

# Functions that reveal an allocator inside the file that defines them.
MALLOC_SYMBOLS = ("malloc", "calloc", "free")
ALLOCATOR_SYMBOLS = {
    "jemalloc": ("je_malloc", "je_mallctl", "_rjem_malloc", "_rjem_mallctl", "mallctl", "mallocx"),
    "mimalloc": ("mi_malloc", "mi_heap_malloc"),
    "tcmalloc": ("tc_malloc", "tc_version", "TCMallocInternalMalloc"),
    "tbbmalloc": ("scalable_malloc",),
    "rpmalloc": ("rpmalloc", "rpmalloc_initialize"),
    "snmalloc": ("sn_malloc", "sn_rust_alloc"),
    "hoard": ("xxmalloc", "getCustomHeap"),
}
SANITIZER_SYMBOLS = {
    "AddressSanitizer": ("__asan_init",),
    "ThreadSanitizer": ("__tsan_init",),
    "MemorySanitizer": ("__msan_init",),
    "HWAddressSanitizer": ("__hwasan_init",),
    "LeakSanitizer": ("__lsan_init",),
}
# Functions that reveal something about a program that uses them.
ALLOCATOR_IMPORTS = ("malloc_usable_size",)
# Strings that remain in a stripped program if an allocator was linked into it.
ALLOCATOR_TEXTS = {
    "jemalloc": (b"<jemalloc>: ",),
    "mimalloc": (b"MIMALLOC_", b"mimalloc: "),
    "tcmalloc": (b"TCMALLOC_", b"tcmalloc: "),
}
GO_SECTIONS = (".go.buildinfo", ".note.go.buildid", ".gopclntab")


class NotElf(Exception):
    """The file is not an ELF file, or a damaged one; the message says which."""


@dataclass(frozen=True)
class ElfFacts:
    bits: int
    machine: str
    interpreter: str | None  # the dynamic loader; None in a static program
    has_dynamic: bool
    needed: tuple[str, ...]
    go: bool
    defined: frozenset[str]  # those of the symbols above that the file defines
    imported: frozenset[str]  # those of TELLING_IMPORTS that the file imports
    texts: frozenset[str]  # allocators whose strings the file contains

    @property
    def defines_malloc(self) -> bool:
        return "malloc" in self.defined

    @property
    def allocators_inside(self) -> tuple[str, ...]:
        """Known allocators that are linked into the file, found by symbols or, if stripped, by
        strings."""
        by_symbols = _holders(ALLOCATOR_SYMBOLS, self.defined)
        return by_symbols or tuple(name for name in ALLOCATOR_TEXTS if name in self.texts)

    @property
    def sanitizers(self) -> tuple[str, ...]:
        return _holders(SANITIZER_SYMBOLS, self.defined)


Read = TypeVar("Read")


def read(path: Path, what: Callable[[ELFFile], Read]) -> Read:
    """Calls `what` on an ELF file; NotElf if it is not one, or cannot be understood."""
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            raise NotElf("not an ELF file")
        try:
            return what(ELFFile(file))
        except Exception as error:
            # The parser is written for valid files: any error in it (a seek to nowhere, a huge
            # table) means that the file is not a valid ELF file.
            raise NotElf(f"damaged ELF file ({type(error).__name__})") from error


def read_facts(path: Path) -> ElfFacts:
    return read(path, _facts)


def _facts(elf: ELFFile) -> ElfFacts:
    interpreter = None
    has_dynamic = False
    for segment in elf.iter_segments():
        if isinstance(segment, InterpSegment):
            interpreter = segment.get_interp_name()
        has_dynamic = has_dynamic or segment["p_type"] == "PT_DYNAMIC"
    defined, imported = _symbols(elf)
    dynamic = elf.get_section_by_name(".dynamic")
    needed: tuple[str, ...] = ()
    if isinstance(dynamic, DynamicSection):
        needed = tuple(
            str(tag.needed)  # type: ignore[attr-defined]
            for tag in dynamic.iter_tags("DT_NEEDED")
        )
    return ElfFacts(
        bits=elf.elfclass,
        machine=elf.get_machine_arch(),
        interpreter=interpreter,
        has_dynamic=has_dynamic,
        needed=needed,
        go=any(elf.get_section_by_name(name) is not None for name in GO_SECTIONS),
        defined=defined,
        imported=imported,
        texts=_texts(elf.get_section_by_name(".rodata")),
    )


def _symbols(elf: ELFFile) -> tuple[frozenset[str], frozenset[str]]:
    """The interesting symbols that the file defines, and imports, from either symbol table.

    Undefined ones count for sanitizers only, whose runtime is then a library.
    """
    sanitizer_names = {name for names in SANITIZER_SYMBOLS.values() for name in names}
    allocator_names = {name for names in ALLOCATOR_SYMBOLS.values() for name in names}
    wanted = sanitizer_names | allocator_names | {*MALLOC_SYMBOLS, *ALLOCATOR_IMPORTS}
    found = set()
    imported = set()
    for strings, symbols in symbol_tables(elf):
        offsets = _offsets(strings, wanted)
        for at, _, section, _, _ in symbols:
            name = offsets.get(at)
            if name is None:
                continue
            if section == 0 and name in ALLOCATOR_IMPORTS:
                imported.add(name)
            elif section != 0 or name in sanitizer_names:
                found.add(name)
    return frozenset(found), frozenset(imported)


# Offset of the name, kind, section, address and size.
Symbol = tuple[int, int, int, int, int]


def symbol_tables(elf: ELFFile) -> Iterator[tuple[bytes, Iterator[Symbol]]]:
    """The names of each table, and its symbols. Big programs have hundreds of thousands, so they
    are unpacked here without creating objects."""
    order = "<" if elf.little_endian else ">"
    is_64 = elf.elfclass == 64
    layout = struct.Struct(order + ("IBBHQQ" if is_64 else "IIIBBH"))
    fields = itemgetter(0, 1, 3, 4, 5) if is_64 else itemgetter(0, 3, 5, 1, 2)
    for table in elf.iter_sections():
        if table["sh_type"] in {"SHT_SYMTAB", "SHT_DYNSYM"}:
            data = table.data()
            whole = layout.iter_unpack(data[: len(data) // layout.size * layout.size])
            yield elf.get_section(table["sh_link"]).data(), map(fields, whole)


def _offsets(strings: bytes, names: Iterable[str]) -> dict[int, str]:
    """The offsets of the names in a string table; linkers let one name be the tail of another."""
    found = {}
    for name in names:
        needle = name.encode() + b"\0"
        at = strings.find(needle)
        while at >= 0:
            found[at] = name
            at = strings.find(needle, at + 1)
    return found


def _texts(section: Section | None) -> frozenset[str]:
    if section is None or section["sh_type"] == "SHT_NOBITS":
        return frozenset()
    data = section.data()
    return frozenset(
        name for name, texts in ALLOCATOR_TEXTS.items() if any(text in data for text in texts)
    )


def _holders(table: Mapping[str, tuple[str, ...]], defined: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name, symbols in table.items() if defined.intersection(symbols))
