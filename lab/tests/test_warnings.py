"""Each warning appears when it should, does not when it should not, and has a remedy."""

from dataclasses import replace
from pathlib import Path

import pytest
from conftest import Behaviour, SimulatedExecutor, World

from tsmlab import machine, render, tables
from tsmlab.schedule import StopRule

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
