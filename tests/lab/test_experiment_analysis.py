"""What the analyses say of made-up experiments, word for word, and that both outcomes are found."""

from __future__ import annotations

import math
from collections.abc import Mapping

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
from tsmlab.experiments.model import (
    AnalysisRequest,
    Experiment,
    Finding,
    Metric,
    Parameter,
    Point,
    Reported,
)
from tsmlab.machine import Machine, describe

HEAPS = ["lock-best", "nolock-best"]
ITERATIONS = Parameter("iterations", "iterations of 2,000 allocations", [10, 20, 50, 100])
SHAPE = Parameter("shape", "order of allocating and freeing", ["series", "mixed"])
PAIR = request("pair", first="nolock-best", second="lock-best", show=["growth", "reuse"])

X2 = [
    Reported("A", "old", ["heap", "time, s"], [["lock", 0.7064], ["no lock", 0.1784]], ""),
    Reported("B", "old", ["heap", "time, s"], [["lock", 0.245], ["no lock", 0.163]], ""),
    Reported("C", "old", ["heap", "time, s"], [["lock", 0.047], ["no lock", "0.089 to 0.116"]], ""),
]
COUNTS: dict[str, float] = {
    "allocations": 80000.0,
    "growth_calls": 20000.0,
    "requested_bytes": 60e6,
    "reused_bytes": 20e6,
    "lock_waits": 50.0,
    "lock_wait_ns": 1e5,
    "page_faults": 10000.0,
}
WAITING = COUNTS | {"lock_waits": 30000.0, "lock_wait_ns": 9e8}
STRANDED = COUNTS | {"growth_calls": 41000.0, "reused_bytes": 4e6, "page_faults": 14800.0}


def only(made: Experiment, processors: int | None = 2) -> Finding:
    (finding,) = analyse(made, processors).findings
    return finding


def x2(seconds: Mapping[str, float], counts: Mapping[str, dict[str, float]]) -> Experiment:
    asked = definition([PAIR], reported=X2)
    return experiment(
        asked, HEAPS, lambda name, _: {"seconds": seconds[name]}, lambda name, _: counts[name]
    )


# --- pair -----------------------------------------------------------------------------------------


def test_x2_as_reports_a_and_b_found_it() -> None:
    made = x2(
        {"lock-best": 0.3, "nolock-best": 0.15}, {"lock-best": WAITING, "nolock-best": COUNTS}
    )
    analysis = analyse(made, 2)
    assert analysis.findings[0].verdict == "nolock-best better"
    assert analysis.answer == (
        "lock-best takes 2.01 times [1.99, 2.03] as long as nolock-best. This is the result "
        "of report A (3.96 times) and report B (1.50 times), and the opposite of that of "
        "report C (2.18 times). The reason that the counts show: threads wait for a lock "
        "30,000 times (900 ms together) under lock-best, 50 times (100 µs together) under "
        "nolock-best. No reason is seen in this: lock-best asks the system for memory 20,000 "
        "times, nolock-best 20,000 times; of the bytes requested, lock-best hands out 33.3 % "
        "a second time, nolock-best 33.3 %. (Brackets hold 95 % intervals; 8 rounds.)"
    )


def test_x2_as_report_c_found_it() -> None:
    made = x2(
        {"lock-best": 0.05, "nolock-best": 0.095}, {"lock-best": COUNTS, "nolock-best": STRANDED}
    )
    analysis = analyse(made, 2)
    assert analysis.findings[0].verdict == "lock-best better"
    assert analysis.answer == (
        "nolock-best takes 1.89 times [1.87, 1.91] as long as lock-best. This is the result "
        "of report C (2.18 times), here with a smaller difference, and the opposite of that "
        "of report A (3.96 times) and report B (1.50 times). The counts show why: nolock-best "
        "asks the system for memory 41,000 times, lock-best 20,000 times; nolock-best has "
        "14,800 page faults, lock-best 10,000; of the bytes requested, nolock-best hands out "
        "6.7 % a second time, lock-best 33.3 %. (Brackets hold 95 % intervals; 8 rounds.)"
    )


