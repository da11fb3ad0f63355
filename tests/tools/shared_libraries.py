"""What tests read of the dynamic section and the dynamic symbols of a product."""

from __future__ import annotations

from pathlib import Path

from elftools.elf.elffile import ELFFile

# The C library; before glibc 2.34 in three files, of which two are empty since then.
C_LIBRARY = {"libc.so.6", "libpthread.so.0", "libdl.so.2"}


def needed_libraries(path: Path) -> set[str]:
    with path.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        return {tag.needed for tag in tags}


def exported_names(path: Path) -> set[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF"}
