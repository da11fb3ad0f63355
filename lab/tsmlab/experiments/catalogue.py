"""The catalogue of experiments: reads experiments/*.toml, and other files of their form.

Why: a student adds an experiment by writing one file; whatever is wrong in it must be found before
anything is measured, with file and key named and the remedy told.
Refuses to: run anything, and to guess. A key that it does not know is an error.
"""

import difflib
import hashlib
import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tsmlab import paths, toml_tables
from tsmlab.errors import UserError
from tsmlab.experiments import model
from tsmlab.metrics import PEAK_MEMORY, TIME
from tsmlab.toml_tables import Table, is_count, is_names, is_number, is_plain, is_text

EVERYTHING = "all"
DEFAULT_ROUNDS = 5
DEFAULT_TIMEOUT_SECONDS = 60.0
DEFAULT_RUN_SECONDS = 1.0
DEFAULT_ALLOCATORS = ["tsmalloc", "system"]

# {name} stands for a value, {{name}} for itself; any other brace is only a brace.
PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")
ALLOCATOR_PLACEHOLDER = "allocator"
# What other verbs call the built-in metrics.
RESERVED = {TIME: model.WALL_SECONDS, PEAK_MEMORY: model.PEAK_BYTES}
SHOW_ALL = "`tsmalloc experiment list` shows them all."

# --- files ---------------------------------------------------------------------------------------


def default_folder() -> Path:
    return paths.data_dir() / "experiments"


def read_folder(folder: Path) -> list[model.Definition]:
    """The experiments of a folder, by the names of their files."""
    return read_files(sorted(folder.glob("*.toml")))


def read_files(files: Sequence[Path]) -> list[model.Definition]:
    """An experiment for each file; raises UserError for one that is not as it should be, or if two
    have one name. Whether programs are there is not looked at (program_path)."""
    definitions: dict[str, model.Definition] = {}
    for file in files:
        definition = read_file(file)
        if other := definitions.get(definition.name):
            raise UserError(
                f"{other.file} and {definition.file} both have the name {definition.name}.",
                "Rename one of the two experiments.",
            )
        definitions[definition.name] = definition
    return list(definitions.values())


def read_file(path: Path) -> model.Definition:
    document, content = toml_tables.read(path, "experiment", "Name a file that can be.")
    return _definition(path.absolute(), hashlib.sha256(content).hexdigest(), document)


def select(names: Sequence[str], definitions: Sequence[model.Definition]) -> list[model.Definition]:
    """Those that names and globs choose, in the catalogue's order; `all` chooses every one. Raises
    UserError for a name that chooses nothing."""
    patterns = ["*" if name == EVERYTHING else name for name in names]
    return toml_tables.select(patterns, definitions, "experiment", SHOW_ALL)


# --- what a definition means ---------------------------------------------------------------------


def program_path(definition: model.Definition) -> Path:
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


def points_of(definition: model.Definition) -> list[model.Point]:
    """Every combination of the parameters' values; the last parameter changes fastest."""
    points: list[model.Point] = [{}]
    for parameter in definition.parameters:
        points = [{**point, parameter.name: v} for point in points for v in parameter.values]
    return points


def arguments_at(
    definition: model.Definition, point: model.Point, allocator: str
) -> tuple[str, ...]:
    """The program's arguments with every placeholder replaced."""
    values = {**point, ALLOCATOR_PLACEHOLDER: allocator}

    def value(match: re.Match[str]) -> str:
        return f"{{{match[1]}}}" if match[1] else str(values[match[2]])

    return tuple(PLACEHOLDER.sub(value, argument) for argument in definition.arguments)


def describe_point(point: model.Point) -> str:
    """threads=4, fit=best; empty where nothing is swept."""
    return ", ".join(f"{name}={value}" for name, value in point.items())


# --- reading one file ----------------------------------------------------------------------------


KEYS = (
    *("name", "title", "question", "source", "answers", "program", "arguments", "allocators"),
    *("rounds", "timeout_seconds", "causes", "run_seconds"),
    *("parameter", "metric", "analysis", "plot", "reported"),
)


