"""Experiments: reads their files, and runs each as a comparison over the points of its sweep.

Any error in a file is reported before measuring, with the file, the key and the remedy.
"""

import fnmatch
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from tsmlab import allocators as known
from tsmlab import (
    causes,
    compare,
    machine,
    paths,
    study,
    sweep,
    system_libraries,
    toml_tables,
    warnings,
)
from tsmlab.allocators import Allocator
from tsmlab.causes import Observer
from tsmlab.definition import AnalysisRequest, CausesAt, Definition, Kind, Reported
from tsmlab.errors import UserError
from tsmlab.findings import find, usable_processors
from tsmlab.fits import EXPONENTS, LOGARITHMIC
from tsmlab.fleet import Fleet
from tsmlab.journal import Memo, Part
from tsmlab.measuring import Executor, RunRequest
from tsmlab.metrics import BUILT_IN, PEAK_MEMORY, PEAK_OVER_LIVE, TIME, MetricSpec, Unit
from tsmlab.progress import Reporter
from tsmlab.results import EARLY, Causes, Comparison, Outcome, Stop, ended
from tsmlab.schedule import StopRule
from tsmlab.study import Study
from tsmlab.sweep import ALLOCATOR, Parameter, Point, points_of
from tsmlab.toml_tables import Table, is_count, is_names, is_number, is_plain, is_text
from tsmlab.trial import Program, at_point

EVERYTHING = "all"
SHOW_ALL = "`tsmalloc experiment list` lists them all."
DEFAULT_ROUNDS = 5
DEFAULT_TIMEOUT_SECONDS = 60.0
DEFAULT_RUN_SECONDS = 1.0
DEFAULT_ALLOCATORS = ["tsmalloc", "system"]
# A time budget reduces the rounds to no fewer than this: fewer are almost meaningless.
MIN_ROUNDS_EXPERIMENT = 3
# How much slower an instrumented run is, for all tools together.
WATCHED_FACTOR = 9.0


def default_folder() -> Path:
    return paths.data_dir() / "experiments"


def read_files(files: Sequence[Path]) -> list[Definition]:
    """An experiment for each file; raises UserError for an invalid file, or if two have the same
    name. Does not check that programs exist (program_path does)."""
    definitions: dict[str, Definition] = {}
    for file in files:
        definition = read_file(file)
        if other := definitions.get(definition.name):
            raise UserError(
                f"{other.file} and {definition.file} have the same name, {definition.name}.",
                "Rename one of them.",
            )
        definitions[definition.name] = definition
    return list(definitions.values())


def read_file(path: Path) -> Definition:
    document, content = toml_tables.read(path, "experiment", "Give a readable file.")
    return _definition(path.absolute(), hashlib.sha256(content).hexdigest(), document)


def select(chosen: Sequence[str], definitions: Sequence[Definition]) -> list[Definition]:
    """The experiments that names and globs select, in the catalogue's order; `all` selects every
    one. Raises UserError for a name that selects nothing."""
    patterns = ["*" if name == EVERYTHING else name for name in chosen]
    return toml_tables.select(patterns, definitions, "experiment", SHOW_ALL)


def program_path(definition: Definition) -> Path:
    """The file to run: with a slash a path from the experiment's folder, otherwise a program of the
    build or in PATH. Raises UserError if there is none."""
    file, program = definition.file, definition.program
    if "/" in program:
        own = (Path(file).parent / Path(program).expanduser()).absolute()
        places = [str(own)]
        error = UserError(
            f"{file}: the program {own} does not exist or is not executable.",
            "Build it, correct `program`, or make it executable: chmod +x",
        )
    else:
        built = paths.build_dir() / "bin" / program
        places = [str(built), program]
        error = UserError(
            f"{file}: the program {program} is neither built ({built}) nor on PATH.",
            f"For one of tsmalloc's own: {paths.remedy()}",
        )
    found = next(filter(None, map(shutil.which, places)), None)
    if found is None:
        raise error
    return Path(found).absolute()


