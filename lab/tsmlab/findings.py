"""Answers questions about the points of a sweep from its samples: pair, order, fit.

A finding is a pure function of a comparison, so it can be recomputed from saved samples. A cell (an
allocator at a point) with any failed run is left out of all answers.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

from tsmlab import fits, stats
from tsmlab.analysis import LogsByRound, log_ratios, logs_by_round, measured_cells
from tsmlab.definition import AnalysisRequest
from tsmlab.fits import CONFIRMED, REFUTED
from tsmlab.machine import Machine
from tsmlab.metrics import MetricSpec, Unit
from tsmlab.results import Comparison, Curve, Estimate, Finding
from tsmlab.stats import Judgement, RatioEstimate, Verdict
from tsmlab.sweep import Parameter, Point, describe
from tsmlab.toml_tables import is_number
from tsmlab.wording import names, quantity, rounds

INCONCLUSIVE = "inconclusive"
# Exponents this close are the same shape: 0.1 is 26% over a factor of ten.
TOLERANCE = 0.1
# With more figures than this, only the smallest and the largest are printed.
MAX_FIGURES = 4
# Longer chains of names, or more of them, are no longer a readable sentence.
MAX_CHAIN_NAMES = 8
MAX_CHAINS = 6


def find(
    comparison: Comparison, requests: Sequence[AnalysisRequest], processors: int | None
) -> list[Finding]:
    """The answer to each question. processors: how many the runs could use; needed for Amdahl's
    law."""
    return [_Question(comparison, each, processors).finding() for each in requests]


def usable_processors(machine: Machine, cpus: Sequence[int] | None) -> int:
    """The processors that runs may use at once: those chosen by the user, or the machine's, but no
    more than its control group allows."""
    count = len(cpus) if cpus else machine.usable_cores
    limit = machine.cgroup_cpu_limit
    return max(1, count if limit is None else min(count, round(limit)))


class _Question:
    """One question and its part of the sweep."""

    def __init__(
        self, comparison: Comparison, request: AnalysisRequest, processors: int | None
    ) -> None:
        self.comparison = comparison
        self.request = request
        self.processors = processors
        self.metric = _metric(comparison, request.metric)
        everywhere = [point.values for point in comparison.points] or [Point()]
        self.points = {
            index: {k: v for k, v in point.items() if k not in request.at}
            for index, point in enumerate(everywhere)
            if all(point.get(name) == value for name, value in request.at.items())
        }
        known = [info.name for info in comparison.allocators]
        patterns = request.allocators or ["*"]
        self.allocators = [n for n in known if any(fnmatchcase(n, p) for p in patterns)]
        self.failed: list[str] = []
        self._logs = self._all_logs()

    def finding(self) -> Finding:
        if not self.allocators:
            return self.no_answer(f"no allocator matches {names(self.request.allocators)}.")
        if not any(self._logs.values()):
            return self.no_answer(f"{self.metric.name} was not measured.")
        found = {"pair": _pair, "order": _order, "fit": _fit}[self.request.kind](self)
        where = describe(self.request.at)
        exclusions = f" Excluded where runs failed: {names(self.failed)}." if self.failed else ""
        return replace(found, text=f"{f'{where}: ' if where else ''}{found.text}{exclusions}")

    def answer(
        self, verdict: str, text: str, estimates: dict[str, Estimate], *curves: Curve
    ) -> Finding:
        kind, metric = self.request.kind, self.request.metric
        return Finding(kind, metric, verdict, text, estimates, list(curves))

    def no_answer(self, why: str) -> Finding:
        """why: a whole sentence."""
        return self.answer(INCONCLUSIVE, why, {})

    def _all_logs(self) -> dict[tuple[int, str], LogsByRound]:
        found = {}
        for (point, name), samples in measured_cells(self.comparison.samples).items():
            if point not in self.points or name not in self.allocators:
                continue
            values = [s.values[self.metric.key] for s in samples if self.metric.key in s.values]
            if any(sample.failure for sample in samples):
                self.failed.append(name)
            elif values and min(values) > 0.0 and math.isfinite(max(values)):
                found[point, name] = logs_by_round(samples, name, self.metric.key)
        self.failed = list(dict.fromkeys(self.failed))
        return found

    def logs(self, point: int, name: str) -> LogsByRound:
        """Logarithms by round; empty if a run failed, or a value has no logarithm."""
        return self._logs.get((point, name), {})

    def floor(self, point: int) -> float | None:
        """The reference's A/A noise at this point."""
        points = self.comparison.points
        analysis = points[point].analysis if points else self.comparison.analysis
        return analysis.noise_floors.get(self.metric.key)

    # --- points -----------------------------------------------------------------------------------

    def at(self, *indices: int) -> str:
        """ " at threads=4", " everywhere", or nothing: goes after a clause."""
        if not any(self.points[index] for index in indices):
            return ""
        if len(indices) > 1 and len(indices) == len(self.points):
            return " everywhere"
        if len(indices) > MAX_FIGURES:
            return f" at {len(indices)} of {len(self.points)} points"
        return f" at {' and '.join(describe(self.points[index]) for index in indices)}"

    @property
    def parameter(self) -> Parameter | None:
        """The parameter in the question; by default the first whose values are numbers."""
        swept = [p for p in self.comparison.parameters if p.name not in self.request.at]
        if self.request.parameter is not None:
            return next((p for p in swept if p.name == self.request.parameter), None)
        return next((p for p in swept if p.is_numeric), None)

    def series(self, parameter: Parameter) -> list[tuple[Point, list[int]]]:
        """The points as curves over the parameter: the values of the other parameters, and the
        points in the order of the parameter's values."""
        groups: dict[str, tuple[Point, list[int]]] = {}
        for index, point in self.points.items():
            fixed = {name: value for name, value in point.items() if name != parameter.name}
            groups.setdefault(repr(fixed), (fixed, []))[1].append(index)
        for _, indices in groups.values():
            if parameter.is_numeric:
                indices.sort(key=lambda index: float(self.points[index][parameter.name]))
        return list(groups.values())