def _definition(file: Path, sha256: str, document: dict[str, Any]) -> model.Definition:
    table = Table(str(file), document, KEYS)
    parameters = table.parts("parameter", _parameter, "name", "title", "values")
    names = [parameter.name for parameter in parameters]
    _check_unique(table, "parameter", names)
    metrics = table.parts(
        "metric", _metric, "name", "title", "unit", "higher_is_better", "source", "optional"
    )
    _check_unique(table, "metric", [metric.name for metric in metrics])
    known = list(dict.fromkeys(metric.name for metric in (*metrics, *model.BUILT_IN)))
    arguments = table.texts("arguments", [])
    _check_placeholders(table, arguments, names)

    def analysis(part: Table) -> model.AnalysisRequest:
        kind, options = part.choice("kind", model.AnalysisKind), part.rest()
        if wrong := complaint(kind, options, parameters, known):
            raise part.error(*wrong)
        return model.AnalysisRequest(
            kind=kind,
            metric=part.named("metric", known, "metric", known[0]),
            parameter=part.optional("parameter", names, "parameter"),
            options=options,
        )

    return model.Definition(
        name=table.name("[a-z0-9][a-z0-9-]*", "small letters, digits and hyphens"),
        title=table.text("title"),
        question=table.text("question"),
        source=table.text("source", ""),
        answers=table.text("answers", ""),
        program=table.text("program"),
        arguments=arguments,
        parameters=parameters,
        metrics=metrics,
        allocators=table.value("allocators", is_names, "a list of names", DEFAULT_ALLOCATORS),
        rounds=table.value("rounds", is_count, "a whole number from 1 on", DEFAULT_ROUNDS),
        timeout_seconds=_seconds(table, "timeout_seconds", DEFAULT_TIMEOUT_SECONDS),
        analyses=table.parts("analysis", analysis, "kind", "metric", "parameter"),
        plots=table.parts("plot", lambda part: _plot(part, known, names), *_PLOT_KEYS),
        reported=table.parts("reported", _reported, "report", "machine", "columns", "rows", "note"),
        file=str(file),
        sha256=sha256,
        causes=table.choice("causes", model.CausesAt, "all"),
        run_seconds=_seconds(table, "run_seconds", DEFAULT_RUN_SECONDS),
    )


def _parameter(table: Table) -> model.Parameter:
    name = table.name("[a-z][a-z0-9_]*", "small letters, digits and underscores")
    if name == ALLOCATOR_PLACEHOLDER:
        raise table.error(
            "name is 'allocator'", "{allocator} stands for the allocator's name: choose another."
        )
    values = table.value("values", _is_values, "a list of different numbers, or of texts")
    return model.Parameter(name, table.text("title", name), list(values))


def _metric(table: Table) -> model.Metric:
    name = table.name("[A-Za-z][A-Za-z0-9_-]*", "letters, digits, underscores and hyphens")
    if name in RESERVED:
        raise table.error(f"name is {name!r}", f"The built-in one is called {RESERVED[name]}.")
    return model.Metric(
        name=name,
        title=table.text("title", name),
        unit=table.choice("unit", model.MetricUnit, "number"),
        higher_is_better=table.flag("higher_is_better"),
        optional=table.flag("optional"),
        source=table.choice("source", model.MetricSource, "run"),
    )


_PLOT_KEYS = ("kind", "title", "metric", "x", "panels", "log_x", "log_y")


