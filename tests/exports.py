"""A drop-in library from outside: its exports, its needs, and its effects on a process.

Reads the ELF file with binutils' `readelf`, which comes with every compiler, and runs nothing of
the library: tests/conformance checks that the functions work.

Usage: exports.py LIBRARY.so...
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path


def names(text: str) -> frozenset[str]:
    """The words of a text, for tables that people read."""
    return frozenset(text.split())


FUNCTIONS = names(
    """
    malloc free calloc realloc cfree free_sized free_aligned_sized
    posix_memalign memalign aligned_alloc valloc pvalloc
    malloc_usable_size malloc_good_size nallocx sdallocx alloc_at_least
    __libc_malloc __libc_free __libc_calloc __libc_realloc
    __libc_memalign __libc_valloc __libc_pvalloc __posix_memalign
    pthread_key_create tss_create
    mallinfo mallinfo2 malloc_info malloc_stats malloc_trim mallopt
    ts_version ts_usable_size ts_good_size ts_trim ts_housekeep ts_option_set ts_option_get
    ts_on_event ts_profile_start ts_profile_stop ts_profile_write
    ts_arena_create ts_arena_reset ts_arena_destroy ts_arena_malloc ts_arena_aligned_alloc
    ts_arena_stats ts_scope_enter ts_scope_leave
    ts_purge ts_thread_flush ts_alloc_at_least ts_expand ts_rezalloc
    ts_stats ts_stats_write ts_owns ts_block_of ts_visit
    ts_data_segment_size ts_data_segment_free_space_size
    """
)

# Each operator in each form, as the C++ ABI for 64-bit systems mangles it.
OPERATORS = names(
    """
    _Znwm _ZnwmRKSt9nothrow_t _ZnwmSt11align_val_t _ZnwmSt11align_val_tRKSt9nothrow_t
    _Znam _ZnamRKSt9nothrow_t _ZnamSt11align_val_t _ZnamSt11align_val_tRKSt9nothrow_t
    _ZdlPv _ZdlPvm _ZdlPvRKSt9nothrow_t
    _ZdlPvSt11align_val_t _ZdlPvmSt11align_val_t _ZdlPvSt11align_val_tRKSt9nothrow_t
    _ZdaPv _ZdaPvm _ZdaPvRKSt9nothrow_t
    _ZdaPvSt11align_val_t _ZdaPvmSt11align_val_t _ZdaPvSt11align_val_tRKSt9nothrow_t
    """
)

EXPORTS = FUNCTIONS | OPERATORS

# The only undefined names allowed besides libc's: those checked when memory runs out and absent in
# C programs; those that a program without libpthread or libdl lacks before glibc 2.34; and those in
# every shared object's start-up files.
WEAK = names(
    """
    _ZSt15get_new_handlerv _ZSt17__throw_bad_allocv _ZSt9terminatev
    __gxx_personality_v0 __cxa_begin_catch __cxa_end_catch _Unwind_Resume
    _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable __gmon_start__ __cxa_finalize
    _IO_list_lock _IO_list_unlock _IO_list_resetlock __curbrk
    dlerror dlsym pthread_attr_setstacksize pthread_create pthread_getspecific pthread_key_delete
    pthread_setspecific __pthread_key_create __cxa_thread_atexit_impl
    """
)

# What was only in libpthread, libdl and librt before glibc 2.34 begins like these names, except for
# those that libc had as well. A program without libpthread has no other, and a strong reference
# ends it before it starts.
FORMERLY_ELSEWHERE = re.compile(r"(__)?(pthread|sem|dl|tss|mtx|cnd|thrd|aio|mq|shm|timer)_?[a-z]")
ALWAYS_IN_LIBC = names(
    """
    dl_iterate_phdr
    pthread_attr_destroy pthread_attr_init pthread_attr_setdetachstate
    pthread_cond_broadcast pthread_cond_destroy pthread_cond_init pthread_cond_signal
    pthread_cond_timedwait pthread_cond_wait pthread_equal
    pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock
    pthread_self pthread_setcancelstate pthread_setcanceltype
    """
)

# Static TLS that a library may use: a pointer and a little state, so that dlopen always finds
# enough.
MOST_TLS_BYTES = 64


@dataclass
class Elf:
    """readelf's answers about one shared library."""

    exported: set[str] = field(default_factory=set)
    versioned: set[str] = field(default_factory=set)  # those with a version after the name
    undefined_strong: set[str] = field(default_factory=set)
    undefined_weak: set[str] = field(default_factory=set)
    linked: set[str] = field(
        default_factory=set
    )  # names that the library itself reaches dynamically
    needed: list[str] = field(default_factory=list)
    dynamic: str = ""
    tls_bytes: int = 0
    stack_flags: str | None = None


