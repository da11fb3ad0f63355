"""The results of a service as text and tables: the answer, the table, growth, failures."""

from collections.abc import Iterator, Sequence

from tsmlab import gate_text, tables
from tsmlab.metrics import PEAK_MEMORY, MetricSpec
from tsmlab.render import failed_lines, full_name, noise_floor, under
from tsmlab.results import FLEET, Comparison, Row
from tsmlab.service.loads import MEAN, THROUGHPUT
from tsmlab.service.results import CPU, IDLE, P50, P99, Growth, ServiceResult
from tsmlab.stats import Verdict
from tsmlab.study import Study
from tsmlab.tables import STYLES, Block, Cell, Column
from tsmlab.wording import change, change_in_full, counted, quantity, quantity_or, rounds

# The order in which readers look for them.
ORDER = (
    *(THROUGHPUT, MEAN, P50, "p90_seconds", "p95_seconds", P99, "p999_seconds", "max_seconds"),
    CPU,
)
MAX_NAMED = 3
NONE_FAILS = {1: "it does not fail", 2: "neither fails"}


def service_result(study: Study) -> ServiceResult:
    assert study.service is not None
    return study.service


def blocks(study: Study) -> Iterator[Block]:
    found, served = study.comparison, service_result(study)
    yield Block(lines=[f"$ {served.setup.server}"], style="dim", where="text")
    yield Block(lines=[answer(study)], style="bold")
    yield Block(lines=heading(study))
    if columns := table(found):
        yield Block(table=columns, folded=True)
    if study.gate:
        yield Block(lines=list(gate_text.conclusion(study)), style="bold")
        yield Block(table=gate_text.table(study.gate))
    if lines := growth_lines(served):
        yield Block(lines=lines)
    if failed := failed_lines(found):
        yield Block(fails=failed)
    if command := use_it(study):
        yield Block(labelled=[("use it", command)])


def answer(study: Study) -> str:
    """One sentence: what the best other allocator would change, and whether any fails."""
    found, served = study.comparison, service_result(study)
    rows = [row for row in found.analysis.rows if row.allocator != found.reference]
    failing = [row for row in rows if row.failures]
    judged = [row for row in rows if not row.failures]
    parts = []
    if any(s.verdict for row in judged for s in row.metrics.values()):
        for row in judged[:MAX_NAMED]:
            title = full_name(found.allocator(row.allocator))
            parts.append(f"{title}: {', '.join(_changes(found, row)) or _unchanged(found, row)}")
        if len(judged) > MAX_NAMED:
            parts.append(f"{len(judged) - MAX_NAMED} more below")
    elif served.setup.soak_seconds is None:
        parts.append("No verdict yet: too few rounds")
    else:
        trends = ", ".join(f"{g.allocator}: {trend_text(g)}" for g in served.growth)
        parts.append(trends or "Too short to tell")
    parts += [f"the server fails under {row.allocator}" for row in failing]
    if judged and not failing:
        parts.append(NONE_FAILS.get(len(judged), "none fails"))
    return "; ".join(parts) + "."


def trend_text(growth: Growth) -> str:
    return {"growing": "still growing", "not clear": "not clear yet"}.get(
        growth.standing, growth.standing
    )


def _changes(found: Comparison, row: Row) -> list[str]:
    """The changes that are shown: speed, its cost, and memory, after idle time if there was any."""
    memory = IDLE if IDLE in row.metrics else PEAK_MEMORY
    keys = dict.fromkeys((found.analysis.primary_metric, P99, THROUGHPUT, CPU, memory))
    return [
        f"{found.metric(key).name} {change_in_full(summary.ratio)}"
        for key in keys
        if (summary := row.metrics.get(key)) and summary.verdict in (Verdict.BETTER, Verdict.WORSE)
    ]


def _unchanged(found: Comparison, row: Row) -> str:
    summary = row.metrics.get(found.analysis.primary_metric)
    if summary is not None and summary.verdict is Verdict.EQUAL:
        return "no measurable difference"
    return "no reliable difference yet"


