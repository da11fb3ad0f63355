"""The gate on simulated programs: verdicts by intervals, and its files."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
import scipy.stats
from conftest import Behaviour, SimulatedExecutor, World
from refusals import mentions, refused

from tsmlab import gate_text, records, stats, texts
from tsmlab.gate import Options, Side, check_machine, gate, judge, read_baseline, verdict_of
from tsmlab.journal import NullJournal
from tsmlab.metrics import BUILT_IN, PEAK_MEMORY, TIME
from tsmlab.progress import SilentReporter
from tsmlab.schedule import StopRule
from tsmlab.stats import RatioEstimate
from tsmlab.study import Study, from_json

MIB = 1 << 20
OLD, NEW = ("./old", "-x"), ("./new", "-x")


def judged(new, old=None, seed=1, before=None, rule=None):
    programs = {"new": new, "old": old}
    executor = SimulatedExecutor(lambda r: programs[Path(r.command[0]).name], seed=seed)
    glibc = World.allocator("glibc")
    paired = StopRule(min_rounds=5, max_rounds=40, time_budget_seconds=1e9)
    options = Options(
        candidate=Side(NEW, glibc),
        baseline=None if old is None else Side(OLD, glibc),
        before=before,
        limits={TIME: 0.02, PEAK_MEMORY: 0.03},
        metrics=BUILT_IN,
        seed=7,
        rule=rule or (paired if old else StopRule(runs=10)),
    )
    outcome = gate(options, executor, SilentReporter(), NullJournal(executor.clock))
    assert outcome.error is None
    assert {request.allocator.name for request in executor.requests} == {"glibc"}
    return outcome.results


def row(results, metric=TIME):
    return next(each for each in results.gate.rows if each.metric == metric)


def verdict_of_all(results):
    return verdict_of(results.gate, results.failed_rows)


def ratio(value, low, high, pairs=10):
    return RatioEstimate(value, low, high, 0.0, pairs, "student")


@pytest.mark.parametrize(
    ("estimate", "floor", "verdict"),
    [
        (ratio(1.00, 0.99, 1.01), None, "pass"),
        (ratio(0.90, 0.80, 1.02), None, "pass"),
        (ratio(1.06, 1.04, 1.08), None, "regression"),
        (ratio(1.05, 1.03, 1.07), 0.06, "unresolved"),
        (ratio(1.05, 1.022, 1.079), None, "unresolved"),
        (ratio(1.03, 1.01, 1.05), None, "unresolved"),
        (ratio(1.05, None, None, 1), None, "unresolved"),
    ],
)
def test_the_whole_interval_decides(estimate, floor, verdict):
    assert judge(estimate, 0.02, floor)[0] == verdict
    assert judge(estimate, None, floor) == ("measured", None)
    # The length of a name, or a page, may make a difference of one in a million.
    assert judge(ratio(1.0000004, 1.0000004, 1.0000004), 0.0)[0] == "pass"
    assert judge(ratio(1.001, 1.001, 1.001), 0.0)[0] == "regression"


@pytest.mark.parametrize(
    ("center", "reach", "quantile", "narrower"),
    [(1.00, 1.02**2, 0.975, 2.0), (1.04, 1.04 / 1.02, 0.9975, 1.0)],
)
def test_how_many_rounds_would_tell(center, reach, quantile, narrower):
    """Student's interval must become half as wide; or stay as wide, at the stricter level."""
    now = scipy.stats.t.ppf(0.975, 9) / math.sqrt(10)
    more = next(
        rounds - 10
        for rounds in range(11, 1000)
        if scipy.stats.t.ppf(quantile, rounds - 1) / math.sqrt(rounds) <= now / narrower
    )
    assert judge(ratio(center, center / reach, center * reach), 0.02) == ("unresolved", more)
    assert judge(ratio(1.0200001, 0.5, 2.0), 0.02) == ("unresolved", None)


@pytest.mark.parametrize(
    ("more", "expected", "least"),
    [(0.002, {"pass"}, 9), (0.05, {"regression"}, 9), (0.0, {"pass", "unresolved"}, 10)],
)
def test_more_work_is_found_and_the_same_is_no_regression(more, expected, least):
    found = []
    for seed in range(10):
        old = Behaviour(noise=0.004 if more else 0.01)
        results = judged(replace(old, seconds=old.seconds * (1.0 + more)), old, seed)
        assert not more or results.comparison.stop.reason == "resolved"
        found.append(verdict_of_all(results) in expected)
    assert sum(found) >= least


def test_more_memory_is_found_and_time_is_not_blamed():
    old = Behaviour(noise=0.001)
    results = judged(replace(old, peak_bytes=21 * MIB), old)
    assert (row(results, PEAK_MEMORY).verdict, row(results).verdict) == ("regression", "pass")
    assert row(results, PEAK_MEMORY).baseline == 20 * MIB


