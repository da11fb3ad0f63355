"""Who leads, and does the order change: rankings at each point of a sweep, with what is told apart.

Why: "the winner changes with the number of threads" is a claim about pairs at two points, and holds
only if one was shown better at the one and the other at the other.
Refuses to: rank one under which a run failed, or to take a difference of medians for an order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tsmlab import stats
from tsmlab.experiments.estimates import (
    Logs,
    as_estimate,
    complete_rounds,
    paired_ratio,
    ratio_of,
)
from tsmlab.experiments.measured import Measured
from tsmlab.experiments.model import Estimate, Metric
from tsmlab.stats import Verdict

Pair = tuple[str, str]


class Standing:
    """The allocators at one point, best first, with everything that was shown between them."""

    def __init__(self, data: Measured, point: int, names: Sequence[str], metric: Metric) -> None:
        self.point = point
        self.metric = metric
        found = {name: data.logs(point, name, metric.name) for name in names}
        self.logs: dict[str, Logs] = {name: logs for name, logs in found.items() if logs}
        self.failed = [name for name in names if data.failures(point, name)]
        self.means = _means(self.logs)
        sign = -1.0 if metric.higher_is_better else 1.0
        self.order = sorted(self.means, key=lambda name: sign * self.means[name])
        self._p_adjusted: dict[Pair, float] = {}
        self._verdicts: dict[Pair, Verdict] = {}

    def p_values(self) -> dict[Pair, float]:
        """Of all pairs that have two rounds in common."""
        found = {}
        for first, second in itertools.combinations(self.order, 2):
            logs = list(paired_ratio(self.logs[first], self.logs[second]).values())
            if len(logs) > 1:
                found[first, second] = stats.mean_is_zero_p(logs)
        return found

    def settle(self, adjusted: dict[Pair, float]) -> None:
        """Takes the family's adjusted p-values; verdicts are asked for afterwards."""
        self._p_adjusted = adjusted

    def ratio(self, first: str, second: str) -> Estimate | None:
        ratio = ratio_of(paired_ratio(self.logs[first], self.logs[second]))
        return None if ratio is None else as_estimate(ratio)

    def verdict(self, first: str, second: str, margin: float) -> Verdict:
        """The first against the second: better, worse, equal or unresolved."""
        if self.order.index(first) > self.order.index(second):
            return MIRRORED[self.verdict(second, first, margin)]
        if (first, second) not in self._verdicts:
            self._verdicts[first, second] = self._judge(first, second, margin)
        return self._verdicts[first, second]

    def _judge(self, first: str, second: str, margin: float) -> Verdict:
        ratio = ratio_of(paired_ratio(self.logs[first], self.logs[second]))
        p_adjusted = self._p_adjusted.get((first, second))
        if ratio is None or p_adjusted is None:
            return Verdict.UNRESOLVED
        higher = self.metric.higher_is_better
        return stats.judge(ratio, margin, p_adjusted, higher_is_better=higher).verdict

    def first_group(self, margin: float) -> list[str]:
        """The best and those that are not shown to be worse than it."""
        return [
            name
            for name in self.order
            if name == self.order[0]
            or self.verdict(self.order[0], name, margin) is not Verdict.BETTER
        ]

    def chain(self, margin: float) -> str:
        """a < b ~ c: best first; ~ stands between neighbours that are not told apart."""
        text = "".join(self.order[:1])
        for one, other in itertools.pairwise(self.order):
            apart = self.verdict(one, other, margin) is Verdict.BETTER
            text += f" {'<' if apart else '~'} {other}"
        return text

    def spread(self) -> float:
        """The worst's mean to the best's, always from 1 on."""
        values = list(self.means.values())
        return math.exp(min(max(values) - min(values), 700.0)) if values else 1.0

    def in_order(self, margin: float) -> bool:
        """Whether every neighbour is told apart."""
        return "~" not in self.chain(margin)


MIRRORED = {
    Verdict.BETTER: Verdict.WORSE,
    Verdict.WORSE: Verdict.BETTER,
    Verdict.EQUAL: Verdict.EQUAL,
    Verdict.UNRESOLVED: Verdict.UNRESOLVED,
}


def _means(logs: dict[str, Logs]) -> dict[str, float]:
    """The mean logarithm over the rounds that all have; over each one's own where there is none."""
    common, table = complete_rounds(list(logs.values()))
    if common:
        return {name: float(table[:, i].mean()) for i, name in enumerate(logs)}
    return {name: sum(own.values()) / len(own) for name, own in logs.items()}


def standings(
    data: Measured, points: Sequence[int], names: Sequence[str], metric: Metric, one_family: bool
) -> list[Standing]:
    """At each point where two or more can be ranked. one_family: Holm's correction over the pairs
    of all points, for claims about several of them, instead of over those of each point."""
    found = [Standing(data, point, names, metric) for point in points]
    found = [standing for standing in found if len(standing.order) > 1]
    tested = [(standing, standing.p_values()) for standing in found]
    if one_family:
        values = [p for _, p_values in tested for p in p_values.values()]
        adjusted = iter(stats.holm_adjust(values))
        for standing, p_values in tested:
            standing.settle({pair: next(adjusted) for pair in p_values})
    else:
        for standing, p_values in tested:
            own = stats.holm_adjust(list(p_values.values()))
            standing.settle(dict(zip(p_values, own, strict=True)))
    return found


@dataclass(frozen=True)
class Reversal:
    """`first` was shown better at one point, and `second` at another."""

    first: str
    second: str
    here: Standing
    there: Standing


def reversals(found: Sequence[Standing], margin: float, among: Sequence[str]) -> list[Reversal]:
    """One for each pair whose order is shown to change, at the points where it does by most."""
    changes = []
    for first, second in itertools.combinations(among, 2):
        shown: dict[Verdict, Standing] = {}
        both = [s for s in found if first in s.means and second in s.means]
        for standing in sorted(both, key=lambda s: abs(s.means[first] - s.means[second])):
            shown[standing.verdict(first, second, margin)] = standing
        if Verdict.BETTER in shown and Verdict.WORSE in shown:
            changes.append(Reversal(first, second, shown[Verdict.BETTER], shown[Verdict.WORSE]))
    return changes
