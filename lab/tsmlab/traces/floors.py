"""The flow of `tsmalloc floors`: each trace under all allocators, and under a floor of time.

Why: "twice as fast as glibc" does not say how much is left to gain. The most bytes that were live
at one time are the least memory; a list of freed blocks per size, with nothing that an allocator
needs besides (lab/native/floors/lifo.cpp), takes about the least time.
Refuses to: compare schedules or threads. All calls are made by one thread in the recorded order,
for the floor and for each allocator alike.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tsmlab import __version__, compare, export, records, stats
from tsmlab.allocators import Allocator, floor
from tsmlab.errors import UserError
from tsmlab.fleet import Fleet, machine_of
from tsmlab.journal import Memo, Part
from tsmlab.machine import Machine
from tsmlab.measuring import Executor
from tsmlab.metrics import PEAK_MEMORY, TIME
from tsmlab.progress import Reporter
from tsmlab.results import AllocatorInfo, Comparison, Outcome, Trouble
from tsmlab.schedule import TIME_BUDGET_SECONDS, StopRule
from tsmlab.tables import Cell, Column, Sheet, markdown_table, measured_on
from tsmlab.traces import planning
from tsmlab.traces.planning import Compile, Plan, compile_plan, plans
from tsmlab.traces.replaying import ReplayExecutor, gather, measured_lines
from tsmlab.trial import Program
from tsmlab.wording import change, quantity, quantity_or, rounds

SCHEMA = "tsmalloc-floors-results/2"


@dataclass(frozen=True)
class Excess:
    """How much more than the floor: 0.05 is a twentieth more. low, high: the 95 % interval."""

    excess: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class FloorRow:
    """One allocator on one trace; also the floor itself, which has no excess. peak_bytes: the
    median, without what is resident before any call (TraceFloors.base_bytes)."""

    allocator: str
    failure: str | None
    runs: int
    seconds: float | None
    time: Excess | None
    peak_bytes: int | None
    memory: Excess | None


@dataclass(frozen=True)
class TraceFloors:
    """bound_bytes: the most that was live at one time. left_out: events on unknown objects.
    base_bytes: resident when replay begins, of the floor."""

    trace: str
    bound_bytes: int
    left_out: int
    is_damaged: bool
    base_bytes: int
    floor_seconds: float | None
    rows: list[FloorRow]
    comparison: Comparison


@dataclass(frozen=True)
class FloorResults:
    schema: str
    created: str
    tsmalloc_version: str
    touch: str
    machine: Machine
    allocators: list[AllocatorInfo]
    interrupted: bool
    traces: list[TraceFloors]

    @property
    def subject(self) -> str:
        return f"floors-{Path(self.traces[0].trace).name}" if self.traces else "floors"

    @property
    def has_failures(self) -> bool:
        return any(row.failure for each in self.traces for row in each.rows)


from_json = records.reader(FloorResults, SCHEMA, "floors")


FLOOR = "lifo"
SAMPLES = 200
# Warnings of a comparison that do not hold for replays.
_NOT_OF_REPLAYS = frozenset({"short-runs", "few-calls", "several-processes"})


@dataclass(frozen=True)
class Options:
    """The options of the floors. rounds: None for as many as the verdicts need."""

    traces: tuple[Path, ...]
    allocators: tuple[Allocator, ...]
    seed: int
    rounds: int | None = None
    time_budget_seconds: float = TIME_BUDGET_SECONDS
    timeout_seconds: float | None = None
    cpus: tuple[int, ...] | None = None
    touch: str = "page"
    image: int | None = None

    @property
    def plan_options(self) -> list[str]:
        """For `trace plan`. Forked children would have heaps of their own."""
        return ["--alone", *([] if self.image is None else ["--image", str(self.image)])]


def floors(
    options: Options,
    executor: Executor,
    reporter: Reporter,
    program: Path,
    memo: Memo,
    compiler: Compile = compile_plan,
    find_floor: Callable[[str], Allocator] = floor,
    fleet: Fleet | None = None,
) -> Outcome[FloorResults]:
    """All traces; on a fleet, whose machines are of one kind, if there is one. Raises UserError and
    KeyboardInterrupt only where nothing has been measured."""
    created = memo.once("created", str, records.now)
    described = machine_of(fleet, memo)
    everyone = (find_floor(FLOOR), *options.allocators)

    def measured(folder: Path) -> Iterator[tuple[TraceFloors, UserError | None]]:
        found = plans(options.traces, folder, options.plan_options, compiler)
        for number, plan in enumerate(found, start=1):
            reporter.note(f"floors     {plan.name}")
            outcome = compare.compare(
                _comparison_options(options, everyone, plan.path, program),
                ReplayExecutor(executor, program, [plan.recipe(options.plan_options)]),
                reporter,
                Part(memo, f"{number}. {plan.name}"),
                fleet,
            )
            yield summed_up(plan, _tidied(outcome.results, plan.name)), outcome.error
            plan.path.unlink(missing_ok=True)

    with tempfile.TemporaryDirectory(prefix="tsmalloc-floors-") as name:
        done, interrupted, error = gather(measured(Path(name)))
    results = FloorResults(
        schema=SCHEMA,
        created=created,
        tsmalloc_version=__version__,
        touch=options.touch,
        machine=described,
        allocators=[AllocatorInfo.of(each) for each in options.allocators],
        interrupted=interrupted,
        traces=done,
    )
    return Outcome(results, error)


def command_of(options: Options, plan: Path, program: Path) -> tuple[str, ...]:
    words = [str(program), "--schedule", "recorded", "--one-thread", "--touch", options.touch]
    return (*words, "--samples", str(SAMPLES), str(plan))


def _comparison_options(
    options: Options, everyone: tuple[Allocator, ...], plan: Path, program: Path
) -> compare.Options:
    return compare.Options(
        program=Program(command=command_of(options, plan, program), stdin=Path("/dev/null")),
        allocators=everyone,
        reference=everyone[0],
        seed=options.seed,
        rule=StopRule(runs=options.rounds, time_budget_seconds=options.time_budget_seconds),
        timeout_seconds=options.timeout_seconds,
        check_output=False,  # addresses and times are part of it
        consult_doctor=False,
        cpus=options.cpus,
        unfit_warnings=_NOT_OF_REPLAYS,
    )


def _tidied(comparison: Comparison, name: str) -> Comparison:
    return replace(comparison, command=[*comparison.command[:-1], f"{name}.plan"])


# --- what is over the floors ----------------------------------------------------------------------


def summed_up(plan: Plan, comparison: Comparison) -> TraceFloors:
    """Excess time from pairs within rounds, excess memory against the bound."""
    lines = measured_lines(comparison.samples, FLOOR)
    starts = [float(line.raw["start_resident_bytes"] or 0) for line in lines]
    base = stats.median(starts) if starts else 0.0
    bound = lines[0].planned_peak_bytes if lines else 0
    times = [line.seconds for line in lines]
    return TraceFloors(
        trace=plan.name,
        bound_bytes=bound,
        left_out=lines[0].left_out if lines else 0,
        is_damaged=plan.is_damaged,
        base_bytes=round(base),
        floor_seconds=stats.median(times) if times else None,
        rows=[_row(info, comparison, base, float(bound)) for info in comparison.allocators],
        comparison=comparison,
    )


def _row(info: AllocatorInfo, comparison: Comparison, base: float, bound: float) -> FloorRow:
    row = next(each for each in comparison.analysis.rows if each.allocator == info.name)
    summary, memory = row.metrics.get(TIME), row.metrics.get(PEAK_MEMORY)
    if info.name == FLOOR:
        memory = None  # it keeps what was freed for its size for ever
    ratio = summary.ratio if summary else None
    return FloorRow(
        allocator=info.name,
        failure=row.failure.text if row.failure else None,
        runs=summary.runs if summary else 0,
        seconds=summary.median if summary else None,
        time=None
        if ratio is None
        else Excess(ratio.ratio - 1, _less(ratio.low), _less(ratio.high)),
        peak_bytes=None if memory is None else round(memory.median - base),
        memory=None
        if memory is None
        else excess_memory(_peaks(comparison, info.name), base, bound),
    )


def excess_memory(peaks: Sequence[float], base: float, bound: float) -> Excess | None:
    """Of the peaks over the bound; `base` was resident without any allocator."""
    if bound <= 0.0:
        return None
    logs = [math.log((peak - base) / bound) for peak in peaks if peak > base]
    if not logs:
        return None
    estimate = stats.estimate_ratio(logs)
    return Excess(estimate.ratio - 1, _less(estimate.low), _less(estimate.high))


def _peaks(comparison: Comparison, allocator: str) -> list[float]:
    """One for each round; the floor runs twice in each, and its mean counts."""
    found: dict[int, list[float]] = {}
    for sample in comparison.samples:
        usable = sample.phase == "measured" and sample.failure is None
        if sample.allocator == allocator and usable and PEAK_MEMORY in sample.values:
            found.setdefault(sample.round, []).append(sample.values[PEAK_MEMORY])
    return [sum(values) / len(values) for values in found.values()]


def _less(ratio: float | None) -> float | None:
    return None if ratio is None else ratio - 1


# --- as text --------------------------------------------------------------------------------------


NOTES = (
    "Excess time: over the same calls on lists of freed blocks by size (the floor lifo).",
    "Excess memory: peak resident memory over the most bytes live at one time (the bound).",
)


def to_csv(results: FloorResults) -> str:
    parts = [((each.trace,), each.comparison) for each in results.traces]
    return export.csv_of_comparisons(("trace",), parts)


def report(results: FloorResults, width: int, colours: bool = False) -> str:
    sheet = Sheet(width, colours)
    for each in results.traces:
        sheet.say(*heading(each))
        sheet.table(columns_of(each))
        sheet.say(*failed_lines(each), style="red")
        sheet.gap()
    sheet.say(*NOTES, style="dim")
    return sheet.text


def markdown(results: FloorResults) -> str:
    lines: list[str] = []
    for each in results.traces:
        lines += [*heading(each), "", *markdown_table(columns_of(each)), ""]
        lines += [f"- {line}" for line in failed_lines(each)]
    lines += [*NOTES, "", measured_on(results.machine, results.created)]
    return "\n".join(lines) + "\n"


def troubles(results: FloorResults) -> list[Trouble]:
    """Of all comparisons, each once."""
    found = {
        trouble.code: trouble for each in results.traces for trouble in each.comparison.warnings
    }
    return list(found.values())


formatted = export.formatter(csv=to_csv, markdown=markdown)


def heading(each: TraceFloors) -> list[str]:
    bound = quantity(each.bound_bytes, "bytes")
    done = rounds(each.comparison.analysis.rounds)
    lines = [
        f"{each.trace}: bound {bound}, floor {quantity_or(each.floor_seconds, 'seconds')}; {done}"
    ]
    damage = planning.damage(each.left_out, each.is_damaged)
    return [damage, *lines] if damage else lines


def ordered(each: TraceFloors) -> list[FloorRow]:
    """Those that did not fail, the quickest first; the floor leads."""
    rows = [row for row in each.rows if row.failure is None and row.seconds is not None]
    floor = each.comparison.reference
    return sorted(rows, key=lambda row: (row.allocator != floor, row.seconds))


def failed_lines(each: TraceFloors) -> list[str]:
    return [f"{row.allocator} failed: {row.failure}" for row in each.rows if row.failure]


def columns_of(each: TraceFloors) -> list[Column]:
    rows = ordered(each)
    return [
        Column("allocator", [Cell(row.allocator) for row in rows], left=True),
        Column("time", [Cell(quantity_or(row.seconds, "seconds")) for row in rows]),
        *_excess_columns("excess time", [row.time for row in rows]),
        Column("peak", [Cell(quantity_or(row.peak_bytes, "bytes")) for row in rows]),
        *_excess_columns("excess memory", [row.memory for row in rows]),
    ]


def _excess_columns(header: str, excesses: Sequence[Excess | None]) -> list[Column]:
    return [
        Column(header, [Cell("" if e is None else change(1 + e.excess)) for e in excesses]),
        Column("[95 % CI]", [Cell(_interval(e)) for e in excesses], left=True, expendable=1),
    ]


def _interval(excess: Excess | None) -> str:
    if excess is None or excess.low is None or excess.high is None:
        return ""
    return f"[{change(1 + excess.low)}, {change(1 + excess.high)}]"
