"""The catalogue of experiments: reads experiments/*.toml, and other files of their form.

Why: a student adds an experiment by writing one file; whatever is wrong in it must be found before
anything is measured, with file and key named and the remedy told.
Refuses to: run anything, and to guess. A key that it does not know is an error.
"""

from __future__ import annotations

import difflib
import fnmatch
import hashlib
import math
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from tsmlab import paths
from tsmlab.errors import UserError
from tsmlab.experiments.model import (
    BUILT_IN,
    PEAK_BYTES,
    WALL_SECONDS,
    AnalysisKind,
    AnalysisRequest,
    CausesAt,
    Definition,
    Metric,
    MetricSource,
    MetricUnit,
    Parameter,
    PlotKind,
    PlotRequest,
    Point,
    Reported,
)
from tsmlab.experiments.options import complaint
from tsmlab.metrics import PEAK_MEMORY, TIME

EVERYTHING = "all"
DEFAULT_ROUNDS = 5
DEFAULT_TIMEOUT_SECONDS = 60.0
DEFAULT_RUN_SECONDS = 1.0
DEFAULT_ALLOCATORS = ["tsmalloc", "system"]

# {name} stands for a value, {{name}} for itself; any other brace is only a brace.
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")
ALLOCATOR_PLACEHOLDER = "allocator"
# What other verbs call the built-in metrics.
RESERVED = {TIME: WALL_SECONDS, PEAK_MEMORY: PEAK_BYTES}
SHOW_ALL = "`tsmalloc experiment list` shows them all."

Part = TypeVar("Part")


# --- files ---------------------------------------------------------------------------------------


def default_folder() -> Path:
    return paths.data_dir() / "experiments"


def read_folder(folder: Path) -> list[Definition]:
    """The experiments of a folder, by the names of their files."""
    return read_files(sorted(folder.glob("*.toml")))


def read_files(files: Sequence[Path]) -> list[Definition]:
    """An experiment for each file; raises UserError for one that is not as it should be, or if two
    have one name. Whether programs are there is not looked at (program_path)."""
    definitions: dict[str, Definition] = {}
    for file in files:
        definition = read_file(file)
        if other := definitions.get(definition.name):
            raise UserError(
                f"{other.file} and {definition.file} both have the name {definition.name}.",
                "Rename one of the two experiments.",
            )
        definitions[definition.name] = definition
    return list(definitions.values())


def read_file(path: Path) -> Definition:
    try:
        content = path.read_bytes()
        document = tomllib.loads(content.decode())
    except OSError as error:
        raise UserError(
            f"the experiment {path} cannot be read: {error.strerror}.", "Name a file that can be."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}.", "Mend that place.") from error
    return _definition(path.absolute(), hashlib.sha256(content).hexdigest(), document)


def select(names: Sequence[str], definitions: Sequence[Definition]) -> list[Definition]:
    """Those that names and globs choose, in the catalogue's order; `all` chooses every one. Raises
    UserError for a name that chooses nothing."""
    patterns = ["*" if name == EVERYTHING else name for name in names]
    known = [definition.name for definition in definitions]
    for pattern in patterns:
        if not fnmatch.filter(known, pattern):
            near = difflib.get_close_matches(pattern, known, n=1)
            guess = f"Did you mean {near[0]}? " if near else ""
            raise UserError(f"there is no experiment {pattern!r}.", f"{guess}{SHOW_ALL}")
    return [d for d in definitions if any(fnmatch.fnmatchcase(d.name, p) for p in patterns)]


# --- what a definition means ---------------------------------------------------------------------


def program_path(definition: Definition) -> Path:
    """The file to run: with a slash a path from the experiment's folder, else a program of the
    build, else one in PATH. Raises UserError if there is none."""
    program = definition.program
    if "/" in program:
        found = (Path(definition.file).parent / Path(program).expanduser()).absolute()
        if _executable(found):
            return found
        raise UserError(
            f"{definition.file}: the program {found} is not there, or not executable.",
            "Build it, mend `program`, or make it executable: chmod +x",
        )
    built = paths.build_dir() / "bin" / program
    if _executable(built):
        return built
    if installed := shutil.which(program):
        return Path(installed).absolute()
    raise UserError(
        f"{definition.file}: the program {program} is neither built ({built}) nor in PATH.",
        f"For one of tsmalloc's own: {paths.remedy()}",
    )


def _executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def points_of(definition: Definition) -> list[Point]:
    """Every combination of the parameters' values; the last parameter changes fastest."""
    points: list[Point] = [{}]
    for parameter in definition.parameters:
        points = [{**point, parameter.name: v} for point in points for v in parameter.values]
    return points


def arguments_at(definition: Definition, point: Point, allocator: str) -> tuple[str, ...]:
    """The program's arguments with every placeholder replaced."""
    values = {**point, ALLOCATOR_PLACEHOLDER: allocator}

    def value(match: re.Match[str]) -> str:
        return f"{{{match[1]}}}" if match[1] else str(values[match[2]])

    return tuple(PLACEHOLDER.sub(value, argument) for argument in definition.arguments)