def _plot(table: Table, metrics: Sequence[str], parameters: Sequence[str]) -> model.PlotRequest:
    plot = model.PlotRequest(
        kind=table.choice("kind", model.PlotKind),
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


def _reported(table: Table) -> model.Reported:
    columns = table.texts("columns")
    rows = table.value("rows", lambda v: isinstance(v, list) and is_plain(v), "a list of rows")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != len(columns):
            raise table.error(
                f"row {number} is {row!r}", f"Give it a value for each of {len(columns)} columns."
            )
    return model.Reported(
        table.text("report"), table.text("machine"), columns, rows, table.text("note", "")
    )


def _seconds(table: Table, key: str, default: float) -> float:
    def fits(value: Any) -> bool:
        return is_number(value) and 0 < value < math.inf

    return float(table.value(key, fits, "a number of seconds above 0", default))


def _check_unique(table: Table, what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise table.error(f"two {what}s have the name {name}", "Rename one of them.")


def _check_placeholders(table: Table, arguments: Sequence[str], parameters: Sequence[str]) -> None:
    """Every placeholder has a parameter, and every parameter a placeholder: what is swept must
    reach the program."""
    found = (match for argument in arguments for match in PLACEHOLDER.finditer(argument))
    used = {match[2] for match in found if match[2]}
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


def _is_values(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return (all(map(is_number, value)) or all(map(is_text, value))) and (
        len({item if is_text(item) else float(item) for item in value}) == len(value)
    )


# --- the options of analyses: a misspelt one would answer another question ------------------------


Rule = tuple[Callable[[Any], bool], str]


def _one_of(*choices: str) -> Rule:
    return lambda value: value in choices, f"one of {', '.join(choices)}"


SHAPES = ("constant", "linear", "quadratic", "logarithmic")
TEXT: Rule = (is_text, "a text")
TEXTS: Rule = (is_names, "a list of texts")
NUMBER: Rule = (is_number, "a number")
POSITIVE: Rule = (lambda value: is_number(value) and value > 0, "a number above 0")
SHAPE: Rule = (
    lambda value: is_number(value) or value in SHAPES,
    f"a number, or one of {', '.join(SHAPES)}",
)

OF_ALL: Mapping[str, Rule] = {"allocators": TEXTS}
OF_KIND: Mapping[model.AnalysisKind, Mapping[str, Rule]] = {
    "pair": {"first": TEXT, "second": TEXT, "show": TEXTS, "margin": POSITIVE},
    "winner": {"margin": POSITIVE},
    "amdahl": {"work": _one_of("fixed", "per-thread"), "margin": POSITIVE},
    "growth": {"expected": SHAPE, "tolerance": POSITIVE},
    "order": {"margin": POSITIVE},
    "bound": {"limit": NUMBER, "over": TEXT},
}
NEEDED: Mapping[model.AnalysisKind, tuple[str, ...]] = {"pair": ("first", "second")}


def complaint(
    kind: model.AnalysisKind,
    options: Mapping[str, Any],
    parameters: Sequence[model.Parameter],
    metrics: Sequence[str],
) -> tuple[str, str] | None:
    """What is wrong with the options, and the remedy; None if nothing is."""
    rules = {**OF_ALL, **OF_KIND[kind]}
    known = sorted([*rules, "at"])
    for key, value in options.items():
        if key not in known:
            return f"the key {key!r} is unknown", f"Options of {kind}: {', '.join(known)}."
        if key in rules and not rules[key][0](value):
            return f"{key} is {value!r}", f"It must be {rules[key][1]}."
    for key in NEEDED.get(kind, ()):
        if key not in options:
            return f"{key} is missing", "Name two allocators, first and second."
    if "over" in options and options["over"] not in metrics:
        return f"over is {options['over']!r}, which is no metric", f"Metrics: {', '.join(metrics)}."
    return _place(options.get("at", {}), {each.name: each.values for each in parameters})


def _place(at: Any, values: Mapping[str, Sequence[Any]]) -> tuple[str, str] | None:
    """What is wrong with the points that are asked for."""
    if not isinstance(at, dict):
        return f"at is {at!r}", "Write it as {parameter = value}."
    for name, value in at.items():
        if name not in values:
            there_are = ", ".join(values) or "none"
            return f"at names {name!r}, which is no parameter", f"Parameters: {there_are}."
        if value not in values[name]:
            known = ", ".join(map(str, values[name]))
            return f"{name} is never {value!r}", f"Its values: {known}."
    return None
