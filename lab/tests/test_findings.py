"""Findings in made-up sweeps: verdicts, figures, and both outcomes of each question."""

import json
import math
import re
from dataclasses import replace

import pytest
from experiment_fixtures import CRASH, THREADS, amdahl_seconds, asked, made_up, sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from refusals import mentions

from tsmlab import records
from tsmlab.findings import find, usable_processors
from tsmlab.machine import Machine, describe
from tsmlab.metrics import MetricSpec
from tsmlab.results import Causes
from tsmlab.sweep import Parameter

ITERATIONS = Parameter("iterations", "iterations", [10, 20, 50, 100])
SHAPE = Parameter("shape", "order of allocating and freeing", ["series", "mixed"])
RATE = MetricSpec("rate", "requests per second", "number", True, higher_is_better=True)


def only(made, question, processors=2):
    (finding,) = find(made, [question], processors)
    assert (finding.kind, finding.metric) == (question.kind, question.metric)
    return finding


def covers(estimate, truth, width=0.1):
    """Whether the interval contains the truth, and is no wider than this share of it."""
    return estimate.low <= truth <= estimate.high and estimate.high - estimate.low <= width * truth


def constant(seconds, parameters=(), **more):
    truth = {name: {"seconds": value} for name, value in seconds.items()}
    return made_up(list(parameters), list(seconds), lambda name, _: truth[name], **more)


def alike(*names, parameters=(THREADS,), **more):
    return constant(dict.fromkeys(names, 1.0), parameters, **more)


def crossing(name, point):
    """glibc is better with one thread, tcmalloc with several."""
    threads = point["threads"]
    return {"seconds": {"glibc": 1.0 / threads**0.1, "tcmalloc": 1.2 / threads**0.5}[name]}


def crashes_with_eight(name, point):
    if name == "glibc" and point["threads"] == 8:
        return None
    return {"seconds": 2.0 if name == "glibc" else 1.0}


@pytest.mark.parametrize(
    ("first", "verdict"), [(0.5, "a is better"), (1.9, "b is better"), (0.992, "unresolved")]
)
def test_a_pair_is_decided_by_its_ratio(first, verdict):
    finding = only(constant({"a": first, "b": 1.0}), asked("pair", first="a", second="b"))
    assert finding.verdict == verdict
    assert covers(finding.estimates["ratio"], first)
    assert "a to b" in finding.text
    assert bool(re.search(r"\d+ more rounds", finding.text)) == (verdict == "unresolved")


def test_a_pair_may_be_equal_better_when_higher_or_not_there():
    equal = alike("a", "b", parameters=(), noise=0.0005)
    assert only(equal, asked("pair", first="a", second="b")).verdict == "equal"
    rates = {"a": {"rate": 300.0}, "b": {"rate": 100.0}}
    made = made_up([], ["a", "b"], lambda name, _: rates[name], [RATE])
    assert only(made, asked("pair", "rate", first="a", second="b")).verdict == "a is better"
    assert only(made, asked("order", "rate")).verdict == "a leads"
    finding = only(equal, asked("pair", first="a", second="gone"))
    assert (finding.verdict, "gone" in finding.text) == ("inconclusive", True)


def test_a_pair_may_depend_on_the_point():
    made = made_up([THREADS], ["glibc", "tcmalloc"], crossing)
    finding = only(made, asked("pair", first="glibc", second="tcmalloc"))
    assert finding.verdict == "depends on the point"
    assert covers(finding.estimates["ratio at threads=1"], 1 / 1.2)
    assert covers(finding.estimates["ratio at threads=8"], 8**0.4 / 1.2)


def test_a_difference_within_the_references_own_noise_is_none():
    """Two rounds of the reference that differ by 30% hide a difference of 10%."""
    made = constant({"glibc": 1.0, "a": 1.1})
    question = asked("pair", first="a", second="glibc")
    assert only(made, question).verdict == "glibc is better"
    noisy = {**made.analysis.noise_floors, "seconds": 0.3}
    made = replace(made, analysis=replace(made.analysis, noise_floors=noisy))
    assert only(made, question).verdict == "unresolved"


def test_the_counts_that_were_asked_for_stand_beside_a_pair():
    counts = {"a": {"lock_waits": 90000.0, "reused_bytes": 4096.0}, "b": {"lock_waits": 5.0}}
    made = alike("a", "b", causes=[Causes(3, name, own, []) for name, own in counts.items()])
    shown = ["lock_waits", "reused_bytes", "unknown"]
    finding = only(made, asked("pair", first="a", second="b", show=shown))
    assert "threads=8: lock waits 90.0k to 5" in finding.text


