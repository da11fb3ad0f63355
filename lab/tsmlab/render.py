"""A comparison as text and tables: the answer first, the table, then explanations.

Every number was computed by analysis.py; this file only formats it.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from tsmlab import cause_tables, metrics, paths
from tsmlab.metrics import PEAK_MEMORY, TIME, MetricSpec
from tsmlab.results import AllocatorInfo, Comparison, MetricSummary, Row
from tsmlab.stats import Verdict
from tsmlab.study import Score
from tsmlab.tables import STYLES, Block, Cell, Column, columns_of
from tsmlab.wording import change, change_in_full, counted, names, quantity, rounds, share

MAX_FRONT = 8
# Warnings that question the whole table, and therefore come before it.
SERIOUS = ("linked-allocator", "own-allocator", "waits", "input", "short-runs", "few-calls")
RECOMMENDATION = "Recommendation: "


def blocks(comparison: Comparison) -> Iterator[Block]:
    asked, extent = comparison.experiment, heading(comparison)
    if asked is None:
        yield Block(lines=extent[:1], style="dim", where="text")
    else:
        title = f"{comparison.subject}: {asked.title}"
        yield Block(title, lines=[asked.question], where="text")
    yield Block(lines=answers(comparison), style="bold")
    if serious := [t.symptom for t in comparison.warnings if t.code in SERIOUS]:
        yield Block(lines=[f"But {each}." for each in serious], style="yellow", where="text")
    yield Block(lines=extent[1:], style="dim")
    rows = ranked_rows(comparison)
    if rows and not (asked and comparison.points):
        yield ranking(comparison, rows, cut=True)
    for spec in point_metrics(comparison):
        columns = point_columns(comparison, spec)
        yield Block(_point_title(comparison, spec), table=columns, folded=True)
    if failed := failed_lines(comparison):
        yield Block(fails=failed)
    if kinds := kind_lines(comparison):
        yield Block(lines=kinds)
    if asked is None:
        yield Block(labelled=verdict_lines(comparison))
    elif asked.answers:
        yield Block(lines=[" ".join(asked.answers.split())])
    yield from cause_tables.blocks(comparison)
    for reported in asked.reported if asked else []:
        yield Block(
            f"Reported ({reported.report}; {reported.machine}), not mixed with ours",
            table=columns_of(reported.columns, [list(map(str, row)) for row in reported.rows]),
            notes=[reported.note] if reported.note else [],
            where="document",
        )
    if asked and asked.source:
        yield Block("Source", lines=[asked.source], where="document")


def answers(comparison: Comparison) -> list[str]:
    """The answer: the findings of an experiment, otherwise the recommendation. Resolved ones come
    first."""
    found = [f"{verdict}: {text}" for verdict, text in finding_lines(comparison)]
    found.sort(key=lambda text: text.startswith("Cannot"))
    if comparison.experiment is not None:
        return found or ["No analysis requested."]
    if not ranked_rows(comparison):
        return ["No allocator could be ranked."]
    return [RECOMMENDATION + recommendation(comparison), *found]


def finding_lines(comparison: Comparison) -> list[tuple[str, str]]:
    """Each verdict, capitalised unless it begins with a name, and its text."""
    names_of = {info.name for info in comparison.allocators}
    return [
        (v if v.split(" ")[0] in names_of else v[:1].upper() + v[1:], each.text)
        for each in comparison.findings
        if (v := each.verdict)
    ]


def recommendation(comparison: Comparison) -> str:
    """The allocator to use, with its gain; or why to stay, and how to find out more."""
    analysis, reference = comparison.analysis, comparison.reference
    spec = comparison.metric(analysis.primary_metric)
    everywhere = " (geometric mean over all points)" if comparison.points else ""
    rows = {row.allocator: row for row in analysis.rows}
    name = analysis.recommended
    if name is not None and name != reference:
        gains = [
            f"{change_in_full(summary.ratio)} {each.name}"
            for each in (spec, comparison.metric(PEAK_MEMORY))
            if (summary := rows[name].metrics.get(each.key)) and summary.ratio
        ]
        title = full_name(comparison.allocator(name))
        return f"{title}, {' and '.join(dict.fromkeys(gains))} against {reference}{everywhere}."
    leaders = analysis.leaders.get(spec.key)
    closest = rows[leaders.best].metrics[spec.key] if leaders else None
    if closest is None or closest.ratio is None or closest.verdict is not Verdict.UNRESOLVED:
        return f"stay on {reference}; no measurable gain{everywhere}."
    more = closest.rounds_more
    advice = f" Try -r {analysis.rounds + more}." if more else ""
    assert leaders is not None
    return (
        f"stay on {reference}; no allocator is reliably better yet{everywhere}. Closest: "
        f"{leaders.best}, {change_in_full(closest.ratio)} {spec.name}.{advice}"
    )


def heading(comparison: Comparison) -> list[str]:
    analysis = comparison.analysis
    runs = sum(s.phase == "measured" for s in comparison.samples)
    extent = f"{rounds(analysis.rounds)}, {counted(runs, 'run')}, seed {comparison.settings.seed}"
    command = shlex.join(comparison.command)
    for parameter in comparison.parameters:  # readable without quotes
        command = command.replace(f"'{{{parameter.name}}}'", f"{{{parameter.name}}}")
    return [
        "$ " + " ".join(command.split()),
        f"{extent}; stopped: {comparison.stop.text}",
        *noise_floor(comparison),
    ]


def noise_floor(comparison: Comparison) -> list[str]:
    """The noise floor of all metrics, except those of a service's later phases."""
    floors = [
        f"{comparison.metric(key).name} {share(floor)}"
        for key, floor in comparison.analysis.noise_floors.items()
        if floor is not None and ": " not in key
    ]
    text = f"noise floor ({comparison.reference} against itself): {', '.join(floors)}"
    return [f"{text}; margin {share(comparison.settings.margin)}"] if floors else []


