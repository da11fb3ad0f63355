"""The results of a service as text: the answer, the table, growth, what failed; and as Markdown."""

import shlex
from collections.abc import Sequence
from typing import Any

from tsmlab import export, tables
from tsmlab.metrics import PEAK_MEMORY, MetricSpec
from tsmlab.render import failure_lines, full_name
from tsmlab.results import Row, Trouble
from tsmlab.service.loads import MEAN, THROUGHPUT
from tsmlab.service.results import CPU, IDLE, P50, P99, Growth, ServiceResults
from tsmlab.stats import Verdict
from tsmlab.tables import ROOMY, STYLES, Cell, Column, Sheet, table_width
from tsmlab.wording import (
    change,
    change_in_full,
    quantity,
    quantity_or,
    rounds,
    share,
)

# In which order a reader looks for them.
ORDER = (
    THROUGHPUT,
    MEAN,
    P50,
    "p90_seconds",
    "p95_seconds",
    P99,
    "p999_seconds",
    "max_seconds",
    CPU,
)
MOST_NAMED = 3
WORDS = {Verdict.UNRESOLVED: "?"}


def report(found: ServiceResults, width: int, colours: bool = False) -> str:
    sheet = Sheet(width, colours)
    cut: dict[str, Any] = {"no_wrap": True, "overflow": "ellipsis"}
    sheet.say(f"$ {found.setup.server}", **cut)
    sheet.gap()
    sheet.say(answer(found), soft_wrap=False, style="bold")
    sheet.gap()
    sheet.say(*heading(found), style="dim", soft_wrap=False)
    for columns in table(found, width):
        sheet.gap()
        sheet.table(columns)
    for line in growth_lines(found):
        sheet.say(line, soft_wrap=False)
    sheet.say(*failed_lines(found), style="red")
    if command := use_it(found):
        sheet.gap()
        sheet.say(f"use it     {command}")
    return sheet.text


def answer(found: ServiceResults) -> str:
    """One sentence: what the best of the others would change, and whether any fails."""
    rows = [row for row in found.analysis.rows if row.allocator != found.reference]
    failing = [row for row in rows if row.failures]
    judged = [row for row in rows if not row.failures]
    said = []
    if not any(s.verdict for row in judged for s in row.metrics.values()):
        said.append(
            "No verdict yet: too few rounds"
            if found.setup.soak_seconds is None
            else _soak_answer(found)
        )
    else:
        for row in judged[:MOST_NAMED]:
            title = full_name(found.allocator(row.allocator))
            said.append(f"{title}: {', '.join(_changes(found, row)) or _unchanged(found, row)}")
        if len(judged) > MOST_NAMED:
            said.append(f"{len(judged) - MOST_NAMED} more below")
    said += [f"the server fails under {row.allocator}" for row in failing]
    if judged and not failing:
        said.append(
            "neither fails"
            if len(judged) == 2
            else "none fails"
            if len(judged) > 2
            else "it does not fail"
        )
    return "; ".join(said) + "."


def _soak_answer(found: ServiceResults) -> str:
    return ", ".join(f"{g.allocator}: {_stands(g)}" for g in found.growth) or "Too short to tell"


def _stands(growth: Growth) -> str:
    return {"growing": "still growing", "not clear": "not clear yet"}.get(
        growth.standing, growth.standing
    )


def _changes(found: ServiceResults, row: Row) -> list[str]:
    """What is shown to differ: speed, its cost, and memory, after idle time if there was any."""
    primary = found.analysis.primary_metric
    memory = IDLE if IDLE in row.metrics else PEAK_MEMORY
    keys = dict.fromkeys((primary, P99, THROUGHPUT, CPU, memory))
    return [
        f"{found.metric(key).name} {change_in_full(summary.ratio)}"
        for key in keys
        if (summary := row.metrics.get(key)) and summary.verdict in (Verdict.BETTER, Verdict.WORSE)
    ]


def _unchanged(found: ServiceResults, row: Row) -> str:
    summary = row.metrics.get(found.analysis.primary_metric)
    if summary is not None and summary.verdict is Verdict.EQUAL:
        return "no measurable difference"
    return "no difference is shown yet"


def heading(found: ServiceResults) -> list[str]:
    setup, analysis = found.setup, found.analysis
    loop = f" ({found.tool}, {found.loop} loop)" if found.tool else ""
    lines = [f"load{loop}: {setup.load}", f"phases: {', '.join(setup.phases)}"]
    if setup.load_cpus:
        cpus = [",".join(map(str, each)) for each in (setup.server_cpus, setup.load_cpus)]
        lines[-1] += f"; server on processor {cpus[0]}, load on {cpus[1]}"
    lines.append(f"{rounds(analysis.rounds)}, seed {setup.seed}; stopped: {found.stop.text}")
    floors = [
        f"{found.metric(key).name} {share(floor)}"
        for key, floor in analysis.noise_floors.items()
        if floor is not None and ": " not in key
    ]
    if floors:
        lines.append(
            f"noise floor ({found.reference} against itself): {', '.join(floors)}; "
            f"margin {share(setup.margin)}"
        )
    return lines


