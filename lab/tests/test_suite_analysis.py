"""Ratios to the best peer, the goal for memory, failures and means, on made-up samples."""

import math
from dataclasses import replace

import pytest
from conftest import Behaviour, World
from experiment_fixtures import CRASH, sample

from tsmlab import bench
from tsmlab.analysis import Question, at_points
from tsmlab.analysis import analyse as compared
from tsmlab.metrics import BUILT_IN, PEAK_MEMORY, TIME
from tsmlab.results import Failure, SweepPoint
from tsmlab.workloads import Workload

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
    return bench.analyse(found, [workload for workload, _ in given], PEERS, "ours")


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