def _metric(comparison: Comparison, key: str) -> MetricSpec:
    known = {spec.key: spec for spec in comparison.metrics}
    return known.get(key, MetricSpec(key, key.replace("_", " "), "number", judged=False))


# --- figures in sentences -------------------------------------------------------------------------


def interval(estimate: Estimate) -> str:
    """1.84 [1.75, 1.93]: two digits, three close to 1."""
    close = estimate.value > 0 and abs(math.log(estimate.value)) < 0.05
    digits = 3 if close else 2

    def fixed(value: float) -> str:
        text = f"{value:.{digits}f}"
        return text.removeprefix("-") if float(text) == 0.0 else text

    if estimate.low is None or estimate.high is None:
        return fixed(estimate.value)
    return f"{fixed(estimate.value)} [{fixed(estimate.low)}, {fixed(estimate.high)}]"


def _figures(figures: Sequence[tuple[float, str]]) -> str:
    """The texts of all values from the smallest to the largest; of many, only the two extremes."""
    texts = [text for _, text in sorted(figures)]
    if len(texts) <= MAX_FIGURES:
        return "; ".join(texts)
    return f"from {texts[0]} to {texts[-1]}, {len(texts)} in all"


def _estimate(ratio: RatioEstimate) -> Estimate:
    return Estimate(ratio.ratio, ratio.low, ratio.high)


def _ratio_of(logs: LogsByRound, others: LogsByRound) -> RatioEstimate | None:
    """None without common rounds, or if it is out of range."""
    try:
        ratio = stats.estimate_ratio(list(log_ratios(logs, others).values()))
    except (ValueError, OverflowError):
        return None
    # If exp() is 0, the ratio has no logarithm and no inverse.
    return None if 0.0 in (ratio.ratio, ratio.low, ratio.high) else ratio


# --- pair -----------------------------------------------------------------------------------------


def _pair(question: _Question) -> Finding:
    """Is `first` better than `second`? Holm's family: the points."""
    options, metric = question.request.options, question.metric
    first, second = options["first"], options["second"]
    taking_part = {info.name for info in question.comparison.allocators}
    if absent := [name for name in (first, second) if name not in taking_part]:
        return question.no_answer(f"{names(absent)} did not take part.")
    ratios = {
        point: ratio
        for point in question.points
        if (ratio := _ratio_of(question.logs(point, first), question.logs(point, second)))
    }
    if not ratios:
        return question.no_answer("No round has values above 0 for both.")
    adjusted = stats.holm_by_key({point: ratio.p_value for point, ratio in ratios.items()})
    judged = {
        point: stats.judge(
            ratio,
            stats.DEFAULT_MARGIN,
            adjusted.get(point),
            len(adjusted),
            question.floor(point),
            metric.higher_is_better,
        )
        for point, ratio in ratios.items()
    }
    estimates = {point: _estimate(ratio) for point, ratio in ratios.items()}
    figures = [(e.value, f"{interval(e)}{question.at(point)}") for point, e in estimates.items()]
    text = f"{metric.name}, {first} to {second}: {_figures(figures)}{_more(judged)}."
    return question.answer(
        _verdict_of_pair(judged, first, second),
        text + _counted(question, first, second),
        {f"ratio{question.at(point)}": each for point, each in estimates.items()},
    )


