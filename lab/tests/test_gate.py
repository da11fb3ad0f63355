"""The gate on simulated programs: verdicts by intervals, and its files; and `tsmalloc gate` and
`compare --deterministic` at the command line, with real tools.
"""

import json
import math
import random
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
import scipy.stats
from conftest import Behaviour, SimulatedExecutor, World
from refusals import mentions, refused

from tsmlab import gate_text, records, stats, texts
from tsmlab.counting import Counters
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


# --- at the command line --------------------------------------------------------------------------


COUNTERS = Counters.installed()
needs_valgrind = pytest.mark.skipif(not COUNTERS.valgrind, reason="valgrind is not installed")


def rows(text):
    return {row["metric"]: row for row in json.loads(text)["gate"]["rows"]}


def test_a_larger_program_is_a_regression_in_every_form(tsmalloc, work, tmp_path):
    files = {name: tmp_path / f"gate.{name}" for name in ("json", "markdown", "junit", "sarif")}
    exports = [word for name, file in files.items() for word in (f"--export-{name}", file)]
    words = ("--max-time", "none", "-r", "5", "--against", f"{work} 2000", *exports)
    done = tsmalloc("gate", *words, "--", work, "4000", status=3)
    assert "REGRESSION peak memory: " in done.stdout
    found = rows(files["json"].read_text())
    assert found["peak_memory_bytes"]["verdict"] == "regression"
    assert found["time_seconds"]["verdict"] == "measured"
    assert "❌" in files["markdown"].read_text()
    assert ElementTree.parse(files["junit"]).getroot().get("failures") == "1"
    assert json.loads(files["sarif"].read_text())["runs"][0]["results"][0]["level"] == "error"
    kept = list((tmp_path / "state").rglob(f"*-gate-{work.name}-*.json"))
    assert len(kept) == 1
    assert not list((tmp_path / "state").rglob("*.jsonl"))


def test_a_baseline_is_made_and_judged_by(tsmalloc, work, tmp_path):
    base = tmp_path / "base.json"
    done = tsmalloc("gate", "-r", "6", "--export-json", base, "--", work, "2000")
    assert "no baseline" in done.stdout
    assert {row["verdict"] for row in rows(base.read_text()).values()} == {"measured"}
    words = ("gate", "--baseline", base, "--max-time", "none", "--max-peak", "10%", "-r", "6", "--")
    assert "PASS: " in tsmalloc(*words, work, "2000").stdout
    tsmalloc(*words, work, "4000", status=3)
    if COUNTERS.valgrind:
        done = tsmalloc("gate", "--deterministic", "--baseline", base, "--", work, status=1)
        assert "no data for instructions" in done.stderr
    base.write_text(base.read_text().replace('"candidate"', '"other"'))
    assert f"{base} is damaged" in tsmalloc(*words, work, "4000", status=1).stderr


def test_what_cannot_be_judged_is_refused_beforehand(tsmalloc, build):
    static = build("static.c", "int main(void) { return 0; }\n", "-static")
    for words in (("-a", "tsmalloc"), ("--against-allocator", "tsmalloc")):
        done = tsmalloc("gate", "-r", "3", *words, "--", static, status=1)
        assert f"{static.name} " in done.stderr


def test_why_there_is_no_verdict(tsmalloc, work):
    words = ("gate", "--max-peak", "none", "--max-time", "none", "--against", str(work))
    done = tsmalloc(*words, "-r", "2", "--", work)
    assert "--max-peak, --max-time" in done.stdout
    done = tsmalloc("gate", "--against", str(work), "-r", "1", "--", work)
    assert "no interval" in done.stdout


@needs_valgrind
@pytest.mark.parametrize(("blocks", "verdict", "least"), [(10400, "regression", 1.01),
                                                          (10000, "pass", 0.998)])  # fmt: skip
def test_two_per_cent_more_instructions_are_found(tsmalloc, work, blocks, verdict, least):
    words = ("--max-instructions", "1%", "--json", "--against", f"{work} 10000", "--", work, blocks)
    done = tsmalloc("gate", "--deterministic", *words, status=3 if verdict == "regression" else 0)
    found = rows(done.stdout)["instructions"]
    assert found["verdict"] == verdict
    assert least < found["ratio"]["ratio"] < least + (0.04 if verdict == "regression" else 0.004)


@needs_valgrind
def test_a_comparison_by_counts_ranks_by_instructions(tsmalloc, work):
    words = ("--deterministic", "-a", "tsmalloc,glibc,lock-best", "--json", "-q", "--")
    (data,) = json.loads(tsmalloc("compare", *words, work, "5000").stdout)["parts"]
    assert data["analysis"]["primary_metric"] == "instructions"
    assert data["analysis"]["rounds"] == 3
    by_name = {row["allocator"]: row["metrics"] for row in data["analysis"]["rows"]}
    for metrics in by_name.values():
        assert metrics["instructions"]["median"] > 1e5
        assert metrics["time_seconds"]["verdict"] is None
    assert by_name["lock-best"]["instructions"]["verdict"] == "worse"
    if COUNTERS.strace:
        assert by_name["glibc"]["system_calls"]["median"] > 10
    assert "noise-floor" not in {warning["code"] for warning in data["warnings"]}


def test_without_the_tools_memory_is_judged_and_the_rest_is_said(tsmalloc, work, tmp_path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in ("sh", "dpkg-query", "ldconfig", "true"):
        if found := shutil.which(tool):
            (bin_folder / tool).symlink_to(found)
    gate = partial(tsmalloc, "gate", "--deterministic", PATH=str(bin_folder))
    done = gate("--against", f"{work} 9", "--", work, "9")
    assert "sudo apt install valgrind strace" in done.stderr
    assert "instructions" not in done.stdout
    done = gate("--max-instructions", "1", "--", work, "9", status=1)
    assert "cannot be counted" in done.stderr


def test_a_program_that_fails_is_no_verdict(tsmalloc, work):
    for baseline, blocks, stream, told in (
        (("--against", f"{work} 5"), "-1", "stdout", "FAILED candidate: exit 3"),
        ((), "-1", "stderr", "the program fails: exit 3"),
        (("--against", f"{work} -1"), "5", "stderr", "the baseline's program fails: exit 3"),
    ):
        done = tsmalloc("gate", "-r", "3", *baseline, "--", work, blocks, status=2)
        assert told in getattr(done, stream)
    strict = ("gate", "--strict", "--max-time", "+0%", "--max-peak", "none", "-r", "2")
    done = tsmalloc(*strict, "--against", f"{work} 5", "--", work, "5", status=None)
    assert done.returncode == (3 if "UNRESOLVED" in done.stdout else 0)
