"""Possible problems of a comparison: each warning names symptom, likely cause and remedy.

A confidence interval does not account for a busy machine, a cold cache or a program that ends
before it has allocated anything. Warnings do not change numbers or verdicts.
"""

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tsmlab import stats
from tsmlab.analysis import log_table
from tsmlab.machine import Machine
from tsmlab.metrics import PEAK_MEMORY, SYSTEM_TIME, TIME, TREE_MEMORY, USER_TIME
from tsmlab.results import Comparison, ResultWarning, Sample
from tsmlab.schedule import MIN_ROUNDS
from tsmlab.wording import names, share

# Below this, most of the time goes into starting the process and loading libraries.
SHORT_RUN_SECONDS = 0.005
# If a program makes fewer calls, no allocator can make a measurable difference.
FEW_CALLS = 1000
SAMPLING_SHARE = 0.01
OUTLIER_SHARE = 0.1
# Other work's share of the cores, from the load average, that causes a warning.
BUSY_SHARE = 0.5
# A tree whose processes together hold this many times the memory of the largest one.
TREE_FACTOR = 1.25
# A program that uses a processor for less than this share of its time waits for something.
WAITING_SHARE = 0.05
WAITING_SECONDS = 0.05


def find_all(comparison: Comparison, programs: Sequence[str] = ()) -> list[ResultWarning]:
    """All applicable warnings, most serious first. programs: those of the processes, by their
    calls."""
    return [
        *_waiting(comparison),
        *_few_rounds(comparison),
        *_noise(comparison),
        *_busy(comparison.machine),
        *_short_runs(comparison),
        *_few_calls(comparison.intercepted_calls),
        *_over_the_rounds(comparison),
        *_spread(comparison),
        *_several_processes(comparison, programs),
        *_sampling_cost(comparison.samples),
        *_machine_settings(comparison.machine),
        *_output(comparison),
    ]


def about_machine(machine: Machine) -> list[ResultWarning]:
    """Problems of the machine that affect any measurement."""
    return [*_busy(machine), *_machine_settings(machine)]


def _few_rounds(comparison: Comparison) -> Iterator[ResultWarning]:
    stop, rounds = comparison.stop, comparison.analysis.rounds
    if rounds >= MIN_ROUNDS:
        return
    budget = comparison.settings.time_budget_seconds
    causes = {
        "runs": "--runs asked for no more",
        "budget": f"the program runs long for a budget of {budget:g} s",
        "interrupted": "the comparison was interrupted",
    }
    remedies = {"runs": f"-r {MIN_ROUNDS} or more", "interrupted": "continue with --resume"}
    more = f"more time (--time-budget, or -m {MIN_ROUNDS} to insist), or fewer allocators (-a)"
    effect = "the intervals are wide" if rounds > 1 else "there are no intervals"
    yield ResultWarning(
        "few-rounds",
        f"only {rounds} of at least {MIN_ROUNDS} rounds: {effect}",
        causes.get(stop.reason, stop.text),
        remedies.get(stop.reason, more),
    )


def _noise(comparison: Comparison) -> Iterator[ResultWarning]:
    margin, asked = comparison.settings.margin, comparison.experiment
    wanted = None if asked is None else {each.metric for each in asked.analyses}
    for key, floor in comparison.analysis.noise_floors.items():
        if floor is not None and floor > margin and (wanted is None or key in wanted):
            yield ResultWarning(
                "noise-floor",
                f"noise floor of {comparison.metric(key).name}: the reference may differ from "
                f"itself by {share(floor)}, more than the margin of {share(margin)}",
                "a noisy machine, or a program whose runs vary",
                "more rounds (--time-budget, -r), a quieter machine, or a larger --margin",
            )


def _busy(machine: Machine) -> Iterator[ResultWarning]:
    if machine.load_at_start > BUSY_SHARE * machine.usable_cores:
        yield ResultWarning(
            "high-load",
            f"load {machine.load_at_start:.1f} on {machine.usable_cores} cores at the start",
            "other programs were running",
            "stop them, or use dedicated cores (--cpus; of a service --server-cpus, --load-cpus)",
        )


def _short_runs(comparison: Comparison) -> Iterator[ResultWarning]:
    times = [
        row.metrics[TIME].median
        for _, analysis in comparison.parts
        for row in analysis.rows
        if row.allocator == comparison.reference and TIME in row.metrics
    ]
    seconds = min(times, default=SHORT_RUN_SECONDS)
    if seconds < SHORT_RUN_SECONDS:
        yield ResultWarning(
            "short-runs",
            f"a run takes {seconds * 1000:.1f} ms",
            "that is mostly process startup and library loading",
            "give the program more work, as in daily use",
        )


def _waiting(comparison: Comparison) -> Iterator[ResultWarning]:
    """A program that sleeps, or waits for a terminal or a client."""
    shares = [
        (s.values[USER_TIME] + s.values[SYSTEM_TIME]) / s.values[TIME]
        for s in comparison.samples
        if s.allocator == comparison.reference
        and not s.failure
        and s.values.get(TIME, 0.0) > WAITING_SECONDS
        and {USER_TIME, SYSTEM_TIME} <= s.values.keys()
    ]
    if shares and np.median(shares) < WAITING_SHARE:
        yield ResultWarning(
            "waits",
            f"the program mostly waits: it uses the processor for "
            f"{share(float(np.median(shares)))} of its time",
            "it sleeps, or waits for input, a terminal, the network or a disk",
            "give it CPU-bound work, or rank by a number that it prints (--metric)",
        )


