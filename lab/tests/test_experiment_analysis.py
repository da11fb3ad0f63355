"""What the analyses find in made-up experiments: verdicts, figures, and both outcomes."""

from __future__ import annotations

import math

import pytest
from synthetic_experiments import (
    LIVE,
    SECONDS,
    THREADS,
    amdahl_seconds,
    definition,
    experiment,
    request,
)

from tsmlab.experiments.analysis import analyse, usable_processors
from tsmlab.experiments.model import Estimate, Experiment, Finding, Metric, Parameter, Point
from tsmlab.machine import Machine, describe

ITERATIONS = Parameter("iterations", "iterations of 2,000 allocations", [10, 20, 50, 100])
SHAPE = Parameter("shape", "order of allocating and freeing", ["series", "mixed"])
FREE = Metric("free_blocks", "free blocks", "count", higher_is_better=False, source="causes")


def only(made: Experiment, processors: int | None = 2) -> Finding:
    (finding,) = analyse(made, processors).findings
    assert finding.kind == made.definition.analyses[0].kind
    return finding


def covers(estimate: Estimate, truth: float, width: float = 0.1) -> bool:
    """Whether the truth is in the interval, and that is no wider than this share of it."""
    return estimate.low <= truth <= estimate.high and estimate.high - estimate.low <= width * truth


def crossing(name: str, point: Point) -> dict[str, float]:
    """glibc is better with one thread, tcmalloc with several."""
    threads = point["threads"]
    return {"seconds": {"glibc": 1.0 / threads**0.1, "tcmalloc": 1.2 / threads**0.5}[name]}


def crashes_with_eight(name: str, point: Point) -> dict[str, float] | None:
    if name == "glibc" and point["threads"] == 8:
        return None
    return {"seconds": 2.0 if name == "glibc" else 1.0}


# --- pair -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "verdict"), [(0.5, "a better"), (1.9, "b better"), (0.998, "unresolved")]
)
def test_a_pair_is_decided_by_its_ratio(first: float, verdict: str) -> None:
    seconds = {"a": first, "b": 1.0}
    asked = definition([request("pair", first="a", second="b")])
    finding = only(experiment(asked, list(seconds), lambda name, _: {"seconds": seconds[name]}))
    assert (finding.verdict, finding.allocators) == (verdict, ["a", "b"])
    assert covers(finding.estimates["ratio"], first)
    assert finding.text.startswith("time, a to b: ")
    assert ("would tell" in finding.text) == (verdict == "unresolved")


def test_a_pair_may_be_equal_better_when_higher_or_not_there() -> None:
    asked = definition([request("pair", first="a", second="b", margin=0.05)])
    finding = only(experiment(asked, ["a", "b"], lambda _n, _p: {"seconds": 1.0}, noise=0.002))
    assert finding.verdict == "equal"
    rate = Metric("rate", "requests per second", "number", higher_is_better=True)
    asked = definition([request("pair", "rate", first="a", second="b")], metrics=[rate])
    made = experiment(asked, ["a", "b"], lambda name, _: {"rate": 300.0 if name == "a" else 100.0})
    assert only(made).verdict == "a better"
    asked = definition([request("pair", first="a", second="gone")])
    finding = only(experiment(asked, ["a"], lambda _n, _p: {"seconds": 1.0}))
    assert (finding.verdict, finding.text) == ("cannot be told", "gone did not take part.")


def test_a_pair_may_depend_on_the_point() -> None:
    asked = definition([request("pair", first="glibc", second="tcmalloc")], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crossing))
    assert finding.verdict == "depends on the point"
    assert covers(finding.estimates["ratio at 1 thread"], 1 / 1.2)
    assert covers(finding.estimates["ratio at 8 threads"], 8**0.4 / 1.2)
    assert finding.text == (
        "time, glibc to tcmalloc: 0.84 [0.83, 0.85] at 1 thread; 1.10 [1.09, 1.11] at 2 threads; "
        "1.45 [1.43, 1.47] at 4 threads; 1.92 [1.90, 1.94] at 8 threads."
    )


def test_the_counts_that_were_asked_for_stand_beside_a_pair() -> None:
    asked = definition(
        [request("pair", first="a", second="b", show=["lock_waits", "reused_bytes", "unknown"])],
        [THREADS],
    )
    counts = {"a": {"lock_waits": 90000.0, "reused_bytes": 4096.0}, "b": {"lock_waits": 5.0}}
    made = experiment(
        asked, ["a", "b"], lambda _n, _p: {"seconds": 1.0}, lambda name, _: counts[name]
    )
    assert only(made).text.endswith("Counted at 8 threads: lock waits 90.0k to 5.")


# --- winner and order -----------------------------------------------------------------------------


def test_a_winner_with_those_not_told_apart_and_the_losers() -> None:
    seconds = {"tsmalloc": 0.9, "mimalloc": 0.902, "jemalloc": 1.4, "glibc": 2.0, "lock-best": 20.0}
    asked = definition([request("winner")])
    finding = only(experiment(asked, list(seconds), lambda name, _: {"seconds": seconds[name]}))
    assert finding.verdict == "mimalloc among 2"
    assert finding.text == "Best in time: mimalloc ~ tsmalloc < jemalloc < glibc < lock-best."
    assert covers(finding.estimates["glibc to mimalloc"], 2.0 / 0.902)


