"""From samples to a ranking: applies the statistics to every allocator and metric.

Why: stats.py knows numbers, results.py knows what is kept; here the one becomes the other, as a
pure function of the samples, so that a saved comparison can be analysed again and gives the same.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tsmlab import stats
from tsmlab.metrics import PEAK_MEMORY, MetricSpec
from tsmlab.results import Analysis, Leaders, MetricSummary, Row, Sample
from tsmlab.schedule import has_given_up
from tsmlab.stats import RatioEstimate, Verdict

LogsByRound = dict[int, float]


@dataclass(frozen=True)
class Question:
    """The question to the samples: which allocators, which quantities, which margin."""

    allocators: tuple[str, ...]
    reference: str
    metrics: tuple[MetricSpec, ...]
    margin: float
    seed: int

    @property
    def primary(self) -> str:
        """The key of the ranking: the first that is judged. The user's own metric, if there is one,
        else the time, or the instructions."""
        return self.judged[0].key

    @property
    def judged(self) -> list[MetricSpec]:
        return [spec for spec in self.metrics if spec.judged]


def analyse(samples: Sequence[Sample], question: Question) -> Analysis:
    """The whole analysis."""
    rows = {name: row_of(name, samples, question.metrics) for name in question.allocators}
    floors: dict[str, float | None] = {}
    for spec in question.judged:
        floors[spec.key] = _noise_floor(samples, question, spec.key)
        _judge_metric(rows, samples, question, spec, floors[spec.key])
    ranked = _ranked(rows, samples, question)
    primary = next(s for s in question.metrics if s.key == question.primary)
    leaders = {
        spec.key: found
        for spec in (primary, *(s for s in question.judged if s.key != primary.key))
        if (found := _leaders(rows, samples, question, spec))
    }
    front = _pareto_front(rows, primary, question)
    final = [replace(row, pareto=row.allocator in front) for row in ranked]
    return Analysis(
        primary_metric=question.primary,
        rounds=len({s.round for s in samples if s.phase == "measured"}),
        noise_floors=floors,
        rows=final,
        leaders=leaders,
        recommended=_recommended(rows, leaders, question),
    )


def count_unresolved(analysis: Analysis) -> int:
    return sum(
        summary.verdict is Verdict.UNRESOLVED
        for row in analysis.rows
        for summary in row.metrics.values()
    )


def logs_by_round(samples: Sequence[Sample], allocator: str, key: str) -> LogsByRound:
    """The logarithm of the metric for each round; for the reference, the mean of its two runs.

    Rounds without a usable value (a failure, or a number that has no logarithm) are absent.
    """
    found: dict[int, list[float]] = {}
    for sample in _usable(samples, allocator):
        value = sample.values.get(key, 0.0)
        if value > 0.0:
            found.setdefault(sample.round, []).append(math.log(value))
    return {number: sum(logs) / len(logs) for number, logs in sorted(found.items())}


def log_table(samples: Sequence[Sample], allocators: Sequence[str], key: str) -> stats.Vector:
    """Allocators by rounds, NaN where there is no value."""
    rounds = sorted({s.round for s in samples if s.phase == "measured"})
    table = np.full((len(allocators), len(rounds)), np.nan)
    for row, name in enumerate(allocators):
        logs = logs_by_round(samples, name, key)
        for column, number in enumerate(rounds):
            table[row, column] = logs.get(number, np.nan)
    return table


def _usable(samples: Sequence[Sample], allocator: str) -> list[Sample]:
    return [
        s for s in samples if s.allocator == allocator and s.phase == "measured" and not s.failure
    ]


def row_of(name: str, samples: Sequence[Sample], metrics: Sequence[MetricSpec]) -> Row:
    """How an allocator's runs went, and each metric over those that did not fail; no ratios yet."""
    own = [s for s in samples if s.allocator == name and s.phase != "probe"]
    failures = [s.failure for s in own if s.failure]
    usable = _usable(samples, name)
    summaries = {}
    for spec in metrics:
        measured = [(s.round, s.values[spec.key]) for s in usable if spec.key in s.values]
        if measured:
            summaries[spec.key] = _summary(measured)
    return Row(
        allocator=name,
        attempts=len(own),
        failures=len(failures),
        failure=failures[-1] if failures else None,
        gave_up=has_given_up(own, name),
        metrics=summaries,
        rank=None,
        pareto=False,
    )


