"""The flow of `tsmalloc floors`: planned addresses of each trace, and all allocators against them.

Why: "twice as fast as glibc" does not say how much is left to gain. The same calls on addresses
that were planned with the whole future known take the least time that can be argued for, and the
highest sum of live bytes is the least memory.
Refuses to: compare schedules or threads. All calls are made by one thread in the recorded order,
for the floor and for each allocator alike.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tsmlab import __version__, compare, machine, records, stats
from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.journal import Memo, Part
from tsmlab.machine import Machine
from tsmlab.measuring import Executor, Measurement, RunRequest, read_answer
from tsmlab.metrics import PEAK_MEMORY, TIME
from tsmlab.progress import Reporter
from tsmlab.results import AllocatorInfo, Comparison, Outcome
from tsmlab.schedule import TIME_BUDGET_SECONDS, StopRule
from tsmlab.traces.floors_results import SCHEMA, Excess, FloorResults, FloorRow, TraceFloors
from tsmlab.traces.gathering import gather
from tsmlab.traces.planning import run_trace, trace_name
from tsmlab.traces.replaying import ReplayExecutor, measured_lines
from tsmlab.trial import Program

FLOOR = Allocator("floor", None, "floor", __version__, summary="planned addresses")
SAMPLES = 200
PLAN_SCHEMA = "tsmalloc-floors/1"
# Warnings of a comparison that do not hold for replays.
_NOT_OF_REPLAYS = {"short-runs", "few-calls", "several-processes"}

PlanFloors = Callable[[Path, Path, int | None], dict[str, Any]]


@dataclass(frozen=True)
class Options:
    """What was asked for. rounds: None for as many as the verdicts need."""

    traces: tuple[Path, ...]
    allocators: tuple[Allocator, ...]
    seed: int
    rounds: int | None = None
    time_budget_seconds: float = TIME_BUDGET_SECONDS
    timeout_seconds: float | None = None
    cpus: tuple[int, ...] | None = None
    touch: str = "page"
    image: int | None = None


class FloorExecutor:
    """Runs the floor with the plan's own addresses, and all others as they are."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def run(self, request: RunRequest) -> Measurement:
        if request.allocator.family == "floor":
            *words, plan = request.command
            request = replace(request, command=(*words, "--addresses", plan))
        return self._executor.run(request)


def plan_floors(trace: Path, plan: Path, image: int | None) -> dict[str, Any]:
    """`trace floors`: writes the plan with its addresses, and says what it is worth."""
    words: list[str | Path] = ["floors", trace, "-o", plan]
    if image is not None:
        words += ["--image", str(image)]
    return read_answer(run_trace(words), "trace", PLAN_SCHEMA)


def floors(
    options: Options,
    executor: Executor,
    reporter: Reporter,
    program: Path,
    memo: Memo,
    planner: PlanFloors = plan_floors,
) -> Outcome[FloorResults]:
    """All traces. Raises UserError and KeyboardInterrupt only where nothing has been measured."""
    created = memo.once("created", str, records.now)
    described = memo.once("machine", Machine, machine.describe)
    done, interrupted, error = gather(
        _measured(options, executor, reporter, program, memo, planner)
    )
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


def _measured(
    options: Options,
    executor: Executor,
    reporter: Reporter,
    program: Path,
    memo: Memo,
    planner: PlanFloors,
) -> Iterator[tuple[TraceFloors, UserError | None]]:
    with tempfile.TemporaryDirectory(prefix="tsmalloc-floors-") as folder:
        for number, trace in enumerate(options.traces, start=1):
            name = trace_name(trace)
            reporter.note(f"plan       {name}")
            plan = Path(folder) / f"{name}.plan"
            planned = planner(trace, plan, options.image)
            outcome = compare.compare(
                _comparison_options(options, plan, program),
                FloorExecutor(ReplayExecutor(executor, program)),
                reporter,
                Part(memo, f"{number}. {name}"),
            )
            yield summed_up(name, planned, _tidied(outcome.results, name)), outcome.error
            plan.unlink(missing_ok=True)


def command_of(options: Options, plan: Path, program: Path) -> tuple[str, ...]:
    words = [str(program), "--schedule", "recorded", "--one-thread", "--touch", options.touch]
    return (*words, "--samples", str(SAMPLES), str(plan))


def _comparison_options(options: Options, plan: Path, program: Path) -> compare.Options:
    return compare.Options(
        program=Program(command=command_of(options, plan, program), stdin=Path("/dev/null")),
        allocators=(FLOOR, *options.allocators),
        reference=FLOOR,
        seed=options.seed,
        rule=StopRule(runs=options.rounds, time_budget_seconds=options.time_budget_seconds),
        timeout_seconds=options.timeout_seconds,
        check_output=False,  # addresses and times are part of it
        consult_doctor=False,
        cpus=options.cpus,
    )


def _tidied(comparison: Comparison, name: str) -> Comparison:
    return replace(
        comparison,
        command=[*comparison.command[:-1], f"{name}.plan"],
        warnings=[each for each in comparison.warnings if each.code not in _NOT_OF_REPLAYS],
    )


# --- what is over the floors ----------------------------------------------------------------------


def summed_up(name: str, planned: dict[str, Any], comparison: Comparison) -> TraceFloors:
    """Excess time from pairs within rounds, excess memory against the bound."""
    lines = measured_lines(comparison.samples, FLOOR.name)
    starts = [float(line.raw["start_resident_bytes"] or 0) for line in lines]
    base = stats.median(starts) if starts else 0.0
    bound = float(planned["bound_bytes"])
    times = [line.seconds for line in lines]
    return TraceFloors(
        trace=name,
        planned=planned,
        base_bytes=round(base),
        floor_seconds=stats.median(times) if times else None,
        rows=[_row(info, comparison, base, bound) for info in comparison.allocators],
        comparison=comparison,
    )


def _row(info: AllocatorInfo, comparison: Comparison, base: float, bound: float) -> FloorRow:
    row = next(each for each in comparison.analysis.rows if each.allocator == info.name)
    summary, memory = row.metrics.get(TIME), row.metrics.get(PEAK_MEMORY)
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
        memory=excess_memory(_peaks(comparison, info.name), base, bound),
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