def _verdict_of_pair(judged: Mapping[int, Judgement], first: str, second: str) -> str:
    verdicts = [judgement.verdict for judgement in judged.values()]
    better, worse = (verdicts.count(v) for v in (Verdict.BETTER, Verdict.WORSE))
    if better and worse:
        return "depends on the point"
    if better or worse:
        count = max(better, worse)
        where = "" if count == len(judged) else f" at {count} of {len(judged)} points"
        return f"{first if better else second} is better{where}"
    return "equal" if verdicts.count(Verdict.EQUAL) == len(judged) else "unresolved"


def _more(judged: Mapping[int, Judgement]) -> str:
    more = max((judgement.rounds_more or 0 for judgement in judged.values()), default=0)
    return f"; about {rounds(more, more=True)} would resolve it" if more else ""


def _counted(question: _Question, first: str, second: str) -> str:
    """The counts that the option `show` names, at the last point where either allocator has any."""
    counts = {(c.point, c.allocator): c.counts for c in question.comparison.causes}
    for point in reversed(question.points):
        one, other = counts.get((point, first), {}), counts.get((point, second), {})
        texts = [
            f"{name.replace('_', ' ')} {quantity(one[name], unit_of(name))} to "
            f"{quantity(other[name], unit_of(name))}"
            for name in question.request.options.get("show", [])
            if name in one and name in other
        ]
        if texts:
            return f" Counted{question.at(point)}: {'; '.join(texts)}."
    return ""


def unit_of(count: str) -> Unit:
    return "bytes" if count.endswith("_bytes") or "_bytes_" in count else "count"


# --- order ----------------------------------------------------------------------------------------


class _PointRanking:
    """The allocators at one point, the best first, and which differences are shown. Holm's family:
    their pairs."""

    def __init__(self, question: _Question, point: int) -> None:
        self.point = point
        self._question = question
        logs = {name: question.logs(point, name) for name in question.allocators}
        self.logs = {name: own for name, own in logs.items() if own}
        common = fits.table_of(list(self.logs.values()))
        means = common.mean(axis=0) if len(common) else [_mean(own) for own in self.logs.values()]
        self.means = dict(zip(self.logs, map(float, means), strict=True))
        sign = -1.0 if question.metric.higher_is_better else 1.0
        self.order = sorted(self.means, key=lambda name: sign * self.means[name])
        self._ratios = {
            (one, other): ratio
            for one, other in itertools.combinations(self.order, 2)
            if (ratio := _ratio_of(self.logs[one], self.logs[other])) is not None
        }
        tested = {pair: ratio.p_value for pair, ratio in self._ratios.items()}
        self._adjusted = stats.holm_by_key(tested)

    @property
    def is_tested(self) -> bool:
        return bool(self._adjusted)

    def is_ahead(self, one: str, other: str, families: int = 1) -> bool:
        """Whether the first is shown to be better. families: how many points the claim covers."""
        ratio, p_value = self._ratios.get((one, other)), self._adjusted.get((one, other))
        if ratio is None or p_value is None:
            return False
        higher = self._question.metric.higher_is_better
        floor, p_value = self._question.floor(self.point), min(1.0, families * p_value)
        judged = stats.judge(ratio, stats.DEFAULT_MARGIN, p_value, 1, floor, higher)
        return judged.verdict is Verdict.BETTER

    @property
    def first_group(self) -> list[str]:
        """The best, and those not shown to be worse."""
        return [n for n in self.order if not self.is_ahead(self.order[0], n)]

    @property
    def chain(self) -> str:
        """a < b ~ c: best first; ~ joins neighbours that are statistical ties."""
        text = self.order[0]
        for one, other in itertools.pairwise(self.order):
            text += f" {'<' if self.is_ahead(one, other) else '~'} {other}"
        return text


def _mean(logs: LogsByRound) -> float:
    return sum(logs.values()) / len(logs)


# One allocator is shown better than the other at the first point, and worse at the second.
Reversal = tuple[str, str, _PointRanking, _PointRanking]