def test_the_winner_changes_only_if_both_are_shown() -> None:
    asked = definition([request("winner")], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crossing))
    assert finding.verdict == "the winner changes"
    assert finding.text == (
        "Best in time: glibc < tcmalloc at 1 thread; tcmalloc < glibc at 2 threads, 4 threads, "
        "8 threads."
    )
    quiet = only(experiment(asked, ["glibc", "tcmalloc"], lambda _n, _p: {"seconds": 1.0}))
    assert quiet.verdict == "not told apart"


def test_a_point_where_the_other_failed_is_no_victory() -> None:
    asked = definition([request("winner")], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crashes_with_eight))
    assert finding.verdict == "tcmalloc leads"
    assert "8 threads" not in finding.text
    assert finding.text.endswith("Left out where runs failed: glibc.")


def test_of_many_allocators_the_first_group_is_told() -> None:
    seconds = {f"a{number}": 1.0 + number for number in range(12)}
    asked = definition([request("winner")], [THREADS])
    finding = only(experiment(asked, list(seconds), lambda name, _: {"seconds": seconds[name]}))
    assert finding.verdict == "a0 leads"
    assert finding.text == "Not shown to be behind the best in time: a0 everywhere."


def test_an_order_that_changes_and_one_that_does_not() -> None:
    asked = definition([request("order", parameter="threads")], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crossing))
    assert finding.verdict == "the order changes"
    assert "glibc is ahead of tcmalloc at 1 thread, behind it at 8 threads." in finding.text
    steady = {"a": 1.0, "b": 1.2}
    finding = only(experiment(asked, list(steady), lambda name, _: {"seconds": steady[name]}))
    assert (finding.verdict, finding.text) == ("the same order", "Best in time: a < b everywhere.")
    same = only(experiment(asked, ["a", "b"], lambda _n, _p: {"seconds": 1.0}))
    assert same.verdict == "no change shown"


def test_rankings_are_compared_by_kendalls_tau() -> None:
    def reversing(name: str, point: Point) -> dict[str, float]:
        rank = {"a": 1.0, "b": 2.0, "c": 3.0}[name]
        return {"seconds": rank if point["threads"] < 8 else 4.0 - rank}

    asked = definition([request("order", parameter="threads")], [THREADS])
    estimates = only(experiment(asked, ["a", "b", "c"], reversing)).estimates
    assert estimates["Kendall's tau of 1 thread and 4 threads"].value == 1.0
    assert estimates["Kendall's tau of 1 thread and 8 threads"].value == -1.0


def test_an_order_of_counts_has_no_intervals_and_is_not_decided() -> None:
    counts = {1: {"a": 100.0, "b": 104.0}, 2: {"a": 300.0, "b": 290.0}}
    threads = Parameter("threads", "threads", [1, 2])
    asked = definition([request("order", "free_blocks", "threads")], [threads], [FREE])
    made = experiment(
        asked,
        ["a", "b"],
        lambda _n, _p: {"seconds": 1.0},
        lambda name, point: {"free_blocks": counts[point["threads"]][name]},
    )
    finding = only(made)
    assert finding.verdict == "unresolved"
    assert finding.text == "Best in free blocks: a ~ b at 1 thread; b ~ a at 2 threads."


# --- amdahl ---------------------------------------------------------------------------------------


def turning(_name: str, point: Point) -> dict[str, float]:
    """Amdahl's law up to 4 threads on 2 processors, and 40 % more at 8."""
    threads = point["threads"]
    return {"seconds": amdahl_seconds(0.4, 2)(threads) * (1.4 if threads > 4 else 1.0)}


def test_the_law_with_its_departure() -> None:
    asked = definition([request("amdahl", parameter="threads")], [THREADS])
    finding = only(experiment(asked, ["lock-best"], turning))
    assert finding.verdict == "s = 0.39 [0.38, 0.40], left at 8 threads"
    assert finding.text == (
        "Serial fraction by Amdahl's law on 2 processors: lock-best 0.39 [0.38, 0.40], off by "
        "1.40 [1.39, 1.42] at 8 threads."
    )
    assert covers(finding.estimates["serial fraction of lock-best"], 0.4)
    (curve,) = finding.curves
    assert [x for x, _ in curve.points] == [1.0, 2.0, 4.0, 8.0]
    assert curve.points[1][1] == pytest.approx(curve.points[3][1])


def test_without_the_number_of_processors_the_law_is_not_limited() -> None:
    asked = definition([request("amdahl", parameter="threads")], [THREADS])
    made = experiment(
        asked, ["a"], lambda _n, p: {"seconds": amdahl_seconds(0.2, 99)(p["threads"])}
    )
    finding = only(made, None)
    assert "left at" not in finding.verdict
    assert "processors" not in finding.text


# --- growth ---------------------------------------------------------------------------------------


