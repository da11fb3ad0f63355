"""Compares the names that our shared libraries import with a list that has a reason for each.

Another preloaded library may define any of these names, and then its function is called instead of
libc's. Whatever it does, such as allocating, must be safe at each place that calls the name. So a
new import needs a reason why it is safe, and a name that no library imports must leave the list.

Usage: imports.py LIBRARY.so...    (all of them: an unused name is an error)
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

# The imports of drop-in libraries and libtsmalloc-classic.so.
DROP_IN = {
    # Start-up files and C++; nobody replaces them.
    "_ITM_deregisterTMCloneTable": "start-up files",
    "_ITM_registerTMCloneTable": "start-up files",
    "__cxa_finalize": "start-up files",
    "__gmon_start__": "start-up files",
    "__gxx_personality_v0": "weak: unwinding through operator new of a C++ program",
    "__cxa_begin_catch": "weak: the new-handler of a C++ program may throw",
    "__cxa_end_catch": "likewise",
    "_ZSt15get_new_handlerv": "weak: the new-handler, called when memory ran out, with no lock",
    "_ZSt17__throw_bad_allocv": "weak: at the end of operator new, with no lock",
    # Announced to caches of pinned memory; called without a lock or a hold (announced.c).
    "madvise": "MADV_DONTNEED alone: pages that go are announced",
    "munmap": "pages that go are announced",
    # When a process starts or forks, a thread begins or ends.
    "__cxa_atexit": "once, when the option that needs it is set",
    "__cxa_thread_atexit_impl": "once for a thread, when it gets its heap",
    "__pthread_key_create": "once, at the process's start",
    "__register_atfork": "once, at the process's start",
    "_IO_list_lock": "in fork handlers, before the heap's locks are taken",
    "_IO_list_resetlock": "in fork handlers, after the heap's locks are free",
    "_IO_list_unlock": "likewise",
    "dlerror": "after dlsym found nothing, at the process's start",
    "dlsym": "once for each name, at the process's start",
    "getauxval": "at the process's start; in reports",
    "pthread_getspecific": "at a thread's end",
    "pthread_key_delete": "once, at the process's start",
    "pthread_setspecific": "once for a thread, when it gets its heap",
    # The background thread's start.
    "pthread_attr_destroy": "the background thread's start, with no lock",
    "pthread_attr_init": "likewise",
    "pthread_attr_setdetachstate": "likewise",
    "pthread_attr_setstacksize": "likewise",
    "pthread_create": "likewise",
    # Reports.
    "dl_iterate_phdr": "call stacks and reports of invalid pointers, with no lock",
    "fprintf": "malloc_info, whose stream is the caller's, with no lock",
    "fwrite": "malloc_stats, with no lock",
    "pthread_self": "reports of invalid pointers: is it on the stack?",
    "pthread_setcancelstate": "no function is a cancellation point",
    "sigaction": "the handler of guard samples, at the process's start and for a report",
    "stderr": "a variable; malloc_stats writes there",
    # On bytes, only where no lock is held; under a lock, loops replace them.
    "__errno_location": "ENOMEM at the end of malloc; kept around the calls that others see",
    "memchr": "files of control groups",
    "memcmp": "options; files of control groups; zeroes of pages that moved",
    "memcpy": "realloc",
    "memmove": "files of control groups",
    "memset": "calloc",
    "strlen": "options, names of files",
    "strncmp": "files of control groups",
    "strstr": "likewise",
    "mremap": "pages of a block that grows: seen by caches of pinned memory, with no lock",
    "sysconf": "the background thread's stack, with no lock",
    # glibc's variable for the end of the data segment: classic heaps.
    "__curbrk": "a variable; sbrk() of others has to find the end moved",
}

# Further imports of the lab's instrumented builds, which write a file at exit.
COUNTED = {
    "alarm": "in the copy of the process that writes the counts",
    "close": "likewise",
    "getcwd": "the path of the counts, when the process starts",
    "link": "the file of the counts gets its name",
    "open": "the file of the counts",
    "prctl": "in the copy of the process that writes the counts",
    "rename": "the file of the counts gets its name",
    "sigemptyset": "in the copy of the process that writes the counts",
    "signal": "likewise",
    "sigprocmask": "in the copy of the process that writes the counts",
    "syscall": "as the process ends",
    "unlink": "an unfinished file of counts",
    "waitpid": "for the copy of the process",
    "write": "the file of the counts",
}


def imports(library: Path) -> set[str]:
    """The undefined dynamic symbols of a library, without versions."""
    command = ["nm", "--dynamic", "--undefined-only", str(library)]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in text.splitlines()}


def short_name(library: Path) -> str:
    """Its file name, for messages."""
    return f"counted/{library.name}" if library.parent.name == "counted" else library.name


def kind_of(library: Path) -> tuple[dict[str, str], ...]:
    """The lists that apply to a library."""
    return (DROP_IN, COUNTED) if library.parent.name == "counted" else (DROP_IN,)


def faults(libraries: Iterable[Path]) -> Iterable[str]:
    """Imports that are not listed, and list entries that are not imported."""
    used: dict[int, set[str]] = {}
    for library in libraries:
        name = short_name(library)
        found = imports(library)
        lists = kind_of(library)
        for allowed in lists:
            used.setdefault(id(allowed), set()).update(found)
        if surplus := found.difference(*lists):
            yield f"{name} imports {', '.join(sorted(surplus))}, without a reason here"
    for name, allowed in (("DROP_IN", DROP_IN), ("COUNTED", COUNTED)):
        if id(allowed) in used and (unused := allowed.keys() - used[id(allowed)]):
            yield f"no library imports {', '.join(sorted(unused))} any more: remove from {name}"


def main(arguments: list[str]) -> int:
    """1 if any library has a fault."""
    if not arguments:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(faults(map(Path, arguments)))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
