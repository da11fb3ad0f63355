"""From samples to rows, ranks, leaders and a recommendation, in worlds with known truth; and to
warnings: each appears when it should, does not when it should not, and has a remedy.
"""

import random
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Behaviour, SimulatedExecutor, World, typical

from tsmlab import machine, render, tables
from tsmlab.metrics import CUSTOM, PEAK_MEMORY, TIME, parse_custom
from tsmlab.schedule import StopRule
from tsmlab.stats import Verdict

MIB = 1 << 20


def row(comparison, name):
    return next(r for r in comparison.analysis.rows if r.allocator == name)


def test_a_typical_comparison_is_judged_by_its_truth():
    comparison = typical()
    verdicts = {
        r.allocator: {key: r.metrics[key].verdict for key in (TIME, PEAK_MEMORY)}
        for r in comparison.analysis.rows
        if r.metrics
    }
    assert verdicts == {
        "fast": {TIME: Verdict.BETTER, PEAK_MEMORY: Verdict.WORSE},
        "same": {TIME: Verdict.EQUAL, PEAK_MEMORY: Verdict.BETTER},
        "glibc": {TIME: None, PEAK_MEMORY: None},
        "slow": {TIME: Verdict.WORSE, PEAK_MEMORY: Verdict.WORSE},
    }
    ratio = row(comparison, "fast").metrics[TIME].ratio
    assert ratio.ratio == pytest.approx(0.8, rel=0.01)
    assert ratio.low < ratio.ratio < ratio.high
    assert (ratio.pairs, ratio.method) == (12, "bootstrap")
    # The reference's summary has both of its runs.
    assert row(comparison, "glibc").metrics[TIME].runs == 24
    assert row(comparison, "fast").metrics[TIME].runs == 12
    assert comparison.analysis.rounds == 12
    # Ties share a rank, and failures have none; the front has exactly the undominated ones.
    ranks = {r.allocator: r.rank for r in comparison.analysis.rows}
    assert ranks == {"fast": 1, "same": 2, "glibc": 2, "slow": 4, "crash": None}
    assert {r.allocator for r in comparison.analysis.rows if r.pareto} == {"fast", "same"}


def test_a_single_failure_costs_the_verdict_but_not_the_numbers():
    behaviours = {
        "glibc": Behaviour(),
        "shaky": Behaviour(
            seconds=0.05, changes=((3, Behaviour(exit_code=7)), (4, Behaviour(seconds=0.05)))
        ),
    }
    shaky = row(World.comparison(behaviours), "shaky")
    assert (shaky.attempts, shaky.failures, shaky.gave_up) == (7, 1, False)
    assert shaky.failure.text == "exit 7"
    assert shaky.metrics[TIME].median == pytest.approx(0.05)
    assert (shaky.rank, shaky.metrics[TIME].verdict, shaky.pareto) == (None, None, False)


def test_outliers_are_flagged_and_kept_and_the_warm_up_is_no_run():
    # Run 0 is the warm-up, so run 3 is the third measured round.
    changes = ((1, Behaviour()), (3, Behaviour(seconds=0.5)), (4, Behaviour()))
    behaviours = {"glibc": Behaviour(), "a": Behaviour(seconds=9.0, changes=changes)}
    summary = row(World.comparison(behaviours, rule=StopRule(runs=10)), "a").metrics[TIME]
    assert summary.outlier_rounds == [3]
    assert summary.runs == 10
    assert summary.maximum == pytest.approx(0.5)


