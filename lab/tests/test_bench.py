"""The suite with simulated programs: rounds and report; its analysis, of made-up samples."""

import csv
import io
import itertools
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Behaviour, SimulatedExecutor, World
from experiment_fixtures import CRASH, MIB, prints, sample
from refusals import mentions
from rich.console import Console

from tsmlab import bench_text, texts
from tsmlab.analysis import Question, at_points
from tsmlab.analysis import analyse as compared
from tsmlab.bench import MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR, Options, bench
from tsmlab.bench import analyse as suite_analysis
from tsmlab.journal import NullJournal
from tsmlab.metrics import BUILT_IN, PEAK_MEMORY, TIME
from tsmlab.progress import SilentReporter
from tsmlab.results import Failure, SweepPoint
from tsmlab.study import from_json
from tsmlab.workloads import Workload

NAMES = ("tsmalloc", "glibc", "other")


# The program must be a file, since it is hashed; the simulation does not start it.
WORKLOADS = tuple(
    Workload(name, f"{name} stresses", (sys.executable,), 1, "seconds", True)
    for name in ("one", "two")
)


@pytest.fixture
def run():
    def simulate(behaviours=None, executor=None, warm=lambda size: size):
        executor = executor or SimulatedExecutor(behaviours or typical())
        names = list(executor.behaviours)
        options = Options(
            suite=Path("suite.toml"),
            workloads=WORKLOADS,
            allocators=tuple(World.allocator(name) for name in names),
            peers=tuple(name for name in names if name != "tsmalloc"),
            candidate="tsmalloc",
            seed=7,
            rounds=3,
        )
        return bench(options, executor, SilentReporter(), NullJournal(executor.clock), warm)

    return simulate


def typical():
    return {
        "tsmalloc": prints(0.8, peak_bytes=12 * MIB),
        "glibc": prints(1.0, peak_bytes=10 * MIB),
        "other": prints(1.25, peak_bytes=20 * MIB),
    }


def measured(results, name):
    index = [workload.name for workload in results.suite.workloads].index(name)
    samples = results.comparison.samples
    return [s for s in samples if s.phase == "measured" and s.point == index]


def test_every_round_has_every_workload_under_every_allocator(run):
    executor = SimulatedExecutor(typical())
    results = run(executor=executor).results
    probes = [s.allocator for s in results.comparison.samples if s.phase == "probe"]
    assert probes == ["glibc"] * 2
    hung = max(MIN_TIMEOUT_SECONDS, 1.5 * TIMEOUT_FACTOR)
    assert results.comparison.settings.timeout_seconds == hung
    all_orders = []
    for name in ("one", "two"):
        found = [(s.round, s.allocator) for s in measured(results, name)]
        assert sorted(found) == sorted(itertools.product((1, 2, 3), NAMES))
        all_orders.append([[a for n, a in found if n == number] for number in (1, 2, 3)])
        assert len(set(map(tuple, all_orders[-1]))) > 1
    assert all_orders[0] != all_orders[1]
    # Workloads alternate: an allocator's runs of one workload are not all at the same time.
    starts = {n: [s.started_seconds for s in measured(results, n)] for n in ("one", "two")}
    assert starts["one"][2] < starts["two"][0] < starts["one"][3]
    assert results.stop.reason == "runs"


def test_memory_is_warmed_by_what_the_trials_needed(run):
    behaviours = typical() | {"glibc": prints(1.0, peak_bytes=1000 * MIB)}
    executor = SimulatedExecutor(behaviours)
    warmed: list[tuple[int, int]] = []

    def warm(size):
        warmed.append((size, len(executor.requests)))
        return size

    run(executor=executor, warm=warm)
    assert warmed == [(4000 * MIB, 2)]


def test_a_workload_without_the_promised_line_has_failed(run):
    mute = Behaviour(stdout="operations: 5\n")
    results = run(typical() | {"tsmalloc": mute}).results
    failure = results.suite.analysis.workloads[0].score("tsmalloc").failure
    assert (failure.kind, "`seconds: NUMBER`" in failure.text) == ("metric", True)


def lines_of(results):
    """The table's lines by workload and quantity."""
    found, workload_name = {}, ""
    for line in texts.report(results, 200).splitlines():
        for quantity in ("time", "memory"):
            head, separator, _ = line.partition(f"  {quantity}  ")
            if separator and "[95" not in line:
                workload_name = head.strip() or workload_name
                found[workload_name, quantity] = line
    return found


def squeezed(line):
    return " ".join(line.split())


