"""An experiment as defined in its file: a sweep with a question. experiments.py reads the file;
docs/formats/experiment.md describes the fields.
"""

from dataclasses import dataclass
from typing import Any, Literal

from tsmlab.metrics import LIVE_BYTES, PEAK_OVER_LIVE, MetricSpec
from tsmlab.sweep import Parameter, Point

# pair: is `first` better than `second`? order: which is best, and does that change over the points?
# fit: does the metric follow a law of the parameter?
Kind = Literal["pair", "order", "fit"]
CausesAt = Literal["all", "ends", "none"]


@dataclass(frozen=True)
class AnalysisRequest:
    kind: Kind
    metric: str
    parameter: str | None
    at: Point
    allocators: list[str]
    options: dict[str, Any]


@dataclass(frozen=True)
class Reported:
    """A table as printed in a paper or report: from its own machine, never mixed with our
    numbers."""

    report: str
    machine: str
    columns: list[str]
    rows: list[list[Any]]
    note: str


@dataclass(frozen=True)
class Definition:
    name: str
    title: str
    question: str
    source: str
    answers: str
    program: str
    arguments: list[str]
    parameters: list[Parameter]
    metrics: list[MetricSpec]
    optional: list[str]
    allocators: list[str]
    rounds: int
    timeout_seconds: float
    run_seconds: float
    causes: CausesAt
    analyses: list[AnalysisRequest]
    reported: list[Reported]
    file: str
    sha256: str

    @property
    def printed(self) -> tuple[str, ...]:
        known = (*self.optional, PEAK_OVER_LIVE)
        return tuple(m.key for m in self.metrics if m.key not in known)

    @property
    def printed_perhaps(self) -> tuple[str, ...]:
        also = () if LIVE_BYTES in self.printed else (LIVE_BYTES,)
        return tuple(dict.fromkeys((*self.optional, *also)))
