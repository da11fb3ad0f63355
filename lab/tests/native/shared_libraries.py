"""Reads the dynamic section and the dynamic symbols of a product."""

from elftools.elf.elffile import ELFFile

# The C library: before glibc 2.34 in three files, two of which have been empty since.
C_LIBRARY = {"libc.so.6", "libpthread.so.0", "libdl.so.2"}


def needed_libraries(path):
    with path.open("rb") as file:
        tags = ELFFile(file).get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        return {tag.needed for tag in tags}


def exported_names(path, section=".dynsym"):
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(section).iter_symbols()
        return {s.name for s in symbols if s["st_shndx"] != "SHN_UNDEF"}


_ENTRY_POINTS = frozenset(
    {
        *("malloc", "calloc", "realloc", "reallocarray", "free", "free_sized"),
        *("free_aligned_sized", "memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc"),
    }
)


def expect_shim(path, *also):
    """A shim needs only the C library, and exports only the functions that it intercepts."""
    assert needed_libraries(path) <= C_LIBRARY
    exported = exported_names(path)
    operators = {name for name in exported if name.startswith(("_Zn", "_Zd"))}
    assert len(operators) == 20
    assert exported - operators == _ENTRY_POINTS | set(also)