def describe_point(point: Point) -> str:
    """threads=4, fit=best; empty where nothing is swept."""
    return ", ".join(f"{name}={value}" for name, value in point.items())


# --- reading one file ----------------------------------------------------------------------------


class _Table:
    """One table of the file: hands out checked values, and knows how to complain about it."""

    def __init__(self, where: str, table: Any, known: Sequence[str], open_ended: bool = False):
        self._where = where
        if not isinstance(table, dict):
            raise self.error("it is not a table", "Write its name in [[double brackets]] above it.")
        self._table: Mapping[str, Any] = table
        for key in table:
            if key not in known and not open_ended:
                near = difflib.get_close_matches(key, known, n=1)
                guess = f"Did you mean {near[0]}? " if near else ""
                raise self.error(f"the key {key!r} is unknown", f"{guess}Keys: {', '.join(known)}.")
        self._known = known

    def error(self, what: str, remedy: str) -> UserError:
        return UserError(f"{self._where}: {what}.", remedy)

    def value(
        self, key: str, fits: Callable[[Any], bool], expected: str, default: Any = None
    ) -> Any:
        """The checked value; `default` where the key is missing, which is an error without one."""
        if key not in self._table:
            if default is None:
                raise self.error(f"{key} is missing", f"It is {expected}.")
            return default
        value = self._table[key]
        if not fits(value):
            raise self.error(f"{key} is {value!r}", f"It must be {expected}.")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        text: str = self.value(key, _is_text, "a text", default)
        return text

    def name(self, pattern: str, rule: str) -> str:
        name = self.text("name")
        if not re.fullmatch(pattern, name):
            raise self.error(f"name is {name!r}", f"Use {rule}.")
        return name

    def texts(self, key: str, default: list[str] | None = None) -> list[str]:
        return list(self.value(key, _is_texts, "a list of texts", default))

    def flag(self, key: str) -> bool:
        return bool(self.value(key, lambda v: isinstance(v, bool), "true or false", default=False))

    def choice(self, key: str, literal: Any, default: str | None = None) -> Any:
        choices = get_args(literal)
        return self.value(key, lambda v: v in choices, f"one of {', '.join(choices)}", default)

    def named(self, key: str, known: Sequence[str], what: str, default: str | None = None) -> str:
        """The name of something that the file has elsewhere."""
        name = self.text(key, default)
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            guess = f"Did you mean {near[0]}? " if near else ""
            there_are = f"{what}s: {', '.join(known)}." if known else f"There is no {what}."
            raise self.error(f"{key} is {name!r}, which is no {what}", f"{guess}{there_are}")
        return name

    def optional(self, key: str, known: Sequence[str], what: str) -> str | None:
        return self.named(key, known, what) if key in self._table else None

    def rest(self) -> dict[str, Any]:
        """What is there beside the known keys, as JSON can have it."""
        rest = {key: value for key, value in self._table.items() if key not in self._known}
        for key, value in rest.items():
            if not _is_plain(value):
                raise self.error(f"{key} is {value!r}", "Use texts, numbers, true or false, lists.")
        return rest

    def parts(self, key: str, build: Callable[[_Table], Part], *known: str) -> list[Part]:
        """Each of the tables [[key]]."""
        tables = self.value(key, lambda v: isinstance(v, list), f"[[{key}]] tables", [])
        parts = []
        for number, table in enumerate(tables, start=1):
            name = table.get("name") if isinstance(table, dict) else None
            label = f" ({name})" if isinstance(name, str) else ""
            where = f"{self._where}: {key} {number}{label}"
            parts.append(build(_Table(where, table, known, open_ended=key == "analysis")))
        return parts


KEYS = (
    *("name", "title", "question", "source", "answers", "program", "arguments", "allocators"),
    *("rounds", "timeout_seconds", "causes", "run_seconds"),
    *("parameter", "metric", "analysis", "plot", "reported"),
)


def _definition(file: Path, sha256: str, document: dict[str, Any]) -> Definition:
    table = _Table(str(file), document, KEYS)
    parameters = table.parts("parameter", _parameter, "name", "title", "values")
    names = [parameter.name for parameter in parameters]
    _check_unique(table, "parameter", names)
    metrics = table.parts(
        "metric", _metric, "name", "title", "unit", "higher_is_better", "source", "optional"
    )
    _check_unique(table, "metric", [metric.name for metric in metrics])
    known = list(dict.fromkeys(metric.name for metric in (*metrics, *BUILT_IN)))
    arguments = table.texts("arguments", [])
    _check_placeholders(table, arguments, names)

    def analysis(part: _Table) -> AnalysisRequest:
        kind, options = part.choice("kind", AnalysisKind), part.rest()
        if wrong := complaint(kind, options, parameters, known):
            raise part.error(*wrong)
        return AnalysisRequest(
            kind=kind,
            metric=part.named("metric", known, "metric", known[0]),
            parameter=part.optional("parameter", names, "parameter"),
            options=options,
        )

    return Definition(
        name=table.name("[a-z0-9][a-z0-9-]*", "small letters, digits and hyphens"),
        title=table.text("title"),
        question=table.text("question"),
        source=table.text("source", ""),
        answers=table.text("answers", ""),
        program=table.text("program"),
        arguments=arguments,
        parameters=parameters,
        metrics=metrics,
        allocators=table.value("allocators", _is_names, "a list of names", DEFAULT_ALLOCATORS),
        rounds=table.value("rounds", _is_count, "a whole number from 1 on", DEFAULT_ROUNDS),
        timeout_seconds=_seconds(table, "timeout_seconds", DEFAULT_TIMEOUT_SECONDS),
        analyses=table.parts("analysis", analysis, "kind", "metric", "parameter"),
        plots=table.parts("plot", lambda part: _plot(part, known, names), *_PLOT_KEYS),
        reported=table.parts("reported", _reported, "report", "machine", "columns", "rows", "note"),
        file=str(file),
        sha256=sha256,
        causes=table.choice("causes", CausesAt, "all"),
        run_seconds=_seconds(table, "run_seconds", DEFAULT_RUN_SECONDS),
    )