def _reversals(question: _Question, found: Sequence[_PointRanking]) -> list[Reversal]:
    """One for each pair whose order is shown to change, at the points with the largest change."""
    changes, points = [], len(question.points)
    for one, other in itertools.combinations(question.allocators, 2):
        both = [s for s in found if one in s.means and other in s.means]
        both.sort(key=lambda s: -abs(s.means[one] - s.means[other]))
        here = next((s for s in both if s.is_ahead(one, other, points)), None)
        there = next((s for s in both if s.is_ahead(other, one, points)), None)
        if here and there:
            changes.append((one, other, here, there))
    return changes


def _order(question: _Question) -> Finding:
    """Which is best at each point, and does the order change between points?"""
    found = [_PointRanking(question, point) for point in question.points]
    found = [ranking for ranking in found if len(ranking.order) > 1]
    if not found:
        return question.no_answer("This needs two allocators with values above 0 and no failures.")
    parameter = question.parameter if question.request.parameter else None
    rows = [list(question.points)]
    if parameter:
        rows = [indices for _, indices in question.series(parameter)]
    changes = []
    for row in rows:
        changes += _reversals(question, [s for s in found if s.point in row])
    text = _ranking(question, found)
    if changes:
        one, other, here, there = changes[0]
        at, behind = question.at(here.point), question.at(there.point)
        text += f" {one} is ahead of {other}{at}, but behind it{behind}."
    estimates = {
        f"{name} to {best}{question.at(ranking.point)}": _estimate(ratio)
        for ranking in found
        for best, *others in [ranking.order]
        for name in others
        if (ratio := _ratio_of(ranking.logs[name], ranking.logs[best]))
    }
    return question.answer(_verdict_of_order(found, changes), text, estimates)


def _verdict_of_order(found: Sequence[_PointRanking], changes: Sequence[Reversal]) -> str:
    if not any(ranking.is_tested for ranking in found):
        return INCONCLUSIVE
    groups = [ranking.first_group for ranking in found]
    always = [name for name in found[0].order if all(name in group for group in groups)]
    several = len(found) > 1
    everywhere = " everywhere" if several else ""
    if len(always) == 1:
        alone = all(group == always for group in groups)
        leader = f"{always[0]} {'leads' if alone else 'leads or ties'}{everywhere}"
    elif any({one, other} & {s.order[0] for s in found} == {one, other}
             for one, other, *_ in changes):  # fmt: skip
        return "the winner changes"
    elif always and not several and len(always) < len(found[0].order):
        leader = f"{always[0]} leads, not distinguishable from {len(always) - 1}"
    else:
        leader = "no single winner"
    if not several:
        return leader
    if changes:
        return f"{leader}; the order changes"
    same = len({tuple(ranking.order) for ranking in found}) == 1
    strict = all("~" not in ranking.chain for ranking in found)
    return f"{leader}; {'the same order' if same and strict else 'no change of order shown'}"


def _ranking(question: _Question, found: Sequence[_PointRanking]) -> str:
    """The best first: all of them, or, if that is too long, only those that may be best. Points
    with equal chains are reported together."""
    whole = len(found) <= MAX_CHAINS and max(len(s.order) for s in found) <= MAX_CHAIN_NAMES
    chains: dict[str, list[int]] = {}
    for ranking in found:
        first = " ~ ".join(ranking.first_group[:MAX_CHAIN_NAMES])
        if (more := len(ranking.first_group) - MAX_CHAIN_NAMES) > 0:
            first += f" and {more} more"
        chains.setdefault(ranking.chain if whole else first, []).append(ranking.point)
    texts = [f"{chain}{question.at(*points)}" for chain, points in chains.items()]
    if len(texts) > MAX_CHAINS:
        texts = [*texts[:MAX_CHAINS], f"{len(texts) - MAX_CHAINS} more"]
    head = "Best" if whole else "Not reliably behind the best"
    return f"{head} in {question.metric.name}: {'; '.join(texts)}."


# --- fit ------------------------------------------------------------------------------------------


def _fit(question: _Question) -> Finding:
    """Does the metric follow a law of the parameter?"""
    parameter = question.parameter
    if parameter is None:
        return question.no_answer("No numeric parameter is swept.")
    curves = []
    for fixed, indices in question.series(parameter):
        for name in question.allocators:
            found = [
                (float(x), logs)
                for index in indices
                if is_number(x := question.points[index][parameter.name])
                and x > 0
                and (logs := question.logs(index, name))
            ]
            if found:
                label = f"{name} ({describe(fixed)})" if fixed else name
                xs, table = [x for x, _ in found], fits.table_of([logs for _, logs in found])
                curves.append((label, Curve(name, question.metric.key, "", fixed, []), xs, table))
    law = _amdahl if question.request.options.get("law") == "amdahl" else _growth
    return law(question, parameter, curves)


