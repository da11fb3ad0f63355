"""Results for the tests of reports: comparisons of simulated runs, experiments made up.

Why: a page must hold for the largest results and for the oddest names, and what it shows must be
checked against numbers that are known.
Refuses to: measure. The numbers here are computed; only their form is real.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from conftest import Behaviour, World

from tsmlab.allocators import own_names
from tsmlab.experiments import catalogue, model
from tsmlab.experiments.analysis import analyse
from tsmlab.machine import describe
from tsmlab.results import AllocatorInfo, Comparison, Failure, Sample, Stop
from tsmlab.schedule import StopRule

MIB = 1 << 20
PEERS = ("tsmalloc", "glibc", "jemalloc", "mimalloc", "tcmalloc", "tbbmalloc", "scudo")
NAMES = tuple(dict.fromkeys([*PEERS, *own_names()]))
SERIES_POINTS = 256


def with_series(comparison: Comparison, points: int = SERIES_POINTS) -> Comparison:
    """Each run with a curve of its memory, as `measure --series` writes it."""
    generator = random.Random(5)

    def sampled(sample: Sample) -> Sample:
        wall = sample.measurement.get("wall_ns") or 0
        peak = sample.values.get("peak_memory_bytes", 0.0)
        series, held = [], 0.1
        for number in range(points):
            held = min(1.0, max(0.05, held + generator.uniform(-0.02, 0.03)))
            series.append([wall * number // points, int(held * peak) // 4096 * 4096])
        series[points // 2][1] = int(peak)
        return replace(sample, measurement={**sample.measurement, "series": series})

    return replace(comparison, samples=[sampled(sample) for sample in comparison.samples])


def compared(count: int = 25, rounds: int = 15, series: int = SERIES_POINTS) -> Comparison:
    """A comparison of this many allocators, each run's memory sampled; the first is the fastest."""
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


# --- experiments ----------------------------------------------------------------------------------


def experimented(
    names: tuple[str, ...] = (), allocators: tuple[str, ...] = (), maps: int = 400
) -> model.ExperimentResults:
    chosen = allocators or NAMES
    definitions = [
        definition
        for definition in catalogue.read_folder(catalogue.default_folder())
        if not names or definition.name in names
    ]
    return model.ExperimentResults(
        schema=model.SCHEMA,
        created="2026-11-21T10:00:00+00:00",
        tsmalloc_version="0.1",
        seed=7,
        cpus=None,
        machine=describe(),
        allocators=[info(name) for name in chosen],
        stop=Stop("runs", "all rounds done"),
        changed=[],
        experiments=[make_experiment(each, chosen, maps) for each in definitions],
    )


def is_ours(name: str) -> bool:
    return name == "tsmalloc" or "-" in name


def info(name: str) -> AllocatorInfo:
    family = "tsmalloc" if is_ours(name) else "system"
    return AllocatorInfo(name, family, "1.2", None, f"/lib/lib{name}.so", "ab" * 32, {})


def make_experiment(
    definition: model.Definition, allocators: tuple[str, ...], maps: int
) -> model.Experiment:
    points = catalogue.points_of(definition)
    generator = random.Random(definition.name)
    levels = {name: math.exp(generator.uniform(0.0, 1.5)) for name in allocators}
    cells = [
        make_cell(definition, index, len(points), point, name, levels[name], maps)
        for index, point in enumerate(points)
        for name in allocators
    ]
    made = model.Experiment(definition, points, list(allocators), cells, None)
    return replace(made, analysis=analyse(made, 2))


def growth(point: model.Point) -> float:
    """Larger numbers in the point take longer."""
    return sum(float(v) for v in point.values() if isinstance(v, int | float)) ** 0.8 or 1.0


def make_cell(
    definition: model.Definition,
    index: int,
    points: int,
    point: model.Point,
    name: str,
    level: float,
    maps: int,
) -> model.Cell:
    """Causes are counted at the first and the last point, heaps drawn at the last."""
    generator = random.Random(f"{definition.name}/{index}/{name}")
    metrics = [*definition.metrics, *model.BUILT_IN]
    runs = []
    for number in range(1, definition.rounds + 1):
        noise = generator.lognormvariate(0.0, 0.03)
        size = level * growth(point) * noise
        # Optional is what only some allocators can tell: ours, and glibc.
        told = [m for m in metrics if not m.optional or name == "glibc" or is_ours(name)]
        values = {m.name: measured(m, size) for m in told if m.source == "run"}
        runs.append(model.Run(number, 1, float(number), values, None))
    causes = None
    if index in (0, points - 1):
        heaps = maps if index == points - 1 else 0
        causes = make_causes(name, level, generator, heaps)
    return model.Cell(index, name, runs, False, causes)


def measured(metric: model.Metric, size: float) -> float:
    """A number as clocks and kernels give it."""
    if metric.unit == "seconds":
        return round(0.01 * size, 9 if metric.name == "wall_seconds" else 6)
    if metric.unit == "bytes":
        return float(int(1e6 * size) // 4096 * 4096)
    return round(size, 4) if metric.unit == "number" else float(int(1e4 * size))


def make_causes(name: str, level: float, generator: random.Random, maps: int) -> model.Causes:
    counts = {
        "growth_calls": float(int(100 * level)),
        "growth_bytes": level * 4e7,
        "futex_calls": float(int(3000 * level)),
        "futex_wait_ns": level * 5e8,
        "mmap_calls": 12.0,
        "foreign_frees": 0.0,
        "allocations": 1e6,
    }
    resident = [[t / 200, (1 + t / 100) * level * 1e7] for t in range(201)]
    live = [[t / 200, (1 + t / 100) * 8e6] for t in range(201)]
    curve = model.Curve(resident, live, 0.004)
    heaps = [make_map(generator, maps)] if "-" in name and maps else []
    return model.Causes(counts, [], curve, heaps, [])


def make_map(generator: random.Random, blocks: int) -> model.HeapMap:
    chunks = []
    for number in range(3):
        found = []
        for place in range(blocks // 3):
            state: Any = generator.choice(["used", "used", "used", "free", "cached", "mixed"])
            size = generator.choice([16, 32, 48, 64, 256, 1024, 8192]) * generator.randint(1, 6)
            used = {"used": 1.0, "mixed": 0.5}.get(state, 0.0)
            found.append(model.MapBlock(1 + place % 3, size, state, number, used))
        size = sum(block.bytes for block in found)
        chunks.append(model.MapChunk(0x7F0000000000 + number * 0x1000000, size, found))
    return model.HeapMap("all blocks live", chunks, 3)


def failing(comparison: Comparison, text: str) -> Comparison:
    """The same, with a failure of this text in the last row."""
    failure = Failure("exit", f"exit {text}", text)
    rows = comparison.analysis.rows
    last = replace(rows[-1], failures=1, failure=failure, rank=None)
    return replace(comparison, analysis=replace(comparison.analysis, rows=[*rows[:-1], last]))


def with_findings(experiment: model.Experiment, found: list[model.Finding]) -> model.Experiment:
    """The same, with other findings."""
    assert experiment.analysis is not None
    return replace(experiment, analysis=replace(experiment.analysis, findings=found))
