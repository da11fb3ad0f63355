"""From an experiment's cells to its answer: summaries, findings, and the paragraph.

Why: the numbers of an experiment are kept, and what they say can be computed again at any time, as
a pure function of them, also while the experiment is still running.
Refuses to: measure, print, or crash on what is missing; it says what cannot be told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tsmlab.experiments import bounds, growth, orders, pairs, phrases, scaling, winners
from tsmlab.experiments.answers import answer
from tsmlab.experiments.measured import Measured
from tsmlab.experiments.model import (
    AnalysisKind,
    AnalysisRequest,
    Experiment,
    ExperimentAnalysis,
)
from tsmlab.experiments.outcome import Outcome, cannot_tell
from tsmlab.machine import Machine

ANALYSES: dict[AnalysisKind, Callable[[Measured, AnalysisRequest], Outcome]] = {
    "pair": pairs.analyse,
    "winner": winners.analyse,
    "amdahl": scaling.analyse,
    "growth": growth.analyse,
    "order": orders.analyse,
    "bound": bounds.analyse,
}


def analyse(experiment: Experiment, processors: int | None = None) -> ExperimentAnalysis:
    """processors: how many the runs could use (usable_processors); Amdahl's law needs it, and is
    not limited to them without it."""
    data = Measured(experiment, processors)
    outcomes = [_outcome(data, request) for request in experiment.definition.analyses]
    return ExperimentAnalysis(
        summaries=data.summaries(),
        findings=[outcome.finding() for outcome in outcomes],
        answer=answer(data, outcomes),
    )


def _outcome(data: Measured, request: AnalysisRequest) -> Outcome:
    """Of a part of the sweep it is said once, at the beginning, which part that is."""
    part, fixed = data.focused(request)
    if not part.has(request.metric):
        title = phrases.capital(phrases.lower(part.metric(request.metric).title))
        how = "counted" if part.is_counted(request.metric) else "measured"
        return cannot_tell(request, f"{title}: nothing can be said, since it was not {how}.")
    outcome = ANALYSES[request.kind](part, request)
    where = phrases.at(data, fixed).strip()
    if not where or not outcome.lead:
        return outcome
    first, *rest = outcome.lead
    return replace(outcome, lead=[f"{phrases.capital(where)}: {first}", *rest])


def usable_processors(machine: Machine, cpus: list[int] | None) -> int:
    """Those that runs may use at one time: chosen by the user, or the machine's, and not more than
    its control group pays for."""
    count = len(cpus) if cpus else machine.usable_cores
    limit = machine.cgroup_cpu_limit
    return max(1, count if limit is None else min(count, round(limit)))
