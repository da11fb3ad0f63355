"""The folder of a report: it can be rewritten, but never over other files, and each file
atomically. Only files that a report wrote are deleted: a list of them is kept next to them.
"""

import contextlib
import errno
import os
from collections.abc import Mapping
from pathlib import Path

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.records import write_atomically

PAGE = "index.html"
LIST = ".tsmalloc-report"
_HEADER = "# files of a report by tsmalloc; they are replaced when it is written again\n"


def check(directory: Path, force: bool) -> None:
    """Raises UserError for a folder that cannot be written, or that holds other files."""
    if directory.exists() and not directory.is_dir():
        raise UserError(f"{directory} is not a directory.", "Choose another.")
    if directory.is_dir():
        own = (directory / LIST).is_file()
        if not own and not force and any(directory.iterdir()):
            raise UserError(
                f"the directory {directory} contains files that are not part of a tsmalloc report.",
                "Choose another directory, or write into it anyway with --force (overwrites "
                "files of the same name).",
            )
    path = directory if directory.is_absolute() else paths.working_folder() / directory
    parent = next(each for each in (path, *path.parents) if each.exists())
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(
            f"cannot write the report: {parent} is not writable.",
            "Choose a directory that you can write to.",
        )


def write(directory: Path, files: Mapping[str, bytes], force: bool) -> Path:
    """Writes all files, each atomically, the page last; then removes files of an earlier report
    that are no longer part of it. Returns the page's path."""
    check(directory, force)
    page = directory / PAGE
    try:
        directory.mkdir(parents=True, exist_ok=True)
        former = _listed(directory)
        write_atomically(directory / LIST, _list_text([*former, *files]))
        for name, data in sorted(files.items(), key=lambda item: item[0] == PAGE):
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(target, data)
        for name in set(former) - set(files):
            _remove(directory, name)
        write_atomically(directory / LIST, _list_text([*files]))
    except OSError as error:
        raise UserError(
            f"could not write the report to {directory}: {error.strerror}.",
            "Free some space."
            if error.errno in {errno.ENOSPC, errno.EDQUOT}
            else "Choose another directory.",
        ) from error
    return page


def _list_text(names: list[str]) -> bytes:
    return (_HEADER + "".join(f"{name}\n" for name in sorted(set(names)))).encode()


def _listed(directory: Path) -> list[str]:
    """The files of the existing report; ignores paths that lead outside."""
    try:
        text = (directory / LIST).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    names = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [name for name in names if not name.startswith("/") and ".." not in Path(name).parts]


def _remove(directory: Path, name: str) -> None:
    """Removes a file of the earlier report, and its folder if that is then empty."""
    path = directory / name
    path.unlink(missing_ok=True)
    for parent in path.relative_to(directory).parents:
        if str(parent) != ".":
            with contextlib.suppress(OSError):
                (directory / parent).rmdir()