def _summary(measured: Sequence[tuple[int, float]]) -> MetricSummary:
    values = [value for _, value in measured]
    flags = stats.outlier_flags(values)
    return MetricSummary(
        runs=len(values),
        median=stats.median(values),
        mad=stats.median_absolute_deviation(values),
        minimum=min(values),
        maximum=max(values),
        outlier_rounds=[number for (number, _), odd in zip(measured, flags, strict=True) if odd],
        bimodal=stats.looks_bimodal(values),
    )


def _noise_floor(samples: Sequence[Sample], question: Question, key: str) -> float | None:
    """The reference's second run of each round against its first."""
    second, first = (
        logs_by_round([s for s in samples if s.replicate == replicate], question.reference, key)
        for replicate in (1, 0)
    )
    control = _pair(second, first, question.seed, strata_of(samples))
    return stats.noise_floor(control) if control else None


def log_ratios(numerator: LogsByRound, denominator: LogsByRound) -> LogsByRound:
    """The logarithm of the ratio in each round that has both."""
    return {n: log - denominator[n] for n, log in numerator.items() if n in denominator}


def strata_of(samples: Sequence[Sample]) -> dict[int, str]:
    """The kind of machine that made each round; none are known of a study on one machine."""
    return {s.round: s.kind for s in samples if s.phase == "measured" and s.kind}


def _pair(
    numerator: LogsByRound, denominator: LogsByRound, seed: int, strata: Mapping[int, str]
) -> RatioEstimate | None:
    groups: dict[str, list[float]] = {}
    for number, log in log_ratios(numerator, denominator).items():
        groups.setdefault(strata.get(number, ""), []).append(log)
    return stats.stratified_ratio(list(groups.values()), seed=seed) if groups else None


def _is_candidate(row: Row, key: str) -> bool:
    return row.failures == 0 and key in row.metrics


def _judge_metric(
    rows: dict[str, Row],
    samples: Sequence[Sample],
    question: Question,
    spec: MetricSpec,
    floor: float | None,
) -> None:
    """Fills in ratio and verdict of one metric. Holm's family: all candidates without a failure,
    for this metric. A ratio needs positive numbers; without them there is no verdict."""
    baseline = logs_by_round(samples, question.reference, spec.key)
    strata = strata_of(samples)
    estimates = {}
    for name, row in rows.items():
        if name == question.reference or not _is_candidate(row, spec.key):
            continue
        logs = logs_by_round(samples, name, spec.key)
        if len(logs) == row.metrics[spec.key].runs and (
            estimate := _pair(logs, baseline, question.seed, strata)
        ):
            estimates[name] = estimate
    adjusted = stats.holm_by_key({name: each.p_value for name, each in estimates.items()})
    for name, estimate in estimates.items():
        judgement = stats.judge(
            estimate,
            margin=question.margin,
            p_adjusted=adjusted.get(name),
            comparisons=len(adjusted),
            floor=floor,
            higher_is_better=spec.higher_is_better,
        )
        summary = replace(
            rows[name].metrics[spec.key],
            ratio=estimate,
            p_adjusted=adjusted.get(name),
            verdict=judgement.verdict,
            rounds_more=judgement.rounds_more,
        )
        rows[name] = replace(rows[name], metrics=rows[name].metrics | {spec.key: summary})


def _standing(row: Row, spec: MetricSpec, reference: str) -> float | None:
    """Smaller is better: the ratio to the reference, upside down where higher is better."""
    if not _is_candidate(row, spec.key):
        return None
    ratio = row.metrics[spec.key].ratio
    if row.allocator == reference:
        return 1.0
    if ratio is None:
        return None
    return 1.0 / ratio.ratio if spec.higher_is_better else ratio.ratio