def readelf(option: str, library: Path) -> str:
    """The output of readelf with one option."""
    command = ["readelf", "--wide", option, str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inspect(library: Path) -> Elf:
    """Read symbols, dynamic section and program headers."""
    elf = Elf(dynamic=readelf("--dynamic", library))
    elf.needed = re.findall(r"\(NEEDED\).*\[(.+)\]", elf.dynamic)
    for line in readelf("--dyn-syms", library).splitlines():
        # Num: Value Size Type Bind Vis Ndx Name
        columns = line.split()
        if len(columns) < 8 or not columns[0].rstrip(":").isdigit():
            continue
        bind, index, name = columns[4], columns[6], columns[7]
        if index != "UND":
            elf.exported.add(name.split("@")[0])
            if "@" in name:
                elf.versioned.add(name)
        elif bind == "WEAK":
            elf.undefined_weak.add(name.split("@")[0])
        else:
            elf.undefined_strong.add(name)
    for line in readelf("--relocs", library).splitlines():
        # Offset Info Type Value Name + Addend
        columns = line.split()
        if len(columns) >= 5 and columns[2].startswith("R_"):
            elf.linked.add(columns[4].split("@")[0])
    for line in readelf("--program-headers", library).splitlines():
        # Type Offset VirtAddr PhysAddr FileSiz MemSiz Flg Align; the flags may contain spaces.
        columns = line.split()
        if columns[:1] == ["TLS"]:
            elf.tls_bytes = int(columns[5], 16)
        elif columns[:1] == ["GNU_STACK"]:
            elf.stack_flags = "".join(columns[6:-1])
    return elf


def undefined_faults(elf: Elf) -> Iterator[str]:
    """The imports that are not allowed."""
    if foreign := {name for name in elf.undefined_strong if "@GLIBC_" not in name}:
        yield f"leaves {', '.join(sorted(foreign))} undefined, which libc does not define"
    strong = {name.split("@")[0] for name in elf.undefined_strong} - ALWAYS_IN_LIBC
    if late := {name for name in strong if FORMERLY_ELSEWHERE.match(name)}:
        yield f"leaves {', '.join(sorted(late))} undefined, not weak: libc lacks it before 2.34"
    if surplus := elf.undefined_weak - WEAK:
        yield f"refers weakly to {', '.join(sorted(surplus))}"


def faults(elf: Elf) -> Iterator[str]:
    """Everything that is wrong with the library."""
    if missing := EXPORTS - elf.exported:
        yield f"does not export {', '.join(sorted(missing))}"
    if surplus := elf.exported - EXPORTS:
        yield f"exports {', '.join(sorted(surplus))} as well; src/libc/exports.map decides"
    if elf.versioned:
        # A program asks for libc's version of malloc, which the dynamic linker must not find in
        # another library.
        yield f"has versions, as of {min(elf.versioned)}, by which it replaces nothing"
    if elf.needed != ["libc.so.6"]:
        yield f"needs {', '.join(elf.needed) or 'nothing'}; must need libc.so.6 alone"
    yield from undefined_faults(elf)
    if own := elf.linked & FUNCTIONS:
        # A compiler that merges "allocate, then fill with zeros" into one call would do it in
        # calloc.
        yield f"calls its own {', '.join(sorted(own))}, which may call itself without end"
    if elf.tls_bytes > MOST_TLS_BYTES:
        yield f"has {elf.tls_bytes} bytes of thread-local storage, more than {MOST_TLS_BYTES}"
    if "TEXTREL" in elf.dynamic:
        yield "has text relocations"
    if elf.stack_flags is None or "E" in elf.stack_flags:
        yield "asks for an executable stack"
    for flag in ("NOW", "NODELETE", "INITFIRST"):
        if not re.search(rf"\(FLAGS_1\).*\b{flag}\b", elf.dynamic):
            yield f"is not linked with -z {flag.lower()}"


def main(arguments: list[str]) -> int:
    """Check every library named; 1 if any has a fault."""
    if not arguments:
        print("usage: exports.py LIBRARY.so...", file=sys.stderr)
        return 2
    status = 0
    for library in map(Path, arguments):
        try:
            found = list(faults(inspect(library)))
        except FileNotFoundError:
            print("exports.py: no readelf; install binutils", file=sys.stderr)
            return 2
        except subprocess.CalledProcessError as error:
            print(f"exports.py: {error.stderr.strip()}", file=sys.stderr)
            return 2
        for fault in found:
            print(f"{library.name}: {fault}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