def test_a_leader_with_those_not_told_apart_and_the_losers():
    seconds = {"tsmalloc": 0.9, "mimalloc": 0.902, "jemalloc": 1.4, "glibc": 2.0, "lock": 20.0}
    finding = only(constant(seconds), asked("order"))
    assert finding.verdict == "tsmalloc leads, not distinguishable from 1"
    assert "tsmalloc ~ mimalloc < jemalloc < glibc < lock" in finding.text
    assert covers(finding.estimates["glibc to tsmalloc"], 2.0 / 0.9)
    assert only(constant({"a": 1.0, "b": 2.0}), asked("order")).verdict == "a leads"
    assert only(alike("a", "b", parameters=()), asked("order")).verdict == "no single winner"


def test_the_winner_changes_only_if_both_are_shown():
    finding = only(made_up([THREADS], ["glibc", "tcmalloc"], crossing), asked("order"))
    assert finding.verdict == "the winner changes"
    assert re.search("glibc < tcmalloc at threads=1; tcmalloc < glibc at .*threads=8", finding.text)
    assert re.search("glibc .* tcmalloc at threads=1, .* threads=8", finding.text)
    quiet = only(alike("glibc", "tcmalloc"), asked("order"))
    assert quiet.verdict == "no single winner; no change of order shown"


def test_the_order_behind_a_winner_may_change_or_stay():
    def changing(name, point):
        return {"seconds": 0.1} if name == "best" else crossing(name, point)

    made = made_up([THREADS], ["best", "glibc", "tcmalloc"], changing)
    assert only(made, asked("order")).verdict == "best leads everywhere; the order changes"
    steady = constant({"a": 1.0, "b": 1.2, "c": 1.5}, [THREADS])
    finding = only(steady, asked("order", allocators=["a", "b"]))
    assert finding.verdict == "a leads everywhere; the same order"
    assert "a < b everywhere" in finding.text
    # Of many allocators, the first group is told.
    many = {f"a{number}": 1.0 + number for number in range(12)}
    finding = only(constant(many, [THREADS]), asked("order"))
    assert finding.verdict == "a0 leads everywhere; the same order"
    assert ("a0 everywhere" in finding.text, "a1" in finding.text) == (True, False)


def test_a_change_over_one_parameter_is_none_over_the_other():
    made = made_up([THREADS, SHAPE], ["glibc", "tcmalloc"], crossing)
    over_threads = only(made, asked("order", parameter="threads"))
    over_shapes = only(made, asked("order", parameter="shape"))
    assert "ahead of" in over_threads.text
    assert "ahead of" not in over_shapes.text


def test_a_point_where_the_other_failed_is_no_victory():
    finding = only(made_up([THREADS], ["glibc", "tcmalloc"], crashes_with_eight), asked("order"))
    assert finding.verdict.startswith("tcmalloc leads everywhere")
    assert "threads=8" not in finding.text
    assert "failed: glibc" in finding.text


def test_equal_allocators_seldom_have_a_winner():
    """In 25 sweeps of ten equal allocators over four points, any claimed change is false."""
    claims = 0
    for seed in range(25):
        made = alike(*(f"a{number}" for number in range(10)), noise=0.03, seed=seed)
        claims += bool(re.search("(winner|order) changes", only(made, asked("order")).verdict))
    assert claims <= 1


def test_the_serial_fraction_and_deviations_from_the_law():
    serial = {"good": 0.1, "bad": 0.8}

    def truth(name, point):
        late = 1.5 if name == "bad" and point["threads"] == 8 else 1.0
        return {"seconds": late * amdahl_seconds(serial[name], 4)(point["threads"])}

    question = asked("fit", parameter="threads", law="amdahl")
    finding = only(made_up([THREADS], list(serial), truth), question, processors=4)
    assert finding.verdict == "1 of 2 deviate from Amdahl's law"
    for name, value in serial.items():
        assert covers(finding.estimates[f"serial fraction of {name}"], value, 0.5)
    mentions(finding.text, "on 4 processors: good 0.1", "at 8")
    assert [curve.allocator for curve in finding.curves] == ["good", "bad"]
    assert [x for x, _ in finding.curves[0].points] == [1.0, 2.0, 4.0, 8.0]