def test_x2_as_nobody_found_it() -> None:
    made = x2(
        {"lock-best": 0.05, "nolock-best": 0.0505}, {"lock-best": COUNTS, "nolock-best": STRANDED}
    )
    finding = only(made)
    assert finding.verdict == "unresolved"
    assert finding.text == (
        "nolock-best and lock-best are not told apart: the ratio of nolock-best to lock-best "
        "is 1.004 [0.994, 1.014] after 8 rounds; about 12 more rounds might do. What was "
        "reported is neither confirmed nor refuted: nolock-best takes longer in report C "
        "(2.18 times); lock-best takes longer in report A (3.96 times) and report B (1.50 "
        "times). The counts differ all the same: nolock-best asks the system for memory "
        "41,000 times, lock-best 20,000 times; nolock-best has 14,800 page faults, lock-best "
        "10,000; of the bytes requested, nolock-best hands out 6.7 % a second time, lock-best "
        "33.3 %. Hardly a thread waits for a lock under either (50 and 50 times), so there is "
        "little to be saved by sharing less."
    )


def test_a_reason_that_the_counts_do_not_show_is_not_given() -> None:
    made = x2(
        {"lock-best": 0.05, "nolock-best": 0.095}, {"lock-best": COUNTS, "nolock-best": COUNTS}
    )
    assert only(made).text == (
        "nolock-best takes 1.89 times [1.87, 1.91] as long as lock-best. This is the result "
        "of report C (2.18 times), here with a smaller difference, and the opposite of that "
        "of report A (3.96 times) and report B (1.50 times). The counts do not show why: "
        "nolock-best asks the system for memory 20,000 times, lock-best 20,000 times; of the "
        "bytes requested, nolock-best hands out 33.3 % a second time, lock-best 33.3 %."
    )


def test_equal_within_the_margin() -> None:
    asked = definition([request("pair", first="a", second="b", margin=0.05)])
    finding = only(experiment(asked, ["a", "b"], lambda _n, _p: {"seconds": 1.0}, noise=0.002))
    assert finding.verdict == "equal"
    assert finding.text == ("a and b are equal within 5 % in time: ratio 1.001 [0.999, 1.003].")


def crossing(name: str, point: Point) -> dict[str, float]:
    """glibc is better with one thread, tcmalloc with several."""
    threads = point["threads"]
    return {"seconds": {"glibc": 1.0 / threads**0.1, "tcmalloc": 1.2 / threads**0.5}[name]}


def test_a_pair_may_depend_on_the_point() -> None:
    asked = definition([request("pair", first="glibc", second="tcmalloc")], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crossing))
    assert finding.verdict == "depends on the point"
    assert finding.text == (
        "tcmalloc takes 19.3 % [18.1, 20.4] longer than glibc at 1 thread. tcmalloc is faster "
        "at 2, 4 and 8 threads, most at 8 threads, where glibc takes 1.92 times [1.90, 1.94] "
        "as long as tcmalloc, and least at 2 threads, where glibc takes 10.2 % [9.5, 10.9] "
        "longer than tcmalloc. Why cannot be told: nothing was counted of glibc and tcmalloc."
    )


def test_what_is_better_when_higher() -> None:
    rate = Metric("rate", "requests per second", "number", higher_is_better=True)
    asked = definition([request("pair", "rate", first="a", second="b")], metrics=[rate])
    made = experiment(
        asked,
        ["a", "b"],
        lambda name, _: {"rate": 300.0 if name == "a" else 100.0, "wall_seconds": 1.0},
        lambda name, _: {"lock_waits": 10.0 if name == "a" else 90000.0},
    )
    finding = only(made)
    assert finding.verdict == "a better"
    assert finding.text == (
        "Requests per second is 2.99 times [2.96, 3.02] as high under a as under b. The "
        "reason that the counts show: threads wait for a lock 90,000 times under b, 10 times "
        "under a."
    )


# --- winner ---------------------------------------------------------------------------------------


def test_a_winner_with_those_not_told_apart_and_the_losers() -> None:
    seconds = {"tsmalloc": 0.9, "mimalloc": 0.902, "jemalloc": 1.4, "glibc": 2.0, "lock-best": 20.0}
    asked = definition([request("winner")])
    finding = only(experiment(asked, list(seconds), lambda name, _: {"seconds": seconds[name]}))
    assert finding.verdict == "mimalloc among 2"
    assert finding.text == (
        "mimalloc is fastest, not told apart from tsmalloc; jemalloc takes 1.56 times [1.55, "
        "1.57] as long as mimalloc, glibc 2.22 times [2.21, 2.24], lock-best 22.0 times "
        "[21.8, 22.2]."
    )