def ranked_rows(comparison: Comparison) -> list[Row]:
    return [row for row in comparison.analysis.rows if row.rank is not None]


# --- the table -----------------------------------------------------------------------------------


def ranking(comparison: Comparison, rows: Sequence[Row], cut: bool = False) -> Block:
    """The table of the ranked rows, and what its marks mean."""
    summaries = [summary for row in rows for summary in row.metrics.values()]
    notes, short_notes = [], []
    if any(s.rounds_more is not None for s in summaries):
        meaning = "+N: about N more rounds would resolve it"
        notes, short_notes = [f"unresolved {meaning}"], [f"? {meaning}"]
    elif any(s.verdict is Verdict.UNRESOLVED for s in summaries):
        short_notes = ["?: unresolved"]
    table = _ranking_columns(comparison, rows)
    return Block(table=table, notes=notes, short_notes=short_notes, cut=cut)


def _ranking_columns(comparison: Comparison, rows: Sequence[Row]) -> list[Column]:
    """The primary metric with its interval, the other judged ones, then the explanatory ones. Over
    the points of a sweep only ratios are meaningful; medians are in point_columns()."""
    primary = comparison.metric(comparison.analysis.primary_metric)
    others = [s for s in comparison.metrics if s.judged and s.key != primary.key]
    columns = [
        Column("#", [Cell(str(row.rank)) for row in rows]),
        Column("allocator", [_title(comparison, row) for row in rows], left=True),
        *_primary_columns(comparison, rows, primary),
    ]
    for spec in others:
        columns += _judged_columns(comparison, rows, spec)
    if comparison.points:
        medians = {_head(spec) for spec in (primary, *others)}
        return [column for column in columns if column.header not in medians]
    explaining = [(metrics.PAGE_FAULTS, "faults", 2), (metrics.SYSTEM_TIME, "system", 3)]
    if any(t.code == "several-processes" for t in comparison.warnings):
        explaining.insert(0, (metrics.TREE_MEMORY, "all processes", 0))
    for key, header, drop_priority in explaining:
        cells = [_median_cell(row, comparison.metric(key)) for row in rows]
        columns.append(Column(header, cells, drop_priority=drop_priority))
    return columns


