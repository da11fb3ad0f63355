"""The data model of experiments: what one asks, what was measured, and what that says.

Why: an experiment is written as a file, run under many allocators, interrupted, resumed, analysed
and reported, by parts that know nothing of each other. This is all that they share.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tsmlab import records
from tsmlab.errors import UserError
from tsmlab.machine import Machine
from tsmlab.results import AllocatorInfo, Failure, Stop, Stopped

SCHEMA = "tsmalloc-experiments/2"

MetricUnit = Literal["seconds", "bytes", "count", "number"]
MetricSource = Literal["run", "causes"]
AnalysisKind = Literal["pair", "winner", "amdahl", "growth", "order", "bound"]
PlotKind = Literal["lines", "bars"]
# Where a median's interval comes from: order statistics (exact, from six runs on), Student's on the
# logarithms of fewer, or there is none.
IntervalMethod = Literal["order", "student", "none"]
CausesAt = Literal["all", "ends", "none"]

# Always measured, whatever the program prints; a file may name them in analyses and plots.
WALL_SECONDS = "wall_seconds"
PEAK_BYTES = "peak_bytes"
USER_SECONDS = "user_seconds"
SYSTEM_SECONDS = "system_seconds"
PAGE_FAULTS = "page_faults"
# The peak as a multiple of LIVE_BYTES, where the program prints that: the most bytes that it had
# requested and not yet freed at one time.
PEAK_OVER_LIVE = "peak_over_live"
LIVE_BYTES = "live_bytes"

# A point of the sweep: a value for each parameter, by its name; {} where nothing is swept.
Point = dict[str, Any]


# --- the question ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """A parameter of the sweep. The experiment runs at every combination of its parameters' values,
    which are numbers or strings, and replace `{name}` in the arguments."""

    name: str
    title: str
    values: list[Any]


@dataclass(frozen=True)
class Metric:
    """A number that the program prints in a line `name: NUMBER`, or one of the built-in ones.

    source: "run" if it is taken from every timed run; "causes" if it is one of the counts of
    untimed runs (Causes.counts), of which there is one value for each cell.
    optional: a run in which the program does not print it has not failed.
    """

    name: str
    title: str
    unit: MetricUnit
    higher_is_better: bool
    source: MetricSource = "run"
    optional: bool = False


BUILT_IN = (
    Metric(WALL_SECONDS, "wall time", "seconds", higher_is_better=False),
    Metric(PEAK_BYTES, "peak memory", "bytes", higher_is_better=False),
    Metric(USER_SECONDS, "user time", "seconds", higher_is_better=False),
    Metric(SYSTEM_SECONDS, "system time", "seconds", higher_is_better=False),
    Metric(PAGE_FAULTS, "page faults", "count", higher_is_better=False),
    Metric(PEAK_OVER_LIVE, "peak over live bytes", "number", higher_is_better=False),
)


@dataclass(frozen=True)
class AnalysisRequest:
    """One question to the numbers. docs/formats/experiment.md lists the kinds and their options.

    pair: is `first` better than `second`, paired by rounds, and why? winner: which is best at each
    point? amdahl: serial fraction over the parameter. growth: the exponent of metric ~ parameter^k.
    order: does the order of the allocators change over the points? bound: does metric stay below?
    """

    kind: AnalysisKind
    metric: str
    parameter: str | None
    options: dict[str, Any]


@dataclass(frozen=True)
class PlotRequest:
    """A figure: metric over the parameter x (lines), or a bar for each allocator at each point.

    panels: a parameter with a panel for each of its values, or None."""

    kind: PlotKind
    title: str
    metric: str
    x: str | None
    panels: str | None
    log_x: bool
    log_y: bool


@dataclass(frozen=True)
class Reported:
    """A table of a source report, as it was printed: on its machine, never mixed with ours."""

    report: str
    machine: str
    columns: list[str]
    rows: list[list[Any]]
    note: str


@dataclass(frozen=True)
class Definition:
    """An experiment, as its file says.

    program: a file name in build/release/bin, or a path, or a name that is looked for in PATH.
    allocators: the selectors (names, globs, groups) that it takes by default.
    rounds: how often each point is measured under each allocator, unless asked for otherwise.
    causes: at which points they are counted: at all, at the first and the last, or at none.
    run_seconds: about how long a run takes; for the estimate of the time alone.
    """

    name: str
    title: str
    question: str
    source: str
    answers: str
    program: str
    arguments: list[str]
    parameters: list[Parameter]
    metrics: list[Metric]
    allocators: list[str]
    rounds: int
    timeout_seconds: float
    analyses: list[AnalysisRequest]
    plots: list[PlotRequest]
    reported: list[Reported]
    file: str
    sha256: str
    causes: CausesAt = "all"
    run_seconds: float = 1.0

    def metric(self, name: str) -> Metric:
        """Its own of this name, or the built-in one."""
        return next(metric for metric in (*self.metrics, *BUILT_IN) if metric.name == name)

    @property
    def main_metric(self) -> Metric:
        """The one that tables show: its first."""
        return (*self.metrics, *BUILT_IN)[0]


# --- the measurements -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One timed run. `values` are by metric name; empty where it failed before any was known."""

    round: int
    position: int
    started_seconds: float
    values: dict[str, float]
    failure: Failure | None


