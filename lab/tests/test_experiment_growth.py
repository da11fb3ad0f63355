"""Exponents: recovered, covered by their intervals, judged; a logarithm against a power."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from synthetic_experiments import noisy_logs

from tsmlab.experiments import growth
from tsmlab.experiments.growth import Growth
from tsmlab.experiments.model import Estimate

SIZES = [1e3, 1e4, 1e5, 1e6]


def fitted(
    truth: Callable[[float], float],
    xs: Sequence[float] = SIZES,
    rounds: int = 5,
    noise: float = 0.01,
    seed: int = 1,
) -> Growth:
    logs = noisy_logs([truth(x) for x in xs], rounds, noise, seed)
    return growth.fit(xs, np.array(logs))


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 1.0, 1.45, 2.0])
def test_a_power_gives_its_exponent(exponent: float) -> None:
    found = fitted(lambda x: 3.0 * x**exponent, noise=0.0)
    assert found.exponent.value == pytest.approx(exponent, abs=1e-9)
    assert found.first.value == pytest.approx(exponent, abs=1e-9)
    assert found.last.value == pytest.approx(exponent, abs=1e-9)


@pytest.mark.parametrize(
    ("rounds", "noise"),
    [(4, 0.05), (12, 0.05), (1, 0.1)],  # one row: from the points' scatter
)
def test_the_interval_covers_the_exponent(rounds: int, noise: float) -> None:
    hits = 0
    for seed in range(200):
        found = fitted(lambda x: x**1.2, rounds=rounds, noise=noise, seed=seed)
        assert found.by_rounds == (rounds > 1)
        hits += found.exponent.low <= 1.2 <= found.exponent.high
    assert 0.90 * 200 <= hits <= 0.99 * 200


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        (Estimate(1.0, 0.95, 1.05), "confirmed"),
        (Estimate(1.0, 0.85, 1.15), "unresolved"),
        (Estimate(1.15, 1.05, 1.25), "unresolved"),
        (Estimate(1.4, 1.2, 1.6), "refuted"),
        (Estimate(0.5, 0.4, 0.6), "refuted"),
        (Estimate(1.0, None, None), "unresolved"),
    ],
)
def test_the_verdict_on_an_exponent(interval: Estimate, verdict: str) -> None:
    assert growth.compare(interval, 1.0, 0.1) == verdict


@pytest.mark.parametrize(
    ("truth", "verdict"),
    [
        (lambda x: 1.0 + 0.5 * math.log(x), "confirmed"),
        (lambda x: 0.01 * x**0.5, "refuted"),
        (lambda _x: 2.0, "confirmed"),
        (lambda x: x, "refuted"),
    ],
)
def test_a_logarithm_is_told_from_a_power(truth: Callable[[float], float], verdict: str) -> None:
    assert growth.compare_logarithmic(fitted(truth), 0.1) == verdict


def test_two_points_cannot_tell_a_logarithm_from_a_power() -> None:
    found = fitted(lambda x: 1.0 + math.log(x), xs=[10.0, 100.0])
    assert found.log_better is None
    assert growth.compare_logarithmic(found, 0.1) == "unresolved"


def test_a_power_in_noise_is_seldom_called_logarithmic() -> None:
    called = [
        growth.compare_logarithmic(fitted(lambda x: x**0.3, noise=0.05, seed=seed), 0.1)
        for seed in range(100)
    ]
    assert called.count("confirmed") == 0


def test_the_fitted_logarithm_is_the_truth_where_that_is_one() -> None:
    found = fitted(lambda x: 2.0 + 3.0 * math.log(x), noise=0.0)
    assert found.logarithm == pytest.approx([2.0 + 3.0 * math.log(x) for x in SIZES])


@pytest.mark.parametrize(
    ("expected", "exponent"),
    [
        ("linear", 1.0),
        ("constant", 0.0),
        ("quadratic", 2.0),
        (1.5, 1.5),
        ("odd", None),
        (True, None),
    ],
)
def test_what_may_be_expected(expected: object, exponent: float | None) -> None:
    assert growth.exponent_of(expected) == exponent