def _title(comparison: Comparison, row: Row) -> Cell:
    info = comparison.allocator(row.allocator)
    served = comparison.served_by if row.allocator == comparison.reference else {}
    by = f" ({', '.join(dict.fromkeys(served.values()))})" if served else ""
    return Cell(f"{full_name(info)}{by}", short=f"{info.name}{by}")


def full_name(info: AllocatorInfo) -> str:
    """With the version, except for our own allocators, which all have the lab's."""
    unversioned = info.family in ("tsmalloc", "hardened", "fetched") or info.version == "?"
    return info.name if unversioned else f"{info.name} {info.version}"


def _primary_columns(comparison: Comparison, rows: Sequence[Row], spec: MetricSpec) -> list[Column]:
    header = _head(spec)
    against = f"{header} vs" if comparison.points else "vs"

    def ratio(row: Row) -> Cell:
        if row.allocator == comparison.reference:
            return Cell("reference")
        return Cell(change_in_full(row.metrics[spec.key].ratio) or "-")

    def verdict(row: Row) -> Cell:
        summary = row.metrics[spec.key]
        if summary.verdict is None:
            return Cell("")
        style = STYLES.get(summary.verdict, "")
        if summary.verdict is not Verdict.UNRESOLVED:
            return Cell(summary.verdict.value, style)
        more = "" if summary.rounds_more is None else f" +{summary.rounds_more}"
        return Cell(f"unresolved{more}", style, short=f"?{more}")

    return [
        Column(header, [_median_cell(row, spec) for row in rows]),
        Column(f"{against} {comparison.reference} [95% CI]", [ratio(row) for row in rows]),
        Column("verdict", [verdict(row) for row in rows], left=True),
    ]


def _judged_columns(comparison: Comparison, rows: Sequence[Row], spec: MetricSpec) -> list[Column]:
    """Median, ratio and verdict; in compact tables the latter two share a column."""
    ratios, verdicts = [], []
    for row in rows:
        summary = row.metrics.get(spec.key)
        ratio = word = style = ""
        if summary and summary.ratio and summary.verdict:
            ratio, word = change(summary.ratio.ratio), summary.verdict.value
            style = STYLES.get(summary.verdict, "")
        mark = "?" if word == Verdict.UNRESOLVED else word
        ratios.append(Cell(ratio, style, short=f"{ratio} {mark:<6}" if word else ""))
        verdicts.append(Cell(word, style))
    header = _head(spec)
    against = f"{f'{header} ' if comparison.points else ''}vs {comparison.reference}"
    return [
        Column(header, [_median_cell(row, spec) for row in rows], drop_priority=1),
        Column(against, ratios),
        Column("verdict", verdicts, left=True, short=None),
    ]


def _head(spec: MetricSpec) -> str:
    return {PEAK_MEMORY: "peak", TIME: "time"}.get(spec.key, spec.name)


def _median_cell(row: Row, spec: MetricSpec) -> Cell:
    summary = row.metrics.get(spec.key)
    return Cell("-" if summary is None else quantity(summary.median, spec.unit))


SIGNS = {Verdict.EQUAL: " =", Verdict.UNRESOLVED: " ?"}


def point_metrics(comparison: Comparison) -> list[MetricSpec]:
    """The judged metrics that have values; for an experiment, only the ones it asks about."""
    asked = comparison.experiment
    wanted = None if asked is None else {each.metric for each in asked.analyses}
    known = {k for p in comparison.points for row in p.analysis.rows for k in row.metrics}
    shown = [spec for spec in comparison.metrics if spec.judged and spec.key in known]
    return [spec for spec in shown if not wanted or spec.key in wanted]


def _point_title(comparison: Comparison, spec: MetricSpec) -> str:
    by = ", ".join(parameter.title for parameter in comparison.parameters)
    better = "higher" if spec.higher_is_better else "lower"
    return (
        f"{spec.name}{f' by {by}' if by else ''}: medians ({better} is better); against "
        f"{comparison.reference}: < less, > more, = equal, ? unresolved"
    )