KEYS = (
    *("name", "title", "question", "source", "answers", "program", "arguments", "allocators"),
    *("rounds", "timeout_seconds", "causes", "run_seconds"),
    *("parameter", "metric", "analysis", "reported"),
)
# Names of the built-in metrics in files, besides their keys.
ALIASES = {"wall_seconds": TIME, "peak_bytes": PEAK_MEMORY}
PEAK_SPEC = MetricSpec(PEAK_OVER_LIVE, "peak over live bytes", "number", judged=True)
OURS = (*BUILT_IN, PEAK_SPEC)


def _definition(file: Path, sha256: str, document: dict[str, Any]) -> Definition:
    table = Table(str(file), document, KEYS)
    parameters = table.parts("parameter", _parameter, "name", "title", "values")
    own = table.parts("metric", _metric, "name", "title", "unit", "higher_is_better", "optional")
    metrics = [spec for spec, _ in own]
    names = [p.name for p in parameters]
    table.check_distinct("parameter", names)
    table.check_distinct("metric", [m.key for m in metrics])
    arguments = table.texts("arguments", [])
    _check_placeholders(table, arguments, names)
    own_options = {key for rules in OPTIONS.values() for key in rules}
    request = partial(_analysis_request, parameters, metrics)
    analyses = table.parts("analysis", request, *ASKED, *sorted(own_options))
    asked, declared = ({each.metric for each in analyses}, {m.key for m in metrics})
    derived = [PEAK_SPEC] if PEAK_OVER_LIVE in asked - declared else []
    return Definition(
        name=table.name("[a-z0-9][a-z0-9-]*", "lowercase letters, digits and hyphens"),
        title=table.text("title"),
        question=table.text("question"),
        source=table.text("source", ""),
        answers=table.text("answers", ""),
        program=table.text("program"),
        arguments=arguments,
        parameters=parameters,
        metrics=[*metrics, *derived],
        optional=[spec.key for spec, is_optional in own if is_optional],
        allocators=table.value("allocators", is_names, "a list of names", DEFAULT_ALLOCATORS),
        rounds=table.value("rounds", is_count, "a whole number of at least 1", DEFAULT_ROUNDS),
        timeout_seconds=_seconds(table, "timeout_seconds", DEFAULT_TIMEOUT_SECONDS),
        run_seconds=_seconds(table, "run_seconds", DEFAULT_RUN_SECONDS),
        causes=table.choice("causes", CausesAt, "all"),
        analyses=analyses,
        reported=table.parts("reported", _reported, "report", "machine", "columns", "rows", "note"),
        file=str(file),
        sha256=sha256,
    )


def _parameter(table: Table) -> Parameter:
    name = table.name("[a-z][a-z0-9_]*", "lowercase letters, digits and underscores")
    if name == ALLOCATOR:
        raise table.error(
            "name is 'allocator'", "{allocator} stands for the allocator's name; choose another."
        )
    values = table.value("values", _is_values, "a list of distinct numbers or strings")
    return Parameter(name, table.text("title", name), list(values))


def _is_values(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return (all(map(is_number, value)) or all(map(is_text, value))) and (
        len({item if is_text(item) else float(item) for item in value}) == len(value)
    )


def _metric(table: Table) -> tuple[MetricSpec, bool]:
    name = table.name("[A-Za-z][A-Za-z0-9_-]*", "letters, digits, underscores and hyphens")
    if name in ALIASES or name in {spec.key for spec in BUILT_IN}:
        raise table.error(f"name is {name!r}", "It is always measured: remove this table.")
    unit = table.choice("unit", Unit, "number")
    higher, optional = table.flag("higher_is_better"), table.flag("optional")
    return MetricSpec(name, table.text("title", name), unit, True, higher), optional


def _reported(table: Table) -> Reported:
    columns = table.texts("columns")
    rows = table.value("rows", lambda v: isinstance(v, list) and is_plain(v), "a list of rows")
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, list) or len(row) != len(columns):
            raise table.error(
                f"row {number} is {row!r}", f"Give a value for each of the {len(columns)} columns."
            )
    return Reported(
        table.text("report"), table.text("machine"), columns, rows, table.text("note", "")
    )


def _seconds(table: Table, key: str, default: float) -> float:
    def fits(value: Any) -> bool:
        return is_number(value) and 0 < value < math.inf

    return float(table.value(key, fits, "a number of seconds above 0", default))