@dataclass(frozen=True)
class Curve:
    """Memory over the time of one run: pairs of seconds since its start and bytes, in order.

    live is from another run, under the ledger, its times scaled to the length of this one."""

    resident: list[list[float]]
    live: list[list[float]]
    sampling_share: float


@dataclass(frozen=True)
class MapBlock:
    """Consecutive blocks of equal state and owner, in the order of addresses: how many, how large
    together. state: used, free, cached, or mixed (a slab of which `used_share` is in use)."""

    count: int
    bytes: int
    state: Literal["used", "free", "cached", "mixed"]
    owner: int
    used_share: float


@dataclass(frozen=True)
class MapChunk:
    """One contiguous piece of the heap."""

    address: int
    bytes: int
    blocks: list[MapBlock]


@dataclass(frozen=True)
class HeapMap:
    """The heap at one moment, which the program names. total_chunks: those left out included."""

    label: str
    chunks: list[MapChunk]
    total_chunks: int


@dataclass(frozen=True)
class Causes:
    """The counts of untimed runs.

    counts: by name, over the whole process tree; docs/formats/experiment.md lists the names.
    threads: the same for each thread, where that is known, in the order in which they began.
    notes: why something was not counted, in sentences.
    """

    counts: dict[str, float]
    threads: list[dict[str, float]]
    memory: Curve | None
    maps: list[HeapMap]
    notes: list[str]


@dataclass(frozen=True)
class Cell:
    """One allocator at one point: all its runs, the failed ones too. `point` is an index."""

    point: int
    allocator: str
    runs: list[Run]
    gave_up: bool
    causes: Causes | None

    def values(self, metric: str) -> dict[int, float]:
        """By round, of the runs that did not fail."""
        return {
            run.round: run.values[metric]
            for run in self.runs
            if run.failure is None and metric in run.values
        }


# --- what it says ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval; low and high are None where there is none."""

    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True)
class CellSummary:
    """One metric of one cell: median and, over `runs` of them, its interval and spread. A counted
    quantity has one run and no interval."""

    point: int
    allocator: str
    metric: str
    runs: int
    median: float
    low: float | None
    high: float | None
    minimum: float
    maximum: float
    method: IntervalMethod = "none"


@dataclass(frozen=True)
class FittedCurve:
    """A model beside the measured points: pairs (parameter, predicted metric), for plots."""

    allocator: str
    metric: str
    label: str
    points: list[list[float]]


@dataclass(frozen=True)
class Finding:
    """One answer of one analysis. verdict: a few words; text: the sentence with its figures."""

    kind: AnalysisKind
    metric: str
    allocators: list[str]
    verdict: str
    estimates: dict[str, Estimate]
    curves: list[FittedCurve]
    text: str


@dataclass(frozen=True)
class ExperimentAnalysis:
    """Everything computed from one experiment's cells."""

    summaries: list[CellSummary]
    findings: list[Finding]


@dataclass(frozen=True)
class Experiment:
    """One experiment with all that was measured; cells are by point, then by allocator."""

    definition: Definition
    points: list[Point]
    allocators: list[str]
    cells: list[Cell]
    analysis: ExperimentAnalysis | None

    def cell(self, point: int, allocator: str) -> Cell | None:
        return next((c for c in self.cells if (c.point, c.allocator) == (point, allocator)), None)


@dataclass(frozen=True)
class ExperimentResults(Stopped):
    """A run of one or more experiments, as it is saved."""

    schema: str
    created: str
    tsmalloc_version: str
    seed: int
    cpus: list[int] | None
    machine: Machine
    allocators: list[AllocatorInfo]
    stop: Stop
    changed: list[str]
    experiments: list[Experiment]

    @property
    def subject(self) -> str:
        return "experiment"


from_json = records.reader(ExperimentResults, SCHEMA, "experiment run")


def read(path: Path) -> ExperimentResults:
    """The results in a file."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(
            f"the results {path} cannot be read: {error.strerror}.",
            "`tsmalloc experiment run` prints the path of its results.",
        ) from error
    return from_json(text, str(path))