def test_drift_cancels_in_the_ratio():
    """The machine gets 5% slower with every run of an allocator; medians change, the ratio does
    not. The reference runs twice a round, so it drifts at half the pace."""

    def drifting(seconds, runs_a_round):
        slowed = (seconds * 1.05 ** (n // runs_a_round) for n in range(24))
        return Behaviour(changes=tuple(enumerate(map(Behaviour, slowed))))

    behaviours = {"glibc": drifting(0.1, 2), "a": drifting(0.09, 1)}
    ratio = row(World.comparison(behaviours, rule=StopRule(runs=10)), "a").metrics[TIME].ratio
    assert ratio.ratio == pytest.approx(0.9, rel=0.03)


def test_a_noisy_leader_does_not_rank_all_alike():
    """The leader's noise hides every difference to it, but not the differences between the
    others."""
    behaviours = {
        "glibc": Behaviour(noise=0.001),
        "noisy": Behaviour(seconds=0.06, noise=1.0),
        "slow": Behaviour(seconds=5.1, noise=0.001),
        "fast": Behaviour(seconds=0.09, noise=0.001),
    }
    analysis = World.comparison(behaviours, rule=StopRule(runs=8)).analysis
    ranks = {row.allocator: row.rank for row in analysis.rows}
    assert analysis.leaders[TIME].best == "noisy"
    assert (ranks["noisy"], ranks["fast"], ranks["slow"]) == (1, 1, 4)
    assert ranks["glibc"] == 2
    # An allocator that is shown to be better is recommended, though the noisy one may be better
    # still.
    assert analysis.recommended == "fast"


def test_ranks_follow_the_verdicts_and_rows_follow_the_ranks():
    for seed in range(12):
        generator = random.Random(seed)
        behaviours = {
            name: Behaviour(
                seconds=generator.uniform(0.08, 0.12), noise=generator.choice([0.001, 0.02, 0.3])
            )
            for name in ("glibc", "a", "b", "c", "d", "e")
        }
        rows = World.comparison(behaviours, rule=StopRule(runs=8)).analysis.rows
        ranks = [row.rank for row in rows]
        assert ranks == sorted(ranks)
        assert ranks[0] == 1
        reference = next(row for row in rows if row.allocator == "glibc").rank
        for each in rows:
            verdict = each.metrics[TIME].verdict
            assert verdict is not Verdict.WORSE or each.rank > reference
            assert verdict is not Verdict.BETTER or each.rank < reference


def test_leaders_name_those_that_tie():
    behaviours = {
        "glibc": Behaviour(seconds=0.2, noise=0.001),
        "x": Behaviour(seconds=0.1, noise=0.001),
        "y": Behaviour(seconds=0.1002, noise=0.001),
        "vague": Behaviour(seconds=0.104, noise=0.06),
    }
    leaders = World.comparison(behaviours, rule=StopRule(runs=12)).analysis.leaders[TIME]
    assert {leaders.best, *leaders.equal} == {"x", "y"}
    assert leaders.unresolved == ["vague"]


def test_the_fastest_is_recommended_and_the_smallest_among_its_equals():
    behaviours = {
        "glibc": Behaviour(seconds=0.2),
        "fat": Behaviour(seconds=0.1, noise=0.001, peak_bytes=40 * MIB),
        "slim": Behaviour(seconds=0.1, noise=0.001, peak_bytes=10 * MIB),
    }
    comparison = World.comparison(behaviours, rule=StopRule(runs=12))
    assert comparison.analysis.recommended == "slim"


def test_else_the_smallest_that_is_not_slower():
    for seconds, recommended in ((0.1, "slim"), (0.2, None)):
        slim = Behaviour(seconds=seconds, noise=0.001, peak_bytes=10 * MIB)
        comparison = World.comparison({"glibc": Behaviour(noise=0.001), "slim": slim})
        assert comparison.analysis.recommended == recommended


def test_the_users_own_number_ranks_and_higher_may_be_better():
    behaviours = {
        "glibc": Behaviour(stdout="rate: 100"),
        "a": Behaviour(stdout="rate: 150", seconds=0.2),
        "b": Behaviour(stdout="rate: 50"),
    }
    program = {"metrics": (parse_custom(r"rate=rate: (\d+):higher"),)}
    comparison = World.comparison(behaviours, program=program, check_output=False)
    assert comparison.analysis.primary_metric == CUSTOM
    assert [r.allocator for r in comparison.analysis.rows] == ["a", "glibc", "b"]
    assert row(comparison, "a").metrics[CUSTOM].verdict is Verdict.BETTER
    assert row(comparison, "b").metrics[CUSTOM].verdict is Verdict.WORSE
    assert comparison.analysis.leaders[CUSTOM].best == "a"
    assert comparison.analysis.recommended == "a"


def test_another_reference_turns_the_ratios_round():
    behaviours = {"glibc": Behaviour(), "a": Behaviour(seconds=0.2)}
    comparison = World.comparison(behaviours, reference="a")
    ratio = row(comparison, "glibc").metrics[TIME].ratio
    assert ratio.ratio == pytest.approx(0.5)


# --- warnings -------------------------------------------------------------------------------------


QUIET = replace(
    machine.describe(Path("/nonexistent")), load_at_start=0.0, usable_cores=4, governor=None
)


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch):
    monkeypatch.setattr(machine, "describe", lambda: QUIET)


def codes(comparison):
    for warning in comparison.warnings:
        assert warning.symptom
        assert warning.cause
        assert warning.remedy
    return {warning.code for warning in comparison.warnings}


def run(rounds=12, **behaviour):
    behaviours = dict.fromkeys(("glibc", "a", "b"), Behaviour(**behaviour))
    return World.comparison(behaviours, rule=StopRule(runs=rounds))


def test_how_many_rounds_runs_and_how_much_noise():
    assert codes(run()) == set()
    assert codes(run(rounds=3)) == {"few-rounds"}
    comparison = run(noise=0.05)
    assert "noise-floor" in codes(comparison)
    assert "noise-floor" not in codes(run(noise=0.001))
    assert codes(run(seconds=0.002)) == {"short-runs"}


def test_a_program_that_waits_is_no_measurement_of_an_allocator():
    found = with_raw(lambda run: {"user_ns": run.wall_ns // 200, "system_ns": 0})
    assert codes(found) == {"waits"}
    assert "0.5%" in found.warnings[0].symptom
    text = tables.text_of(render.blocks(found), 120)
    assert text.index("0.5%") < text.index("95% CI")


def test_of_very_few_rounds_no_figure_is_made_up():
    (alone,) = run(rounds=1).warnings
    assert "no intervals" in alone.symptom
    noisy = run(rounds=2, noise=2.0)
    warning = next(w for w in noisy.warnings if w.code == "noise-floor")
    assert "over 1000%" in warning.symptom
    assert "time over 1000%" in render.heading(noisy)[2]


HARMLESS = {
    "load_at_start": 1.0,
    "transparent_hugepages": "madvise",
    "governor": "performance",
    "address_randomisation": 2,
}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"load_at_start": 3.0}, {"high-load"}),
        ({"transparent_hugepages": "always"}, {"huge-pages"}),
        ({"governor": "powersave"}, {"governor"}),
        ({"address_randomisation": 0}, {"no-aslr"}),
        (HARMLESS, set()),
    ],
)
def test_the_machine(monkeypatch, change, expected):
    monkeypatch.setattr(machine, "describe", lambda: replace(QUIET, **change))
    assert codes(run()) == expected