def _few_calls(calls: int | None) -> Iterator[ResultWarning]:
    if calls is not None and calls < FEW_CALLS:
        yield ResultWarning(
            "few-calls",
            f"the program called the allocator only {calls:,} times",
            "it allocates hardly anything with these arguments",
            "give it more work; otherwise expect no difference in time",
        )


def _over_the_rounds(comparison: Comparison) -> Iterator[ResultWarning]:
    """Trends over the rounds. The ratios are hardly affected, since they are paired."""
    steady = [row.allocator for row in comparison.analysis.rows if not row.failures]
    table = log_table(comparison.samples, steady, TIME)
    complete = table[:, ~np.isnan(table).any(axis=0)]
    if complete.size == 0:
        return
    effects = stats.round_effects(complete)
    limit = math.log1p(comparison.settings.margin)
    first = stats.first_round_effect(effects)
    if first is not None and abs(first) > limit:
        yield ResultWarning(
            "first-round",
            f"the first round was {_change(first)} than the others",
            "caches were still cold, or the processor's frequency was still changing",
            "more warm-up rounds (-w 3)",
        )
    trend = stats.theil_sen(effects)
    total = trend.slope * (len(effects) - 1) if trend else 0.0
    if trend and trend.significant and abs(total) > limit:
        yield ResultWarning(
            "drift",
            f"from the first round to the last, runs became {_change(total)}",
            "the machine's temperature or load changed, or files grew",
            "the ratios are paired and remain valid; reset files with --setup, or let the "
            "machine settle",
        )


def _change(log_ratio: float) -> str:
    word = "slower" if log_ratio > 0 else "faster"
    return f"{share(math.expm1(abs(log_ratio)))} {word}"


def _spread(comparison: Comparison) -> Iterator[ResultWarning]:
    times = {
        f"{row.allocator} at {where}" if where else row.allocator: row.metrics[TIME]
        for where, analysis in comparison.parts
        for row in analysis.rows
        if TIME in row.metrics
    }
    jumpy = [
        name
        for name, time in times.items()
        if time.runs >= MIN_ROUNDS and len(time.outlier_rounds) > OUTLIER_SHARE * time.runs
    ]
    if jumpy:
        yield ResultWarning(
            "outliers",
            f"over {share(OUTLIER_SHARE)} of the times are outliers: {names(jumpy)}",
            "something else ran now and then; no outlier was excluded",
            "a quieter machine, --cpus, or more rounds (-r)",
        )
    double = [
        name
        for name, time in times.items()
        if time.bimodal and time.maximum > time.minimum * (1.0 + comparison.settings.margin)
    ]
    if double:
        yield ResultWarning(
            "bimodal",
            f"times fall into two groups: {names(double)}",
            "the program or the machine has two states (placement in memory, cores, frequency)",
            "look at the raw samples (--export-csv); try --cpus",
        )


def _several_processes(comparison: Comparison, programs: Sequence[str]) -> Iterator[ResultWarning]:
    ratios = [
        sample.values[TREE_MEMORY] / sample.values[PEAK_MEMORY]
        for sample in comparison.samples
        if sample.allocator == comparison.reference
        and not sample.failure
        and {TREE_MEMORY, PEAK_MEMORY} <= sample.values.keys()
    ]
    if not ratios or np.median(ratios) <= TREE_FACTOR:
        return
    named = f" (most calls are from {programs[0]})" if programs else ""
    yield ResultWarning(
        "several-processes",
        f"the program has several processes; peak memory is that of the largest one{named}",
        f"together they used about {np.median(ratios):.1f} times as much",
        "see the column `all processes` for the sum",
    )


def _sampling_cost(samples: Sequence[Sample]) -> Iterator[ResultWarning]:
    shares = [
        s.measurement["sampling_ns"] / s.measurement["wall_ns"]
        for s in samples
        if s.phase == "measured" and s.measurement.get("wall_ns")
    ]
    if shares and np.median(shares) > SAMPLING_SHARE:
        yield ResultWarning(
            "sampling-cost",
            f"sampling memory cost {share(float(np.median(shares)))} of the time, for all "
            "allocators alike",
            "runs are short, or the program has very many processes",
            "longer runs reduce it",
        )


def _machine_settings(machine: Machine) -> Iterator[ResultWarning]:
    if machine.transparent_hugepages == "always":
        yield ResultWarning(
            "huge-pages",
            "transparent huge pages are enabled for all memory (always)",
            "peak memory and time then depend on which 2 MiB regions an allocator happens to touch",
            "compare as deployed; or: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    if machine.governor not in (None, "performance"):
        yield ResultWarning(
            "governor",
            f"the CPU frequency governor is {machine.governor!r}",
            "the CPU changes its speed with the load",
            "cpupower frequency-set -g performance, or accept a wider noise floor",
        )
    if machine.address_randomisation == 0:
        yield ResultWarning(
            "no-aslr",
            "address space randomisation is off",
            "every run has the same memory layout, which may favour one allocator by chance",
            "sysctl kernel.randomize_va_space=2",
        )


def _output(comparison: Comparison) -> Iterator[ResultWarning]:
    if comparison.settings.output_checked and comparison.output_comparable is False:
        yield ResultWarning(
            "output-varies",
            "the program's output varies between runs of the reference",
            "it prints times, addresses or random numbers, so outputs were not compared",
            "use a fixed seed if the program has one, or --ignore-output if this is expected",
        )
