"""Which leads, and does the order change: rankings at each point, and the pairs that are told
apart.

Why: "the winner changes with the number of threads" is a claim about pairs at two points. It holds
only if one was shown better at the one and the other at the other.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tsmlab import stats
from tsmlab.analysis import log_ratios
from tsmlab.experiments import words
from tsmlab.experiments.estimates import Logs, as_estimate, complete_rounds, kendall_tau, ratio_of
from tsmlab.experiments.measured import Measured, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate, Finding, Metric
from tsmlab.experiments.words import CANNOT_TELL, UNRESOLVED, cannot_tell, row
from tsmlab.stats import Verdict

Pair = tuple[str, str]
# Longer chains of names, and more of them, are no sentence any more.
NAMES_IN_A_CHAIN = 8
CHAINS_TOLD = 6
# Two have only one order or the other, which needs no coefficient.
NAMES_FOR_A_TAU = 3


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
        self.p_adjusted: dict[tuple[int, Pair], float] = {}  # of the family, by point and pair
        self._verdicts: dict[Pair, Verdict] = {}

    def p_values(self) -> dict[Pair, float]:
        """Of all pairs that have two rounds in common."""
        found = {}
        for first, second in itertools.combinations(self.order, 2):
            logs = list(log_ratios(self.logs[first], self.logs[second]).values())
            if len(logs) > 1:
                found[first, second] = stats.mean_is_zero_p(logs)
        return found

    def ratio(self, first: str, second: str) -> Estimate | None:
        ratio = ratio_of(log_ratios(self.logs[first], self.logs[second]))
        return None if ratio is None else as_estimate(ratio)

    def verdict(self, first: str, second: str, margin: float) -> Verdict:
        """The first against the second: better, worse, equal or unresolved."""
        if self.order.index(first) > self.order.index(second):
            return MIRRORED[self.verdict(second, first, margin)]
        if (first, second) not in self._verdicts:
            self._verdicts[first, second] = self._judge(first, second, margin)
        return self._verdicts[first, second]

    def _judge(self, first: str, second: str, margin: float) -> Verdict:
        ratio = ratio_of(log_ratios(self.logs[first], self.logs[second]))
        p_adjusted = self.p_adjusted.get((self.point, (first, second)))
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
    for family in [found] if one_family else [[standing] for standing in found]:
        adjusted = stats.holm_by_key(
            {(s.point, pair): p for s in family for pair, p in s.p_values().items()}
        )
        for standing in family:
            standing.p_adjusted = adjusted
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


def _ranking(data: Measured, found: Sequence[Standing], margin: float) -> str:
    """Best first, with ~ between neighbours that are not told apart: whole, or, where that is too
    long, those that are not shown to be behind the best. Equal ones are told together."""
    whole = len(found) <= CHAINS_TOLD and max(len(s.order) for s in found) <= NAMES_IN_A_CHAIN
    chains: dict[str, list[int]] = {}
    for standing in found:
        first = " ~ ".join(standing.first_group(margin))
        chains.setdefault(standing.chain(margin) if whole else first, []).append(standing.point)
    texts = [f"{chain}{words.at(data, *points)}" for chain, points in chains.items()]
    if len(texts) > CHAINS_TOLD:
        texts = [*texts[:CHAINS_TOLD], f"{len(texts) - CHAINS_TOLD} more"]
    head = "Best" if whole else "Not shown to be behind the best"
    return f"{head} in {data.metric(found[0].metric.name).title}: {'; '.join(texts)}."


def winner(data: Measured, request: AnalysisRequest) -> Finding:
    """Which is best at each point, which is not told apart from it, and does that change?"""
    allocators = data.names_for(request)
    margin = number_option(request, "margin", stats.DEFAULT_MARGIN)
    metric = data.metric(request.metric)
    found = standings(data, data.chosen, allocators, metric, one_family=False)
    if not found:
        why = "That takes two allocators with figures above 0 and no failed run."
        return cannot_tell(request, why, allocators)
    estimates = {
        f"{name} to {standing.order[0]}{words.at(data, standing.point)}": ratio
        for standing in found
        for name in standing.order[1:]
        if (ratio := standing.ratio(name, standing.order[0])) is not None
    }
    text = _ranking(data, found, margin)
    return row(request, _winner(found, margin), allocators, text, estimates)


def _winner(found: Sequence[Standing], margin: float) -> str:
    if all(standing.p_values() == {} for standing in found):
        return CANNOT_TELL
    groups = [standing.first_group(margin) for standing in found]
    always = [name for name in found[0].order if all(name in group for group in groups)]
    if len(always) == 1:
        alone = all(group == always for group in groups)
        return f"{always[0]} leads" if alone else f"{always[0]} leads or ties"
    if always:
        whole = any(len(g) == len(s.order) for g, s in zip(groups, found, strict=True))
        if len(found) == 1 and not whole:
            return f"{found[0].order[0]} among {len(groups[0])}"
        return "not told apart"
    leaders = list(dict.fromkeys(standing.order[0] for standing in found))
    changes = reversals(found, margin, leaders)
    return "the winner changes" if changes else "no one leads"


def order(data: Measured, request: AnalysisRequest) -> Finding:
    """Does the order change over the points? A changed order is a claim about pairs: one shown
    better here and worse there."""
    allocators = data.names_for(request)
    parameter = data.swept(request)
    if parameter is None:
        return cannot_tell(request, "No parameter is swept.", allocators)
    margin = number_option(request, "margin", stats.DEFAULT_MARGIN)
    metric = data.metric(request.metric)
    ranked = standings(data, data.chosen, allocators, metric, one_family=True)
    by_point = {standing.point: standing for standing in ranked}
    rows = [
        [by_point[point] for point in series.points if point in by_point]
        for series in data.series(parameter)
    ]
    rows = [each for each in rows if len(each) > 1]
    if not rows:
        why = f"That takes figures of two allocators at two values of {words.noun(parameter)}."
        return cannot_tell(request, why, allocators)
    changes = [change for each in rows for change in reversals(each, margin, allocators)]
    found = [standing for each in rows for standing in each]
    evidence = ""
    if changes:
        first = changes[0]
        here, there = (words.at(data, s.point) for s in (first.here, first.there))
        evidence = f" {first.first} is ahead of {first.second}{here}, behind it{there}."
    text = _ranking(data, found, margin) + evidence
    return row(request, _order(found, changes, margin), allocators, text, _taus(data, rows))


def _order(found: Sequence[Standing], changes: Sequence[Reversal], margin: float) -> str:
    if all(standing.p_values() == {} for standing in found):
        return UNRESOLVED
    if changes:
        return "the order changes"
    same = len({tuple(standing.order) for standing in found}) == 1
    told_apart = same and all(standing.in_order(margin) for standing in found)
    return "the same order" if told_apart else "no change shown"


def _taus(data: Measured, rows: Sequence[Sequence[Standing]]) -> dict[str, Estimate]:
    """Kendall's tau between the ranking at the first point of each curve and at the others."""
    found = {}
    for first, *others in rows:
        for other in others:
            common = [name for name in first.means if name in other.means]
            if len(common) < NAMES_FOR_A_TAU:
                continue
            tau = kendall_tau([first.means[n] for n in common], [other.means[n] for n in common])
            if tau is not None:
                here, there = (words.place(data, data.points[s.point]) for s in (other, first))
                found[f"Kendall's tau of {there} and {here}"] = Estimate(tau, None, None)
    return found
