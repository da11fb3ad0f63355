"""Does the order of the allocators change over the points of a sweep?

Why: report E ordered the three fits and left open whether threads change their order. A changed
order is a claim about pairs: one shown better here and worse there.
Refuses to: read an order from figures that are not told apart; `~` stands between such neighbours.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tsmlab import stats
from tsmlab.experiments import phrases
from tsmlab.experiments.estimates import kendall_tau
from tsmlab.experiments.measured import Measured, Series, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate
from tsmlab.experiments.outcome import UNRESOLVED, Outcome, cannot_tell
from tsmlab.experiments.printed import Figure, Printed, printed, squeeze
from tsmlab.experiments.rankings import Reversal, Standing, reversals, standings
from tsmlab.stats import Verdict

# Longer chains of names are no sentence any more.
NAMES_IN_A_CHAIN = 8
CHAINS_TOLD = 12
# Two have only one order or the other, which needs no coefficient.
NAMES_FOR_A_TAU = 3
REVERSALS_TOLD = 2


@dataclass(frozen=True)
class Row:
    """One curve over the parameter: the standings at its points, in the order of its values."""

    series: Series
    standings: list[Standing]


def analyse(data: Measured, request: AnalysisRequest) -> Outcome:
    names = data.names_for(request)
    metric = data.metric(request.metric)
    parameter = data.swept(request)
    if parameter is None:
        return cannot_tell(
            request, "An order can only change over a parameter, and none is.", names
        )
    found = standings(data, data.chosen, names, metric, one_family=True)
    by_point = {standing.point: standing for standing in found}
    rows = [
        Row(series, [by_point[point] for point in series.points if point in by_point])
        for series in data.series(parameter)
    ]
    rows = [row for row in rows if len(row.standings) > 1]
    if not rows:
        return cannot_tell(
            request,
            f"Whether the order by {phrases.lower(metric.title)} changes cannot be told: that "
            f"takes two values of {phrases.noun(parameter)} at which two of the allocators asked "
            f"about have figures above 0.",
            names,
        )
    return _Orders(data, request, rows, names).outcome()


class _Orders:
    def __init__(
        self, data: Measured, request: AnalysisRequest, rows: Sequence[Row], names: Sequence[str]
    ) -> None:
        self.data = data
        self.request = request
        self.rows = rows
        self.names = names
        self.metric = data.metric(request.metric)
        self.margin = number_option(request, "margin", stats.DEFAULT_MARGIN)
        self.parameter = rows[0].series.parameter
        self.found = [standing for row in rows for standing in row.standings]

    def outcome(self) -> Outcome:
        shown = [c for row in self.rows for c in reversals(row.standings, self.margin, self.names)]
        verdict, lead = self._verdict_and_lead(shown)
        return Outcome(
            self.request,
            verdict,
            self.names,
            self._taus(),
            lead=lead,
            reported=self._reported(),
            details=[*self._chains(), *self._spread(), *self._agreement()],
            doubts=self._doubts(),
        )

    # --- the answer -------------------------------------------------------------------------------

    def _over(self) -> str:
        return f"over {phrases.noun(self.parameter)}"

    def _in(self) -> str:
        return f"by {phrases.lower(self.metric.title)}"

    def _at(self, standing: Standing) -> str:
        return phrases.at(self.data, self.data.points[standing.point])

    def _verdict_and_lead(self, shown: Sequence[Reversal]) -> tuple[str, list[str]]:
        if all(standing.p_values() == {} for standing in self.found):
            return UNRESOLVED, [self._without_intervals()]
        if shown:
            pairs = {frozenset((each.first, each.second)) for each in shown}
            more = len(pairs) - REVERSALS_TOLD
            rest = f" {more} more pairs change places." if more > 0 else ""
            evidence = [self._evidence(each) for each in _one_each(shown)[:REVERSALS_TOLD]]
            evidence[-1] += rest
            return "the order changes", [
                f"The order {self._in()} changes {self._over()}.",
                *evidence,
            ]
        orders = {tuple(standing.order) for standing in self.found}
        if len(orders) == 1 and all(s.in_order(self.margin) for s in self.found):
            return "the same order", [
                (
                    f"The order {self._in()} is the same at every point, and every neighbour is "
                    f"told apart: {self.found[0].chain(self.margin)}."
                )
            ]
        return "no change shown", [
            (
                f"No change of the order {self._in()} {self._over()} is shown: no pair is better "
                f"one way at one point and the other way at another. {self._steady_pairs()}"
            )
        ]

    def _without_intervals(self) -> str:
        """How much it would take for the order to change, as far as single figures tell."""
        why = (
            "was counted once at each point"
            if self.data.is_counted(self.metric.name)
            else "was measured in one round"
        )
        changes = [change for row in self.rows for change in self._changes(row.standings)]
        if not changes:
            return (
                f"The order {self._in()} is the same at every point, as far as what {why} can tell."
            )
        size, first, second, here, there = max(changes, key=lambda change: change[0])
        changed = len({frozenset(change[1:3]) for change in changes})
        pairs = math.comb(len({name for s in self.found for name in s.means}), 2)
        verb = "changes its" if changed == 1 else "change their"
        return (
            f"{changed} of {pairs} pairs {verb} order {self._in()} {self._over()}, by "
            f"{phrases.percent(size)} % at the most: {first} has less{self._at(here)}, {second}"
            f"{self._at(there)}; this {why}, so nothing tells it from chance."
        )

    def _changes(
        self, found: Sequence[Standing]
    ) -> list[tuple[float, str, str, Standing, Standing]]:
        """Pairs that stand in different orders at two points, with the smaller of the two
        differences, as a fraction, and where each of them is the lower one."""
        changes = []
        for i, one in enumerate(found):
            for other in found[i + 1 :]:
                names = [name for name in one.means if name in other.means]
                for first, second in itertools.combinations(names, 2):
                    before = one.means[second] - one.means[first]
                    after = other.means[second] - other.means[first]
                    if before * after < 0.0:
                        size = math.expm1(min(abs(before), abs(after), 50.0))
                        places = (one, other) if before > 0.0 else (other, one)
                        changes.append((size, first, second, *places))
        return changes

    def _steady_pairs(self) -> str:
        """How many pairs are told apart at every point, in the same direction."""
        common = [n for n in self.names if all(n in s.means for s in self.found)]
        pairs = [(a, b) for i, a in enumerate(common) for b in common[i + 1 :]]
        steady = 0
        for first, second in pairs:
            verdicts = {s.verdict(first, second, self.margin) for s in self.found}
            steady += verdicts in ({Verdict.BETTER}, {Verdict.WORSE})
        if not pairs:
            return "No pair was measured at every point."
        return f"{steady} of {len(pairs)} pairs are told apart at every point."

    def _evidence(self, change: Reversal) -> str:
        texts = []
        for standing in (change.here, change.there):
            ratio = standing.ratio(change.first, change.second)
            if ratio is not None:
                clause = phrases.compared(change.first, change.second, ratio, self.metric)
                texts.append(f"{clause}{self._at(standing)}")
        return phrases.clause(self.data, ", and ".join(texts))

    # --- beside it --------------------------------------------------------------------------------

    def _chains(self) -> list[str]:
        """The rankings in full, at the ends of each curve where there are many."""
        shown = self.found
        if len(shown) > CHAINS_TOLD:
            shown = [s for row in self.rows for s in (row.standings[0], row.standings[-1])]
        shown = shown[:CHAINS_TOLD]
        if any(len(standing.order) > NAMES_IN_A_CHAIN for standing in shown):
            return []
        by_chain: dict[str, list[int]] = {}
        for standing in shown:
            by_chain.setdefault(standing.chain(self.margin), []).append(standing.point)
        texts = [f"{c}{phrases.at_points(self.data, points)}" for c, points in by_chain.items()]
        return [f"Best first, with ~ between neighbours not told apart: {'; '.join(texts)}."]

    def _spread(self) -> list[str]:
        ordered = sorted(self.found, key=Standing.spread)
        least, most = ordered[0], ordered[-1]
        return [
            (
                f"They are closest{self._at(least)}, where the highest is {_excess(least)} above "
                f"the lowest, and farthest apart{self._at(most)}, by {_excess(most)}."
            )
        ]

    def _taus(self) -> dict[str, Estimate]:
        """Kendall's tau between the ranking at the first point of each curve and at the others."""
        found = {}
        for row in self.rows:
            first = row.standings[0]
            for other in row.standings[1:]:
                names = [name for name in first.means if name in other.means]
                if len(names) < NAMES_FOR_A_TAU:
                    continue
                tau = kendall_tau([first.means[n] for n in names], [other.means[n] for n in names])
                if tau is not None:
                    here = phrases.place(self.data, self.data.points[other.point])
                    there = phrases.place(self.data, self.data.points[first.point])
                    found[f"Kendall's tau of {there} and {here}"] = Estimate(tau, None, None)
        return found

    def _agreement(self) -> list[str]:
        taus = self._taus()
        if not taus:
            return []
        worst = min(taus, key=lambda name: taus[name].value)
        between = worst.removeprefix("Kendall's tau of ")
        return [
            (
                f"Kendall's tau between the rankings at the first and at other points, told apart "
                f"or not, is {phrases.fixed(taus[worst].value)} at the least, between {between}."
            )
        ]

    def _doubts(self) -> list[str]:
        failed = list({name: None for standing in self.found for name in standing.failed})
        if not failed:
            return []
        return [f"Not ranked where runs failed: {phrases.some(failed)}."]

    # --- the reports ------------------------------------------------------------------------------

    def _reported(self) -> list[str]:
        tables = printed(self.data.definition, self.names, self.metric)
        return [sentence for table in tables if (sentence := self._beside(table))]

    def _beside(self, table: Printed) -> str:
        """Whether two labels that the report ordered in one way everywhere are ordered so here, in
        all pairs of ours that differ in nothing else."""
        texts: dict[str, list[str]] = {}
        for better, worse in _reported_order(table, higher=self.metric.higher_is_better):
            verdicts = {
                standing.verdict(one, other, self.margin)
                for one, other in _counterparts(table, better, worse)
                for standing in self.found
                if one in standing.means and other in standing.means
            }
            if verdicts:
                texts.setdefault(_word(verdicts), []).append(f"{better} < {worse}")
        if not texts:
            return ""
        parts = [f"{word} for {phrases.some(pairs)}" for word, pairs in texts.items()]
        return f"The order of {table.name} is {'; '.join(parts)}."


