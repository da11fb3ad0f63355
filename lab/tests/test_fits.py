"""Amdahl's law and exponents: fitted to made-up data, compared with scipy, and their coverage."""

import math
from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
from experiment_fixtures import amdahl_seconds, noisy_logs

from tsmlab import fits
from tsmlab.results import Estimate

THREADS = [1.0, 2.0, 3.0, 4.0, 8.0]
SIZES = [1e3, 1e4, 1e5, 1e6]


def test_a_table_has_the_rounds_that_all_have():
    table = fits.table_of([{1: 1.0, 2: 2.0, 3: 3.0}, {2: 5.0, 3: 6.0, 4: 7.0}])
    assert table.tolist() == [[2.0, 5.0], [3.0, 6.0]]
    assert fits.table_of([{1: 1.0}, {2: 1.0}]).shape == (0, 2)


def fitted(serial, processors=8, rounds=5, noise=0.0, seed=1):
    time = amdahl_seconds(serial, processors or 1000)
    logs = np.array(noisy_logs(list(map(time, THREADS)), rounds, noise, seed))
    return fits.amdahl(THREADS, logs, processors)


def test_the_fit_is_scipys_least_squares():
    threads = np.array(THREADS)
    logs = np.array(noisy_logs([amdahl_seconds(0.3, 8)(n) for n in threads], 1, 0.05, 7))

    def rest(x):
        return x[0] + np.log(x[1] + (1.0 - x[1]) / threads) - logs[0]

    expected = scipy.optimize.least_squares(rest, [0.0, 0.5]).x[1]
    assert fits.amdahl(THREADS, logs, 8).serial.value == pytest.approx(expected, abs=1e-6)
    for processors in (2, 4, 8, None):  # without noise, the truth
        for serial in (0.0, 0.2, 1.0):
            assert fitted(serial, processors).serial.value == pytest.approx(serial, abs=1e-6)


def coverage(estimate, truth):
    """The share of 200 simulations whose interval holds the truth; estimate(seed) makes one."""
    found = map(estimate, range(200))
    return sum(each.low <= truth <= each.high for each in found) / 200


@pytest.mark.parametrize("rounds", [4, 12])
@pytest.mark.parametrize("serial", [0.1, 0.6])
def test_the_interval_covers_the_serial_fraction(serial, rounds):
    def estimate(seed):
        return fitted(serial, rounds=rounds, noise=0.03, seed=seed).serial

    assert 0.90 <= coverage(estimate, serial) <= 0.99


def test_beyond_the_processors_the_law_is_flat_and_one_round_has_no_interval():
    found = fitted(0.25, processors=2)
    assert found.predicted[1:] == pytest.approx([0.625] * 4)
    assert found.left is None
    found = fitted(0.25, rounds=1)
    assert (found.serial.low, found.serial.high, found.left) == (None, None, None)


@pytest.mark.parametrize(("factor", "limit"), [(1.5, "above"), (0.4, "below")])
def test_what_the_law_cannot_be_is_held_at_its_limits(factor, limit):
    found = fits.amdahl([1.0, 2.0], np.log([[1.0, factor]] * 3), 2)
    assert (found.limit, found.serial.value) == (limit, 1.0 if limit == "above" else 0.0)


@pytest.mark.parametrize(
    ("threads", "processors"), [([1.0], 4), ([4.0, 8.0], 2), ([1.0, 2.0], 1), ([0.5, 2.0], 4)]
)
def test_what_cannot_be_fitted(threads, processors):
    assert fits.amdahl(threads, np.zeros((3, len(threads))), processors) is None
    assert fits.amdahl([1.0, 2.0], np.zeros((0, 2)), 2) is None


def test_the_first_departure_is_found_with_its_size_and_noise_is_seldom_one():
    truth = [amdahl_seconds(0.3, 2)(n) * (1.4 if n >= 4 else 1.0) for n in THREADS]
    threads, ratio = fits.amdahl(THREADS, np.array(noisy_logs(truth, 6, 0.01, 3)), 2).left
    assert threads == 4.0
    assert ratio.value == pytest.approx(1.4, rel=0.03)
    left = [fitted(0.3, processors=2, noise=0.05, seed=seed).left for seed in range(200)]
    assert sum(each is not None for each in left) <= 0.08 * 200


def grown(truth, xs=SIZES, rounds=5, noise=0.01, seed=1):
    return fits.growth(xs, np.array(noisy_logs([truth(x) for x in xs], rounds, noise, seed)))


@pytest.mark.parametrize("exponent", [-0.5, 0.0, 1.0, 1.45, 2.0])
def test_a_power_gives_its_exponent(exponent):
    found = grown(lambda x: 3.0 * x**exponent, noise=0.0)
    assert found.exponent.value == pytest.approx(exponent, abs=1e-9)
    assert found.power == pytest.approx([3.0 * x**exponent for x in SIZES])


def test_the_exponent_is_numpys_least_squares():
    logs = np.array(noisy_logs([x**0.7 for x in SIZES], 1, 0.2, 3))
    slope = np.polyfit(np.log(SIZES), logs[0], 1)[0]
    assert fits.growth(SIZES, logs).exponent.value == pytest.approx(slope, abs=1e-9)


@pytest.mark.parametrize("rounds", [4, 12])
def test_the_interval_covers_the_exponent(rounds):
    def estimate(seed):
        return grown(lambda x: x**1.2, rounds=rounds, noise=0.05, seed=seed).exponent

    assert 0.90 <= coverage(estimate, 1.2) <= 0.99


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
def test_the_verdict_on_an_exponent(interval, verdict):
    found = replace(grown(lambda x: x), exponent=interval)
    assert fits.judge_growth(found, "linear", 0.1) == verdict


@pytest.mark.parametrize(
    ("truth", "verdict"),
    [
        (lambda x: 1.0 + 0.5 * math.log(x), "confirmed"),
        (lambda x: 0.01 * x**0.5, "refuted"),
        (lambda _x: 2.0, "confirmed"),
        (lambda x: x, "refuted"),
    ],
)
def test_a_logarithm_is_told_from_a_power(truth, verdict):
    assert fits.judge_growth(grown(truth), "logarithmic", 0.1) == verdict


def test_a_power_in_noise_is_never_called_logarithmic():
    for seed in range(100):
        found = grown(lambda x: x**0.3, noise=0.05, seed=seed)
        assert fits.judge_growth(found, "logarithmic", 0.1) != "confirmed"


def test_the_fitted_logarithm_is_the_truth_and_two_points_cannot_tell_it():
    found = grown(lambda x: 2.0 + 3.0 * math.log(x), noise=0.0)
    assert found.logarithm == pytest.approx([2.0 + 3.0 * math.log(x) for x in SIZES])
    found = grown(lambda x: 1.0 + math.log(x), xs=[10.0, 100.0])
    assert found.log_better is None
    assert fits.judge_growth(found, "logarithmic", 0.1) == "unresolved"
    assert fits.growth([1.0], np.zeros((3, 1))) is None
    assert fits.growth([1.0, 2.0], np.zeros((0, 2))) is None
