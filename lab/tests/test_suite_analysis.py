"""Ratios to the best peer, the goal for memory, failures and means, on made-up samples."""

import math
from dataclasses import dataclass, replace

import pytest
from conftest import Behaviour
from conftest import World as Simulated
from experiment_fixtures import CRASH, sample

from tsmlab import bench
from tsmlab.analysis import Question, at_points
from tsmlab.analysis import analyse as compared
from tsmlab.metrics import BUILT_IN, PEAK_MEMORY, TIME
from tsmlab.results import Failure, Sample, SweepPoint
from tsmlab.workloads import Workload

PEERS = ("fast", "small", "slim")


@dataclass(frozen=True)
class Runs:
    workload: Workload
    samples: list[Sample]


def analyse(runs):
    """The samples of each workload, as in a comparison."""
    samples = [
        replace(sample, point=index) for index, each in enumerate(runs) for sample in each.samples
    ]
    names = ("ours", *PEERS)
    question = Question(names, "fast", BUILT_IN, 0.01, 1)
    parts = at_points(samples, len(runs), question)
    points = [SweepPoint({}, part) for part in parts]
    found = replace(
        Simulated.comparison(dict.fromkeys(("glibc", *names), Behaviour())),
        samples=samples,
        points=points,
        analysis=compared(samples, question),
    )
    infos = [info for info in found.allocators if info.name in names]
    found = replace(found, allocators=infos)
    return bench.analyse(found, [each.workload for each in runs], PEERS, "ours")


# Seconds and bytes of each allocator, or how it fails.
World = dict[str, tuple[float, float] | Failure]


def workload(name="w", memory=True):
    return Workload(name, "it", ("/bin/true",), 1, "seconds", memory)


def runs(world, of, drift=(1.0, 1.0, 1.0)):
    """One sample for each allocator and round; `drift` slows down whole rounds."""
    samples = []
    for number, factor in enumerate(drift, start=1):
        for name, numbers in world.items():
            if isinstance(numbers, Failure):
                samples.append(sample(name, number, 0, {}, numbers))
            else:
                values = {TIME: numbers[0] * factor, PEAK_MEMORY: numbers[1]}
                samples.append(sample(name, number, 0, values))
    return Runs(of, samples)


TYPICAL: World = {
    "ours": (0.9, 22e6),
    "fast": (1.0, 40e6),
    "small": (1.6, 10e6),
    "slim": (1.4, 20e6),
}


def mean_of(analysis, name, key="time"):
    overall = next(each for each in analysis.overall if each.name == name)
    mean = overall.time if key == "time" else overall.memory
    return (math.nan if mean.ratio is None else mean.ratio), mean.workloads, mean.possible


def test_each_quantity_has_a_best_peer_that_is_not_ours():
    (found,) = analyse([runs(TYPICAL, workload())]).workloads
    assert (found.fastest_peer, found.smallest_peer) == ("fast", "small")
    ratios = {
        score.name: (score.time.ratio.ratio, score.memory.ratio.ratio)
        for score in found.scores
        if score.time and score.memory and score.time.ratio and score.memory.ratio
    }
    assert ratios["ours"] == pytest.approx((0.9, 2.2))
    assert ratios["fast"] == pytest.approx((1.0, 4.0))
    assert ratios["small"] == pytest.approx((1.6, 1.0))
    world = TYPICAL | {"ours": (0.1, 1e6)}
    (found,) = analyse([runs(world, workload())]).workloads
    assert (found.fastest_peer, found.smallest_peer) == ("fast", "small")


def test_the_goal_for_memory_looks_at_quick_peers_only():
    """`small` is smaller, but takes more than 1.5 times the best time."""
    analysis = analyse([runs(TYPICAL, workload())])
    (found,) = analysis.workloads
    assert found.smallest_quick_peer == "slim"
    assert found.quick_memory.ratio == pytest.approx(1.1)
    assert analysis.quick_memory.ratio == pytest.approx(1.1)


@pytest.mark.parametrize(("seconds", "smallest"), [(1.499, "small"), (1.501, "slim")])
def test_quick_is_up_to_one_and_a_half_times_the_best(seconds, smallest):
    world = TYPICAL | {"small": (seconds, 10e6)}
    (found,) = analyse([runs(world, workload())]).workloads
    assert found.smallest_quick_peer == smallest


