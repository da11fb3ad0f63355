"""From an experiment's cells to verdicts: summaries, and a finding for each question.

Why: the numbers of an experiment are kept, and what they say can be computed again at any time, as
a pure function of them.
"""

from collections.abc import Callable
from dataclasses import replace

from tsmlab.experiments import amdahl, bounds, growth, model, pairs, rankings, words
from tsmlab.experiments.measured import Measured
from tsmlab.experiments.words import cannot_tell
from tsmlab.machine import Machine
from tsmlab.wording import names

ANALYSES: dict[model.AnalysisKind, Callable[[Measured, model.AnalysisRequest], model.Finding]] = {
    "pair": pairs.analyse,
    "winner": rankings.winner,
    "amdahl": amdahl.analyse,
    "growth": growth.analyse,
    "order": rankings.order,
    "bound": bounds.analyse,
}


def analyse(
    experiment: model.Experiment, processors: int | None = None
) -> model.ExperimentAnalysis:
    """processors: how many the runs could use (usable_processors); Amdahl's law needs it, and is
    not limited to them without it."""
    data = Measured(experiment, processors)
    return model.ExperimentAnalysis(
        summaries=data.summaries(),
        findings=[_finding(data, request) for request in experiment.definition.analyses],
    )


def _finding(data: Measured, request: model.AnalysisRequest) -> model.Finding:
    """Of a part of the sweep it is said once, at the beginning, which part that is."""
    part, fixed = data.focused(request)
    if not part.has(request.metric):
        how = "counted" if part.is_counted(request.metric) else "measured"
        return cannot_tell(request, f"{part.metric(request.metric).title} was not {how}.")
    found = ANALYSES[request.kind](part, request)
    where = words.place(data, fixed)
    failed = [
        name
        for name in part.names_for(request)
        if any(part.failures(point, name) for point in part.chosen)
    ]
    doubt = f" Left out where runs failed: {names(failed)}." if failed else ""
    text = f"{where}: {found.text}" if where else found.text
    return replace(found, text=f"{text}{doubt}")


def usable_processors(machine: Machine, cpus: list[int] | None) -> int:
    """Those that runs may use at one time: chosen by the user, or the machine's, and not more than
    its control group pays for."""
    count = len(cpus) if cpus else machine.usable_cores
    limit = machine.cgroup_cpu_limit
    return max(1, count if limit is None else min(count, round(limit)))
