"""From samples to a ranking: applies the statistics to every allocator and metric."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tsmlab import __version__, stats
from tsmlab.allocators import Allocator
from tsmlab.metrics import PEAK_MEMORY, MetricSpec
from tsmlab.results import (
    AllocatorInfo,
    Analysis,
    Comparison,
    Leaders,
    MetricSummary,
    Row,
    Sample,
)
from tsmlab.schedule import has_given_up
from tsmlab.stats import RatioEstimate, Verdict

LogsByRound = dict[int, float]


@dataclass(frozen=True)
class Question:
    """The question asked of the samples: which allocators, quantities and margin. families: how
    many families of verdicts are judged side by side, one for each point of a sweep."""

    allocators: tuple[str, ...]
    reference: str
    metrics: tuple[MetricSpec, ...]
    margin: float
    seed: int
    families: int = 1

    @property
    def primary(self) -> str:
        """The key of the metric that ranks: the first judged one. The user's own metric, if there
        is one, otherwise the time or the instructions."""
        return self.judged[0].key

    @property
    def judged(self) -> list[MetricSpec]:
        return [spec for spec in self.metrics if spec.judged]


def analyse(samples: Sequence[Sample], question: Question) -> Analysis:
    rows = {name: row_of(name, samples, question.metrics) for name in question.allocators}
    judged = {spec.key: _Metric(rows, samples, question, spec) for spec in question.judged}
    for metric in judged.values():
        metric.judge()
    primary = judged[question.primary]
    leaders = {key: found for key, each in judged.items() if (found := each.leaders())}
    ranked = _ranked(rows, primary)
    front = _pareto_front(rows, question.judged[0], question)
    return Analysis(
        primary_metric=question.primary,
        rounds=len({s.round for s in samples if s.phase == "measured"}),
        noise_floors={key: each.floor for key, each in judged.items()},
        rows=[replace(row, pareto=row.allocator in front) for row in ranked],
        leaders=leaders,
        recommended=_recommended(rows, judged, question.primary),
    )


def at_points(samples: Sequence[Sample], count: int, question: Question) -> list[Analysis]:
    asked = replace(question, families=count)
    return [analyse([s for s in samples if s.point == n], asked) for n in range(count)]


def comparison_of(
    question: Question, samples: list[Sample], allocators: Sequence[Allocator], **overrides: Any
) -> Comparison:
    return Comparison(
        tsmalloc_version=__version__,
        reference=question.reference,
        metrics=list(question.metrics),
        allocators=[AllocatorInfo.of(allocator) for allocator in allocators],
        analysis=analyse(samples, question),
        warnings=[],
        samples=samples,
        **overrides,
    )


def count_unresolved(analysis: Analysis) -> int:
    return sum(
        summary.verdict is Verdict.UNRESOLVED
        for row in analysis.rows
        for summary in row.metrics.values()
    )


def logs_by_round(samples: Sequence[Sample], allocator: str, key: str) -> LogsByRound:
    """The logarithm of the metric for each round: the mean of the reference's two runs, and over
    the points of a sweep, if there are several.

    Rounds that lack a usable value (a failure, or a number that has no logarithm) are absent.
    """
    points = {sample.point for sample in samples}
    found: dict[int, dict[int, list[float]]] = {}
    for sample in _usable(samples, allocator):
        value = sample.values.get(key, 0.0)
        if value > 0.0:
            cells = found.setdefault(sample.round, {})
            cells.setdefault(sample.point, []).append(math.log(value))
    return {
        number: sum(sum(logs) / len(logs) for logs in cells.values()) / len(cells)
        for number, cells in sorted(found.items())
        if len(cells) == len(points)
    }


def measured_cells(samples: Sequence[Sample]) -> dict[tuple[int, str], list[Sample]]:
    """The measured samples of each cell: an allocator at a point of the sweep."""
    cells: dict[tuple[int, str], list[Sample]] = {}
    for sample in samples:
        if sample.phase == "measured":
            cells.setdefault((sample.point, sample.allocator), []).append(sample)
    return cells


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
    points = {s.point for s in own}
    summaries = {}
    for spec in metrics:
        measured = [(s.round, s.values[spec.key]) for s in usable if spec.key in s.values]
        if measured:
            summary = _summary(measured)
            if len(points) > 1:  # values of different points differ by more than noise
                summary = replace(summary, outlier_rounds=[], bimodal=False)
            summaries[spec.key] = summary
    return Row(
        allocator=name,
        attempts=len(own),
        failures=len(failures),
        failure=failures[-1] if failures else None,
        gave_up=any(has_given_up(own, name, point) for point in points),
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


def log_ratios(numerator: LogsByRound, denominator: LogsByRound) -> LogsByRound:
    return {n: log - denominator[n] for n, log in numerator.items() if n in denominator}


def strata_of(samples: Sequence[Sample]) -> dict[int, str]:
    """The kind of machine that made each round; empty for a study on one machine."""
    return {s.round: s.kind for s in samples if s.phase == "measured" and s.kind}


def _is_candidate(row: Row, key: str) -> bool:
    return row.failures == 0 and key in row.metrics


def _cost_ratio(row: Row, spec: MetricSpec, reference: str) -> float | None:
    """Smaller is better: the ratio to the reference, inverted if higher is better."""
    if not _is_candidate(row, spec.key):
        return None
    ratio = row.metrics[spec.key].ratio
    if row.allocator == reference:
        return 1.0
    if ratio is None:
        return None
    return 1.0 / ratio.ratio if spec.higher_is_better else ratio.ratio


class _Metric:
    """One metric of all allocators, and their pairwise comparisons. rows: judge() fills in this
    metric's ratios and verdicts. floor: the reference's second run of each round against its
    first."""

    def __init__(
        self, rows: dict[str, Row], samples: Sequence[Sample], question: Question, spec: MetricSpec
    ) -> None:
        self._rows = rows
        self._question = question
        self._spec = spec
        self._strata = strata_of(samples)
        self._logs = {name: logs_by_round(samples, name, spec.key) for name in rows}
        second, first = (
            logs_by_round([s for s in samples if s.replicate == n], question.reference, spec.key)
            for n in (1, 0)
        )
        control = self._pair(second, first)
        self.floor = stats.noise_floor(control) if control else None

    def _pair(self, numerator: LogsByRound, denominator: LogsByRound) -> RatioEstimate | None:
        groups: dict[str, list[float]] = {}
        for number, log in log_ratios(numerator, denominator).items():
            groups.setdefault(self._strata.get(number, ""), []).append(log)
        seed = self._question.seed
        return stats.stratified_ratio(list(groups.values()), seed=seed) if groups else None

    def judge(self) -> None:
        """Holm's family: all candidates without a failure, for this metric. Ratios need positive
        numbers; without them there is no verdict."""
        question, key = self._question, self._spec.key
        baseline = self._logs[question.reference]
        estimates = {}
        for name, row in self._rows.items():
            if name == question.reference or not _is_candidate(row, key):
                continue
            estimate = self._pair(self._logs[name], baseline)
            if estimate is not None and row.metrics[key].minimum > 0.0:
                estimates[name] = estimate
        found = stats.holm_by_key({name: each.p_value for name, each in estimates.items()})
        adjusted = {name: min(1.0, question.families * p) for name, p in found.items()}
        for name, estimate in estimates.items():
            judgement = stats.judge(
                estimate,
                margin=question.margin,
                p_adjusted=adjusted.get(name),
                comparisons=question.families * len(adjusted),
                floor=self.floor,
                higher_is_better=self._spec.higher_is_better,
            )
            row = self._rows[name]
            summary = replace(
                row.metrics[key],
                ratio=estimate,
                p_adjusted=adjusted.get(name),
                verdict=judgement.verdict,
                rounds_more=judgement.rounds_more,
            )
            self._rows[name] = replace(row, metrics=row.metrics | {key: summary})

    @cached_property
    def order(self) -> list[str]:
        """The allocators that can be ranked, best first."""
        costs = {
            n: _cost_ratio(r, self._spec, self._question.reference) for n, r in self._rows.items()
        }
        known = {name: cost for name, cost in costs.items() if cost is not None}
        return sorted(known, key=lambda name: known[name])

    def versus(self, name: str, other: str) -> Verdict:
        """The p-value is Bonferroni-corrected for all pairs, although only a few matter: the data
        decide which ones."""
        question = self._question
        estimate = self._pair(self._logs[name], self._logs[other])
        if estimate is None:
            return Verdict.UNRESOLVED
        pairs = question.families * math.comb(len(question.allocators), 2)
        p_adjusted = None if estimate.p_value is None else min(1.0, pairs * estimate.p_value)
        return stats.judge(
            estimate, question.margin, p_adjusted, higher_is_better=self._spec.higher_is_better
        ).verdict

    def is_worse(self, name: str, other: str) -> bool:
        """Uses the verdict in the table if one of the two is the reference."""
        if other == self._question.reference:
            return self.against_reference(name) is Verdict.WORSE
        if name == self._question.reference:
            return self.against_reference(other) is Verdict.BETTER
        return self.versus(name, other) is Verdict.WORSE

    def against_reference(self, name: str) -> Verdict | None:
        return _verdict(self._rows[name], self._spec.key)

    def ranks(self) -> dict[str, int]:
        """One plus the number of allocators shown to be better. So allocators of equal rank are
        statistical ties, and one shown to be worse than the reference ranks below it, however noisy
        the leader is."""
        ahead: dict[str, set[str]] = {}
        for place, name in enumerate(self.order):
            ahead[name] = set()
            for other in reversed(self.order[:place]):
                # Better than a better one is better, even if the direct comparison was too noisy.
                if other not in ahead[name] and self.is_worse(name, other):
                    ahead[name] |= {other, *ahead[other]}
        return {name: 1 + len(better) for name, better in ahead.items()}

    def leaders(self) -> Leaders | None:
        if not self.order:
            return None
        best, *others = self.order
        verdicts = {name: self.versus(name, best) for name in others}
        return Leaders(
            best=best,
            equal=[name for name in others if verdicts[name] is Verdict.EQUAL],
            unresolved=[name for name in others if verdicts[name] is Verdict.UNRESOLVED],
        )

    def fastest(self) -> list[str]:
        """The best of the allocators shown to be better than the reference, and its equals."""
        better = [name for name in self.order if self.against_reference(name) is Verdict.BETTER]
        return better[:1] + [n for n in better[1:] if self.versus(n, better[0]) is Verdict.EQUAL]


def _ranked(rows: dict[str, Row], rankings: _Metric) -> list[Row]:
    """By rank, within a rank by the estimate; those without a rank come last."""
    ranks = rankings.ranks()
    ordered = sorted(rankings.order, key=lambda name: ranks[name])
    failed = [name for name in rows if name not in ranks]
    return [replace(rows[name], rank=ranks.get(name)) for name in [*ordered, *failed]]


def _pareto_front(rows: dict[str, Row], primary: MetricSpec, question: Question) -> set[str]:
    """The allocators that no other one dominates (as good on both metrics and better on one). Uses
    point estimates; differences below the margin count as none."""
    memory_spec = next(s for s in question.metrics if s.key == PEAK_MEMORY)
    points = {}
    for name, row in rows.items():
        cost = _cost_ratio(row, primary, question.reference)
        memory = _cost_ratio(row, memory_spec, question.reference)
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


def _recommended(rows: dict[str, Row], rankings: Mapping[str, _Metric], primary: str) -> str | None:
    """The smallest of the fastest allocators shown to be better than the reference; otherwise the
    smallest of all, if it is shown to be smaller and not shown to be slower; otherwise None."""
    if faster := rankings[primary].fastest():
        return min(faster, key=lambda name: _median_memory(rows[name]))
    small = rankings[PEAK_MEMORY].order[:1] if PEAK_MEMORY in rankings else []
    for name in small:
        shown_smaller = rankings[PEAK_MEMORY].against_reference(name) is Verdict.BETTER
        if shown_smaller and _verdict(rows[name], primary) is not Verdict.WORSE:
            return name
    return None


def _verdict(row: Row, key: str) -> Verdict | None:
    return row.metrics[key].verdict if key in row.metrics else None


def _median_memory(row: Row) -> float:
    return row.metrics[PEAK_MEMORY].median if PEAK_MEMORY in row.metrics else math.inf
