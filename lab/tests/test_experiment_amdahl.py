"""Amdahl's law: recovered from made-up times, against scipy's least squares, and its coverage."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st
from synthetic_experiments import amdahl_seconds, noisy_logs

from tsmlab.experiments import amdahl
from tsmlab.experiments.amdahl import AmdahlFit

THREADS = [1.0, 2.0, 3.0, 4.0, 8.0]


def fitted(
    serial: float,
    processors: int | None = 8,
    threads: Sequence[float] = THREADS,
    rounds: int = 5,
    noise: float = 0.0,
    seed: int = 1,
    per_thread: bool = False,
) -> AmdahlFit:
    time = amdahl_seconds(serial, processors or 1000)
    truth = [time(n) * (n if per_thread else 1.0) for n in threads]
    logs = np.array(noisy_logs(truth, rounds, noise, seed))
    found = amdahl.fit(threads, logs, processors, per_thread)
    assert found is not None
    return found


@given(st.floats(0.0, 1.0), st.sampled_from([2, 4, 8, None]), st.booleans())
def test_a_curve_without_noise_gives_its_serial_fraction(
    serial: float, processors: int | None, per_thread: bool
) -> None:
    found = fitted(serial, processors, per_thread=per_thread)
    assert found.serial.value == pytest.approx(serial, abs=1e-6)


def test_the_fit_is_scipys_least_squares() -> None:
    threads = np.array(THREADS)
    logs = np.array(noisy_logs([amdahl_seconds(0.3, 8)(n) for n in threads], 1, 0.05, 7))

    def rest(x: np.ndarray[tuple[int], np.dtype[np.float64]]) -> object:
        return x[0] + np.log(x[1] + (1.0 - x[1]) / threads) - logs[0]

    expected = scipy.optimize.least_squares(rest, [0.0, 0.5]).x[1]
    found = amdahl.fit(THREADS, logs, 8, per_thread=False)
    assert found.serial.value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("rounds", [4, 12])
@pytest.mark.parametrize("serial", [0.1, 0.6])
def test_the_interval_covers_the_truth(serial: float, rounds: int) -> None:
    hits = 0
    for seed in range(200):
        interval = fitted(serial, rounds=rounds, noise=0.03, seed=seed).serial
        hits += interval.low <= serial <= interval.high
    assert 0.90 * 200 <= hits <= 0.99 * 200


def test_beyond_the_processors_the_law_is_flat_and_one_round_has_no_interval() -> None:
    found = fitted(0.25, processors=2)
    assert found.fitted == [1.0, 2.0]
    assert found.predicted[1:] == pytest.approx([0.625] * 4)
    assert amdahl.leaves(found, 0.05) is None
    found = fitted(0.25, rounds=1)
    assert (found.serial.low, found.serial.high) == (None, None)
    assert amdahl.leaves(found, 0.05) is None


@pytest.mark.parametrize(("factor", "limit"), [(1.5, "above"), (0.4, "below")])
def test_what_the_law_cannot_be_is_held_at_its_limits(factor: float, limit: str) -> None:
    logs = np.log([[1.0, factor]] * 3)
    found = amdahl.fit([1.0, 2.0], logs, 2, per_thread=False)
    assert found.limit == limit
    assert found.serial.value == (1.0 if limit == "above" else 0.0)


def test_each_threads_own_work_is_divided_first() -> None:
    """Perfect scaling: with its own work for each thread, the time stays the same."""
    logs = np.log([[1.0, 1.0, 1.0]] * 3)
    found = amdahl.fit([1.0, 2.0, 4.0], logs, 4, per_thread=True)
    assert found.serial.value == pytest.approx(0.0, abs=1e-6)
    assert found.predicted == pytest.approx([1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("threads", "processors"), [([1.0], 4), ([4.0, 8.0], 2), ([1.0, 2.0], 1), ([0.5, 2.0], 4)]
)
def test_what_cannot_be_fitted(threads: list[float], processors: int) -> None:
    logs = np.zeros((3, len(threads)))
    assert amdahl.fit(threads, logs, processors, per_thread=False) is None
    assert amdahl.fit([1.0, 2.0], np.zeros((0, 2)), 2, per_thread=False) is None


def test_the_first_departure_is_found_with_its_size() -> None:
    truth = [amdahl_seconds(0.3, 2)(n) * (1.4 if n >= 4 else 1.0) for n in THREADS]
    logs = np.array(noisy_logs(truth, 6, 0.01, 3))
    found = amdahl.fit(THREADS, logs, 2, per_thread=False)
    assert found is not None
    left = amdahl.leaves(found, 0.05)
    assert left.threads == 4.0
    assert left.ratio.value == pytest.approx(1.4, rel=0.03)


def test_noise_alone_seldom_leaves_the_law() -> None:
    left = [
        amdahl.leaves(fitted(0.3, processors=2, rounds=5, noise=0.05, seed=seed), 0.01)
        for seed in range(200)
    ]
    assert sum(each is not None for each in left) <= 0.08 * 200