def _check_placeholders(table: Table, arguments: Sequence[str], parameters: Sequence[str]) -> None:
    """Checks that every placeholder has a parameter, and every parameter a placeholder: otherwise
    the swept value would not reach the program."""
    used = sweep.used_in(arguments)
    for name in sorted(used - {ALLOCATOR, *parameters}):
        guess = toml_tables.guess(f"{{{name}}}", [f"{{{known}}}" for known in parameters])
        raise table.error(
            f"arguments has {{{name}}}, which is not a parameter",
            f"{guess}Add a [[parameter]] of that name, or write {{{{{name}}}}} for the literal "
            "text.",
        )
    for name in parameters:
        if name not in used:
            raise table.error(
                f"arguments does not use the parameter {name}",
                f"Write {{{name}}} where its value belongs, or remove the parameter.",
            )


# --- the questions of a file: checked, since a misspelt option would answer another question ------


Rule = tuple[Callable[[Any], bool], str]
POSITIVE: Rule = (lambda value: is_number(value) and value > 0, "a number above 0")
TEXT: Rule = (is_text, "a string")
TEXTS: Rule = (is_names, "a list of strings")
NAMES: tuple[str, list[str]] = ("a list of names and globs", [])


# The keys of every question.
ASKED = ("kind", "metric", "parameter", "at", "allocators")


def _one_of(*choices: str) -> Rule:
    return lambda value: value in choices, f"one of {', '.join(choices)}"


OPTIONS: Mapping[Kind, Mapping[str, Rule]] = {
    "pair": {"first": TEXT, "second": TEXT, "show": TEXTS},
    "order": {},
    "fit": {
        "law": _one_of("growth", "amdahl"),
        "expected": _one_of(*EXPONENTS, LOGARITHMIC),
        "tolerance": POSITIVE,
        "limit": POSITIVE,
    },
}


def _analysis_request(
    parameters: Sequence[Parameter], metrics: Sequence[MetricSpec], table: Table
) -> AnalysisRequest:
    kind = table.choice("kind", Kind)
    rules = OPTIONS[kind]
    table.check_keys([*ASKED, *rules])
    metric = table.text("metric", metrics[0].key if metrics else TIME)
    metric = ALIASES.get(metric, metric)
    keys = list(dict.fromkeys([*(m.key for m in metrics), *(m.key for m in OURS), *ALIASES]))
    if metric not in keys:
        guess = toml_tables.guess(metric, keys)
        raise table.error(f"unknown metric {metric!r}", f"{guess}Metrics: {', '.join(keys)}.")
    at = table.value("at", lambda v: isinstance(v, dict), "{parameter = value}", {})
    _check_place(table, at, parameters)
    options = {key: table.value(key, *rule) for key, rule in rules.items() if key in table}
    if kind == "pair" and not {"first", "second"} <= set(options):
        raise table.error("a pair needs both first and second", "Name two allocators.")
    if options.get("law") == "amdahl" and (others := sorted(set(options) - {"law"})):
        raise table.error(f"Amdahl's law has no option {others[0]}", "It takes none.")
    return AnalysisRequest(
        kind=kind,
        metric=metric,
        parameter=table.optional("parameter", [p.name for p in parameters], "parameter"),
        at=dict(at),
        allocators=table.value("allocators", lambda v: v == [] or is_names(v), *NAMES),
        options=options,
    )


def _check_place(table: Table, at: Mapping[str, Any], parameters: Sequence[Parameter]) -> None:
    values = {parameter.name: parameter.values for parameter in parameters}
    for name, value in at.items():
        if name not in values:
            there_are = ", ".join(values) or "none"
            raise table.error(
                f"at refers to {name!r}, which is not a parameter", f"Parameters: {there_are}."
            )
        if value not in values[name]:
            there_are = ", ".join(map(str, values[name]))
            raise table.error(f"{name} never has the value {value!r}", f"Its values: {there_are}.")