def test_what_is_written_of_a_run(run):
    results = run().results
    lines = lines_of(results)
    assert squeezed(lines["one", "time"]) == (
        "one time glibc 1.00 s 0.80 [0.80, 0.80] better 1.00 1.25 ±0%"
    )
    assert squeezed(lines["one", "memory"]) == (
        "memory glibc 10.0M 1.20 [1.20, 1.20] 1.20 [1.20, 1.20] to glibc, worse 1.00 2.00 ±0%"
    )
    mean = lines["geometric mean", "time"]
    assert "0.80 [0.80, 0.80]" in mean
    time, memory = bench_text.headline(results.suite)
    assert "tsmalloc at 0.80 [0.80, 0.80]" in time
    assert time.endswith("better in 2")
    assert "at 1.20 [1.20, 1.20]" in memory
    text = texts.markdown(results)
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in table}) == 1
    assert len(table) == 2 + 2 * 2 + 2
    told = ("transparent huge pages", "- glibc 1.0", "SHA-256")
    mentions(text, results.created, results.machine.kernel, *told)
    lines = list(csv.DictReader(io.StringIO(texts.formatted(results, "csv"))))
    assert len(lines) == 2 * (1 + 9)
    assert {line["workload"] for line in lines} == {"one", "two"}
    assert {line["time_seconds"] for line in lines} == {"0.8", "1.0", "1.25"}
    assert from_json(texts.formatted(results, "json")) == results


def test_failures_are_in_the_table_and_below_it(run):
    crash = Behaviour(signal=11, stderr="first\nfree(): invalid pointer\n")
    results = run(typical() | {"tsmalloc": crash}).results
    report = texts.report(results, 200)
    assert len(measured(results, "one")) == 3 * 2 + 2, "left alone after two failures"
    assert lines_of(results)["one", "time"].split().count("failed") == 1
    mentions(report, "FAILED one: tsmalloc: SIGSEGV (2 of 2 runs", "| free(): invalid pointer")
    time, *_ = bench_text.headline(results.suite)
    assert time.endswith("result in 2")


def test_a_mean_that_lacks_a_workload_says_so(run):
    """The second workload's runs of `other` fail: in the simulation, every second run."""
    flips = tuple((n, Behaviour(exit_code=3) if n % 2 else prints(1.25)) for n in range(1, 9))
    results = run(typical() | {"other": prints(1.25, changes=flips)}).results
    mean = lines_of(results)["geometric mean", "time"]
    assert mean.rstrip().endswith("1.25 ±0% (1 of 2)")


@pytest.mark.parametrize("width", [80, 60])
def test_a_narrow_terminal_gets_a_compact_table(run, width):
    report = texts.report(run().results, width, colours=True)
    table = [line for line in report.splitlines() if " time " in line and "tsmalloc at" not in line]
    assert len(table) == 3
    assert all(Console(width=500).measure(line).maximum <= width + 20 for line in table)
    assert all("±" not in line and "…" not in line for line in table)


PEERS = ("fast", "small", "slim")


def analyse(*given):
    """Of workloads and their samples, as in a comparison."""
    samples = [
        replace(sample, point=index) for index, (_, own) in enumerate(given) for sample in own
    ]
    names = ("ours", *PEERS)
    question = Question(names, "fast", BUILT_IN, 0.01, 1)
    points = [SweepPoint({}, part) for part in at_points(samples, len(given), question)]
    found = World.comparison(dict.fromkeys(("glibc", *names), Behaviour()))
    found = replace(
        found,
        samples=samples,
        points=points,
        analysis=compared(samples, question),
        allocators=[info for info in found.allocators if info.name in names],
    )
    return suite_analysis(found, [workload for workload, _ in given], PEERS, "ours")


def runs(world, name="w", memory=True, drift=(1.0, 1.0, 1.0)):
    """A workload with one sample for each allocator and round: `world` has the seconds and bytes
    of each allocator, or how it fails; `drift` slows down whole rounds."""
    samples = []
    for number, factor in enumerate(drift, start=1):
        for allocator, numbers in world.items():
            if isinstance(numbers, Failure):
                samples.append(sample(allocator, number, 0, {}, numbers))
            else:
                values = {TIME: numbers[0] * factor, PEAK_MEMORY: numbers[1]}
                samples.append(sample(allocator, number, 0, values))
    return Workload(name, "it", ("/bin/true",), 1, "seconds", memory), samples


TYPICAL = {"ours": (0.9, 22e6), "fast": (1.0, 40e6), "small": (1.6, 10e6), "slim": (1.4, 20e6)}


def mean_of(analysis, name, key="time"):
    overall = next(each for each in analysis.overall if each.name == name)
    mean = overall.time if key == "time" else overall.memory
    return (math.nan if mean.ratio is None else mean.ratio), mean.workloads, mean.possible


def test_each_quantity_has_a_best_peer_that_is_not_ours():
    analysis = analyse(runs(TYPICAL, drift=(1.0, 3.0, 0.5)), runs(TYPICAL | {"ours": (0.1, 1e6)}))
    found, other = analysis.workloads
    for each in (found, other):
        assert (each.fastest_peer, each.smallest_peer) == ("fast", "small")
    ratios = {s.name: (s.time.ratio.ratio, s.memory.ratio.ratio) for s in found.scores}
    assert ratios["ours"] == pytest.approx((0.9, 2.2))
    assert ratios["fast"] == pytest.approx((1.0, 4.0))
    assert ratios["small"] == pytest.approx((1.6, 1.0))
    # They are paired, so that slow rounds cancel.
    time = found.score("ours").time
    assert time.median == pytest.approx(0.9)
    assert (time.ratio.low, time.ratio.high) == pytest.approx((0.9, 0.9))
    assert time.ratio.pairs == 3