def _parameter(table: _Table) -> Parameter:
    name = table.name("[a-z][a-z0-9_]*", "small letters, digits and underscores")
    if name == ALLOCATOR_PLACEHOLDER:
        raise table.error(
            "name is 'allocator'", "{allocator} stands for the allocator's name: choose another."
        )
    values = table.value("values", _is_values, "a list of different numbers, or of texts")
    return Parameter(name, table.text("title", name), list(values))


def _metric(table: _Table) -> Metric:
    name = table.name("[A-Za-z][A-Za-z0-9_-]*", "letters, digits, underscores and hyphens")
    if name in RESERVED:
        raise table.error(f"name is {name!r}", f"The built-in one is called {RESERVED[name]}.")
    return Metric(
        name=name,
        title=table.text("title", name),
        unit=table.choice("unit", MetricUnit, "number"),
        higher_is_better=table.flag("higher_is_better"),
        optional=table.flag("optional"),
        source=table.choice("source", MetricSource, "run"),
    )


_PLOT_KEYS = ("kind", "title", "metric", "x", "panels", "log_x", "log_y")


def _plot(table: _Table, metrics: Sequence[str], parameters: Sequence[str]) -> PlotRequest:
    plot = PlotRequest(
        kind=table.choice("kind", PlotKind),
        title=table.text("title"),
        metric=table.named("metric", metrics, "metric", metrics[0]),
        x=table.optional("x", parameters, "parameter"),
        panels=table.optional("panels", parameters, "parameter"),
        log_x=table.flag("log_x"),
        log_y=table.flag("log_y"),
    )
    if plot.kind == "lines" and plot.x is None:
        raise table.error("x is missing", "A plot of lines has a parameter as its x.")
    if plot.panels is not None and plot.panels == plot.x:
        raise table.error(f"x and panels are both {plot.x!r}", "Give panels another parameter.")
    return plot


def _reported(table: _Table) -> Reported:
    columns = table.texts("columns")
    rows = table.value("rows", lambda v: isinstance(v, list) and _is_plain(v), "a list of rows")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != len(columns):
            raise table.error(
                f"row {number} is {row!r}", f"Give it a value for each of {len(columns)} columns."
            )
    return Reported(
        table.text("report"), table.text("machine"), columns, rows, table.text("note", "")
    )


def _seconds(table: _Table, key: str, default: float) -> float:
    def fits(value: Any) -> bool:
        return _is_number(value) and 0 < value < math.inf

    return float(table.value(key, fits, "a number of seconds above 0", default))


def _check_unique(table: _Table, what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise table.error(f"two {what}s have the name {name}", "Rename one of them.")


def _check_placeholders(table: _Table, arguments: Sequence[str], parameters: Sequence[str]) -> None:
    """Every placeholder has a parameter, and every parameter a placeholder: what is swept must
    reach the program."""
    used = set(_placeholders(arguments))
    for name in sorted(used - {ALLOCATOR_PLACEHOLDER, *parameters}):
        near = difflib.get_close_matches(name, parameters, n=1)
        guess = f"Did you mean {{{near[0]}}}? " if near else ""
        raise table.error(
            f"arguments has {{{name}}}, which is no parameter",
            f"{guess}Add a [[parameter]] of that name, or write {{{{{name}}}}} for the text.",
        )
    for name in parameters:
        if name not in used:
            raise table.error(
                f"the parameter {name} is nowhere in arguments",
                f"Write {{{name}}} where its value belongs, or remove the parameter.",
            )


def _placeholders(arguments: Sequence[str]) -> Iterator[str]:
    for argument in arguments:
        for match in PLACEHOLDER.finditer(argument):
            if match[2]:
                yield match[2]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.strip() != ""


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_names(value: Any) -> bool:
    return _is_texts(value) and all(map(_is_text, value)) and len(value) > 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_values(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return (all(map(_is_number, value)) or all(map(_is_text, value))) and (
        len({item if _is_text(item) else float(item) for item in value}) == len(value)
    )


def _is_plain(value: Any) -> bool:
    """Whether JSON can hold it: TOML's dates, infinities and NaN it cannot."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return isinstance(value, str | bool) or _is_number(value)