def slowed(factors, per_round):
    """Each measured round has its own factor; the warm-up (and the reference's probe) has none."""
    skipped = per_round + (1 if per_round == 2 else 0)
    changes = tuple(
        (skipped + index * per_round, Behaviour(seconds=0.1 * factor))
        for index, factor in enumerate(factors)
    )
    return Behaviour(seconds=0.1, changes=changes)


def over_rounds(factors):
    once = slowed(factors, per_round=1)
    behaviours = {"glibc": slowed(factors, per_round=2), "a": once, "b": once}
    return World.comparison(behaviours, rule=StopRule(runs=len(factors)))


@pytest.mark.parametrize(
    ("factors", "code"),
    [
        ([1.3, 1.0, 1.001, 0.999, 1.0, 1.001, 0.999, 1.0], "first-round"),
        ([1.0, 1.001, 1.5, 0.999, 1.0, 1.001, 1.6, 1.002, 1.0, 1.7, 0.999, 1.0], "outliers"),
        ([1.0 + 0.2 * (n % 2) + 0.0005 * (n % 5) for n in range(24)], "bimodal"),
    ],
)
def test_odd_rounds(factors, code):
    assert code in codes(over_rounds(factors))


def test_drift():
    comparison = over_rounds([1.0 + 0.01 * n for n in range(12)])
    assert codes(comparison) == {"drift"}
    assert "slower" in comparison.warnings[0].symptom


def with_raw(change):
    """A comparison whose runs have different output in some field."""
    behaviours = {"glibc": Behaviour(), "a": Behaviour()}
    executor = SimulatedExecutor(behaviours)
    plain = executor.run

    def run(request):
        measurement = plain(request)
        changed = change(measurement)
        known = {key: value for key, value in changed.items() if hasattr(measurement, key)}
        return replace(measurement, **known, raw={**measurement.raw, **changed})

    executor.run = run
    return World.comparison(behaviours, executor=executor)


def test_several_processes_and_a_costly_look_at_the_memory():
    comparison = with_raw(lambda run: {"tree_peak_rss_bytes": 3 * run.peak_rss_bytes})
    assert codes(comparison) == {"several-processes"}
    assert "3.0 times" in comparison.warnings[0].cause
    comparison = with_raw(lambda run: {"sampling_ns": run.wall_ns // 20})
    assert codes(comparison) == {"sampling-cost"}
