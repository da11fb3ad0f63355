"""The results of a search for options: tables, the line to paste, Markdown, CSV.

Why: the answer is one line for a shell, and everything above it is why one may believe it.
Refuses to: judge. Every verdict is in the results.
"""

import shlex
from collections.abc import Iterator, Sequence

from tsmlab import export, tables
from tsmlab.render import full_name
from tsmlab.results import Trouble
from tsmlab.stats import Verdict
from tsmlab.tables import STYLES, Cell, Column, Sheet
from tsmlab.tune import Step, TuneResults, TuneRow
from tsmlab.wording import change_in_full, names, quantity_or, rounds, share

FATES = {"best": "green", "failed": "red"}


def report(results: TuneResults, width: int, colours: bool = False) -> str:
    sheet = Sheet(width, colours)
    sheet.say(*heading(results))
    for step in results.steps:
        sheet.gap()
        sheet.say(title(step))
        sheet.table(race_table(step))
        sheet.say(*failures(step), style="red")
        sheet.say(*tested(step))
    if results.settings:
        sheet.gap()
        sheet.say(f"{' '.join(results.settings)} against the default, in fresh rounds")
        sheet.table(verdict_table(results.rows))
    sheet.gap()
    sheet.say(*conclusion(results))
    return sheet.text


def heading(results: TuneResults) -> Iterator[str]:
    """The allocator, the goal and the time of the search."""
    yield f"$ {shlex.join(results.command)}"
    values = sum(len(option.values) for option in results.options)
    yield (
        f"{full_name(results.allocator)}, for {goal(results)}: {values} changes of "
        f"{len(results.options)} options; {results.runs} runs, seed {results.seed}; "
        f"stopped: {results.stop.text}"
    )
    if results.unknown:
        yield f"not known by this library: {names(results.unknown, 12)}"


def goal(results: TuneResults) -> str:
    spec = results.goal
    less = "more" if spec.higher_is_better else "fewer" if spec.unit == "count" else "less"
    return f"{less} {spec.name}"


def title(step: Step) -> str:
    return f"changes to {' '.join(step.base) or 'the default'}"


def race_table(step: Step) -> list[Column]:
    """How far each change came, by which figures."""
    raced = step.raced
    if not raced:
        return []
    keys = list(dict.fromkeys(key for each in raced for key in each.ratios))
    return [
        Column("change", [Cell(each.change) for each in raced], left=True),
        Column("rounds", [Cell(str(each.rounds)) for each in raced]),
        *(
            Column(
                f"{_name(key)} [95 % CI]",
                [Cell(change_in_full(each.ratios.get(key))) for each in raced],
            )
            for key in keys
        ),
        Column("", [Cell(each.fate, FATES.get(each.fate, "")) for each in raced], left=True),
    ]


def _name(key: str) -> str:
    return key.removesuffix("_seconds").removesuffix("_bytes").replace("_", " ")


def failures(step: Step) -> Iterator[str]:
    for each in step.raced:
        if each.failure is not None:
            yield f"FAILED {each.change}: {each.failure}"


def tested(step: Step) -> Iterator[str]:
    """The verdicts of fresh rounds on the best change."""
    if step.change is None:
        yield "no change may be better"
    if step.rows is not None:
        told = "; ".join(sentence(row) for row in step.rows)
        yield f"{step.change} in fresh rounds: {told}"


def sentence(row: TuneRow) -> str:
    """One row in words."""
    if row.ratio is None:
        return f"{row.name} not measured"
    told = f"{row.name} {change_in_full(row.ratio)}, {row.verdict}"
    if row.rounds_more is not None:
        return f"{told} (about {rounds(row.rounds_more, more=True)} would tell)"
    return told


def verdict_table(rows: list[TuneRow]) -> list[Column]:
    if not rows:
        return []
    return [
        Column("metric", [Cell(row.name) for row in rows], left=True),
        Column("before", [Cell(quantity_or(row.before, row.unit)) for row in rows]),
        Column("tuned", [Cell(quantity_or(row.after, row.unit)) for row in rows]),
        Column("change [95 % CI]", [Cell(change_in_full(row.ratio)) for row in rows]),
        Column("verdict", [Cell(row.verdict, STYLES.get(row.verdict, "")) for row in rows], True),
    ]


def conclusion(results: TuneResults) -> Iterator[str]:
    """The line to paste, or that there is none."""
    if not results.settings:
        if results.interrupted or results.stop.reason == "aborted":
            yield "the search did not come to its end, and nothing is shown to be better yet"
            return
        yield (
            f"nothing beats the default: no change of {results.allocator.name}'s options is shown "
            f"to give {goal(results)} by {share(results.margin)} or more"
        )
        return
    for row in results.rows:
        if row.verdict is Verdict.WORSE:
            yield f"its price: {sentence(row)}"
    yield f"use it   {line(results)}"


def line(results: TuneResults) -> str:
    """For a shell."""
    variables = dict(results.allocator.env) | results.variables
    if results.allocator.path is not None:
        variables["LD_PRELOAD"] = results.allocator.path
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*words, shlex.join(results.command)])


def markdown(results: TuneResults) -> str:
    lines = [f"    {each}" for each in heading(results)]
    for step in results.steps:
        lines += ["", title(step), "", *tables.markdown_table(race_table(step)), ""]
        lines += [f"- {each}" for each in (*failures(step), *tested(step))]
    if results.settings:
        lines += ["", *tables.markdown_table(verdict_table(results.rows))]
    lines += ["", *(f"    {each}" for each in conclusion(results))]
    lines += ["", tables.measured_on(results.machine, results.created)]
    return "\n".join(lines) + "\n"


def csv(results: TuneResults) -> str:
    """One line for each run, of all stages."""
    parts = [((stage.name,), stage.comparison) for stage in results.stages]
    return export.csv_of_comparisons(("stage",), parts)


def troubles(results: TuneResults) -> Sequence[Trouble]:
    return results.stages[-1].comparison.warnings


formatted = export.formatter(csv=csv, markdown=markdown)
