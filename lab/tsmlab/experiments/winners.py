"""Who is best at each point of the sweep, who is not told apart from it, and does that change?

Why: the lecture's finding was that the winner of one program loses the next; within a sweep the
same is asked of its points.
Refuses to: crown one that is only ahead by chance. Those not told apart are named with the best.
"""

from __future__ import annotations

from collections.abc import Sequence

from tsmlab import stats
from tsmlab.experiments import phrases
from tsmlab.experiments.estimates import inverse
from tsmlab.experiments.measured import Measured, number_option
from tsmlab.experiments.model import AnalysisRequest, Estimate
from tsmlab.experiments.outcome import CANNOT_TELL, Outcome, cannot_tell
from tsmlab.experiments.printed import Printed, printed
from tsmlab.experiments.rankings import Reversal, Standing, reversals, standings
from tsmlab.stats import Verdict
from tsmlab.wording import three_digits

# With more points than this, who follows whom is left to the tables.
POINTS_TOLD = 4
# How many of those behind are named, and the last one.
FOLLOWERS_TOLD = 3


def analyse(data: Measured, request: AnalysisRequest) -> Outcome:
    names = data.names_for(request)
    metric = data.metric(request.metric)
    margin = number_option(request, "margin", stats.DEFAULT_MARGIN)
    found = standings(data, data.chosen, names, metric, one_family=False)
    if not found:
        return cannot_tell(
            request,
            f"Nobody can be called best in {phrases.lower(metric.title)}: that takes two "
            f"allocators with figures above 0 and no failed run.",
            names,
        )
    winners = _Winners(data, request, found, margin)
    verdict, lead = winners.verdict_and_lead()
    return Outcome(
        request,
        verdict,
        names,
        winners.estimates(),
        lead=lead,
        reported=winners.reported(),
        details=winners.details(),
        doubts=winners.doubts(),
    )


