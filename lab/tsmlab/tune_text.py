"""A search for options as text and tables: the line to paste, and the evidence for it."""

import shlex
from collections.abc import Iterator

from tsmlab.render import full_name, under
from tsmlab.stats import Verdict
from tsmlab.study import Step, Study, Tune, TuneRow, given
from tsmlab.tables import STYLES, Block, Cell, Column
from tsmlab.wording import change_in_full, counted, names, quantity_or, rounds, share

FATE_STYLES = {"best": "green", "failed": "red"}


def blocks(study: Study) -> Iterator[Block]:
    tune = given(study.tune)
    yield Block(lines=list(conclusion(study)), style="bold")
    yield Block(lines=list(heading(study)))
    for step in tune.steps:
        yield Block(
            title(step),
            table=race_table(step),
            notes=list(tested(step)),
            fails=[f"FAILED {each.change}: {each.failure}" for each in step.raced if each.failure],
        )
    if tune.settings:
        yield Block(
            f"{' '.join(tune.settings)} against the default, in fresh rounds",
            table=verdict_table(tune.rows),
            labelled=[("use it", line(tune))],
        )


def heading(study: Study) -> Iterator[str]:
    results = given(study.tune)
    yield f"$ {shlex.join(results.command)}"
    values = sum(len(option.values) for option in results.options)
    runs = sum(len(part.samples) for part in study.parts)
    yield (
        f"{full_name(results.allocator)}, for {goal(results)}: {counted(values, 'change')} of "
        f"{counted(len(results.options), 'option')}; {counted(runs, 'run')}, seed {results.seed}; "
        f"stopped: {study.stop.text}"
    )
    if results.unknown:
        yield f"not known by this library: {names(results.unknown, 12)}"


def goal(results: Tune) -> str:
    spec = results.goal
    less = "more" if spec.higher_is_better else "fewer" if spec.unit == "count" else "less"
    return f"{less} {spec.name}"


def title(step: Step) -> str:
    return f"changes to {' '.join(step.base) or 'the default'}"


def race_table(step: Step) -> list[Column]:
    raced = step.raced
    keys = list(dict.fromkeys(key for each in raced for key in each.ratios))
    return [
        Column("change", [Cell(each.change) for each in raced], left=True),
        Column("rounds", [Cell(str(each.rounds)) for each in raced]),
        *(
            Column(
                f"{_name(key)} [95% CI]",
                [Cell(change_in_full(each.ratios.get(key))) for each in raced],
            )
            for key in keys
        ),
        Column("", [Cell(each.fate, FATE_STYLES.get(each.fate, "")) for each in raced], left=True),
    ]


def _name(key: str) -> str:
    return key.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")


def tested(step: Step) -> Iterator[str]:
    if step.change is None:
        yield "no change looks better"
    if step.rows is not None:
        summary = "; ".join(sentence(row) for row in step.rows)
        yield f"{step.change} in fresh rounds: {summary}"


def sentence(row: TuneRow) -> str:
    if row.ratio is None:
        return f"{row.name} not measured"
    summary = f"{row.name} {change_in_full(row.ratio)}, {row.verdict}"
    if row.rounds_more is not None:
        return f"{summary} (about {rounds(row.rounds_more, more=True)} would resolve it)"
    return summary


def verdict_table(rows: list[TuneRow]) -> list[Column]:
    return [
        Column("metric", [Cell(row.name) for row in rows], left=True),
        Column("before", [Cell(quantity_or(row.before, row.unit)) for row in rows]),
        Column("tuned", [Cell(quantity_or(row.after, row.unit)) for row in rows]),
        Column("change [95% CI]", [Cell(change_in_full(row.ratio)) for row in rows]),
        Column("verdict", [Cell(row.verdict, STYLES.get(row.verdict, "")) for row in rows], True),
    ]


def conclusion(study: Study) -> Iterator[str]:
    tune = given(study.tune)
    if not tune.settings:
        if study.interrupted or study.stop.reason == "aborted":
            yield "Recommendation: none yet; the search did not finish."
            return
        yield (
            f"Recommendation: keep the defaults of {tune.allocator.name}; no change of its "
            f"options reliably gives {goal(tune)} by {share(tune.margin)} or more."
        )
        return
    better = [sentence(row) for row in tune.rows if row.verdict is Verdict.BETTER]
    yield f"Recommendation: {' '.join(tune.settings)}; {'; '.join(better)}."
    for row in tune.rows:
        if row.verdict is Verdict.WORSE:
            yield f"at the cost of: {sentence(row)}"


def line(results: Tune) -> str:
    return under(results.allocator, shlex.join(results.command), results.variables)