# A curve: label, allocator and place; the values of the parameter; logarithms by rounds.
Measured = tuple[str, Curve, list[float], fits.Table]


def _amdahl(question: _Question, parameter: Parameter, curves: Sequence[Measured]) -> Finding:
    found = [
        (label, curve, xs, law)
        for label, curve, xs, table in curves
        if (law := fits.amdahl(xs, table, question.processors))
    ]
    if not found:
        why = f"This needs two values of {parameter.name} up to the number of processors."
        return question.no_answer(why)
    beyond = {"": "", "above": " (slower with more)", "below": " (more than the law allows)"}
    figures = []
    for label, _, _, law in found:
        off = f", off by {interval(law.left[1])} at {law.left[0]:g}" if law.left else ""
        text = f"{label} {interval(law.serial)}{beyond[law.limit]}{off}"
        figures.append((law.serial.value, text))
    left = sum(law.left is not None for *_, law in found)
    count = f" on {question.processors} processors" if question.processors else ""
    return question.answer(
        f"{left} of {len(found)} deviate from Amdahl's law",
        f"Serial fraction by Amdahl's law{count}: {_figures(figures)}.",
        {f"serial fraction of {label}": law.serial for label, _, _, law in found},
        *(
            _drawn(curve, f"Amdahl's law, s = {law.serial.value:.2f}", xs, law.predicted)
            for _, curve, xs, law in found
        ),
    )


def _growth(question: _Question, parameter: Parameter, curves: Sequence[Measured]) -> Finding:
    expected = question.request.options.get("expected")
    tolerance = float(question.request.options.get("tolerance", TOLERANCE))
    found = [
        (label, curve, xs, grown)
        for label, curve, xs, table in curves
        if (grown := fits.growth(xs, table))
    ]
    if not found:
        why = f"This needs positive results at two positive values of {parameter.name}."
        return question.no_answer(why)
    figures = [(g.exponent.value, f"{label} {interval(g.exponent)}") for label, _, _, g in found]
    exponent_note = "" if expected is None else f" (expected: {expected})"
    head = f"{question.metric.name} ~ {parameter.name}^k{exponent_note}, k"
    verdict, limit = "measured", _over_limit(question, curves)
    if expected is not None:
        verdict = _together([fits.judge_growth(g, expected, tolerance) for *_, g in found])
    drawn = []
    for _, curve, xs, grown in found:
        gain = grown.log_better
        if expected == fits.LOGARITHMIC and gain and gain.low is not None and gain.low > 0.0:
            drawn.append(_drawn(curve, "a + b log x", xs, grown.logarithm))
        else:
            drawn.append(_drawn(curve, f"x^{grown.exponent.value:.2f}", xs, grown.power))
    return question.answer(
        verdict,
        f"{head}: {_figures(figures)}.{limit}",
        {f"exponent of {label}": grown.exponent for label, _, _, grown in found},
        *drawn,
    )


def _together(verdicts: Sequence[str]) -> str:
    if len(set(verdicts)) == 1:
        return verdicts[0]
    verdict = REFUTED if REFUTED in verdicts else CONFIRMED
    return f"{verdict} for {verdicts.count(verdict)} of {len(verdicts)}"


def _over_limit(question: _Question, curves: Sequence[Measured]) -> str:
    """The curves shown to rise above the option `limit`: the whole interval of their highest point
    is above it."""
    limit = question.request.options.get("limit")
    if limit is None:
        return ""
    above = []
    for label, _, _, table in curves:
        if len(table):
            highest = fits.mean_estimate(table[:, int(table.mean(axis=0).argmax())])
            lower_bound = highest.value if highest.low is None else highest.low
            if lower_bound > math.log(limit):
                above.append(f"{label} {math.exp(highest.value):.3g}")
    return f" Above {limit:g}: {', '.join(above) or 'none'}."


def _drawn(curve: Curve, label: str, xs: Sequence[float], ys: Sequence[float]) -> Curve:
    return replace(curve, label=label, points=[list(pair) for pair in zip(xs, ys, strict=True)])
