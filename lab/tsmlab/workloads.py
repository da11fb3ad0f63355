"""A suite's table of contents: reads bench/workloads.toml, or another file of its form."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tsmlab import paths, toml_tables
from tsmlab.errors import UserError
from tsmlab.toml_tables import Table, is_count

TimeSource = Literal["seconds", "wall"]


@dataclass(frozen=True)
class Workload:
    """One entry, at one number of threads. The command starts with the program's absolute path.

    time: "seconds", which the program prints in a line `seconds: X`, or "wall", from its start to
    its end. memory: whether its peak is meaningful.
    """

    name: str
    stresses: str
    command: tuple[str, ...]
    threads: int
    time: TimeSource
    memory: bool


def suite(name: str) -> Path:
    """The file at a path, or of one of our suites by name."""
    own = paths.suite_file(name)
    return own if "/" not in name and own.is_file() else Path(name)


def read_suite(path: Path) -> list[Workload]:
    """All workloads of a file, in its order; raises UserError for an invalid file. Does not check
    that the programs exist (check_programs does)."""
    document, _ = toml_tables.read(path, "suite", "Choose another with --suite.")
    table = Table(str(path), document, ("workload",))
    entries = table.parts("workload", lambda part: _workloads(path, part), *KEYS)
    if not entries:
        raise table.error("it has no workloads", "It must consist of [[workload]] tables.")
    workloads = [workload for entry in entries for workload in entry]
    table.check_distinct("workload", [workload.name for workload in workloads])
    return workloads


def select(names: Sequence[str], workloads: Sequence[Workload]) -> list[Workload]:
    """The workloads that names and globs (remote-*) select, in the suite's order; all if there are
    none. Raises UserError for a name that selects nothing."""
    remedy = "`tsmalloc bench --list` lists them all."
    return toml_tables.select(names or ["*"], workloads, "workload", remedy)


def check_programs(workloads: Sequence[Workload]) -> None:
    """Raises UserError, listing the missing ones, unless every program can be executed."""
    programs = dict.fromkeys(Path(workload.command[0]) for workload in workloads)
    missing = [path for path in programs if not (path.is_file() and os.access(path, os.X_OK))]
    if not missing:
        return
    names = ", ".join(path.name for path in missing)
    folders = " and ".join(map(str, dict.fromkeys(path.parent for path in missing)))
    remedy = f"For one of tsmalloc's own: {paths.remedy()}"
    raise UserError(f"no executable {names} in {folders}.", remedy)


KEYS = ("name", "stresses", "program", "arguments", "threads", "time", "memory")


# Placeholders in the arguments of an entry: its number of threads, and half of it.
THREADS, HALF = "{threads}", "{half}"


def _workloads(path: Path, entry: Table) -> list[Workload]:
    """One for each number of threads; if there are several, it is appended to the name."""
    name = entry.name("[a-z0-9][a-z0-9-]*", "lowercase letters, digits and hyphens")
    stresses = entry.text("stresses")
    if "\n" in stresses:
        raise entry.error("stresses has several lines", "Use a single line.")
    expected = "a whole number of at least 1, or a list of them"
    threads = entry.value("threads", _are_threads, expected, default=1)
    several = isinstance(threads, list)
    numbers = threads if several else [threads]
    arguments = entry.texts("arguments")
    used = {word for word in (THREADS, HALF) if any(word in argument for argument in arguments)}
    if several and not used:
        raise entry.error("threads is a list, but no argument uses it", f"Write {THREADS} there.")
    if HALF in used and any(number % 2 for number in numbers):
        raise entry.error(f"{HALF} needs an even number of threads", "Use even numbers.")
    return [
        Workload(
            name=f"{name}-{number}" if several else name,
            stresses=stresses,
            command=(
                _program(path, entry.text("program")),
                *(
                    a.replace(THREADS, str(number)).replace(HALF, str(number // 2))
                    for a in arguments
                ),
            ),
            threads=number,
            time=entry.choice("time", TimeSource, "seconds"),
            memory=entry.flag("memory", default=True),
        )
        for number in numbers
    ]


def _are_threads(value: object) -> bool:
    return is_count(value) or (
        isinstance(value, list) and bool(value) and all(map(is_count, value))
    )


def _program(path: Path, program: str) -> str:
    """A name is a program of the build; with a slash it is a path relative to the suite's
    folder."""
    if "/" not in program:
        return str(paths.build_dir() / "bin" / program)
    return str((path.parent / program).absolute())