def test_a_failure_is_neither_a_pass_nor_a_regression():
    results = judged(Behaviour(signal=11), Behaviour())
    assert verdict_of_all(results) == "failed"
    assert "FAILED candidate: SIGSEGV" in texts.report(results, 120)
    junit = ElementTree.fromstring(gate_text.junit(results))
    assert junit.get("errors") == "1"
    assert junit.find("testcase/error") is not None


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0.1, "pass"), (0.11, "regression"), (0.102, "unresolved")]
)
def test_a_baseline_from_a_file(tmp_path, seconds, verdict):
    file = tmp_path / "base.json"
    kept = judged(Behaviour(noise=0.004), seed=2)
    file.write_text(records.to_json(kept))
    before = read_baseline(file)
    results = judged(Behaviour(seconds=seconds, noise=0.004), seed=3, before=before)
    assert (row(results).verdict, verdict_of_all(results)) == (verdict, verdict)
    assert row(results).baseline == pytest.approx(0.1, rel=0.01)
    assert from_json(records.to_json(results)) == results


@pytest.mark.parametrize(
    ("command", "warned"),
    [
        (["/elsewhere/new", "-x"], False),
        (["./new", "-y"], True),
        (["./new"], True),
        (["./other", "-x"], True),
    ],
)
def test_a_baseline_of_other_work_is_told(command, warned):
    before = replace(judged(Behaviour(), seed=2).comparison, command=command)
    results = judged(Behaviour(), seed=3, before=before)
    found = [t.symptom for t in results.comparison.warnings if t.code == "other-baseline"]
    assert len(found) == warned
    assert all(command[0] in symptom for symptom in found)


def test_what_is_no_baseline_is_named(tmp_path):
    file = tmp_path / "base.json"
    with refused(str(file), remedy=f"tsmalloc gate --export-json {file}"):
        read_baseline(file)
    kept = judged(Behaviour())
    none = replace(kept, parts=[replace(kept.comparison, samples=[])])
    for text, words in (
        ("{", "JSON"),
        (records.to_json(Study.of("compare", kept.parts)), "`tsmalloc compare`"),
        (records.to_json(none), "no successful run"),
    ):
        file.write_text(text)
        with refused(str(file), words):
            read_baseline(file)


def test_a_time_of_another_machine_is_refused():
    before = judged(Behaviour()).comparison
    check_machine(before, before.machine)
    elsewhere = replace(before.machine, cpu="another")
    with refused("cpu was", remedy="--deterministic"):
        check_machine(before, elsewhere)


@pytest.mark.parametrize("sizes", [(10, 10), (4, 12), (30, 5)])
def test_welchs_interval_is_scipys(sizes):
    generator = random.Random(5)
    one = [generator.gauss(0.1, 0.02) for _ in range(sizes[0])]
    other = [generator.gauss(0.0, 0.05) for _ in range(sizes[1])]
    found = stats.unpaired_ratio(one, other)
    expected = scipy.stats.ttest_ind(one, other, equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert found.ratio == pytest.approx(math.exp(sum(one) / len(one) - sum(other) / len(other)))
    # Ours rounds degrees of freedom down to whole ones: never narrower, and hardly wider.
    assert math.exp(interval.low) * 0.99 < found.low <= math.exp(interval.low)
    assert math.exp(interval.high) <= found.high < math.exp(interval.high) * 1.01


def test_what_has_no_spread_or_one_round_has_no_false_interval():
    same = stats.unpaired_ratio([1.0, 1.0], [1.0, 1.0, 1.0])
    assert (same.ratio, same.low, same.high, same.p_value) == (1.0, 1.0, 1.0, 1.0)
    assert stats.unpaired_ratio([1.0], [1.0, 2.0]).low is None


@pytest.fixture
def regressed():
    old = Behaviour(noise=0.001)
    return judged(replace(old, peak_bytes=21 * MIB, noise=0.2), old, rule=StopRule(runs=6))


def test_the_text_says_what_failed_and_what_would_help(regressed):
    text = texts.report(regressed, 120)
    assert "REGRESSION peak memory: +5.0% [+5.0, +5.0], limit +3.0%" in text
    mentions(text, "UNRESOLVED time: ", "$ ./new -x", "$ ./old -x")
    markdown = texts.markdown(regressed)
    assert markdown.startswith("### ❌ tsmalloc gate: regression\n")
    assert "| peak memory | 20.0M | 21.0M | +5.0% [+5.0, +5.0] | +3.0% | regression |" in markdown
    same = judged(Behaviour(), Behaviour())
    assert texts.markdown(same).startswith("### ✅ tsmalloc gate: pass\n")
    assert "PASS: " in texts.report(same, 120)


def test_junit_has_a_test_for_each_metric(regressed):
    suite = ElementTree.fromstring(gate_text.junit(regressed))
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {"runs": [], "peak memory": ["failure"], "time": ["skipped"]}


def test_sarif_has_a_finding_for_each_regression(regressed):
    log = json.loads(gate_text.sarif(regressed))
    (run,) = log["runs"]
    levels = {found["ruleId"]: found["level"] for found in run["results"]}
    assert levels == {PEAK_MEMORY: "error", TIME: "note"}
    rules = {rule["id"] for rule in run["tool"]["driver"]["rules"]}
    assert set(levels) <= rules
    for found in run["results"]:
        (place,) = found["locations"]
        assert place["physicalLocation"]["artifactLocation"]["uri"] == "new"
    assert json.loads(gate_text.sarif(judged(Behaviour(), Behaviour())))["runs"][0]["results"] == []