def test_the_winner_changes_only_if_both_are_shown() -> None:
    asked = definition([request("winner")], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crossing))
    assert finding.verdict == "the winner changes"
    assert finding.text == (
        "The winner changes: the fastest is glibc at 1 thread and tcmalloc at 2, 4 and 8 "
        "threads. tcmalloc takes 19.3 % [18.1, 20.4] longer than glibc at 1 thread, and glibc "
        "takes 1.92 times [1.90, 1.94] as long as tcmalloc at 8 threads. At 1 thread, "
        "tcmalloc takes 19.3 % [18.1, 20.4] longer than glibc. At 2 threads, glibc takes 10.2 "
        "% [9.5, 10.9] longer than tcmalloc. At 4 threads, glibc takes 44.6 % [42.7, 46.6] "
        "longer than tcmalloc. At 8 threads, glibc takes 1.92 times [1.90, 1.94] as long as "
        "tcmalloc."
    )
    quiet = only(experiment(asked, ["glibc", "tcmalloc"], lambda _n, _p: {"seconds": 1.0}))
    assert quiet.verdict == "not told apart"


def crashes_with_eight(name: str, point: Point) -> dict[str, float] | None:
    if name == "glibc" and point["threads"] == 8:
        return None
    return {"seconds": 2.0 if name == "glibc" else 1.0}


def test_a_point_where_the_other_failed_is_no_victory() -> None:
    asked = definition([request("winner")], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crashes_with_eight))
    assert finding.verdict == "tcmalloc leads"
    assert finding.text.startswith("tcmalloc is fastest at 1, 2 and 4 threads, by ")
    assert "Not ranked, since runs failed: glibc at 8 threads." in finding.text


def test_a_winner_is_set_beside_the_report() -> None:
    table = Reported(
        "D", "old", ["allocator", "real, s"], [["ptmalloc", 5.1], ["tcmalloc", 1.9]], ""
    )
    asked = definition([request("winner")], reported=[table])
    for tcmalloc, word in ((1.0, "confirmed"), (4.0, "refuted"), (2.0, "neither")):
        seconds = {"glibc": 2.0, "tcmalloc": tcmalloc}
        made = experiment(asked, list(seconds), lambda name, _, s=seconds: {"seconds": s[name]})
        assert f"Report D had tcmalloc ahead of glibc by 2.68 times: {word}" in only(made).text


# --- amdahl ---------------------------------------------------------------------------------------


def turning(_name: str, point: Point) -> dict[str, float]:
    """Amdahl's law up to 4 threads on 2 processors, and 40 % more at 8."""
    threads = point["threads"]
    return {"seconds": amdahl_seconds(0.4, 2)(threads) * (1.4 if threads > 4 else 1.0)}


def waiting(_name: str, point: Point) -> dict[str, float]:
    return {"lock_waits": 20.0 if point["threads"] < 8 else 20000.0, "growth_calls": 100.0}


def test_the_law_with_its_departure_and_what_grew_there() -> None:
    table = Reported("E", "old", ["threads", "time, s"], [[1, 1.25], [4, 0.83], [8, 1.2]], "")
    asked = definition([request("amdahl", parameter="threads")], [THREADS], reported=[table])
    finding = only(experiment(asked, ["lock-best"], turning, waiting))
    assert finding.text == (
        "By Amdahl's law lock-best has a serial fraction of 0.39 [0.38, 0.40]. lock-best "
        "leaves the law at 8 threads: 40.4 % [39.2, 41.5] longer than predicted. The least "
        "time of report E is at 4 threads; ours is there, too, or cannot be told apart from "
        "it. What grew with it: threads wait for a lock 20,000 times under lock-best at 8 "
        "threads, 20 times under lock-best at 4 threads. lock-best is fastest at 2 threads "
        "(not told apart from 4). The fit rests on 1 and 2 threads; beyond the 2 processors "
        "of this machine the law predicts no further change."
    )
    serial = finding.estimates["serial fraction of lock-best"]
    assert serial.low is not None
    assert serial.high is not None
    assert serial.low <= 0.4 <= serial.high
    (curve,) = finding.curves
    assert [x for x, _ in curve.points] == [1.0, 2.0, 4.0, 8.0]
    assert curve.points[1][1] == pytest.approx(curve.points[3][1])