# --- the table ------------------------------------------------------------------------------------


def shown(found: ServiceResults) -> list[MetricSpec]:
    """Those that some allocator has, as one looks for them: service, cost, memory, the rest."""
    known = {key for row in found.analysis.rows for key in row.metrics}
    specs = [spec for spec in found.metrics if spec.key in known]

    def place(spec: MetricSpec) -> tuple[bool, bool, int]:
        at = (
            ORDER.index(spec.key)
            if spec.key in ORDER
            else -1
            if spec.key.startswith("custom")
            else 99
        )
        return not spec.judged and spec.key not in ORDER, spec.unit == "bytes", at

    return sorted(specs, key=place)


def ordered(found: ServiceResults) -> list[Row]:
    """The reference first, then by rank."""
    rows = [row for row in found.analysis.rows if row.metrics]
    return sorted(rows, key=lambda row: row.allocator != found.reference)


def table(found: ServiceResults, width: int) -> list[list[Column]]:
    """Metrics by allocators; as many tables as the width needs."""
    specs = shown(found)
    first = Column("", [Cell(spec.name) for spec in specs], left=True)
    groups = [_columns(found, row, specs) for row in ordered(found)]
    if not groups:
        return []
    tables_, current = [], [first]
    for group in groups:
        if len(current) > 1 and table_width([*current, *group], ROOMY) > width:
            tables_.append(current)
            current = [first]
        current += group
    return [*tables_, current]


def _columns(found: ServiceResults, row: Row, specs: Sequence[MetricSpec]) -> list[Column]:
    title = full_name(found.allocator(row.allocator))
    medians = [
        Cell(
            quantity_or(
                row.metrics[spec.key].median if spec.key in row.metrics else None, spec.unit, "-"
            )
        )
        for spec in specs
    ]
    if row.allocator == found.reference:
        return [Column(title, medians)]
    changes, verdicts = [], []
    for spec in specs:
        summary = row.metrics.get(spec.key)
        ratio = summary.ratio if summary else None
        verdict = summary.verdict if summary and ratio and ratio.low is not None else None
        words = ""
        if ratio is not None:
            words = change(ratio.ratio) if ratio.low is None else change_in_full(ratio)
        changes.append(Cell(words))
        word = "" if verdict is None else WORDS.get(verdict, verdict.value)
        verdicts.append(Cell(word, STYLES.get(verdict, "") if verdict else ""))
    return [
        Column(title, medians),
        Column("change [95 % CI]", changes),
        Column("", verdicts, left=True),
    ]


def growth_lines(found: ServiceResults) -> list[str]:
    return [
        f"memory under load, {each.allocator}: {_stands(each)}, "
        f"{_bytes(each.bytes_per_hour)} an hour [{_bytes(each.low)}, {_bytes(each.high)}], "
        f"watched for {each.hours * 60:.0f} min"
        for each in found.growth
        if each.hours * 3600 >= 60.0 or found.setup.soak_seconds
    ]


def _bytes(value: float) -> str:
    return ("-" if value < 0 else "+") + quantity(abs(value), "bytes")


def failed_lines(found: ServiceResults) -> list[str]:
    return [line for row in found.analysis.rows for line in failure_lines(row.allocator, row)]


def use_it(found: ServiceResults) -> str | None:
    name = found.analysis.recommended
    if name in (None, found.reference):
        return None
    info = found.allocator(str(name))
    env = dict(info.env) | ({"LD_PRELOAD": info.path} if info.path else {})
    return " ".join([*(f"{k}={shlex.quote(v)}" for k, v in env.items()), found.setup.server])


def provisional(found: ServiceResults) -> str:
    """The numbers of the first round."""
    specs = [spec for spec in shown(found) if spec.judged and ": " not in spec.key]
    heads = [Column("", [Cell(spec.name) for spec in specs], left=True)]
    heads += [_columns(found, row, specs)[0] for row in ordered(found)]
    return f"first round (no verdicts yet):\n{tables.plain_text(heads).rstrip()}"


def markdown(found: ServiceResults) -> str:
    lines = [f"**{answer(found)}**", "", f"    {found.setup.server}"]
    lines += [f"    {line}" for line in heading(found)] + [""]
    columns = [column for part in table(found, 1 << 20) for column in part]
    lines += [*tables.markdown_table(columns), ""] if columns else []
    lines += [f"- {line.strip()}" for line in (*growth_lines(found), *failed_lines(found))]
    lines += [f"- *warning* {t.symptom}. {t.cause}. {t.remedy}." for t in found.warnings]
    lines += ["", tables.measured_on(found.machine, found.created)]
    return "\n".join(lines) + "\n"


def to_csv(found: ServiceResults) -> str:
    keys = {spec.key: spec.key for spec in found.metrics}
    return export.csv_text((), (((), sample) for sample in found.samples), keys)


def troubles(found: ServiceResults) -> Sequence[Trouble]:
    return found.warnings


formatted = export.formatter(csv=to_csv, markdown=markdown)
