"""Made-up experiments for the tests of their analysis: times and counts whose truth is known.

Why: a sentence about causes, exponents or orders is right or wrong only where the truth is given.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import experiment_world

from tsmlab.experiments.catalogue import points_of
from tsmlab.experiments.model import (
    AnalysisKind,
    AnalysisRequest,
    Causes,
    Cell,
    Definition,
    Experiment,
    Metric,
    Parameter,
    Point,
    Reported,
    Run,
)
from tsmlab.results import Failure

CRASH = Failure("signal", "SIGSEGV")
SECONDS = Metric("seconds", "time", "seconds", higher_is_better=False)
LIVE = Metric("live_bytes", "live bytes", "bytes", higher_is_better=False)
THREADS = Parameter("threads", "threads", [1, 2, 4, 8])

# A cell's values, by allocator and point; None where the runs fail.
Truth = Callable[[str, Point], Mapping[str, float] | None]
Counted = Callable[[str, Point], Mapping[str, float] | None]


def request(
    kind: AnalysisKind, metric: str = "seconds", parameter: str | None = None, **options: Any
) -> AnalysisRequest:
    return AnalysisRequest(kind, metric, parameter, options)


def definition(
    analyses: Sequence[AnalysisRequest],
    parameters: Sequence[Parameter] = (),
    metrics: Sequence[Metric] = (SECONDS,),
    reported: Sequence[Reported] = (),
) -> Definition:
    return experiment_world.definition(
        "made-up",
        arguments=[],
        parameters=list(parameters),
        metrics=list(metrics),
        rounds=5,
        analyses=list(analyses),
        reported=list(reported),
    )


def experiment(
    asked: Definition,
    names: Sequence[str],
    truth: Truth,
    counted: Counted = lambda _name, _point: None,
    rounds: int = 8,
    noise: float = 0.01,
    seed: int = 1,
) -> Experiment:
    """Every value varies by a factor of its own and by one of the round, both log-normal."""
    generator = random.Random(seed)
    points = points_of(asked)
    slow = [generator.lognormvariate(0.0, 3.0 * noise) for _ in range(rounds)]
    cells = []
    for index, point in enumerate(points):
        for name in names:
            values = truth(name, point)
            runs = []
            for number in range(1, rounds + 1):
                found = {
                    key: value * slow[number - 1] * generator.lognormvariate(0.0, noise)
                    for key, value in (values or {}).items()
                }
                failure = CRASH if values is None else None
                runs.append(Run(number, 0, 0.0, {} if failure else found, failure))
            counts = counted(name, point)
            causes = None if counts is None else Causes(dict(counts), [], None, [], [])
            cells.append(Cell(index, name, runs, values is None, causes))
    return Experiment(asked, points, list(names), cells, None)


def amdahl_seconds(serial: float, processors: int) -> Callable[[float], float]:
    return lambda threads: serial + (1.0 - serial) / min(threads, processors)


def noisy_logs(truth: Sequence[float], rounds: int, noise: float, seed: int) -> list[list[float]]:
    """Rows of logarithms; a whole row is shifted, too."""
    generator = random.Random(seed)
    rows = []
    for _ in range(rounds):
        shift = generator.gauss(0.0, 3.0 * noise)
        rows.append([math.log(value) + shift + generator.gauss(0.0, noise) for value in truth])
    return rows
