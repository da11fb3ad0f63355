"""The flow of `tsmalloc replay`: a comparison of each trace under each schedule.

A replay is a program like any other, so compare.py runs and judges it. This module has the
differences: time and memory are as reported by replay itself, so that they exclude reading the
trace and starting the process. If the replays end early, the outcome has all that were made until
then.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import Any

from tsmlab import compare, machine, records, stats
from tsmlab.allocators import Allocator, file_sha256
from tsmlab.errors import UserError
from tsmlab.fleet import Fleet
from tsmlab.journal import Memo, Part
from tsmlab.machine import Machine
from tsmlab.measuring import Executor, Measurement, RunRequest
from tsmlab.metrics import BUILT_IN, MetricSpec
from tsmlab.progress import NotesOnly, Reporter
from tsmlab.results import EARLY, Comparison, Outcome, Sample, Stop, ended
from tsmlab.schedule import TIME_BUDGET_SECONDS, StopRule
from tsmlab.stats import DEFAULT_MARGIN
from tsmlab.study import Study
from tsmlab.traces import replay_results
from tsmlab.traces.files import SUFFIX, Trace, read_whole_trace, trace_name
from tsmlab.traces.files import Program as Recorded
from tsmlab.traces.replay_results import line_of
from tsmlab.trial import Program

# The schedules that assign shares, which `all` means.
FAIR = ("round-robin", "lottery", "stride")
SCHEDULES = ("asap", "paced", "recorded", *FAIR)
# A deterministic replay runs twice, to verify that it is deterministic.
DETERMINISTIC_ROUNDS = 2
SAMPLES = 200
SETTLE_SECONDS = 0.1

SETTLED = "settled_memory_bytes"
AT_PEAK = "fragmentation_at_peak"
OVER_TIME = "fragmentation_over_time"
METRICS = (
    MetricSpec(SETTLED, "settled memory", "bytes", judged=False),
    MetricSpec(AT_PEAK, "fragmentation at the peak", "number", judged=False),
    MetricSpec(OVER_TIME, "fragmentation over time", "number", judged=False),
)
# Warnings of a comparison that do not apply to replays: their time does not include starting a
# process, and what is the same in every run needs no more rounds. Most of the time goes into
# switching threads, which is not worth comparing.
_NOT_OF_REPLAYS = frozenset({"short-runs", "few-calls", "several-processes"})
_NOT_OF_DETERMINISTIC_ONES = frozenset({"few-rounds", "noise-floor", "first-round", "drift"})


@dataclass(frozen=True)
class Options:
    """The options of a replay; the allocators include the reference. rounds: None for as many as
    the verdicts need, or two under a deterministic schedule."""

    traces: tuple[Path, ...]
    allocators: tuple[Allocator, ...]
    reference: Allocator
    schedules: tuple[str, ...]
    seed: int
    rounds: int | None = None
    time_budget_seconds: float = TIME_BUDGET_SECONDS
    timeout_seconds: float | None = None
    margin: float = DEFAULT_MARGIN
    cpus: tuple[int, ...] | None = None
    tickets: str | None = None
    quantum: int | None = None
    touch: str = "page"
    verify: bool = False
    latency: bool = False
    settle_seconds: float = SETTLE_SECONDS
    image: int | None = None
    window: int | None = None

    def rule(self, schedule: str) -> StopRule:
        if self.rounds is None and not replay_results.is_deterministic(schedule):
            return StopRule(time_budget_seconds=self.time_budget_seconds)
        return StopRule(runs=self.rounds or DETERMINISTIC_ROUNDS)


class ReplayExecutor:
    """Replaces a replay's measurement by its own figures; leaves other programs alone.

    Time is from the first call to the last, memory what was resident for the allocator.
    """

    def __init__(self, executor: Executor, program: Path) -> None:
        self._executor = executor
        self._program = str(program)

    def run(self, request: RunRequest) -> Measurement:
        measurement = self._executor.run(request)
        if request.command[0] != self._program or measurement.failed or request.stdout is None:
            return measurement
        line = replay_results.decode(
            request.stdout.read_text(encoding="utf-8", errors="surrogateescape")
        )
        own = {
            SETTLED: line.settled_resident_bytes,
            AT_PEAK: line.at_peak,
            OVER_TIME: line.over_time,
        }
        return replace(
            measurement,
            wall_ns=line.raw["wall_ns"],
            peak_rss_bytes=line.peak_resident_bytes or measurement.peak_rss_bytes,
            series=(),
            extra={key: float(value) for key, value in own.items() if value is not None},
            raw={"process": measurement.raw, "replay": dict(line.raw)},
        )


ReplayOutcome = tuple[replay_results.Replayed, Comparison, UserError | None]
ReadTrace = Callable[[Path], Trace]


@dataclass(frozen=True)
class Subject:
    """A trace to replay. name: its own, or its path if several have the same. others: programs of
    the trace that are not replayed, the busiest first."""

    name: str
    trace: Trace
    program: Recorded
    others: tuple[Recorded, ...]


def subjects(options: Options, read_trace: ReadTrace) -> Iterator[Subject]:
    """Checks one after the other; raises UserError for the first that cannot be replayed."""
    names = [trace_name(path) for path in options.traces]
    for path, name in zip(options.traces, names, strict=True):
        trace = read_trace(path)
        chosen = trace.chosen(options.image)
        family = trace.family(chosen.number)
        others = [image.as_program for image in trace.images if image.number not in family]
        yield Subject(
            name if names.count(name) == 1 else str(path),
            trace,
            chosen.as_program,
            tuple(sorted(others, key=lambda other: -other.events)),
        )


def replay(
    options: Options,
    executor: Executor,
    reporter: Reporter,
    program: Path,
    memo: Memo,
    read_trace: ReadTrace = read_whole_trace,
    fleet: Fleet | None = None,
) -> Outcome[Study]:
    """Runs all replays. Raises UserError and KeyboardInterrupt only if nothing has been
    measured."""
    created = memo.once("created", str, records.now)
    described = memo.once("machine", Machine, machine.describe)

    def parts() -> Iterator[tuple[Subject, str, Memo]]:
        for number, subject in enumerate(subjects(options, read_trace), start=1):
            for schedule in options.schedules:
                yield subject, schedule, Part(memo, f"{number}. {subject.name}, {schedule}")

    def replayed(reporter: Reporter, subject: Subject, schedule: str, memo: Memo) -> ReplayOutcome:
        reporter.note(f"replay     {subject.name}, {schedule}")
        try:
            outcome = compare.compare(
                _comparison_options(options, schedule, subject, program),
                ReplayExecutor(executor, program),
                reporter,
                memo,
                fleet,
            )
        except compare.ReferenceFailedError as error:
            if error.kind != "exit":
                raise
            remedy = "Fix what replay reports, or choose another --reference."
            raise UserError(error.message, remedy) from error
        return *_finished(subject, schedule, outcome.results), outcome.error

    def results(stop: Stop | None = None) -> Study:
        parts_made = [comparison for _, comparison in done]
        answer = replay_results.Replays(
            _settings(options), options.reference.name, [each for each, _ in done]
        )
        return Study.of("replay", parts_made, created, described, stop, replay=answer)

    done: list[tuple[replay_results.Replayed, Comparison]] = []
    made = (
        starmap(partial(replayed, reporter), parts())
        if fleet is None
        else _side_by_side(fleet, partial(replayed, NotesOnly(reporter)), parts())
    )
    try:
        for each, comparison, error in made:
            done.append((each, comparison))
            if error is not None or comparison.interrupted:
                return Outcome(results(), error)
    except EARLY as problem:
        if not done:
            raise
        return ended(problem, results)
    return Outcome(results())


def _side_by_side(
    fleet: Fleet, replayed: Callable[..., ReplayOutcome], parts: Iterable[tuple[Subject, str, Memo]]
) -> Iterator[ReplayOutcome]:
    """Runs as many at once as the fleet makes rounds; reports in the order of the parts."""
    with ThreadPoolExecutor(fleet.size) as pool:
        try:
            begun = [pool.submit(replayed, *part) for part in parts]
            for future in begun:
                yield future.result()
        except BaseException:
            fleet.stop()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def command_of(options: Options, schedule: str, trace: Path, program: Path) -> tuple[str, ...]:
    """The command line of replay; each schedule gets the options that concern it."""
    words = [str(program), "--schedule", schedule, "--touch", options.touch]
    words += ["--samples", str(SAMPLES), "--settle", f"{options.settle_seconds:g}"]
    if schedule in FAIR and options.quantum is not None:
        words += ["--quantum", str(options.quantum)]
    if schedule in ("lottery", "stride") and options.tickets is not None:
        words += ["--tickets", options.tickets]
    if schedule == "lottery":
        words += ["--seed", str(options.seed)]
    words += ["--verify"] if options.verify else []
    words += ["--latency"] if options.latency else []
    words += [] if options.image is None else ["--image", str(options.image)]
    words += [] if options.window is None else ["--window", str(options.window)]
    return (*words, str(trace.absolute()))


def _comparison_options(
    options: Options, schedule: str, subject: Subject, program: Path
) -> compare.Options:
    is_deterministic = replay_results.is_deterministic(schedule)
    own_unfit = _NOT_OF_DETERMINISTIC_ONES if is_deterministic else frozenset()
    return compare.Options(
        program=Program(
            command=command_of(options, schedule, subject.trace.path, program),
            stdin=Path("/dev/null"),
        ),
        allocators=options.allocators,
        reference=options.reference,
        seed=options.seed,
        rule=options.rule(schedule),
        warmup_rounds=0 if is_deterministic else compare.WARMUP_ROUNDS,
        timeout_seconds=options.timeout_seconds,
        margin=options.margin,
        check_output=False,  # output includes addresses and times
        consult_doctor=False,
        cpus=options.cpus,
        base_metrics=(*BUILT_IN, *METRICS),
        # The position of the stack may decide where an allocator puts its memory.
        vary_layout=not is_deterministic,
        unfit_warnings=_NOT_OF_REPLAYS | own_unfit,
    )


def _finished(
    subject: Subject, schedule: str, comparison: Comparison
) -> tuple[replay_results.Replayed, Comparison]:
    # The command without the folder of the trace.
    command = [*comparison.command[:-1], f"{trace_name(subject.trace.path)}{SUFFIX}"]
    comparison = replace(comparison, name=f"{subject.name}, {schedule}", command=command)
    lines = [line for sample in comparison.samples if (line := line_of(sample)) is not None]
    first = lines[0]  # from the reference's trial, which must succeed
    found = replay_results.Replayed(
        trace=_trace_info(subject, first),
        schedule=schedule,
        findings=[
            _finding(info.name, schedule, comparison.samples) for info in comparison.allocators
        ],
        ticks=first.ticks,
        shares=first.shares,
    )
    return found, comparison


def _latencies(lines: Sequence[replay_results.ReplayLine]) -> list[replay_results.Latency]:
    """By kind of call; none if not measured."""
    kinds: dict[str, list[Any]] = {}
    for line in lines:
        for kind, calls in (line.raw["latency"] or {}).items():
            if calls["calls"]:
                kinds.setdefault(kind, []).append(calls)
    return list(starmap(replay_results.Latency.of, kinds.items()))


def _finding(allocator: str, schedule: str, samples: Sequence[Sample]) -> replay_results.Finding:
    own = [(s.phase, line_of(s)) for s in samples if s.allocator == allocator]
    all_lines = [line for _, line in own if line is not None]
    lines = [line for phase, line in own if line is not None and phase == "measured"]
    can_tell = replay_results.is_deterministic(schedule) and len(all_lines) > 1
    return replay_results.Finding(
        allocator=allocator,
        runs=len(lines),
        peak_bytes=_whole(_median(line.peak_resident_bytes for line in lines)),
        end_bytes=_whole(_median(line.end_resident_bytes for line in lines)),
        settled_bytes=_whole(_median(line.settled_resident_bytes for line in lines)),
        at_peak=_median(line.at_peak for line in lines),
        over_time=_median(line.over_time for line in lines),
        same_addresses=_all_equal([line.checksum for line in all_lines]) if can_tell else None,
        same_memory=_all_equal([line.raw["samples"] for line in all_lines]) if can_tell else None,
        latencies=_latencies(lines),
    )


def _all_equal(values: Sequence[object]) -> bool:
    return all(value == values[0] for value in values)


def _median(values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return stats.median(known) if known else None


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _trace_info(subject: Subject, line: replay_results.ReplayLine) -> replay_results.TraceInfo:
    return replay_results.TraceInfo(
        name=subject.name,
        sha256=file_sha256(subject.trace.path),
        bytes=subject.trace.bytes,
        program=subject.program,
        others=list(subject.others),
        events=line.events,
        threads=line.threads,
        processes=line.processes,
        calls=line.calls,
        peak_live_bytes=line.planned_peak_bytes,
        left_out=line.left_out,
        is_finished=subject.trace.is_finished,
    )


def _settings(options: Options) -> replay_results.ReplaySettings:
    names = [field.name for field in fields(replay_results.ReplaySettings)]
    same = {name: getattr(options, name) for name in names}
    return replay_results.ReplaySettings(**same | {"schedules": list(options.schedules)})