# --- what will run --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """One experiment with its program; the allocators include the reference."""

    definition: Definition
    program: Path
    allocators: tuple[Allocator, ...]
    reference: Allocator
    rounds: int
    with_causes: bool

    @property
    def points(self) -> list[Point]:
        return points_of(self.definition.parameters)

    @property
    def runs_a_round(self) -> int:
        return len(self.points) * (len(self.allocators) + 1)

    @property
    def causes_points(self) -> list[int]:
        if not self.with_causes or self.definition.causes == "none":
            return []
        last = len(self.points) - 1
        return sorted({0, last}) if self.definition.causes == "ends" else list(range(last + 1))

    @property
    def rounds_seconds(self) -> float:
        return self.rounds * self.runs_a_round * self._run_seconds

    @property
    def causes_seconds(self) -> float:
        counted = len(self.causes_points) * len(self.allocators)
        return counted * self._run_seconds * WATCHED_FACTOR

    @property
    def _run_seconds(self) -> float:
        return self.definition.run_seconds + compare.OVERHEAD_SECONDS


def plan(
    definition: Definition,
    available: Sequence[Allocator],
    chosen: Sequence[str],
    reference: str,
    rounds: int | None,
    with_causes: bool,
    note: Callable[[str], object],
) -> Plan:
    """The plan of an experiment; `chosen` are the requested allocators, by default the file's own
    choice and the user's libraries. Raises UserError for a choice that cannot run."""
    wanted = known.select(chosen, available) if chosen else list(_own(definition, available, note))
    base, compared = known.with_reference(reference, wanted, available)
    return Plan(
        definition=definition,
        program=program_path(definition),
        allocators=tuple(compared),
        reference=base,
        rounds=definition.rounds if rounds is None else rounds,
        with_causes=with_causes,
    )


def _own(
    definition: Definition, available: Sequence[Allocator], note: Callable[[str], object]
) -> Iterator[Allocator]:
    """The allocators that the file names, without those not installed here, which are noted."""
    selectors: list[str] = []
    for selector in definition.allocators:
        package = system_libraries.package_of(selector)
        if package and not any(fnmatch.fnmatchcase(a.name, selector) for a in available):
            note(f"{definition.name}: without {selector} (sudo apt install {package})")
            continue
        selectors.append(selector)
    users = [allocator.name for allocator in available if allocator.family == "user"]
    if not selectors and not users:
        raise UserError(
            f"{definition.file}: none of its allocators is installed.",
            "Install one of them, or choose others: -a tsmalloc,glibc",
        )
    try:
        yield from known.select([*selectors, *users], available)
    except UserError as error:
        raise UserError(f"{definition.file}: {error.message}", error.remedy) from error


# --- running them ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    plans: tuple[Plan, ...]
    seed: int
    cpus: tuple[int, ...] | None = None
    time_budget_seconds: float | None = None

    @property
    def allocators(self) -> list[Allocator]:
        return list({a.name: a for plan in self.plans for a in plan.allocators}.values())

    @property
    def files(self) -> list[Path]:
        return [*(Path(p.definition.file) for p in self.plans), *(p.program for p in self.plans)]


def read(path: Path) -> Study:
    return study.read(path, "`tsmalloc experiment run` prints the path of its results.")


def run(
    options: Options,
    executor: Executor,
    reporter: Reporter,
    memo: Memo,
    fleet: Fleet | None = None,
    observers: Sequence[Observer] | None = None,
    warm: Callable[[int], int] = machine.touch,
) -> Outcome[Study]:
    """Runs the experiments one after the other; their rounds on the fleet, if there is one, whose
    machines are of one kind. Causes are counted on this machine.

    Raises UserError and KeyboardInterrupt only if nothing has been measured yet."""
    return _Session(options, executor, reporter, memo, fleet, observers, warm).run()


