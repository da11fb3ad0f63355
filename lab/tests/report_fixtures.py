"""Results for the tests of reports: simulated comparisons and made-up experiments. The numbers are
computed; only their form is real.
"""

import math
import random
from dataclasses import replace

from conftest import Behaviour, World
from experiment_fixtures import made_up

from tsmlab import experiments
from tsmlab.allocators import own_names
from tsmlab.findings import find
from tsmlab.results import AllocatorInfo, Causes, Failure, Stop
from tsmlab.schedule import StopRule
from tsmlab.study import Study
from tsmlab.sweep import points_of

MIB = 1 << 20
PEERS = ("tsmalloc", "glibc", "jemalloc", "mimalloc", "tcmalloc", "tbbmalloc", "scudo")
NAMES = tuple(dict.fromkeys([*PEERS, *own_names()]))
SERIES_POINTS = 256


def with_series(comparison, points=SERIES_POINTS):
    """Adds a memory curve to each run, as `measure --series` writes it."""
    generator = random.Random(5)

    def sampled(sample):
        wall = sample.measurement.get("wall_ns") or 0
        peak = sample.values.get("peak_memory_bytes", 0.0)
        series, held = [], 0.1
        for number in range(points):
            held = min(1.0, max(0.05, held + generator.uniform(-0.02, 0.03)))
            series.append([wall * number // points, int(held * peak) // 4096 * 4096])
        series[points // 2][1] = int(peak)
        return replace(sample, measurement={**sample.measurement, "series": series})

    return replace(comparison, samples=[sampled(sample) for sample in comparison.samples])


def compared(count=25, rounds=15, series=SERIES_POINTS):
    """A comparison of this many allocators, with a memory curve for each run; the first is the
    fastest."""
    generator = random.Random(2)
    names = NAMES[:count]
    behaviours = {
        name: Behaviour(
            seconds=0.1 * math.exp(0.2 + 0.2 * place * generator.random()) if place else 0.1,
            noise=0.02,
            peak_bytes=int((18 + 0.7 * place * generator.random()) * MIB),
        )
        for place, name in enumerate(names)
    }
    comparison = World.comparison(behaviours, rule=StopRule(runs=rounds))
    return with_series(comparison, series)


SHIPPED = {path.stem: path for path in experiments.default_folder().glob("*.toml")}


def experimented(name, allocators=NAMES, rounds=None):
    """A shipped experiment with made-up runs. Points with larger numbers take longer; causes are
    counted at the first and the last point."""
    definition = experiments.read_file(SHIPPED[name])
    generator = random.Random(name)
    levels = {each: math.exp(generator.uniform(0.0, 1.5)) for each in allocators}
    points = points_of(definition.parameters)
    causes = [
        Causes(point, each, counts_of(level), [])
        for point in sorted({0, len(points) - 1})
        for each, level in levels.items()
    ]

    def truth(each, point):
        size = sum(float(v) for v in point.values() if isinstance(v, int | float)) ** 0.8 or 1.0
        return {spec.key: levels[each] * size for spec in definition.metrics}

    made = made_up(
        definition.parameters,
        allocators,
        truth,
        definition.metrics,
        rounds or definition.rounds,
        noise=0.03,
        causes=causes,
    )
    asked = replace(made, experiment=definition, allocators=list(map(info, allocators)))
    return replace(asked, findings=find(asked, definition.analyses, 2))


def info(name):
    family = "tsmalloc" if name == "tsmalloc" or "-" in name else "system"
    return AllocatorInfo(name, family, "1.2", None, f"/lib/lib{name}.so", "ab" * 32, {})


def counts_of(level):
    return {
        "growth_calls": float(int(100 * level)),
        "growth_bytes": level * 4e7,
        "futex_calls": float(int(3000 * level)),
        "futex_wait_ns": level * 5e8,
        "mmap_calls": 12.0,
        "foreign_frees": 0.0,
    }


def in_one_run(*comparisons):
    stop = Stop("runs", "all experiments done")
    return Study.of("experiment", comparisons, "2026-11-21T10:00:00+00:00", stop=stop)


def failing(comparison, text):
    """The same, with this failure in the last row."""
    failure = Failure("exit", f"exit {text}", text)
    rows = comparison.analysis.rows
    last = replace(rows[-1], failures=1, failure=failure, rank=None)
    return replace(comparison, analysis=replace(comparison.analysis, rows=[*rows[:-1], last]))