def point_columns(comparison: Comparison, spec: MetricSpec) -> list[Column]:
    """For a sweep: allocators by points."""
    names = [row.allocator for row in comparison.analysis.rows]
    titles = [Cell(full_name(comparison.allocator(name))) for name in names]
    columns = [Column("allocator", titles, left=True)]
    for point in comparison.points:
        rows = {row.allocator: row for row in point.analysis.rows}
        head = "\n".join(map(str, point.values.values())) or spec.name
        columns.append(Column(head, [_point_cell(rows.get(name), spec) for name in names]))
    return columns


def _point_cell(row: Row | None, spec: MetricSpec) -> Cell:
    """The sign shows in which direction the ratio is shown to differ; the colour, whether that is
    good. A mark always takes two columns, so that numbers stay aligned."""
    if row is None or row.failures:
        return Cell("failed" if row else "-", "red" if row else "")
    summary = row.metrics.get(spec.key)
    if summary is None:
        return Cell("-")
    sign = SIGNS.get(summary.verdict or Verdict.BETTER, "  ")
    if summary.verdict in (Verdict.BETTER, Verdict.WORSE) and summary.ratio:
        sign = " <" if summary.ratio.ratio < 1.0 else " >"
    style = STYLES.get(summary.verdict, "") if summary.verdict else ""
    return Cell(f"{quantity(summary.median, spec.unit)}{sign}", style)


def kind_lines(comparison: Comparison) -> list[str]:
    """The results of each kind of machine, if there are several; the table covers all of them, and
    gives each kind the same weight."""
    if len(comparison.kinds) < 2:
        return []
    key = comparison.analysis.primary_metric
    lines = [f"by kind of machine ({comparison.metric(key).name} vs {comparison.reference}):"]
    verdicts: dict[str, set[Verdict]] = {}
    for kind in comparison.kinds:
        extent = f"{counted(kind.workers, 'worker')}, {rounds(kind.analysis.rounds)}"
        lines.append(f"  {kind.name}: {extent}")
        for row in kind.analysis.rows:
            summary = row.metrics.get(key)
            if summary is None or summary.ratio is None or summary.verdict is None:
                continue
            ratio = change_in_full(summary.ratio)
            lines.append(f"    {row.allocator}  {ratio}  {summary.verdict}")
            verdicts.setdefault(row.allocator, set()).add(summary.verdict)
    apart = [name for name, found in verdicts.items() if {Verdict.BETTER, Verdict.WORSE} <= found]
    if apart:
        whom = "trust those that you will deploy on"
        lines.append(f"  THE MACHINES DISAGREE about {names(apart)}: {whom}")
    return lines


def failed_lines(comparison: Comparison) -> list[str]:
    """One line for each allocator under which a run failed, at each point, and the program's last
    output."""
    lines = [
        f"NOT RANKED {row.allocator}: {_why_not_ranked(row, comparison)}"
        for row in comparison.analysis.rows
        if row.failure is None and row.rank is None and comparison.experiment is None
    ]
    for where, analysis in comparison.parts:
        for row in analysis.rows:
            lines += failure_lines(f"{row.allocator} at {where}" if where else row.allocator, row)
    return lines


def _why_not_ranked(row: Row, comparison: Comparison) -> str:
    spec = comparison.metric(comparison.analysis.primary_metric)
    for other in comparison.analysis.rows:
        summary = other.metrics.get(spec.key)
        is_compared = other.allocator in (row.allocator, comparison.reference)
        if is_compared and summary is not None and summary.minimum <= 0:
            minimum = quantity(summary.minimum, spec.unit)
            return f"{spec.name} was {minimum} under {other.allocator}, so it has no ratio"
    return "no complete measurement"


def failure_lines(name: str, row: Row | Score) -> list[str]:
    """The lines for an allocator with failed runs; none if all succeeded."""
    if row.failure is None:
        return []
    end = "; not run again" if row.gave_up else ""
    how_many = f"{row.failures} of {counted(row.attempts, 'run')}"
    tail_lines = row.failure.stderr_tail.splitlines()[-2:]
    return [
        f"FAILED {name}: {row.failure.text} ({how_many}{end})",
        *(f"       | {s}" for s in tail_lines),
    ]