def test_linear_growth_confirmed_and_refuted():
    powers = {"tree": 1.02, "list": 1.46}

    def truth(name, point):
        return {"seconds": 0.01 * point["iterations"] ** powers[name]}

    made = made_up([ITERATIONS], list(powers), truth)
    finding = only(made, asked("fit", parameter="iterations", expected="linear"))
    assert finding.verdict == "refuted for 1 of 2"
    assert "tree 1.0" in finding.text
    for name, power in powers.items():
        assert covers(finding.estimates[f"exponent of {name}"], power)
    assert finding.curves[1].label == "x^1.46"


def test_each_curve_is_fitted_by_itself_over_the_first_numeric_parameter():
    made = made_up([SHAPE, ITERATIONS], ["a"], lambda _n, p: {"seconds": 0.01 * p["iterations"]})
    finding = only(made, asked("fit", expected="linear"))
    assert set(finding.estimates) == {f"exponent of a (shape={s})" for s in SHAPE.values}
    assert only(made, asked("fit")).verdict == "measured"


@pytest.mark.parametrize(("limit", "told"), [(2, "grows 8"), (9, "none"), (8.01, "none")])
def test_a_limit_names_what_is_shown_to_rise_above_it(limit, told):
    def truth(name, point):
        return {"seconds": 1.2 if name == "keeps" else float(point["threads"])}

    made = made_up([THREADS], ["keeps", "grows"], truth)
    text = only(made, asked("fit", limit=limit)).text
    assert f" Above {limit:g}: {told}" in text


def test_a_part_of_the_sweep_is_named_once():
    made = made_up([SHAPE, THREADS], ["glibc", "tcmalloc"], crossing)
    finding = only(made, asked("order", at={"shape": "mixed"}))
    assert finding.text.startswith("shape=mixed: ")
    assert finding.text.count("mixed") == 1


@pytest.mark.parametrize("kind", ["pair", "order", "fit"])
def test_what_was_not_measured_is_said(kind):
    finding = only(alike("a", "b"), asked(kind, "free_blocks", first="a", second="b"))
    assert (finding.verdict, "free blocks" in finding.text) == ("inconclusive", True)
    # A fit needs a parameter with numbers.
    assert only(alike("a", "b", parameters=[SHAPE]), asked("fit")).verdict == "inconclusive"


@pytest.mark.parametrize(
    ("cores", "limit", "cpus", "expected"),
    [(8, None, None, 8), (8, None, [0, 1], 2), (8, 2.0, None, 2), (8, 0.5, None, 1)],
)
def test_the_processors_that_runs_may_use(cores, limit, cpus, expected):
    fields = vars(describe()) | {"usable_cores": cores, "cgroup_cpu_limit": limit}
    assert usable_processors(Machine(**fields), cpus) == expected


ALL = [
    asked("pair", first="glibc", second="a", show=["odd"]),
    asked("order"),
    asked("order", parameter="shape"),
    asked("order", at={"threads": 2}),
    asked("fit", law="amdahl"),
    asked("fit", expected="logarithmic", limit=1.5),
    asked("fit", parameter="shape"),
]
VALUES = st.one_of(st.sampled_from([0.0, 1.0, 1.0, -1.0, 1e-300, 1e300]), st.floats(0.5, 2.0))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from([None, 1, 8]))
def test_odd_data_are_told_and_do_not_crash(data, processors):
    swept = data.draw(st.sampled_from([[], [THREADS], [THREADS, SHAPE], [SHAPE]]))
    made = alike("glibc", "a", "b", parameters=swept, rounds=1)
    samples = [
        sample(name, number, point, values, CRASH if data.draw(st.integers(0, 9)) == 0 else None)
        for point in range(len(made.points) or 1)
        for name in ("glibc", "a", "b")
        for number in range(1, data.draw(st.integers(0, 3)) + 1)
        if (values := data.draw(st.dictionaries(st.just("seconds"), VALUES))) is not None
    ]
    found = find(replace(made, samples=samples), ALL, processors)
    assert all(each.text.strip() and each.verdict.strip() for each in found)
    assert "NaN" not in json.dumps([records.to_json(each) for each in found])


def test_asking_again_gives_the_same():
    made = made_up([THREADS], ["glibc", "tcmalloc"], crossing, rounds=12)
    assert find(made, ALL, 2) == find(made, ALL, 2)
    values = [e.value for each in find(made, ALL, 2) for e in each.estimates.values()]
    assert values
    assert all(map(math.isfinite, values))