@dataclass
class _Session:
    options: Options
    executor: Executor
    reporter: Reporter
    memo: Memo
    fleet: Fleet | None
    observers: Sequence[Observer] | None
    warm: Callable[[int], int]

    def __post_init__(self) -> None:
        self._start = self.memo.clock()
        self._done: list[Comparison] = []

    def run(self) -> Outcome[Study]:
        """A program that fails under the reference only affects its own experiment."""
        error: UserError | None = None
        stop = Stop("runs", "all experiments done")
        try:
            for place, each in enumerate(self.options.plans):
                self.reporter.note(f"experiment {each.definition.name}: {each.definition.title}")
                try:
                    outcome = self._one(each, len(self.options.plans) - place)
                except compare.ReferenceFailedError as problem:
                    error = error or problem
                    self.reporter.note(f"{each.definition.name}: {problem.message}")
                    continue
                if outcome.error is not None or outcome.results.interrupted:
                    stop, error = outcome.results.stop, outcome.error or error
                    break
        except EARLY as problem:
            if not self._done:
                raise
            return ended(problem, self._study)
        if not self._done and error is not None:
            raise error
        return Outcome(self._study(stop), error)

    def _study(self, stop: Stop) -> Study:
        return Study.of("experiment", self._done, stop=stop)

    def _one(self, each: Plan, left: int) -> Outcome[Comparison]:
        """The rounds, the causes, the answers. left: how many experiments share the remaining
        time."""
        definition, memo = each.definition, Part(self.memo, each.definition.name)
        outcome = compare.compare(
            self._options(each, left), self.executor, self.reporter, memo, self.fleet
        )
        found = replace(outcome.results, name=definition.name, experiment=definition)
        counted: list[Causes] = []
        try:
            if outcome.error is None and not found.interrupted:
                counted.extend(self._causes(each, found, memo))
        except KeyboardInterrupt:
            found = replace(found, stop=Stop("interrupted", "interrupted by the user"))
        cpus, fleet = self.options.cpus, self.fleet
        processors = usable_processors(found.machine, cpus) if fleet is None else fleet.processors
        found = replace(found, causes=counted)
        findings = find(found, definition.analyses, processors)
        found = replace(found, findings=findings, warnings=warnings.find_all(found))
        self._done.append(found)
        return Outcome(found, outcome.error)

    def _options(self, each: Plan, left: int) -> compare.Options:
        definition = each.definition
        asked = {question.metric for question in definition.analyses}
        built_in: tuple[MetricSpec, ...] = BUILT_IN
        if definition.metrics:  # usually, the first is the time
            built_in = tuple(
                replace(m, name="wall time", judged=TIME in asked) if m.key == TIME else m
                for m in BUILT_IN
            )
        return compare.Options(
            program=Program(
                command=(str(each.program), *definition.arguments),
                stdin=Path(os.devnull),
                printed=definition.printed,
                printed_perhaps=definition.printed_perhaps,
            ),
            allocators=each.allocators,
            reference=each.reference,
            seed=self.options.seed,
            rule=self._rule(each, left),
            warmup_rounds=0,
            timeout_seconds=definition.timeout_seconds,
            check_output=False,  # output includes times
            consult_doctor=False,
            cpus=self.options.cpus,
            base_metrics=(*definition.metrics, *built_in),
            unresolved=lambda _: 1,  # the file sets the number of rounds
            print_preflight=False,
            parameters=tuple(definition.parameters),
            series_points=0,
            warm=self.warm,
            one_kind=True,
        )

    def _rule(self, each: Plan, left: int) -> StopRule:
        budget = self.options.time_budget_seconds
        if budget is None:
            return StopRule(runs=each.rounds)
        share = (budget - (self.memo.clock() - self._start)) / left - each.causes_seconds
        return StopRule(
            min_rounds=min(MIN_ROUNDS_EXPERIMENT, each.rounds),
            max_rounds=each.rounds,
            time_budget_seconds=max(share, 0.0),
            min_is_firm=True,
        )

    def _causes(self, each: Plan, found: Comparison, memo: Memo) -> Iterator[Causes]:
        """At the requested points, for each allocator with a successful run there."""
        cells = [
            (point, allocator, row.metrics[TIME].maximum)
            for point in each.causes_points
            for allocator in each.allocators
            for row in found.parts[point][1].rows
            if row.allocator == allocator.name and TIME in row.metrics
        ]
        for done, (point, allocator, seconds) in enumerate(cells):
            what = f"counting causes of {each.definition.name}"
            self.reporter.step(what, allocator.name, done, len(cells))
            yield memo.once(
                f"causes of {allocator.name} at {point}",
                Causes,
                partial(self._count, each, point, allocator, seconds),
            )

    def _count(self, each: Plan, point: int, allocator: Allocator, seconds: float) -> Causes:
        values, nowhere = each.points[point], Path(os.devnull)
        command = (str(each.program), *each.definition.arguments)
        request = RunRequest(
            command=Program(command, nowhere).at(values, allocator.name).command,
            allocator=at_point(allocator, values),
            stdout=nowhere,
            stderr=nowhere,
            timeout_seconds=causes.timeout_seconds(seconds),
        )
        return causes.count(request, point, self.observers)