def _word(verdicts: set[Verdict]) -> str:
    if verdicts == {Verdict.BETTER}:
        return "confirmed"
    if Verdict.WORSE in verdicts:
        return "refuted at one point or more" if Verdict.BETTER in verdicts else "refuted"
    return "not decided at every point" if Verdict.BETTER in verdicts else "not decided"


def _counterparts(table: Printed, better: str, worse: str) -> list[tuple[str, str]]:
    """Our allocators that two labels mean, in pairs with the same other parts of their names."""
    ones, others = (
        {_rest(figure): figure.allocator for figure in table.figures if figure.label == label}
        for label in (better, worse)
    )
    return [(ones[rest], others[rest]) for rest in ones if rest in others]


def _rest(figure: Figure) -> str:
    """What a name says beside the label: "lock" of lock-first for the label "first fit"."""
    parts = figure.allocator.split("-")
    wanted = squeeze(figure.label)
    return "-".join(part for part in parts if squeeze(part) not in (wanted, wanted[: -len("fit")]))


def _excess(standing: Standing) -> str:
    """By how much the highest is above the lowest."""
    return f"{phrases.percent(standing.spread() - 1.0)} %"


def _one_each(shown: Sequence[Reversal]) -> list[Reversal]:
    """The first reversal of each pair."""
    return list({frozenset((each.first, each.second)): each for each in reversed(shown)}.values())[
        ::-1
    ]


def _reported_order(table: Printed, higher: bool) -> list[tuple[str, str]]:
    """(better, worse), as the table calls them, where it has one order at all its points."""
    values: dict[str, dict[float | None, float]] = {}
    for figure in table.figures:
        values.setdefault(figure.label, {})[figure.x] = figure.value
    pairs = []
    for first, second in itertools.combinations(values, 2):
        common = [x for x in values[first] if x in values[second]]
        signs = {_sign(values[first][x] - values[second][x]) for x in common}
        if signs in ({1}, {-1}):
            low_first = (first, second) if signs == {-1} else (second, first)
            pairs.append(low_first[::-1] if higher else low_first)
    return pairs


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