@pytest.mark.parametrize(
    ("seconds", "smallest", "ratio"), [(1.499, "small", 2.2), (1.501, "slim", 1.1)]
)
def test_the_goal_for_memory_looks_at_quick_peers_only(seconds, smallest, ratio):
    """Those that take up to 1.5 times the best time."""
    analysis = analyse(runs(TYPICAL | {"small": (seconds, 10e6)}))
    (found,) = analysis.workloads
    assert found.smallest_quick_peer == smallest
    assert found.quick_memory.ratio == pytest.approx(ratio)
    assert analysis.quick_memory.ratio == pytest.approx(ratio)


def test_a_workload_whose_memory_says_nothing_is_in_no_mean_of_memory():
    analysis = analyse(runs(TYPICAL, "silent", memory=False), runs(TYPICAL))
    found = analysis.workloads[0]
    assert (found.smallest_peer, found.smallest_quick_peer) == (None, None)
    assert all(score.memory is None for score in found.scores)
    assert mean_of(analysis, "ours", "memory") == pytest.approx((2.2, 1, 1))
    assert mean_of(analysis, "ours") == pytest.approx((0.9, 2, 2))


def test_the_mean_over_workloads_is_geometric():
    """Twice as fast in one and half as fast in the other is as fast as the best."""
    worlds = [TYPICAL | {"ours": (0.5, 10e6)}, TYPICAL | {"ours": (2.0, 40e6)}]
    analysis = analyse(*map(runs, worlds, "ab"))
    assert mean_of(analysis, "ours") == pytest.approx((1.0, 2, 2))
    assert mean_of(analysis, "ours", "memory") == pytest.approx((2.0, 2, 2))
    assert mean_of(analysis, "slim") == pytest.approx((1.4, 2, 2))


def test_the_best_of_all_peers_is_1_even_where_no_peer_is():
    """Two peers, each the best in one workload: both have a mean above 1."""
    first = {"ours": (1.0, 1.0), "fast": (1.0, 1.0), "small": (4.0, 1.0), "slim": (9.0, 1.0)}
    second = first | {"fast": (4.0, 1.0), "small": (1.0, 1.0)}
    analysis = analyse(runs(first, "a"), runs(second, "b"))
    assert [each.fastest_peer for each in analysis.workloads] == ["fast", "small"]
    assert mean_of(analysis, "fast") == pytest.approx((2.0, 2, 2))
    assert mean_of(analysis, "small") == pytest.approx((2.0, 2, 2))
    assert mean_of(analysis, "ours") == pytest.approx((1.0, 2, 2))
    assert analysis.overall[0].name == "ours"


def test_a_means_interval_comes_from_its_rounds():
    """Noise in opposite directions in two workloads cancels in the mean of each round."""
    noisy = [runs(TYPICAL, name) for name in "ab"]
    for sign, (_, samples) in zip((-1, 1), noisy, strict=True):
        for one in samples:
            if one.allocator == "ours":
                one.values[TIME] *= math.exp((0.1, -0.3, 0.2)[one.round - 1] * sign)
    analysis = analyse(*noisy)
    time = analysis.workloads[0].score("ours").time
    assert time.ratio.low < 0.6
    mean = next(each.time for each in analysis.overall if each.name == "ours")
    assert (mean.ratio, mean.low, mean.high) == pytest.approx((0.9, 0.9, 0.9))


def test_a_failure_is_kept_out_of_ratios_and_shown_in_the_mean():
    analysis = analyse(runs(TYPICAL, "a"), runs(TYPICAL | {"ours": CRASH}, "b"))
    score = analysis.workloads[1].score("ours")
    assert (score.attempts, score.failures, score.failure) == (3, 3, CRASH)
    assert score.gave_up
    assert score.time is None
    assert mean_of(analysis, "ours") == pytest.approx((0.9, 1, 2))
    assert mean_of(analysis, "ours", "memory") == pytest.approx((2.2, 1, 2))
    assert (analysis.quick_memory.workloads, analysis.quick_memory.possible) == (1, 2)
    # Allocators that lack a workload are not ranked before those that have all.
    assert analysis.overall[-1].name == "ours"


def test_failed_runs_cost_the_ratio_and_the_place():
    workload, samples = runs(TYPICAL)
    index = next(n for n, s in enumerate(samples) if (s.allocator, s.round) == ("ours", 2))
    samples[index] = sample("ours", 2, 0, {}, CRASH)
    analysis = analyse((workload, samples))
    score = analysis.workloads[0].score("ours")
    assert (score.failures, score.attempts) == (1, 3)
    assert (score.time.runs, score.time.ratio) == (2, None)
    assert mean_of(analysis, "ours")[1:] == (0, 1)
    (found,) = analyse(runs(TYPICAL | {"fast": CRASH})).workloads
    assert found.fastest_peer == "slim"
    (found,) = analyse(runs(dict.fromkeys(TYPICAL, CRASH))).workloads
    assert (found.fastest_peer, found.smallest_peer, found.quick_memory) == (None, None, None)
