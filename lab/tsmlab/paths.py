"""The paths of the lab's own files: libraries, tools, data, the user's state."""

import hashlib
import os
import pwd
import re
import shlex
import sys
from pathlib import Path

from tsmlab.errors import UserError

_UNPRELOADABLE = re.compile(r"[\s:]")


def repository_root() -> Path:
    return Path(__file__).resolve().parents[2]


def installed_home() -> Path | None:
    """The home of an installed lab; None in a checkout."""
    home = Path(__file__).parent / "home"
    # A dangling link is an installation, too, with a part missing.
    return home if home.is_dir() or home.is_symlink() else None


def data_dir() -> Path:
    """The folder that has `experiments` and `traces`."""
    return installed_home() or repository_root() / "lab"


def suite_file(name: str) -> Path:
    """The file of a suite of `bench`: workloads, scaling."""
    return (installed_home() or repository_root()) / "bench" / f"{name}.toml"


def build_dir() -> Path:
    """The folder that has `lib` and `bin`; TSMALLOC_BUILD_DIR overrides it."""
    override = os.environ.get("TSMALLOC_BUILD_DIR")
    if override:
        return Path(override).expanduser().absolute()
    return installed_home() or repository_root() / "build" / "release"


def remedy() -> str:
    """How to get a missing or outdated file of ours, as a sentence."""
    if "TSMALLOC_BUILD_DIR" in os.environ:
        return "TSMALLOC_BUILD_DIR is set: unset it, or point it to a complete build directory."
    home = installed_home()
    if home is None:
        return f"Build it: make -C {shlex.quote(str(repository_root()))}"
    if home.is_symlink():
        return "Reinstall it, with the package tsmalloc-lab or cmake --install."
    python = shlex.quote(sys.executable)
    return f"Reinstall it: {python} -m pip install --force-reinstall --no-deps tsmalloc-*.whl"


def library_dir() -> Path:
    return build_dir() / "lib"


def tool(name: str) -> Path:
    return _built(build_dir() / "bin" / name, "tool")


def library(file_name: str) -> Path:
    return _built(library_dir() / file_name, "library")


def state_dir() -> Path:
    """Where results are kept between runs; not created here."""
    return _users_own("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """Where fetched allocators are; not created here."""
    return _users_own("XDG_CACHE_HOME", ".cache")


def _users_own(variable: str, default: str) -> Path:
    base = os.environ.get(variable, "")
    # The XDG specification says to ignore relative paths here.
    root = Path(base) if base.startswith("/") else _home() / default
    return root / "tsmalloc"


def _home() -> Path:
    """HOME, unless it is empty or unset."""
    return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)


def working_folder() -> Path:
    """The working folder; raises UserError if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UserError(
            "the working directory no longer exists.", "Change to an existing one."
        ) from error


def environment_of_native_programs() -> dict[str, str]:
    """This process's environment, and for native verbs that start programs, the library to preload:
    in a wheel it is not where an installation has it."""
    library_file = preloadable(library("libtsmalloc.so"))
    return os.environ | {"TSMALLOC_LIBRARY_OF_LAB": str(library_file)}


def is_preloadable(path: str) -> bool:
    """Whether LD_PRELOAD can hold the path: entries end at a space or colon, and there is no
    escaping."""
    return not _UNPRELOADABLE.search(path)


def preloadable(path: Path) -> Path:
    """A path for LD_PRELOAD.

    A path that it cannot hold gets a symbolic link in a folder of the user's.
    """
    if is_preloadable(str(path)):
        return path
    digest = hashlib.sha256(os.fsencode(path.parent)).hexdigest()[:16]
    for base in (state_dir(), Path("/tmp") / f"tsmalloc-{os.getuid()}"):
        if not is_preloadable(str(base)):
            continue
        folder = base / "links" / digest
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if base.stat().st_uid != os.getuid():
            raise UserError(
                f"{base} belongs to another user.", "Set XDG_STATE_HOME to another directory."
            )
        link = folder / _UNPRELOADABLE.sub("_", path.name)
        _point(link, path)
        return link
    raise AssertionError("the second folder has a name without spaces")


def _point(link: Path, target: Path) -> None:
    """Makes `link` point to `target`; several processes may do so at once."""
    if link.is_symlink() and link.readlink() == target:
        return
    temporary = link.with_name(f"{link.name}.{os.getpid()}")
    temporary.symlink_to(target)
    temporary.replace(link)


def _built(path: Path, kind: str) -> Path:
    if path.is_file():
        return path
    raise UserError(f"the {kind} {path.name} is missing: {path} does not exist.", remedy())