def _versus(
    name: str, other: str, samples: Sequence[Sample], question: Question, spec: MetricSpec
) -> Verdict:
    """One allocator against another, to group them into ranks. The p-value is Bonferroni's for all
    pairs, although few are compared: which ones is only known from the data."""
    logs = [logs_by_round(samples, n, spec.key) for n in (name, other)]
    estimate = _pair(logs[0], logs[1], question.seed, strata_of(samples))
    if estimate is None:
        return Verdict.UNRESOLVED
    pairs = math.comb(len(question.allocators), 2)
    p_adjusted = None if estimate.p_value is None else min(1.0, pairs * estimate.p_value)
    return stats.judge(
        estimate, question.margin, p_adjusted, higher_is_better=spec.higher_is_better
    ).verdict


def _by_standing(rows: dict[str, Row], spec: MetricSpec, reference: str) -> list[str]:
    standings = {name: _standing(row, spec, reference) for name, row in rows.items()}
    known = [(standing, name) for name, standing in standings.items() if standing is not None]
    return [name for _, name in sorted(known, key=lambda pair: pair[0])]


def _ranked(rows: dict[str, Row], samples: Sequence[Sample], question: Question) -> list[Row]:
    """Best first. Those not shown worse than the best of their group share its rank; the next one
    opens a new group, with its place as its rank. Unrankable rows come last."""
    spec = next(s for s in question.metrics if s.key == question.primary)
    order = _by_standing(rows, spec, question.reference)
    ranks: dict[str, int] = {}
    leader = None
    for place, name in enumerate(order, start=1):
        if leader is None or _versus(name, leader, samples, question, spec) is Verdict.WORSE:
            leader, rank = name, place
        ranks[name] = rank
    failed = [name for name in rows if name not in ranks]
    return [replace(rows[name], rank=ranks.get(name)) for name in [*order, *failed]]


def _leaders(
    rows: dict[str, Row], samples: Sequence[Sample], question: Question, spec: MetricSpec
) -> Leaders | None:
    order = _by_standing(rows, spec, question.reference)
    if not order:
        return None
    best, others = order[0], order[1:]
    verdicts = {name: _versus(name, best, samples, question, spec) for name in others}
    return Leaders(
        best=best,
        equal=[name for name in others if verdicts[name] is Verdict.EQUAL],
        unresolved=[name for name in others if verdicts[name] is Verdict.UNRESOLVED],
    )


def _pareto_front(rows: dict[str, Row], primary: MetricSpec, question: Question) -> set[str]:
    """Those that no other beats: as good on both counts and better on one. By point estimates,
    where a difference below the margin counts as none."""
    memory_spec = next(s for s in question.metrics if s.key == PEAK_MEMORY)
    points = {}
    for name, row in rows.items():
        cost = _standing(row, primary, question.reference)
        memory = _standing(row, memory_spec, question.reference)
        if cost is not None and memory is not None:
            points[name] = (cost, memory)
    slack = 1.0 + question.margin

    def beats(other: tuple[float, float], own: tuple[float, float]) -> bool:
        pairs = list(zip(other, own, strict=True))
        return all(a <= b * slack for a, b in pairs) and any(a * slack < b for a, b in pairs)

    return {
        name
        for name, own in points.items()
        if not any(beats(other, own) for other in points.values())
    }


def _recommended(
    rows: dict[str, Row], leaders: dict[str, Leaders], question: Question
) -> str | None:
    """The fastest if it is shown better than the reference (among its equals, the smallest);
    else the smallest, if it is shown smaller and not shown slower; else none."""
    if found := leaders.get(question.primary):
        group = [found.best, *found.equal]
        group = [n for n in group if _verdict(rows[n], question.primary) is Verdict.BETTER]
        if group:
            return min(group, key=lambda n: _median_memory(rows[n]))
    if small := leaders.get(PEAK_MEMORY):
        row = rows[small.best]
        shown_smaller = _verdict(row, PEAK_MEMORY) is Verdict.BETTER
        if shown_smaller and _verdict(row, question.primary) is not Verdict.WORSE:
            return small.best
    return None


def _verdict(row: Row, key: str) -> Verdict | None:
    return row.metrics[key].verdict if key in row.metrics else None


def _median_memory(row: Row) -> float:
    return row.metrics[PEAK_MEMORY].median if PEAK_MEMORY in row.metrics else math.inf
