"""Whether the checkout is set up: the keys of a finished .venv and a finished build.

Every use of ./tsmalloc checks this, so it must take only milliseconds, and be right: each of the
two parts leaves a stamp when it is finished, and a part whose stamp does not match is redone.
Changes nothing, and imports no slow modules.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing itself would be the slowest import of the fast path
if TYPE_CHECKING:
    from collections.abc import Iterator

# The parts of the build, each a target part_<name> of CMake. A verb waits for the parts that it
# uses; verbs not listed here use none.
PARTS = ("compare", "experiment", "bench", "traces", "link")
PARTS_OF_VERBS = {
    **dict.fromkeys(
        ("compare", "doctor", "fetch", "gate", "list", "lib", "run", "tune"), ("compare",)
    ),
    **dict.fromkeys(("explain", "profile", "purge", "set", "stats", "top"), ("compare",)),
    "experiment": ("compare", "experiment"),
    "bench": ("compare", "bench"),
    **dict.fromkeys(("record", "replay", "analyze", "worker"), ("compare", "traces")),
}
# The sources of the libraries, the tools and the experiments' programs; changed tests do not delay
# a user.
SOURCES = (
    *("CMakeLists.txt", "CMakePresets.json", "packaging/cmake", "include", "src", "tools"),
    *("lab/native", "bench", "tests/programs"),
)
# The beginning of the build's stamp, followed by the finished parts, which stay unchanged while
# others are built. A leftover BUILDING means that a build was killed.
FINISHED = "parts"
BUILDING = "building"


class Checkout:
    """The paths in a checkout that set-up reads and writes."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.venv = os.path.join(root, ".venv")
        self.python = os.path.join(self.venv, "bin", "python")
        self.python_stamp = os.path.join(self.venv, ".tsmalloc-stamp")
        self.build = os.path.join(root, "build", "release")
        self.build_stamp = os.path.join(self.build, ".tsmalloc-stamp")
        self.lock = os.path.join(root, "build", ".setup.lock")

    def log(self, step: str) -> str:
        return os.path.join(self.root, "build", f"setup-{step}.log")

    def requirements(self, for_development: bool) -> str:
        name = "requirements-dev.txt" if for_development else "requirements.txt"
        return os.path.join(self.root, "lab", name)


def read(path: str) -> str:
    """The text of a file; empty if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def python_key(checkout: Checkout, for_development: bool) -> str:
    """The key of a finished .venv: the interpreter's version and the pinned packages."""
    import hashlib

    pins = read(checkout.requirements(for_development)).encode()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"python {version} requirements {hashlib.sha256(pins).hexdigest()}\n"


def python_is_current(checkout: Checkout, for_development: bool) -> bool:
    stamp = read(checkout.python_stamp)
    return python_key(checkout, for_development) in stamp and os.access(checkout.python, os.X_OK)


def source_files(checkout: Checkout) -> Iterator[tuple[str, os.stat_result]]:
    pending = [os.path.join(checkout.root, name) for name in SOURCES]
    while pending:
        path = pending.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        yield entry.path, entry.stat(follow_symlinks=False)
        except NotADirectoryError:
            yield path, os.stat(path)
        except FileNotFoundError:
            continue


def build_key(checkout: Checkout) -> str:
    """The key of a finished build: the checkout's path, and every source's size and time."""
    lines = [
        f"{status.st_size} {status.st_mtime_ns} {path}\n" for path, status in source_files(checkout)
    ]
    return f"{checkout.root}\n" + "".join(sorted(lines))


def parts_for(arguments: list[str]) -> frozenset[str]:
    """The parts of the build that ./tsmalloc needs with these arguments."""
    verb = next((word for word in arguments if not word.startswith("-")), "")
    if arguments[1:2] in (["-h"], ["--help"]):
        return frozenset()
    parts = frozenset(PARTS_OF_VERBS.get(verb, ()))
    if verb == "bench" and "--traces" in arguments:
        parts |= {"traces"}
    return parts


def built_parts(checkout: Checkout, key: str) -> frozenset[str]:
    """The finished parts that match the sources with this key."""
    first, _, built_key = read(checkout.build_stamp).partition("\n")
    word, *parts = first.split() or [""]
    is_stamp = word in (FINISHED, BUILDING) and built_key == key
    return frozenset(parts) if is_stamp else frozenset()


def build_stamp(parts: frozenset[str], key: str, state: str = FINISHED) -> str:
    return f"{state} {' '.join(sorted(parts))}\n{key}"


def build_is_current(checkout: Checkout, parts: frozenset[str]) -> bool:
    if not parts or "TSMALLOC_BUILD_DIR" in os.environ:
        return True  # nothing is needed, or it is another build, which its owner keeps up to date
    outputs = (os.path.join(checkout.build, *names) for names in (("lib",), ("bin", "measure")))
    return all(map(os.path.exists, outputs)) and parts <= built_parts(checkout, build_key(checkout))