def test_without_the_number_of_processors_the_law_is_not_limited() -> None:
    asked = definition([request("amdahl", parameter="threads")], [THREADS])
    made = experiment(
        asked, ["a"], lambda _n, p: {"seconds": amdahl_seconds(0.2, 99)(p["threads"])}
    )
    finding = only(made, None)
    assert "Nothing is shown to leave the law" in finding.text
    assert "The number of processors is not known" in finding.text


def test_a_serial_fraction_that_could_be_anything_is_not_told() -> None:
    asked = definition([request("amdahl", parameter="threads")], [THREADS])
    finding = only(experiment(asked, ["a"], turning, rounds=3, noise=0.3))
    assert finding.text.startswith("These rounds do not determine the serial fraction of a")


# --- growth ---------------------------------------------------------------------------------------


def test_linear_growth_confirmed_and_refuted_beside_the_report() -> None:
    table = Reported("E", "old", ["iterations", "time, s"], [[10, 0.84], [100, 23.7]], "")
    asked = definition(
        [request("growth", parameter="iterations", expected="linear")],
        [ITERATIONS],
        reported=[table],
    )
    powers = {"tree": 1.02, "list": 1.46}
    made = experiment(
        asked, list(powers), lambda name, p: {"seconds": 0.01 * p["iterations"] ** powers[name]}
    )
    finding = only(made)
    assert finding.verdict == "refuted for 1 of 2"
    assert finding.text == (
        "Linear growth of time over iterations is refuted for list with exponent 1.46 [1.45, "
        "1.46]. It is confirmed for tree with exponent 1.01 [1.01, 1.02]. The figures of "
        "report E grow with exponent 1.45: here that is confirmed for list; refuted for tree."
    )


def test_without_a_parameter_it_is_the_first_that_is_a_number() -> None:
    asked = definition([request("growth", expected="linear")], [SHAPE, ITERATIONS])
    made = experiment(asked, ["a"], lambda _n, p: {"seconds": 0.01 * p["iterations"]})
    assert set(only(made).estimates) == {"exponent of a (series)", "exponent of a (mixed)"}


def test_a_curve_that_is_no_power_law_is_said_to_be_none() -> None:
    asked = definition([request("growth", parameter="iterations", expected="linear")], [ITERATIONS])
    made = experiment(asked, ["a"], lambda _n, p: {"seconds": 1.0 + 0.001 * p["iterations"] ** 2})
    assert "It is no pure power law; the exponent of a is" in only(made).text


# --- order ----------------------------------------------------------------------------------------


def test_an_order_that_changes_and_one_that_does_not() -> None:
    asked = definition([request("order", parameter="threads")], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crossing))
    assert finding.verdict == "the order changes"
    assert finding.text == (
        "The order by time changes over threads. tcmalloc takes 19.3 % [18.1, 20.4] longer "
        "than glibc at 1 thread, and glibc takes 1.92 times [1.90, 1.94] as long as tcmalloc "
        "at 8 threads. Best first, with ~ between neighbours not told apart: glibc < tcmalloc "
        "at 1 thread; tcmalloc < glibc at 2, 4 and 8 threads. They are closest at 2 threads, "
        "where the highest is 10.2 % above the lowest, and farthest apart at 8 threads, by "
        "92.1 %."
    )
    steady = {"a": 1.0, "b": 1.2}
    finding = only(experiment(asked, list(steady), lambda name, _: {"seconds": steady[name]}))
    assert finding.verdict == "the same order"
    assert "a < b" in finding.text
    same = only(experiment(asked, ["a", "b"], lambda _n, _p: {"seconds": 1.0}))
    assert same.verdict == "no change shown"
    assert "0 of 1 pairs are told apart at every point" in same.text


def test_an_order_of_counts_has_no_intervals_and_says_so() -> None:
    free = Metric("free_blocks", "free blocks", "count", higher_is_better=False, source="causes")
    counts = {1: {"a": 100.0, "b": 104.0}, 2: {"a": 300.0, "b": 290.0}}
    threads = Parameter("threads", "threads", [1, 2])
    asked = definition([request("order", "free_blocks", "threads")], [threads], [free])
    made = experiment(
        asked,
        ["a", "b"],
        lambda _n, _p: {"seconds": 1.0},
        lambda name, point: {"free_blocks": counts[point["threads"]][name]},
    )
    finding = only(made)
    assert finding.verdict == "unresolved"
    assert finding.text == (
        "1 of 1 pairs changes its order by free blocks over threads, by 3.4 % at the most: a "
        "has less at 1 thread, b at 2 threads; this was counted once at each point, so "
        "nothing tells it from chance. Best first, with ~ between neighbours not told apart: "
        "a ~ b at 1 thread; b ~ a at 2 threads. They are closest at 2 threads, where the "
        "highest is 3.4 % above the lowest, and farthest apart at 1 thread, by 4.0 %."
    )


