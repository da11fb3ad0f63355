"""The flow: a trial of the reference, then rounds of server runs or a soak, then the analysis."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np

from tsmlab import records, series, warnings
from tsmlab.allocators import Allocator
from tsmlab.analysis import Question, analyse, comparison_of, count_unresolved
from tsmlab.errors import UserError
from tsmlab.fleet import Fleet, WorkerPool, machine_of
from tsmlab.gate import paired_rows
from tsmlab.journal import Memo, NullJournal, unmade
from tsmlab.metrics import PEAK_MEMORY
from tsmlab.progress import Reporter
from tsmlab.results import (
    EARLY,
    Analysis,
    Comparison,
    Failure,
    Outcome,
    ResultWarning,
    Sample,
    Stop,
    ended,
)
from tsmlab.schedule import Entry, Scheduler, Slot, StopRule, entries_for
from tsmlab.service import render, results
from tsmlab.service.growth import Points, growth_of
from tsmlab.service.loads import THROUGHPUT
from tsmlab.service.processes import TreeSnapshot, peak_resident_bytes_of
from tsmlab.service.results import CPU, END, IDLE, MEAN_MEMORY, READY, Setup
from tsmlab.service.server import Part, Phase, RunFailed, Server, Service
from tsmlab.study import Gate, GateRow, Study
from tsmlab.trial import extra_environment_bytes, padding
from tsmlab.wording import names, quantity, share

# A load that takes this many times as long as the reference's first one is considered hung.
TIMEOUT_FACTOR = 20.0
MIN_TIMEOUT_SECONDS = 60.0
SERIES_POINTS = 600
SLICE_POINTS = 20
SATURATED = 0.9
WATCHING_LIMIT = 0.01
ERRORS_LIMIT = 0.001


@dataclass(frozen=True)
class Options:
    """soak_seconds: of load on each allocator, one after the other, instead of rounds. limits: for
    each metric, how much worse than the reference it may be."""

    service: Service
    allocators: tuple[Allocator, ...]
    reference: Allocator
    seed: int
    rule: StopRule = field(default_factory=StopRule)
    margin: float = 0.01
    soak_seconds: float | None = None
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerRun:
    """The measurements of one server. series: seconds, resident bytes, processes. malloc: the
    library that provided it. killed: processes that SIGTERM did not end. is_crowded: the load had
    to use its processors."""

    ready_seconds: float
    ready: TreeSnapshot
    parts: list[Part]
    series: list[list[float]]
    peak_bytes: int | None
    watching_seconds: float
    malloc: str | None
    killed: int
    is_crowded: bool = False

    @property
    def loaded(self) -> list[Part]:
        return [part for part in self.parts if part.phase.is_load]


def server_run(
    server: Server,
    ready: TreeSnapshot,
    parts: list[Part],
    begin: int = 0,
    points: int = SERIES_POINTS,
) -> ServerRun:
    return ServerRun(
        round(server.ready_seconds, 3),
        ready,
        parts,
        thinned(server.watcher.series[begin:], points),
        peak_resident_bytes_of(server.tree()),
        round(server.watcher.seconds, 4),
        server.malloc,
        server.killed,
        bool({*server.service.server_cpus} & {*server.service.load_cpus}),
    )


def thinned(points: Sequence[Sequence[float]], max_points: int) -> list[list[float]]:
    """At most this many of them, including the peaks."""
    return [list(point) for point in series.thinned(points, max_points - 2)]  # adds the two ends


# --- from server runs to numbers ------------------------------------------------------------------


def memory_of(run: ServerRun) -> Points:
    """The series with shared memory counted once. At the borders of phases the kernel's PSS tells
    how much a process shares; in between, this changes evenly, whatever memory of its own grows."""
    snapshots = [run.ready, *(each for part in run.parts for each in (part.before, part.after))]
    times = [each.at_seconds for each in snapshots]
    shared = [each.shared_bytes for each in snapshots]
    found = []
    for t, size, *rest in run.series:
        count = rest[0] if rest else run.ready.processes  # results of before 2026-12-01
        found.append((t, max(0.0, size - count * float(np.interp(t, times, shared)))))
    return found


def memory_under_load(run: ServerRun) -> Points:
    loaded = run.loaded
    if not loaded:
        return []
    begin, end = loaded[0].before.at_seconds, loaded[-1].after.at_seconds
    return [p for p in memory_of(run) if begin <= p[0] <= end]


def values_of(runs: Sequence[ServerRun]) -> dict[str, float]:
    """All quantities of the server runs of one sample. The first load phase has the plain names;
    keys of later ones begin with the phase."""
    values: dict[str, float] = {}
    parts = [part for run in runs for part in run.loaded]
    phases = list(dict.fromkeys(part.phase.name for part in parts))
    for phase in phases:
        found = load_values([part for part in parts if part.phase.name == phase])
        values |= found if phase == phases[0] else {f"{phase}: {k}": v for k, v in found.items()}
    memory = [memory_of(run) for run in runs]
    loaded = [size for run in runs for _, size in memory_under_load(run)]
    last = runs[-1]
    snapshots = [each for run in runs for part in run.parts for each in (part.before, part.after)]
    values[READY] = float(runs[0].ready.pss_bytes)
    values["ready_seconds"] = runs[0].ready_seconds
    peaks = [size for points in memory for _, size in points]
    peaks += [each.pss_bytes for each in snapshots]
    ends = [(run.peak_bytes, run.parts[-1].after) for run in runs if run.parts]
    peaks += [most - end.shared_bytes for most, end in ends if most]  # of one process
    values[PEAK_MEMORY] = float(max(peaks))
    values[MEAN_MEMORY] = float(np.mean(loaded)) if loaded else values[READY]
    if last.loaded:
        values[END] = float(last.loaded[-1].after.pss_bytes)
    if last.parts and not last.parts[-1].phase.is_load:
        values[IDLE] = float(last.parts[-1].after.pss_bytes)
    sums = {"user_seconds": "user_seconds", "system_seconds": "system_seconds"}
    sums |= {"page_faults": "faults", "switches": "switches"}
    for key, name in sums.items():
        spent = sum(getattr(part.after, name) - getattr(part.before, name) for part in parts)
        values[key] = max(0.0, float(spent))
    values["threads"] = float(max(each.threads for each in snapshots))
    return values


def load_values(parts: Sequence[Part]) -> dict[str, float]:
    """For loads of one phase; for several (a soak), requests over time, and the median
    percentiles."""
    seconds = sum(part.seconds for part in parts)
    requests = sum(part.requests or 0.0 for part in parts)
    cpu = sum(part.cpu_seconds for part in parts)
    loads = [part.load.values() if part.load else {} for part in parts]
    loads = [found | part.custom for found, part in zip(loads, parts, strict=True)]
    values = {}
    for key in loads[0]:
        samples = [found[key] for found in loads if key in found]
        values[key] = float(max(samples) if key == "max_seconds" else np.median(samples))
    if len(parts) > 1 and requests:
        values[THROUGHPUT] = requests / seconds
    if cpu > 0.0:
        values[CPU] = cpu / requests if requests else cpu
    return values


# --- runs -----------------------------------------------------------------------------------------


@dataclass
class Trial:
    """Makes runs, each once; soaks, if soak_seconds is set. partial: unfinished soaks. Also a
    fleet.Trial."""

    service: Service
    largest_extra_bytes: int
    memo: Memo
    soak_seconds: float | None = None
    partial: dict[str, Sample] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._start = self.memo.clock()

    def packed(self) -> Self:
        return replace(self, memo=NullJournal())

    def unpacked(self, _folder: Path) -> Self:
        return replace(self, service=self.service.on(os.sched_getaffinity(0)))

    def run(self, slot: Slot) -> Sample:
        if self.soak_seconds is not None and slot.phase == "measured":
            return self._soak(slot, self.soak_seconds)
        return self.memo.once(slot.key, Sample, lambda: self._run(slot))

    def _server(self, slot: Slot) -> Server:
        allocator = slot.entry.allocator
        env = padding(slot, allocator, self.largest_extra_bytes)
        return Server(self.service, allocator, env)

    def _begin(self, server: Server, warmups: int) -> TreeSnapshot:
        server.wait_until_ready()
        ready = server.snapshot()
        for _ in range(warmups):
            server.load(self.first_load, warmup=True)
        return ready

    @property
    def first_load(self) -> Phase:
        return next(phase for phase in self.service.phases if phase.is_load)

    def _run(self, slot: Slot) -> Sample:
        """A whole server run. The reference's first trial only checks that it works, so it is
        short."""
        is_probe = slot.phase == "probe"
        started = self.memo.clock() - self._start
        runs: list[ServerRun] = []
        failure = None
        try:
            with self._server(slot) as server:
                ready = self._begin(server, 0 if is_probe else self.service.warmups)
                parts = []
                for phase in self.service.phases:
                    if phase.is_load:
                        parts.append(server.load(phase))
                    elif not is_probe:
                        parts.append(server.idle(phase))
                run = server_run(server, ready, parts)
                server.stop()
                runs = [replace(run, killed=server.killed)]
        except RunFailed as broken:
            failure = broken.failure
        return _sample(slot, started, runs, failure)

    def _soak(self, slot: Slot, soak_seconds: float) -> Sample:
        """Load after load on one server, each saved in the journal as it ends. An interrupted soak
        continues with a new server, for the remaining time."""
        name = slot.entry.allocator.name
        idle = [phase for phase in self.service.phases if not phase.is_load]
        sessions: list[list[ServerRun]] = []

        def key() -> str:
            return f"soak of {name}, session {len(sessions)}, {len(sessions[-1]) + 1}"

        def slice_of(make: Callable[[], ServerRun]) -> None:
            sessions[-1].append(self.memo.once(key(), ServerRun, make))

        def left() -> float:
            return soak_seconds - sum(p.seconds for s in sessions for run in s for p in run.loaded)

        while True:
            sessions.append([])
            while self.memo.knows(key()):
                slice_of(unmade)
            if not sessions[-1]:
                break
        failure = None
        before = [each for session in sessions for each in session]
        if left() > 0.0 or (idle and before[-1].loaded):
            try:
                with self._server(slot) as server:
                    ready = self._begin(server, self.service.warmups)

                    def measure(phase: Phase) -> ServerRun:
                        begin = len(server.watcher.series)
                        part = server.load(phase) if phase.is_load else server.idle(phase)
                        return server_run(server, ready, [part], begin, SLICE_POINTS)

                    while left() > 0.0:
                        slice_of(lambda: measure(self.first_load))
                        self.partial[name] = _soaked(slot, sessions, None)
                    for phase in idle:
                        slice_of(lambda phase=phase: measure(phase))  # type: ignore[misc]
                    server.stop()
            except RunFailed as broken:
                failure = broken.failure
        self.partial.pop(name, None)
        return _soaked(slot, sessions, failure)


def _soaked(slot: Slot, sessions: Sequence[Sequence[ServerRun]], failure: Failure | None) -> Sample:
    """Merges each session into one server run."""
    runs = [
        replace(
            session[-1],
            parts=[part for each in session for part in each.parts],
            series=[point for each in session for point in each.series],
            peak_bytes=max((each.peak_bytes or 0 for each in session), default=0) or None,
        )
        for session in sessions
        if session
    ]
    return _sample(slot, 0.0, runs, failure)


def _sample(slot: Slot, started: float, runs: list[ServerRun], failure: Failure | None) -> Sample:
    # Values of an aborted run are not measurements, but its series may show why.
    values = values_of(runs) if runs and not failure else {}
    return slot.sample(started, values, failure, {"lives": [asdict(run) for run in runs]})


def server_runs_of(sample: Sample) -> list[ServerRun]:
    return [records.restore(ServerRun, each) for each in sample.measurement.get("lives", [])]


# --- the study ------------------------------------------------------------------------------------


def study(
    options: Options, reporter: Reporter, memo: Memo, fleet: Fleet | None = None
) -> Outcome[Study]:
    """Measures; on the fleet, whose machines are of one kind, if there is one. Raises UserError
    only if nothing has been measured yet."""
    service = options.service
    if fleet is None:
        options = replace(options, service=service.on(os.sched_getaffinity(0)))
    elif service.port and len(fleet.cpus) > len(fleet.hosts):
        raise UserError(
            f"several workers on one machine would use port {service.port} at the same time.",
            "Start one worker on each machine, or let the server take {port}.",
        )
    return _Session(options, reporter, memo, fleet).run()


@dataclass
class _Session:
    options: Options
    reporter: Reporter
    memo: Memo
    fleet: Fleet | None

    def __post_init__(self) -> None:
        options = self.options
        soak = options.soak_seconds is not None
        self._created = self.memo.once("created", str, records.now)
        self._machine = machine_of(self.fleet, self.memo)
        largest = max(map(extra_environment_bytes, options.allocators))
        self._trial = Trial(options.service, largest, self.memo, options.soak_seconds)
        self._rule = StopRule(runs=1) if soak else options.rule
        self._provisional_printed = False
        self._scheduler = Scheduler(
            entries=entries_for(options.allocators, None if soak else options.reference),
            reference=options.reference.name,
            seed=options.seed,
            run_one=self._trial.run,
            judge=self._after_round,
            unresolved=self._unresolved,
            memo=self.memo,
            observer=self.reporter,
            vary_layout=not soak,
            worker_pool=WorkerPool(self.fleet, self._trial, self.memo) if self.fleet else None,
        )

    def run(self) -> Outcome[Study]:
        self._probe = self._try_reference()
        judged = [spec.name for spec in self._question.metrics if spec.judged]
        if unknown := self.options.limits.keys() - judged:
            raise UserError(
                f"--limit: unknown metric {', '.join(sorted(unknown))}.",
                f"Metrics: {', '.join(judged)}.",
            )
        scheduler = self._scheduler
        self.reporter.expect(self._rule.rounds_that_fit(self._round_seconds()))
        try:
            stop = scheduler.measure(self._rule)
        except EARLY as problem:
            samples = [*scheduler.samples, *self._trial.partial.values()]
            if isinstance(problem, UserError) and not samples:
                raise
            return ended(problem, lambda stop: self._conclude(samples, stop))
        if (soaked := self.options.soak_seconds) is not None:
            stop = Stop("runs", f"soaked for {quantity(soaked, 'seconds')} each")
        return Outcome(self._conclude(scheduler.samples, stop))

    def _unresolved(self, samples: Sequence[Sample]) -> int:
        analysis = analyse(samples, self._question)
        rows = self._gate_rows(analysis)
        return count_unresolved(analysis) + sum(row.verdict == "unresolved" for row in rows)

    def _gate_rows(self, analysis: Analysis) -> list[GateRow]:
        """The rows of all allocators except the reference, by the limits."""
        named, reference = self.options.limits, self.options.reference.name
        limited = [spec for spec in self._question.metrics if spec.name in named]
        limits = {spec.key: named[spec.name] for spec in limited}
        rivals = [each.name for each in self.options.allocators if each.name != reference]
        count = len(limits) * len(rivals)
        return [
            replace(row, name=f"{rival}: {row.name}")
            for rival in rivals
            for row in paired_rows(analysis, rival, reference, limited, limits, count)
        ]

    def _try_reference(self) -> Sample:
        """One short run, which must succeed; it also measures how long a load takes."""
        reference = self.options.reference
        self.reporter.round_started("probe", 1, 1)
        (probe,) = self._scheduler.made([Slot(Entry(reference), "probe", 0, 1, 0)])
        if failure := probe.failure:
            output = f"\n{failure.stderr_tail}" if failure.stderr_tail else ""
            raise UserError(
                f"the service fails under the reference {reference.name}: {failure.text}{output}",
                REMEDIES.get(failure.kind, REMEDIES["exit"]),
            )
        (run,) = server_runs_of(probe)
        service = self.options.service
        if service.load_seconds is None and self._trial.first_load.seconds is None:
            longest = max(part.seconds for part in run.loaded)
            limit = max(MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR * longest)
            self._trial.service = replace(service, load_seconds=limit)
        part = run.loaded[0]
        rate = ""
        if load := part.load:
            per_second = quantity(load.throughput, "count")
            rate = f", {per_second} requests/s ({load.tool}, {load.loop} loop)"
        self.reporter.note(
            f"trial      {reference.name}: ready after {quantity(run.ready_seconds, 'seconds')}, "
            f"load {quantity(part.seconds, 'seconds')}{rate}"
        )
        return probe

    def _round_seconds(self) -> float:
        (run,) = server_runs_of(self._probe)
        loads = sum(part.seconds for part in run.loaded)
        service = self.options.service
        idle = sum(phase.seconds or 0.0 for phase in service.phases if not phase.is_load)
        one = run.ready_seconds + loads + service.warmups * run.loaded[0].seconds + idle
        return one * (len(self.options.allocators) + 1)

    def _after_round(self, samples: list[Sample]) -> list[Sample]:
        """Early numbers: shows the first round when it is done."""
        if not self._provisional_printed and self._rule.runs != 1:
            self._provisional_printed = True
            found = self._conclude(samples, Stop("runs", "the first round"))
            self.reporter.note(render.provisional(found.comparison))
        return samples

    @property
    def _question(self) -> Question:
        options = self.options
        (run,) = server_runs_of(self._probe)
        idles = any(not phase.is_load for phase in options.service.phases)
        keys = [*self._probe.values, *([IDLE] if idles else [])]
        specs = results.specs_of(keys, options.service.metrics, run.loaded[0].units)
        names_ = tuple(allocator.name for allocator in options.allocators)
        return Question(names_, options.reference.name, tuple(specs), options.margin, options.seed)

    def _conclude(self, run_samples: Sequence[Sample], stop: Stop) -> Study:
        options = self.options
        service = self._trial.service
        samples = [self._probe, *run_samples]
        (run,) = server_runs_of(self._probe)
        load = run.loaded[0].load
        comparison = comparison_of(
            self._question,
            samples,
            options.allocators,
            created=self._created,
            command=shlex.split(service.server),
            settings=options.rule.settings(
                seed=options.seed,
                timeout_seconds=service.load_seconds,
                timeout_chosen_by="lab" if options.service.load_seconds is None else "user",
                margin=options.margin,
                setup=service.reset,
                metric_patterns=[metric.pattern for metric in service.metrics],
            ),
            machine=self._machine,
            stop=stop,
            output_comparable=None,
            intercepted_calls=None,
        )
        answer = results.ServiceResult(
            setup=_setup(options),
            tool=load.tool if load else "",
            loop=load.loop if load else "",
            malloc_of_reference=run.malloc or "",
            growth=_growth(samples, options),
        )
        comparison = replace(comparison, warnings=list(warnings_of(comparison, answer)))
        rows = self._gate_rows(comparison.analysis)
        gate = Gate(comparison.command, comparison.command, None, False, rows) if rows else None
        return Study.of("service", [comparison], service=answer, gate=gate)


REMEDIES = {
    "exit": "Run the server on its own first: it must work without tsmalloc.",
    "start": "Check the program's name, and that nothing else uses the port.",
    "timeout": "Say how to detect that it is ready: --ready 'COMMAND' or --ready 'line:REGEX'; "
    "or give more time with --ready-within or --timeout.",
    "preload": "Start the server program directly, without a wrapper.",
    "load": "Try the load on its own while the server runs.",
    "metric": "Use a known tool, or describe where a number is: --metric NAME=REGEX.",
}


def _growth(samples: Sequence[Sample], options: Options) -> list[results.Growth]:
    found = []
    for allocator in options.allocators:
        runs = [
            memory_under_load(run)
            for sample in samples
            if sample.allocator == allocator.name and sample.phase == "measured"
            for run in server_runs_of(sample)
        ]
        if growth := growth_of(allocator.name, runs, options.margin):
            found.append(growth)
    return found


def _setup(options: Options) -> Setup:
    service = options.service
    same = ("server", "load", "ready", "reset", "warmups", "ready_seconds", "grace_seconds")
    return Setup(
        phases=[
            each.name
            + (f"={each.seconds:g}s" if each.seconds else "")
            + (f"@{each.rate}" if each.rate else "")
            for each in service.phases
        ],
        soak_seconds=options.soak_seconds,
        server_cpus=list(service.server_cpus),
        load_cpus=list(service.load_cpus),
        **{name: getattr(service, name) for name in same},
    )


# --- warnings -------------------------------------------------------------------------------------


def warnings_of(found: Comparison, served: results.ServiceResult) -> Iterator[ResultWarning]:
    ours = [(s.allocator, run) for s in found.samples for run in server_runs_of(s)]
    parts = [part for _, run in ours for part in run.loaded]
    own = served.malloc_of_reference
    is_libc = re.search(r"^$|/libc(\.so|-2)", own)
    if found.allocator(found.reference).path is None and not is_libc:
        yield ResultWarning(
            "own-malloc",
            f"without a preload, the server uses the malloc of {own}, not glibc's",
            "it is linked with that allocator, so that is what the reference's row measures",
            "for glibc itself: --allocator libc=/lib/x86_64-linux-gnu/libc.so.6 --reference libc",
        )
    if served.loop == "closed":
        yield ResultWarning(
            "closed-loop",
            f"{served.tool} runs a closed loop: it waits for an answer before the next request, "
            "so it sends less while the server stalls, and percentiles look too good",
            "coordinated omission",
            "trust throughput and CPU per request; for percentiles use a fixed rate "
            "(wrk2 -R, oha -q, vegeta -rate, pgbench -R)",
        )
    busy = float(np.median([part.load_share for part in parts])) if parts else 0.0
    if busy > SATURATED:
        yield ResultWarning(
            "load-saturated",
            f"the load generator used {share(busy)} of its processors",
            "it may be the bottleneck, in which case all allocators look alike",
            "give it more threads or processors (--load-cpus), or a lower rate",
        )
    failed = sum(part.load.errors for part in parts if part.load)
    asked = sum(part.requests or 0.0 for part in parts)
    if asked and failed / asked > ERRORS_LIMIT:
        yield ResultWarning(
            "failed-requests",
            f"{share(failed / asked)} of the requests failed",
            "the server refuses some, or the load requests something that does not exist",
            "check the load's output",
        )
    if unkillable := sorted({name for name, run in ours if run.killed}):
        yield ResultWarning(
            "killed",
            f"the server did not exit on SIGTERM and was killed: {names(unkillable)}",
            "it ignores the signal, or takes longer than --grace",
            "give it more time (--grace) if its shutdown matters; the measurements are not "
            "affected",
        )
    watching = [
        run.watching_seconds * load / run.parts[-1].after.at_seconds / cpu
        for _, run in ours
        if (load := sum(part.seconds for part in run.loaded))
        and (cpu := sum(part.cpu_seconds for part in run.loaded))
    ]
    if watching and float(np.median(watching)) > WATCHING_LIMIT:
        yield ResultWarning(
            "watching-cost",
            f"watching took {share(float(np.median(watching)))} of the server's processor time",
            "the server does little work, or has many processes",
            "a longer or heavier load reduces it",
        )
    if any(run.is_crowded for _, run in ours):
        yield ResultWarning(
            "shared-processors",
            "the load and the server share processors",
            "there are fewer than four, or --server-cpus and --load-cpus overlap",
            "use a machine with more, or processors that do not overlap",
        )
    yield from warnings.about_machine(found.machine)
