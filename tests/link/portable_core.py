"""The engine needs nothing that only glibc has, so that it works with other C libraries.

    portable_core.py names OBJECT             its undefined names are in the list below
    portable_core.py musl OBJECT PROGRAM.c    the program runs when linked statically with the
                                              object and with musl, which must have each of them

Exit status 77 if there is no musl-gcc.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def names(text: str) -> frozenset[str]:
    """The words of a text, for tables that people read."""
    return frozenset(text.split())


# Names of ISO C, POSIX, the C++ ABI, or Linux with any C library.
PORTABLE = names(
    """
    abort environ memchr memcmp memcpy memmove memset strlen strncmp strstr fprintf fwrite stderr
    __errno_location
    mmap munmap mprotect madvise mremap mincore munlock sbrk sysconf syscall getauxval clock_gettime
    sched_getaffinity __sched_cpucount dlsym dlerror dl_iterate_phdr pthread_self
    pthread_atfork pthread_key_create pthread_key_delete pthread_getspecific pthread_setspecific
    pthread_setcancelstate pthread_create pthread_attr_init pthread_attr_destroy
    pthread_attr_setdetachstate pthread_attr_setstacksize pthread_attr_getstack
    pthread_getattr_np sigaction sigfillset sigprocmask __cxa_atexit
    """
)
# The compiler's own, and the linker's.
COMPILER = frozenset({"__popcountdi2", "_GLOBAL_OFFSET_TABLE_"})
SKIPPED = 77


def output(*command: str | Path) -> str:
    """A command's output; its own error message ends the test."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {result.stderr.strip()}")
    return result.stdout


def undefined(object_file: Path) -> set[str]:
    """The names that it requires, without weak ones."""
    lines = [line.split() for line in output("nm", "--undefined-only", object_file).splitlines()]
    return {words[-1] for words in lines if len(words) >= 2 and words[-2] == "U"}


def check_names(object_file: Path) -> list[str]:
    """Every required name is on the list."""
    needed = undefined(object_file) - COMPILER
    faults = [f"needs {name}, which other C libraries may lack" for name in needed - PORTABLE]
    if not needed:
        faults.append("needs nothing, so that is not the engine")
    return faults


def check_musl(object_file: Path, source: Path) -> list[str]:
    """A program links with only the object and musl, and runs."""
    options = ["-static", "-O1", "-fno-builtin", "-pthread", "-Wl,--trace"]
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        linked = output("musl-gcc", *options, "-o", program, source, object_file)
        result = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    faults = []
    if not re.search(r"musl\S*/libc\.a", linked):
        faults.append(f"was not linked with musl, but with {linked}")
    if result.returncode != 0:
        faults.append(f"a program with musl ends with {result.returncode}: {result.stdout}")
    return faults


def main(arguments: list[str]) -> int:
    """Checks; 1 if something is wrong."""
    what, object_file = arguments[0], Path(arguments[1])
    if what == "names":
        faults = check_names(object_file)
    elif shutil.which("musl-gcc") is None:
        print("skipped: there is no musl-gcc (Debian: musl-tools)")
        return SKIPPED
    else:
        faults = check_musl(object_file, Path(arguments[2]))
    for fault in faults:
        print(f"{object_file.name}: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
