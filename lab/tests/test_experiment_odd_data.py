"""Whatever a run left behind, the analysis says something true of it and does not crash."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_experiments import CRASH, LIVE, SECONDS, THREADS, definition, experiment, request

from tsmlab import records
from tsmlab.experiments.analysis import analyse
from tsmlab.experiments.catalogue import points_of
from tsmlab.experiments.model import (
    AnalysisRequest,
    Causes,
    Cell,
    Experiment,
    ExperimentAnalysis,
    Metric,
    Parameter,
    Reported,
    Run,
)

WAITS = Metric("lock_waits", "waits for a lock", "count", higher_is_better=False, source="causes")
RATE = Metric("rate", "requests per second", "number", higher_is_better=True)
SHAPE = Parameter("shape", "order of things", ["series", "mixed"])
NAMES = ["lock-best", "nolock-best", "glibc"]
TABLES = [
    Reported("A", "old", ["heap", "time, s"], [["lock", 0.7], ["no lock", 0.2]], ""),
    Reported("E", "old", ["threads", "time, s"], [[1, 1.25], [4, 0.83], [20, "x"]], ""),
    Reported("F", "old", [], [], ""),
    Reported("G", "old", ["heap", "time"], [["lock"], [None, 3]], ""),
]


def requests(metric: str) -> list[AnalysisRequest]:
    return [
        request("pair", metric, first="lock-best", second="nolock-best", show=["growth", "odd"]),
        request("pair", metric, first="lock-best", second="not-there"),
        request("pair", metric),
        request("winner", metric),
        request("winner", metric, at={"threads": 2}),
        request("winner", metric, at={"threads": 77}),
        request("amdahl", metric, "threads"),
        request("amdahl", metric, "threads", work="per-thread"),
        request("amdahl", metric, "shape"),
        request("growth", metric, "threads", expected="linear"),
        request("growth", metric, "threads", expected="logarithmic"),
        request("growth", metric, "threads", expected="no such word", tolerance=-1),
        request("growth", metric, "shape"),
        request("order", metric, "threads"),
        request("order", metric, "shape", allocators=["lock-*", "no*"]),
        request("order", metric, "nothing"),
        request("bound", metric, "threads", limit=1.5),
        request("bound", metric, limit=1.5, over="live_bytes"),
        request("bound", metric, limit=2, over="lock_waits"),
        request("bound", metric, "shape", limit="odd", over=3),
    ]


ALL = [
    asked
    for metric in ("seconds", "lock_waits", "rate", "unheard_of")
    for asked in requests(metric)
]

VALUES = st.one_of(
    st.sampled_from([0.0, 1.0, 1.0, 2.0, -1.0, 1e-300, 1e300, math.nan, math.inf]),
    st.floats(0.5, 2.0),
)


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    parameters = draw(st.sampled_from([[], [THREADS], [THREADS, SHAPE], [SHAPE]]))
    metrics = [SECONDS, LIVE, WAITS, RATE]
    asked = definition(ALL, parameters, metrics, TABLES)
    points = points_of(asked)
    there = [(i, name) for i in range(len(points)) for name in NAMES if draw(st.integers(0, 3))]
    cells = [draw(cell(index, name)) for index, name in there]
    return Experiment(asked, points, list(NAMES), cells, None)


@st.composite
def cell(draw: st.DrawFn, point: int, name: str) -> Cell:
    runs = []
    for number in range(1, draw(st.integers(0, 3)) + 1):
        values = draw(
            st.dictionaries(st.sampled_from(["seconds", "live_bytes", "rate"]), VALUES, max_size=3)
        )
        failure = CRASH if draw(st.integers(0, 9)) == 0 else None
        runs.append(Run(number, 0, 0.0, values, failure))
    counts = draw(
        st.none()
        | st.dictionaries(
            st.sampled_from(["lock_waits", "growth_calls", "allocations", "requested_bytes"]),
            st.sampled_from([0.0, 1.0, 1e3, 1e6]),
        )
    )
    causes = None if counts is None else Causes(counts, [], None, [], [])
    return Cell(point, name, runs, False, causes)


def check(analysis: ExperimentAnalysis) -> None:
    """Every analysis says something, and everything can be written as JSON and read again."""
    assert all(finding.text.strip() for finding in analysis.findings)
    assert all(finding.verdict.strip() for finding in analysis.findings)
    text = json.dumps(records.to_json(analysis))
    assert "NaN" not in text


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(experiments(), st.sampled_from([None, 1, 2, 8]))
def test_odd_data_are_told_and_do_not_crash(data: Experiment, processors: int | None) -> None:
    check(analyse(data, processors))


def all_of(**changes: Any) -> ExperimentAnalysis:
    truth: dict[str, float] = {"seconds": 1.0, "live_bytes": 1e6, "rate": 5.0}
    asked = definition(ALL, [THREADS, SHAPE], [SECONDS, LIVE, WAITS, RATE], TABLES)
    made = experiment(
        asked, NAMES, lambda _n, _p: truth, lambda _n, _p: {"lock_waits": 5.0}, **changes
    )
    return analyse(made, 2)


@pytest.mark.parametrize("rounds", [1, 2, 10])
@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_equal_values_and_few_rounds(rounds: int, noise: float) -> None:
    check(all_of(rounds=rounds, noise=noise))


def test_nothing_measured_is_said() -> None:
    asked = definition(ALL, [THREADS], [SECONDS])
    nothing = Experiment(asked, points_of(asked), NAMES, [], None)
    analysis = analyse(nothing, 2)
    check(analysis)
    assert {finding.verdict for finding in analysis.findings} == {"cannot be told"}


def test_a_failed_run_keeps_a_cell_out_of_every_comparison() -> None:
    asked = definition([request("winner")], [], [SECONDS])
    made = experiment(asked, NAMES, lambda _n, _p: {"seconds": 1.0})
    first = made.cells[0]
    failed = replace(first.runs[0], values={"seconds": 0.001}, failure=CRASH)
    made.cells[0] = replace(first, runs=[failed, *first.runs[1:]])
    analysis = analyse(made, 2)
    assert "Left out where runs failed: lock-best." in analysis.findings[0].text
    summary = next(s for s in analysis.summaries if s.allocator == "lock-best")
    assert summary.runs == len(first.runs) - 1
    assert summary.minimum > 0.5