def test_ratios_are_paired_so_that_slow_rounds_cancel():
    fixed_rounds = runs(TYPICAL, workload(), drift=(1.0, 3.0, 0.5))
    (found,) = analyse([fixed_rounds]).workloads
    time = found.score("ours").time
    assert time.median == pytest.approx(0.9)
    assert (time.ratio.low, time.ratio.high) == pytest.approx((0.9, 0.9))
    assert time.ratio.pairs == 3


def test_a_workload_whose_memory_says_nothing_is_in_no_mean_of_memory():
    silent = runs(TYPICAL, workload("silent", memory=False))
    analysis = analyse([silent, runs(TYPICAL, workload("w"))])
    found = analysis.workloads[0]
    assert (found.smallest_peer, found.smallest_quick_peer) == (None, None)
    assert all(score.memory is None for score in found.scores)
    assert mean_of(analysis, "ours", "memory") == pytest.approx((2.2, 1, 1))
    assert mean_of(analysis, "ours") == pytest.approx((0.9, 2, 2))


def test_the_mean_over_workloads_is_geometric():
    """Twice as fast in one and half as fast in the other is as fast as the best."""
    worlds = [TYPICAL | {"ours": (0.5, 10e6)}, TYPICAL | {"ours": (2.0, 40e6)}]
    analysis = analyse([runs(w, workload(f"w{n}")) for n, w in enumerate(worlds)])
    assert mean_of(analysis, "ours") == pytest.approx((1.0, 2, 2))
    assert mean_of(analysis, "ours", "memory") == pytest.approx((2.0, 2, 2))
    assert mean_of(analysis, "slim") == pytest.approx((1.4, 2, 2))


def test_the_best_of_all_peers_is_1_even_where_no_peer_is():
    """Two peers, each the best in one workload: both have a mean above 1."""
    first: World = {"ours": (1.0, 1.0), "fast": (1.0, 1.0), "small": (4.0, 1.0), "slim": (9.0, 1.0)}
    second = first | {"fast": (4.0, 1.0), "small": (1.0, 1.0)}
    analysis = analyse([runs(first, workload("a")), runs(second, workload("b"))])
    assert [each.fastest_peer for each in analysis.workloads] == ["fast", "small"]
    assert mean_of(analysis, "fast") == pytest.approx((2.0, 2, 2))
    assert mean_of(analysis, "small") == pytest.approx((2.0, 2, 2))
    assert mean_of(analysis, "ours") == pytest.approx((1.0, 2, 2))
    assert analysis.overall[0].name == "ours"


def test_a_means_interval_comes_from_its_rounds():
    """Noise in opposite directions in two workloads cancels in the mean of each round."""
    noisy = [runs(TYPICAL, workload(name)) for name in "ab"]
    for number, each in enumerate(noisy):
        for index, one in enumerate(each.samples):
            if one.allocator == "ours":
                shift = math.exp((0.1, -0.3, 0.2)[one.round - 1] * (1 if number else -1))
                values = one.values | {TIME: one.values[TIME] * shift}
                each.samples[index] = replace(one, values=values)
    analysis = analyse(noisy)
    time = analysis.workloads[0].score("ours").time
    assert time.ratio.low < 0.6
    mean = next(each.time for each in analysis.overall if each.name == "ours")
    assert (mean.ratio, mean.low, mean.high) == pytest.approx((0.9, 0.9, 0.9))


def test_a_failure_is_kept_out_of_ratios_and_shown_in_the_mean():
    broken = TYPICAL | {"ours": CRASH}
    analysis = analyse([runs(TYPICAL, workload("a")), runs(broken, workload("b"))])
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
    each = runs(TYPICAL, workload())
    index = next(n for n, s in enumerate(each.samples) if (s.allocator, s.round) == ("ours", 2))
    each.samples[index] = sample("ours", 2, 0, {}, CRASH)
    analysis = analyse([each])
    score = analysis.workloads[0].score("ours")
    assert (score.failures, score.attempts) == (1, 3)
    assert (score.time.runs, score.time.ratio) == (2, None)
    assert mean_of(analysis, "ours")[1:] == (0, 1)
    (found,) = analyse([runs(TYPICAL | {"fast": CRASH}, workload())]).workloads
    assert found.fastest_peer == "slim"
    (found,) = analyse([runs(dict.fromkeys(TYPICAL, CRASH), workload())]).workloads
    assert (found.fastest_peer, found.smallest_peer, found.quick_memory) == (None, None, None)
