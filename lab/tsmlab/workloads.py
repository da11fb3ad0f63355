"""The suite's table of contents: reads bench/workloads.toml, or another file of its form.

Why: what is run, with which arguments and what for, is data that anybody can read and extend; a
mistake in it must be found before hours of measuring, with the entry named and the remedy told.
Refuses to: run anything, and to guess. A key that it does not know is an error.
"""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.floors import FLOORS

TimeSource = Literal["seconds", "wall"]


@dataclass(frozen=True)
class Workload:
    """One entry. The command starts with the program's absolute path.

    time: "seconds", which the program prints in a line `seconds: X`, or "wall", from its start to
    its end. memory: whether its peak says something. floors: those that it may be run over.
    """

    name: str
    stresses: str
    command: tuple[str, ...]
    threads: int
    floors: tuple[str, ...]
    time: TimeSource
    memory: bool


def default_suite() -> Path:
    return paths.data_dir() / "bench" / "workloads.toml"


def read_suite(path: Path) -> list[Workload]:
    """All workloads of a file, in its order; raises UserError for a file that is not as it should
    be. Whether the programs are there is not looked at (check_programs)."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"the suite {path} cannot be read: {error.strerror}.", "Name another one with --suite."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}.", "Mend that place.") from error
    strangers = set(document) - {"workload"}
    entries = document.get("workload")
    if strangers or not isinstance(entries, list) or not entries:
        found = f"it has {', '.join(sorted(strangers))}" if strangers else "it has no workload"
        raise UserError(f"{path} is no suite: {found}.", "It consists of [[workload]] entries.")
    workloads: list[Workload] = []
    for number, entry in enumerate(entries, start=1):
        workload = _Entry(path, number, entry).workload()
        if workload.name in {other.name for other in workloads}:
            raise UserError(
                f"{path}: two workloads have the name {workload.name}.", "Rename one of them."
            )
        workloads.append(workload)
    return workloads


def select(names: Sequence[str], workloads: Sequence[Workload]) -> list[Workload]:
    """Those that the names and globs (remote-*) choose, in the suite's order; all if there are
    none. Raises UserError for a name that chooses nothing."""
    for name in names:
        if not any(fnmatch.fnmatchcase(workload.name, name) for workload in workloads):
            near = difflib.get_close_matches(name, [w.name for w in workloads], n=1)
            guess = f"Did you mean {near[0]}? " if near else ""
            raise UserError(
                f"there is no workload {name!r}.", f"{guess}`tsmalloc bench --list` shows them all."
            )
    return [w for w in workloads if not names or any(fnmatch.fnmatchcase(w.name, n) for n in names)]


def check_programs(workloads: Sequence[Workload]) -> None:
    """Raises UserError, naming all that are missing, unless every program can be executed."""
    programs = dict.fromkeys(Path(workload.command[0]) for workload in workloads)
    missing = [path for path in programs if not (path.is_file() and os.access(path, os.X_OK))]
    if not missing:
        return
    names = ", ".join(path.name for path in missing)
    folders = " and ".join(map(str, dict.fromkeys(path.parent for path in missing)))
    remedy = f"For one of tsmalloc's own: {paths.remedy()}"
    raise UserError(f"there is no executable {names} in {folders}.", remedy)


class _Entry:
    """Reads one [[workload]], and knows how to complain about it."""

    def __init__(self, path: Path, number: int, entry: Any) -> None:
        self._path = path
        self._where = f"{path}: workload {number}"
        if not isinstance(entry, dict):
            raise self._error("it is not a table", "Write [[workload]] above it.")
        self._entry: Mapping[str, Any] = entry
        if isinstance(name := entry.get("name"), str):
            self._where += f" ({name})"

    def workload(self) -> Workload:
        known = ("name", "stresses", "program", "arguments", "threads", "floors", "time", "memory")
        for key in self._entry:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                guess = f"Did you mean {near[0]}? " if near else ""
                raise self._error(f"the key {key!r} is unknown", f"{guess}Keys: {', '.join(known)}")
        name = self._text("name")
        if not re.fullmatch(r"[a-z0-9][a-z0-9-]*", name):
            raise self._error(f"name is {name!r}", "Use small letters, digits and hyphens.")
        stresses = self._text("stresses")
        if "\n" in stresses:
            raise self._error("stresses has several lines", "Say it in one.")
        return Workload(
            name=name,
            stresses=stresses,
            command=(self._program(), *self._texts("arguments")),
            threads=self._value("threads", _is_count, "a whole number from 1 on"),
            floors=self._floors(),
            time=self._value("time", lambda v: v in ("seconds", "wall"), '"seconds" or "wall"'),
            memory=self._value("memory", lambda v: isinstance(v, bool), "true or false"),
        )

    def _program(self) -> str:
        """A name is a program of the build; with a slash it is a path from the suite's folder."""
        program = self._text("program")
        if "/" not in program:
            return str(paths.build_dir() / "bin" / program)
        return str((self._path.parent / program).absolute())

    def _floors(self) -> tuple[str, ...]:
        floors = self._texts("floors") if "floors" in self._entry else ()
        for name in floors:
            if name not in FLOORS:
                raise self._error(f"floors has {name!r}", f"There are {', '.join(FLOORS)}.")
        if len(set(floors)) < len(floors):
            raise self._error("floors has one twice", "Name each once.")
        return floors

    def _text(self, key: str) -> str:
        text: str = self._value(key, lambda v: isinstance(v, str) and v.strip() != "", "a text")
        return text

    def _texts(self, key: str) -> tuple[str, ...]:
        def fits(value: Any) -> bool:
            return isinstance(value, list) and all(isinstance(item, str) for item in value)

        return tuple(self._value(key, fits, "a list of texts"))

    def _value(self, key: str, fits: Callable[[Any], bool], expected: str) -> Any:
        if key not in self._entry:
            raise self._error(f"{key} is missing", f"It is {expected}.")
        value = self._entry[key]
        if not fits(value):
            raise self._error(f"{key} is {value!r}", f"It must be {expected}.")
        return value

    def _error(self, what: str, remedy: str) -> UserError:
        return UserError(f"{self._where}: {what}.", remedy)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