def test_linear_growth_confirmed_and_refuted() -> None:
    asked = definition([request("growth", parameter="iterations", expected="linear")], [ITERATIONS])
    powers = {"tree": 1.02, "list": 1.46}
    made = experiment(
        asked, list(powers), lambda name, p: {"seconds": 0.01 * p["iterations"] ** powers[name]}
    )
    finding = only(made)
    assert finding.verdict == "refuted for 1 of 2"
    assert finding.text == (
        "time ~ iterations^k (expected: linear), k: tree 1.01 [1.01, 1.02]; list 1.46 [1.45, 1.46]."
    )
    assert [curve.label for curve in finding.curves] == ["x^1.01", "x^1.46"]


def test_without_a_parameter_it_is_the_first_that_is_a_number() -> None:
    asked = definition([request("growth", expected="linear")], [SHAPE, ITERATIONS])
    made = experiment(asked, ["a"], lambda _n, p: {"seconds": 0.01 * p["iterations"]})
    assert set(only(made).estimates) == {
        "exponent of a (shape series)",
        "exponent of a (shape mixed)",
    }


def test_a_curve_that_is_no_power_law_is_said_to_be_none() -> None:
    asked = definition([request("growth", parameter="iterations", expected="linear")], [ITERATIONS])
    made = experiment(asked, ["a"], lambda _n, p: {"seconds": 1.0 + 0.001 * p["iterations"] ** 2})
    assert only(made).text.endswith("No pure power law: a.")


# --- bound ----------------------------------------------------------------------------------------


def peaks(name: str, point: Point) -> dict[str, float]:
    factor = {"glibc": 1.2, "nolock-best": 1.1 * point["threads"]}[name]
    return {"live_bytes": 1e6, "peak_bytes": factor * 1e6}


@pytest.mark.parametrize(("limit", "verdict"), [(2, "broken"), (9.9, "kept"), (8.8, "unresolved")])
def test_a_bound(limit: float, verdict: str) -> None:
    asked = definition(
        [request("bound", "peak_bytes", "threads", limit=limit, over="live_bytes")],
        [THREADS],
        [LIVE],
    )
    finding = only(experiment(asked, ["glibc", "nolock-best"], peaks))
    assert finding.verdict == verdict
    assert f"(limit {limit}): nolock-best 8.8" in finding.text
    assert covers(finding.estimates["nolock-best at 8 threads"], 8.8)


def test_a_bound_without_a_limit_is_only_measured() -> None:
    asked = definition([request("bound", "peak_bytes")], [THREADS], [LIVE])
    assert only(experiment(asked, ["glibc"], peaks)).verdict == "measured"


# --- the whole ------------------------------------------------------------------------------------


def test_a_part_of_the_sweep_is_named_once() -> None:
    asked = definition([request("winner", at={"shape": "mixed"})], [SHAPE, THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crossing))
    assert finding.text.startswith("shape mixed: Best in time: glibc < tcmalloc at 1 thread;")
    assert finding.text.count("mixed") == 1


def test_summaries_say_where_their_interval_is_from() -> None:
    asked = definition([], [], [SECONDS, FREE])
    for rounds, method in ((8, "order"), (4, "student"), (1, "none")):
        made = experiment(
            asked,
            ["a"],
            lambda _n, _p: {"seconds": 1.0},
            lambda _n, _p: {"free_blocks": 7.0},
            rounds=rounds,
        )
        found = {summary.metric: summary for summary in analyse(made).summaries}
        assert (found["seconds"].runs, found["seconds"].method) == (rounds, method)
        assert (found["free_blocks"].runs, found["free_blocks"].method) == (1, "none")
        assert found["free_blocks"].median == 7.0


def test_what_was_not_counted_is_said() -> None:
    kinds = [request("winner", "free_blocks"), request("order", "free_blocks", "threads")]
    asked = definition(kinds, [THREADS], [FREE])
    analysis = analyse(experiment(asked, ["a", "b"], lambda _n, _p: {"seconds": 1.0}))
    assert {finding.verdict for finding in analysis.findings} == {"cannot be told"}
    assert {finding.text for finding in analysis.findings} == {"free blocks was not counted."}


@pytest.mark.parametrize(
    ("cores", "limit", "cpus", "expected"),
    [(8, None, None, 8), (8, None, [0, 1], 2), (8, 2.0, None, 2), (8, 0.5, None, 1)],
)
def test_the_processors_that_runs_may_use(
    cores: int, limit: float | None, cpus: list[int] | None, expected: int
) -> None:
    fields = vars(describe()) | {"usable_cores": cores, "cgroup_cpu_limit": limit}
    assert usable_processors(Machine(**fields), cpus) == expected


def test_analysing_again_gives_the_same() -> None:
    asked = definition([request("winner"), request("amdahl", parameter="threads")], [THREADS])
    made = experiment(asked, ["glibc", "tcmalloc"], crossing, rounds=12)
    assert analyse(made, 2) == analyse(made, 2)
    assert all(math.isfinite(s.median) for s in analyse(made, 2).summaries)