# --- the verdict ---------------------------------------------------------------------------------


def verdict_lines(comparison: Comparison) -> list[tuple[str, str]]:
    """Labels and sentences next to the recommendation: the leaders, the trade-off, and what to
    type."""
    lines = []
    for key in comparison.analysis.leaders:
        others = "fewest" if comparison.metric(key).unit == "count" else "best"
        label = {TIME: "fastest", PEAK_MEMORY: "smallest"}.get(key, others)
        if key == TIME and comparison.analysis.primary_metric == metrics.CUSTOM:
            label = "quickest"
        lines.append((label, _leader_sentence(comparison, comparison.metric(key))))
    if front := _front_sentence(comparison):
        lines.append(("trade-off", front))
    if comparison.analysis.recommended not in (None, comparison.reference):
        lines.append(("use it", use_it(comparison)))
    return lines


def _leader_sentence(comparison: Comparison, spec: MetricSpec) -> str:
    leaders = comparison.analysis.leaders[spec.key]
    row = next(r for r in comparison.analysis.rows if r.allocator == leaders.best)
    summary, reference = row.metrics[spec.key], comparison.reference
    title = full_name(comparison.allocator(leaders.best))
    if summary.ratio is None:
        text = f"{title} itself, the reference"
    else:
        text = f"{change_in_full(summary.ratio)} {spec.name}"
        if summary.verdict is Verdict.BETTER:
            text = f"{title}: {text} against {reference}"
        else:
            text = f"none is reliably better than {reference}; closest: {title}, {text}"
            text += f" ({_why_not(summary)})"
    equal = [name for name in leaders.equal if name != leaders.best]
    if equal:
        text += f"; equal within {share(comparison.settings.margin)}: {names(equal)}"
    if leaders.unresolved:
        text += f"; not distinguishable from it yet: {names(leaders.unresolved)}"
    return text


def _why_not(summary: MetricSummary) -> str:
    if summary.verdict is Verdict.EQUAL:
        return "equal"
    if summary.rounds_more is None:
        return "unresolved"
    return f"unresolved: about {rounds(summary.rounds_more, more=True)} would resolve it"


def _front_sentence(comparison: Comparison) -> str | None:
    """The Pareto front. If one allocator leads in both metrics, that is worth saying, too."""
    primary = comparison.metric(comparison.analysis.primary_metric)
    memory = comparison.metric(PEAK_MEMORY)
    front = [row for row in comparison.analysis.rows if row.pareto]
    if not front or comparison.points:
        return None
    points = [
        f"{row.allocator} ({quantity(row.metrics[primary.key].median, primary.unit)}, "
        f"{quantity(row.metrics[PEAK_MEMORY].median, memory.unit)})"
        for row in front
    ]
    axes = f"{primary.name} x {memory.name}"
    if len(front) == 1:
        within = f", ignoring differences below {share(comparison.settings.margin)}"
        return f"none ({axes}): {points[0]} leads in both{within}"
    return f"no other allocator is better in both ({axes}): {names(points, MAX_FRONT)}"


def use_it(comparison: Comparison) -> str:
    name = comparison.analysis.recommended or comparison.reference
    return under(comparison.allocator(name), shlex.join(comparison.command))


def under(
    info: AllocatorInfo, command: str, variables: Mapping[str, str] = MappingProxyType({})
) -> str:
    """The command line that runs a command under an allocator."""
    settings = {**info.env, **variables}
    words = "".join(f"{key}={shlex.quote(value)} " for key, value in settings.items())
    if info.path is None:
        return f"{words}{command}"
    if paths.is_preloadable(info.path):
        return f"{words}LD_PRELOAD={shlex.quote(info.path)} {command}"
    allocator = shlex.quote(f"{info.name}={info.path}")
    return f"{words}tsmalloc run --allocator {allocator} {shlex.quote(info.name)} -- {command}"
