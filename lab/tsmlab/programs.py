"""What a command actually starts: the file found in PATH and, for scripts, their interpreter."""

import difflib
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tsmlab.errors import UserError

# The kernel gives up after this many nested script interpreters (fs/exec.c).
MAX_SCRIPT_DEPTH = 5
# How much of a script's first line the kernel reads (BINPRM_BUF_SIZE).
SHEBANG_BYTES = 256


class CannotStart(UserError):
    """The command cannot be started; has a code for scripts."""

    def __init__(self, code: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.code = code


@dataclass(frozen=True)
class Resolved:
    """The files that a command leads to: scripts first, then the program that runs them."""

    chain: tuple[Path, ...]

    @property
    def program(self) -> Path:
        return self.chain[-1]

    @property
    def scripts(self) -> tuple[Path, ...]:
        return self.chain[:-1]


def resolve(command: Sequence[str], environment: Mapping[str, str]) -> Resolved:
    """Finds the program that the kernel will load for a command, or raises CannotStart."""
    if not command or not command[0]:
        raise CannotStart("empty", "no program given.", "Give one: tsmalloc ... -- PROGRAM")
    search_path = environment.get("PATH", os.defpath)
    path = find_program(command[0], search_path)
    chain = [path]
    while (interpreter := shebang(path)) is not None:
        if len(chain) > MAX_SCRIPT_DEPTH:
            raise CannotStart(
                "script-depth",
                f"{chain[0]} has too many nested script interpreters for the kernel.",
                "Put the real interpreter into its first line.",
            )
        path = interpreter_program(path, interpreter, search_path)
        chain.append(path)
    return Resolved(tuple(chain))


def find_program(name: str, search_path: str) -> Path:
    """The executable of this name: as given if it has a slash, otherwise the first one in PATH."""
    if "/" in name:
        path = Path(name)
        check_executable(path, name)
        return path.absolute()
    not_executable: Path | None = None
    for folder in search_path.split(os.pathsep):
        path = Path(folder or ".") / name
        if _is_file(path):
            if os.access(path, os.X_OK):
                return path.absolute()
            not_executable = not_executable or path
    if not_executable is not None:
        check_executable(not_executable, name)
    remedy = "Install it, or give its path."
    known = {e.name for f in search_path.split(os.pathsep) for e in _entries(Path(f or "."))}
    if _is_file(Path(name)):
        remedy = f"It is in this directory: write ./{name}"
    elif near := difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.75):
        remedy = f"Did you mean {near[0]}? {remedy}"
    raise CannotStart("not-found", f"{name}: command not found on PATH.", remedy)


def check_executable(path: Path, name: str) -> None:
    """Raises CannotStart unless the file exists and is executable."""
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except PermissionError:
        raise CannotStart(
            "not-executable", f"{path}: permission denied.", "Get permission, or make a copy."
        ) from None
    except OSError:
        remedy = "Check the spelling of the path."
        siblings = [p.name for p in _entries(path.parent)]
        if near := difflib.get_close_matches(path.name, siblings, n=1):
            remedy = f"Did you mean {path.with_name(near[0])}?"
        raise CannotStart("not-found", f"{name} does not exist.", remedy) from None
    if is_folder:
        raise CannotStart("not-executable", f"{name} is a directory.", "Give a program in it.")
    if not os.access(path, os.X_OK):
        remedy = f"chmod +x {shlex.quote(str(path))}"
        if interpreter := shebang(path):
            remedy += f", or run its interpreter: {interpreter} {shlex.quote(str(path))}"
        raise CannotStart("not-executable", f"{path} is not executable.", remedy)


def shebang(path: Path) -> str | None:
    """The text after `#!` in a script's first line; None if the file is not a script."""
    try:
        with path.open("rb") as file:
            head = file.read(SHEBANG_BYTES)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    return os.fsdecode(head[2:].partition(b"\n")[0]).strip(" \t")


def interpreter_program(script: Path, line: str, search_path: str) -> Path:
    """The program that a `#!` line names; for `env`, the program that it will find."""
    words = re.split(r"[ \t]+", line, maxsplit=1)
    if not words[0].strip():
        raise CannotStart("interpreter", f"{script} has an empty #! line.", "Add its interpreter.")
    interpreter = Path(words[0])
    if words[0].endswith("\r"):
        raise CannotStart(
            "interpreter",
            f"the first line of {script} ends in CR LF, so there is no interpreter {words[0]!r}.",
            f"Convert it to Unix line endings: sed -i 's/\\r$//' {shlex.quote(str(script))}",
        )
    if not _is_file(interpreter):
        raise CannotStart(
            "interpreter",
            f"the interpreter of {script} is missing: {interpreter} does not exist.",
            "Install it, or fix the script's first line.",
        )
    if interpreter.name != "env" or len(words) == 1:
        return interpreter
    for word in _env_words(words[1]):
        return find_program(word, search_path)
    return interpreter


def _env_words(arguments: str) -> Iterator[str]:
    """The words of `env`'s arguments after its options and variables: the program comes first."""
    # Without -S the kernel passes everything after the interpreter as a single argument.
    split = arguments.startswith(("-S", "--split-string", "-vS"))
    words = shlex.split(arguments) if split else [arguments.strip()]
    for word in words:
        text = word.removeprefix("-S").removeprefix("-vS").removeprefix("--split-string=")
        if text and not text.startswith("-") and "=" not in text:
            yield text


def _is_file(path: Path) -> bool:
    """Whether this is an accessible file; folders in PATH may be closed to us."""
    try:
        return path.is_file()
    except OSError:
        return False


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
