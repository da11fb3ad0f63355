"""The measurements of `tsmalloc service`, and its answer besides the comparison: see
docs/formats/results.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from tsmlab.metrics import PEAK_MEMORY, CustomMetric, MetricSpec, Unit
from tsmlab.service.loads import MEAN, PERCENTILES, THROUGHPUT, key_of

CPU = "cpu_seconds"
READY, MEAN_MEMORY, END, IDLE = "ready_bytes", "mean_bytes", "end_bytes", "idle_bytes"
P50, P95, P99 = (key_of(name) for name in ("p50", "p95", "p99"))

GrowthTrend = Literal["growing", "level", "shrinking", "not clear"]

MEMORY = (
    MetricSpec(IDLE, "memory after idle", "bytes", judged=True),
    MetricSpec(PEAK_MEMORY, "memory at peak", "bytes", judged=True),
    MetricSpec(MEAN_MEMORY, "memory under load", "bytes", judged=True),
    MetricSpec(END, "memory after load", "bytes", judged=True),
    MetricSpec(READY, "memory at ready", "bytes", judged=True),
)
EXPLAINING = (
    MetricSpec("user_seconds", "user time", "seconds", judged=False),
    MetricSpec("system_seconds", "system time", "seconds", judged=False),
    MetricSpec("page_faults", "page faults", "count", judged=False),
    MetricSpec("switches", "context switches", "count", judged=False),
    MetricSpec("threads", "threads", "count", judged=False),
    MetricSpec("ready_seconds", "time to ready", "seconds", judged=False),
)
COST = MetricSpec(CPU, "CPU per request", "seconds", judged=True)


def specs_of(
    keys: Iterable[str], metrics: Iterable[CustomMetric], units: dict[str, Unit]
) -> list[MetricSpec]:
    """The metrics of runs with values for these keys. The first one ranks: the user's own,
    otherwise the 99th percentile, the mean, the requests a second. Keys of later load phases have
    its name before them: `burst: p99_seconds`."""
    known = set(keys)
    served = [
        *(MetricSpec(key_of(name), name, "seconds", judged=True) for name in PERCENTILES.values()),
        MetricSpec(MEAN, "mean", "seconds", judged=True),
        MetricSpec(THROUGHPUT, "requests/s", "count", judged=True, higher_is_better=True),
        COST,
    ]
    first = {P99: 0, P95: 1, P50: 2, MEAN: 3}
    served.sort(key=lambda spec: first.get(spec.key, 9))
    own = [metric.spec for metric in metrics]
    own = [replace(spec, unit=units.get(spec.key, spec.unit)) for spec in own]
    phases = dict.fromkeys(key.partition(": ")[0] for key in keys if ": " in key)
    later = [
        replace(s, key=f"{p}: {s.key}", name=f"{p}: {s.name}")
        for p in phases
        for s in (*own, *served)
    ]
    # Shown, but not judged, if a better percentile already is.
    load_metrics = {
        key_of("p90"),
        *([P95] if P99 in known else []),
        *([MEAN] if P50 in known else []),
    }
    return [
        replace(s, judged=s.judged and s.key.rpartition(": ")[2] not in load_metrics)
        for s in (*own, *served, *MEMORY, *later, *EXPLAINING)
        if s.key in known
    ]


@dataclass(frozen=True)
class Setup:
    server: str
    load: str
    ready: str | None
    reset: str | None
    phases: list[str]
    warmups: int
    soak_seconds: float | None
    server_cpus: list[int]
    load_cpus: list[int]
    ready_seconds: float
    grace_seconds: float


@dataclass(frozen=True)
class Growth:
    allocator: str
    bytes_per_hour: float
    low: float
    high: float
    hours: float
    standing: GrowthTrend


@dataclass(frozen=True)
class ServiceResult:
    setup: Setup
    tool: str
    loop: str
    malloc_of_reference: str
    growth: list[Growth]