# --- bound ----------------------------------------------------------------------------------------


def peaks(name: str, point: Point) -> dict[str, float]:
    factor = {"glibc": 1.2, "nolock-best": 1.1 * point["threads"]}[name]
    return {"live_bytes": 1e6, "peak_bytes": factor * 1e6}


def test_a_bound_kept_and_broken() -> None:
    asked = definition(
        [request("bound", "peak_bytes", "threads", limit=2, over="live_bytes")], [THREADS], [LIVE]
    )
    finding = only(experiment(asked, ["glibc", "nolock-best"], peaks))
    assert finding.verdict == "broken"
    assert finding.text == (
        "Peak memory over live bytes goes beyond 2 under nolock-best at 3 of 4 points, most "
        "at 8 threads (8.87 [8.61, 8.95]). It stays within that at every point under glibc. "
        "It grows with threads, with these exponents: nolock-best 1.00 [0.99, 1.01]."
    )
    finding = only(experiment(asked, ["glibc"], peaks))
    assert finding.verdict == "kept"


def test_a_bound_is_not_kept_where_runs_failed() -> None:
    asked = definition([request("bound", limit=3.0)], [THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crashes_with_eight))
    assert "stays within 3.00 s at the points with figures under" in finding.text
    assert "every point" not in finding.text
    assert "under glibc and tcmalloc;" in finding.text


# --- the whole ------------------------------------------------------------------------------------


def test_a_part_of_the_sweep_is_named_once() -> None:
    asked = definition([request("winner", at={"shape": "mixed"})], [SHAPE, THREADS])
    finding = only(experiment(asked, ["glibc", "tcmalloc"], crossing))
    assert finding.text.startswith(
        "With shape mixed: The winner changes: the fastest is glibc at 1"
    )
    assert finding.text.count("mixed") == 1


def test_the_answer_is_short_and_has_a_sentence_of_each_analysis() -> None:
    asked = definition(
        [
            request("winner"),
            request("pair", first="glibc", second="tcmalloc"),
            request("order", parameter="threads"),
            request("amdahl", parameter="threads"),
            request("growth", parameter="threads", expected="constant"),
            request("bound", limit=10),
        ],
        [THREADS],
    )
    analysis = analyse(experiment(asked, ["glibc", "tcmalloc"], crossing), 2)
    for finding in analysis.findings:
        assert finding.text.split(". ")[0] in analysis.answer
    assert analysis.answer.endswith("(Brackets hold 95 % intervals; 8 rounds.)")


def test_summaries_say_where_their_interval_is_from() -> None:
    free = Metric("free_blocks", "free blocks", "count", higher_is_better=False, source="causes")
    asked = definition([], [], [SECONDS, free])
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


def test_what_was_not_counted_is_said_once() -> None:
    free = Metric("free_blocks", "free blocks", "count", higher_is_better=False, source="causes")
    kinds = [request("winner", "free_blocks"), request("order", "free_blocks", "threads")]
    asked = definition(kinds, [THREADS], [free])
    analysis = analyse(experiment(asked, ["a", "b"], lambda _n, _p: {"seconds": 1.0}))
    assert {finding.verdict for finding in analysis.findings} == {"cannot be told"}
    said = "Free blocks: nothing can be said, since it was not counted."
    assert analysis.answer == f"{said} (Brackets hold 95 % intervals; 8 rounds.)"


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


def test_every_kind_has_an_analysis() -> None:
    kinds: list[AnalysisRequest] = [
        request("pair", first="a", second="b"),
        request("winner"),
        request("amdahl", parameter="threads"),
        request("growth", parameter="threads"),
        request("order", parameter="threads"),
        request("bound"),
    ]
    asked = definition(kinds, [THREADS])
    made = experiment(asked, ["a", "b"], lambda _n, p: {"seconds": 1.0 + p["threads"]})
    assert [finding.kind for finding in analyse(made, 4).findings] == [k.kind for k in kinds]