class _Winners:
    def __init__(
        self,
        data: Measured,
        request: AnalysisRequest,
        found: Sequence[Standing],
        margin: float,
    ) -> None:
        self.data = data
        self.request = request
        self.found = found
        self.margin = margin
        self.metric = data.metric(request.metric)
        self.groups = [standing.first_group(margin) for standing in found]

    def _at(self, standing: Standing) -> str:
        return phrases.at(self.data, self.data.points[standing.point])

    def _everywhere(self) -> str:
        """At every point, or at those where two or more could be ranked."""
        return phrases.at_points(self.data, [standing.point for standing in self.found])

    def _best_word(self) -> str:
        if phrases.is_duration(self.metric):
            return "fastest"
        if self.metric.unit == "bytes":
            return "smallest"
        return "best" if self.metric.higher_is_better else "lowest"

    def _in_metric(self) -> str:
        return phrases.in_metric(self.metric)

    # --- the answer -------------------------------------------------------------------------------

    def verdict_and_lead(self) -> tuple[str, list[str]]:
        if all(standing.p_values() == {} for standing in self.found):
            return CANNOT_TELL, [self._without_intervals()]
        if len(self.found) == 1:
            return self._single()
        always = [name for name in self.found[0].order if all(name in g for g in self.groups)]
        alone = [name for name in always if all(g == [name] for g in self.groups)]
        word = f"{self._best_word()}{self._in_metric()}"
        if alone:
            return f"{alone[0]} leads", [
                f"{alone[0]} is {word}{self._everywhere()}{self._lead_of(alone[0])}."
            ]
        if always:
            return self._shared(always, word)
        return self._changing(word)

    def _lead_of(self, name: str) -> str:
        """By how much it leads at the least."""
        closest: tuple[Estimate, str, Standing] | None = None
        for standing in self.found:
            second = standing.order[1]
            ratio = standing.ratio(second, name)
            if ratio is not None:
                size = inverse(ratio) if self.metric.higher_is_better else ratio
                if closest is None or size.value < closest[0].value:
                    closest = (size, second, standing)
        if closest is None:
            return ""
        size, second, standing = closest
        times = size.value >= phrases.TIMES_FROM
        text = phrases.times(size) if times else phrases.excess(size)
        return f", by {text} or more ({second}{self._at(standing)} comes closest)"

    def _without_intervals(self) -> str:
        standing = self.found[0]
        best = standing.order[0]
        value = self.data.summary(standing.point, best, self.metric.name)
        figure = "" if value is None else f" ({phrases.measure(value.median, self.metric.unit)})"
        why = "counted once" if self.data.is_counted(self.metric.name) else "measured in one round"
        return (
            f"{best} is {self._best_word()}{self._in_metric()}{self._at(standing)}{figure}, but "
            f"this was {why}, so nothing tells a difference from chance."
        )

    def _single(self) -> tuple[str, list[str]]:
        standing, group = self.found[0], self.groups[0]
        best = standing.order[0]
        sentence = f"{best} is {self._best_word()}{self._in_metric()}{self._at(standing)}"
        if len(group) == len(standing.order):
            names = phrases.some(standing.order)
            return "not told apart", [
                (
                    f"No best is shown{self._in_metric()}{self._at(standing)}: {names} are not "
                    f"told apart from {best}, which is ahead by chance or by little."
                )
            ]
        rest = f", not told apart from {phrases.some(group[1:])}" if len(group) > 1 else ""
        verdict = f"{best} leads" if len(group) == 1 else f"{best} among {len(group)}"
        return verdict, [f"{sentence}{rest}; {self._followers(standing, group)}."]

    def _followers(self, standing: Standing, group: Sequence[str]) -> str:
        """Those behind the first group, nearest first, and the last of all."""
        behind = [name for name in standing.order if name not in group]
        told = behind[:FOLLOWERS_TOLD]
        texts = [self._behind(standing, name, verb=i == 0) for i, name in enumerate(told)]
        if len(behind) > len(told):
            others = len(behind) - len(told) - 1
            between = f"{others} more, and " if others else ""
            texts.append(f"{between}last {self._behind(standing, behind[-1], verb=False)}")
        return ", ".join(texts)

    def _behind(self, standing: Standing, name: str, verb: bool) -> str:
        best = standing.order[0]
        ratio = standing.ratio(name, best)
        if ratio is None:
            return name
        if verb:
            return phrases.compared(name, best, ratio, self.metric)
        size = inverse(ratio) if self.metric.higher_is_better else ratio
        if size.value >= phrases.TIMES_FROM:
            return f"{name} {phrases.times(size)}"
        return f"{name} {phrases.excess(size)}"

    def _shared(self, always: Sequence[str], word: str) -> tuple[str, list[str]]:
        """Some are in the first group everywhere: no change of the winner is shown."""
        single = [
            standing.point
            for standing, group in zip(self.found, self.groups, strict=True)
            if group == [always[0]]
        ]
        if len(always) == 1:
            beside = {n: None for g in self.groups for n in g if n != always[0]}
            where = phrases.at_points(self.data, single)
            alone = f", and alone{where}" if single else ""
            return f"{always[0]} leads or ties", [
                (
                    f"{always[0]} is among the {word}{self._everywhere()}{alone}; elsewhere "
                    f"{phrases.some(list(beside))} cannot be told apart from it."
                )
            ]
        return "not told apart", [
            (
                f"{phrases.some(always)} are among the {word}{self._everywhere()}, not told apart "
                f"from the best, so no change of the winner is shown."
            )
        ]

    def _changing(self, word: str) -> tuple[str, list[str]]:
        """Nobody is in the first group everywhere."""
        by_best: dict[str, list[int]] = {}
        for standing in self.found:
            by_best.setdefault(standing.order[0], []).append(standing.point)
        parts = [
            f"{name}{phrases.at_points(self.data, points)}" for name, points in by_best.items()
        ]
        leaders = list(by_best)
        shown = reversals(self.found, self.margin, leaders)
        text = f"The {word} is {phrases.some(parts, 5)}"
        if not shown:
            return "no one leads", [
                (
                    f"{text}; nobody is among the first at every point, but no two of them are "
                    f"shown to change places."
                )
            ]
        return "the winner changes", [
            f"The winner changes: {text[0].lower()}{text[1:]}.",
            self._evidence(shown[0]),
        ]

    def _evidence(self, reversal: Reversal) -> str:
        texts = []
        for standing in (reversal.here, reversal.there):
            ratio = standing.ratio(reversal.first, reversal.second)
            if ratio is not None:
                clause = phrases.compared(reversal.first, reversal.second, ratio, self.metric)
                texts.append(f"{clause}{self._at(standing)}")
        return phrases.clause(self.data, ", and ".join(texts))

    # --- beside it --------------------------------------------------------------------------------

    def details(self) -> list[str]:
        if len(self.found) == 1 or len(self.found) > POINTS_TOLD:
            return []
        sentences = []
        for standing, group in zip(self.found, self.groups, strict=True):
            if len(group) < len(standing.order):
                where = phrases.capital(self._at(standing).strip())
                sentences.append(f"{where}, {self._followers(standing, group)}.")
        return sentences

    def doubts(self) -> list[str]:
        failed: dict[str, list[int]] = {}
        for point in self.data.chosen:
            for name in self.data.names_for(self.request):
                if self.data.failures(point, name):
                    failed.setdefault(name, []).append(point)
        if not failed:
            return []
        texts = [f"{n}{phrases.at_points(self.data, points)}" for n, points in failed.items()]
        return [f"Not ranked, since runs failed: {phrases.some(texts)}."]

    def estimates(self) -> dict[str, Estimate]:
        """Each one's figure to the best's."""
        found = {}
        for standing in self.found:
            best = standing.order[0]
            for name in standing.order[1:]:
                ratio = standing.ratio(name, best)
                if ratio is not None:
                    point = self.data.points[standing.point]
                    found[phrases.key(self.data, f"{name} to {best}", point)] = ratio
        return found

    # --- the reports ------------------------------------------------------------------------------

    def reported(self) -> list[str]:
        """Where a report's table has two of ours: whether the one that was ahead there is here."""
        names = list({name: None for standing in self.found for name in standing.order})
        tables = printed(self.data.definition, names, self.metric)
        sentences = [self._beside(table) for table in tables]
        return [sentence for sentence in sentences if sentence]

    def _beside(self, table: Printed) -> str:
        theirs = {name: figure.value for name, figure in table.single_figures().items()}
        ranked = sorted(theirs, key=lambda n: theirs[n], reverse=self.metric.higher_is_better)
        if len(ranked) < 2 or (ratio := table.ratio(ranked[0], ranked[-1])) is None:
            return ""
        ahead, behind, size = ranked[0], ranked[-1], max(ratio, 1.0 / ratio)
        if self._is_paired(ahead, behind):
            return ""
        text = (
            f"{phrases.capital(table.name)} had {ahead} ahead of {behind} by "
            f"{three_digits(size)} times"
        )
        both = [s for s in self.found if ahead in s.means and behind in s.means]
        verdicts = {standing.verdict(ahead, behind, self.margin) for standing in both}
        if verdicts == {Verdict.BETTER}:
            return f"{text}: confirmed, {self._ours(both, ahead, behind)}."
        if verdicts == {Verdict.WORSE}:
            return f"{text}: refuted, {self._ours(both, ahead, behind)}."
        if Verdict.BETTER in verdicts and Verdict.WORSE in verdicts:
            return f"{text}: here that depends on the point."
        return f"{text}: neither confirmed nor refuted here."

    def _is_paired(self, one: str, other: str) -> bool:
        """Whether another analysis sets these two beside the reports, and says more."""
        return any(
            {each.options.get("first"), each.options.get("second")} == {one, other}
            and each.metric == self.metric.name
            for each in self.data.definition.analyses
            if each.kind == "pair"
        )

    def _ours(self, both: Sequence[Standing], ahead: str, behind: str) -> str:
        standing = max(both, key=lambda s: abs(s.means[ahead] - s.means[behind]))
        ratio = standing.ratio(ahead, behind)
        if ratio is None:
            return "by an unknown ratio"
        size = ratio if ratio.value >= 1.0 else inverse(ratio)
        at_most = "by at most" if len(both) > 1 else "by"
        return f"here {at_most} {phrases.times(size)}{self._at(standing)}"