def heading(study: Study) -> list[str]:
    found, served = study.comparison, service_result(study)
    setup, analysis, settings = served.setup, found.analysis, found.settings
    loop = f" ({served.tool}, {served.loop} loop)" if served.tool else ""
    lines = [f"load{loop}: {setup.load}", f"phases: {', '.join(setup.phases)}"]
    if setup.load_cpus:
        cpus = [",".join(map(str, each)) for each in (setup.server_cpus, setup.load_cpus)]
        lines[-1] += f"; server on processor {cpus[0]}, load on {cpus[1]}"
    if workers := {s.measurement[FLEET]["worker"] for s in found.samples if FLEET in s.measurement}:
        lines[-1] += f"; on {counted(len(workers), 'worker')} of a cluster"
    lines.append(f"{rounds(analysis.rounds)}, seed {settings.seed}; stopped: {study.stop.text}")
    return [*lines, *noise_floor(found)]


# --- the table ------------------------------------------------------------------------------------


def shown(found: Comparison) -> list[MetricSpec]:
    """The metrics that some allocator has, in the order that readers expect: service, cost, memory,
    the rest."""
    known = {key for row in found.analysis.rows for key in row.metrics}
    specs = [spec for spec in found.metrics if spec.key in known]

    def place(spec: MetricSpec) -> tuple[bool, bool, int]:
        at = -1 if spec.key.startswith("custom") else 99
        at = ORDER.index(spec.key) if spec.key in ORDER else at
        return not spec.judged and spec.key not in ORDER, spec.unit == "bytes", at

    return sorted(specs, key=place)


def ordered(found: Comparison) -> list[Row]:
    """The reference first, then by rank."""
    rows = [row for row in found.analysis.rows if row.metrics]
    return sorted(rows, key=lambda row: row.allocator != found.reference)


def table(found: Comparison) -> list[Column]:
    """Metrics by allocators."""
    specs, rows = shown(found), ordered(found)
    first = Column("", [Cell(spec.name) for spec in specs], left=True)
    return [first, *(c for row in rows for c in _columns(found, row, specs))] if rows else []


def _columns(found: Comparison, row: Row, specs: Sequence[MetricSpec]) -> list[Column]:
    title = full_name(found.allocator(row.allocator))
    summaries = [row.metrics.get(spec.key) for spec in specs]
    medians = [
        Cell(quantity_or(each.median if each else None, spec.unit, "-"))
        for each, spec in zip(summaries, specs, strict=True)
    ]
    if row.allocator == found.reference:
        return [Column(title, medians)]
    changes, verdicts = [], []
    for summary in summaries:
        ratio = summary.ratio if summary else None
        has_interval = ratio is not None and ratio.low is not None
        verdict = summary.verdict if summary and has_interval else None
        words = change_in_full(ratio) if has_interval or not ratio else change(ratio.ratio)
        changes.append(Cell(words))
        word = "?" if verdict is Verdict.UNRESOLVED else verdict or ""
        verdicts.append(Cell(word, STYLES.get(verdict, "") if verdict else ""))
    return [
        Column(title, medians),
        Column("change [95% CI]", changes, joined=True),
        Column("", verdicts, left=True, joined=True),
    ]


def growth_lines(served: ServiceResult) -> list[str]:
    return [
        f"memory under load, {each.allocator}: {trend_text(each)}, "
        f"{_bytes(each.bytes_per_hour)} an hour [{_bytes(each.low)}, {_bytes(each.high)}], "
        f"watched for {each.hours * 60:.0f} min"
        for each in served.growth
        if each.hours * 3600 >= 60.0 or served.setup.soak_seconds
    ]


def _bytes(value: float) -> str:
    return ("-" if value < 0 else "+") + quantity(abs(value), "bytes")


def use_it(study: Study) -> str | None:
    found = study.comparison
    name = found.analysis.recommended
    if name in (None, found.reference):
        return None
    return under(found.allocator(str(name)), service_result(study).setup.server)


def provisional(found: Comparison) -> str:
    """A preview after the first round."""
    specs = [spec for spec in shown(found) if spec.judged and ": " not in spec.key]
    headers = [Column("", [Cell(spec.name) for spec in specs], left=True)]
    headers += [_columns(found, row, specs)[0] for row in ordered(found)]
    return f"first round (no verdicts yet):\n{tables.plain_text(headers).rstrip()}"
