"""The results as text: the table, the verdict, the warnings; and the same as Markdown.

Why: twenty-three allocators have to fit into eighty columns and still say how sure we are.
Refuses to: compute. Every number here was computed by analysis.py; this file only words it.
"""

import shlex
import textwrap
from collections.abc import Callable, Sequence

from tsmlab import export, paths, tables
from tsmlab.metrics import CUSTOM, PAGE_FAULTS, PEAK_MEMORY, SYSTEM_TIME, TIME, MetricSpec
from tsmlab.results import AllocatorInfo, Comparison, MetricSummary, Row, Trouble
from tsmlab.stats import Verdict
from tsmlab.suite_results import Score
from tsmlab.tables import ROOMY, STYLES, Cell, Column, Layout, Sheet
from tsmlab.wording import change, change_in_full, names, quantity, rounds, share

LABEL_WIDTH = 11
MAX_FRONT = 8


def report(comparison: Comparison, width: int, colours: bool = False) -> str:
    """The whole report."""
    sheet = Sheet(width, colours)
    sheet.say(*heading(comparison), no_wrap=True, overflow="ellipsis")
    sheet.gap()
    rows = ranked_rows(comparison)
    if rows:
        columns, layout = fitted_columns(comparison, rows, width)
        sheet.table(columns, layout, may_be_cut=True)
        explained = legend(comparison, rows, layout)
        sheet.say(*explained, style="dim", no_wrap=True, overflow="ellipsis")
    sheet.say(*failed_lines(comparison), style="red")
    sheet.say(*kind_lines(comparison))
    sheet.gap()
    for label, text in verdict_lines(comparison):
        sheet.say(_hanging(label, text, width))
    return sheet.text


def heading(comparison: Comparison) -> list[str]:
    """The command, how much was measured, and how fine the measurement is."""
    analysis, reference = comparison.analysis, comparison.reference
    runs = sum(s.phase == "measured" for s in comparison.samples)
    floors = [
        f"{comparison.metric(key).name} {share(floor)}"
        for key, floor in analysis.noise_floors.items()
        if floor is not None
    ]
    extent = f"{rounds(analysis.rounds)}, {runs} runs, seed {comparison.settings.seed}"
    lines = [
        "$ " + " ".join(shlex.join(comparison.command).split()),
        f"{extent}; stopped: {comparison.stop.text}",
    ]
    if floors:
        text = f"noise floor ({reference} against itself): {', '.join(floors)}"
        lines.append(f"{text}; margin {share(comparison.settings.margin)}")
    return lines


def ranked_rows(comparison: Comparison) -> list[Row]:
    return [row for row in comparison.analysis.rows if row.rank is not None]


# --- the table -----------------------------------------------------------------------------------


def fitted_columns(
    comparison: Comparison, rows: Sequence[Row], width: int
) -> tuple[list[Column], Layout]:
    return tables.fitted(lambda layout: table_columns(comparison, rows, layout), width)


def table_columns(comparison: Comparison, rows: Sequence[Row], layout: Layout) -> list[Column]:
    """The primary metric with its interval, the other judged ones, then the explaining ones."""
    primary = comparison.metric(comparison.analysis.primary_metric)
    others = [s for s in comparison.metrics if s.judged and s.key != primary.key]
    columns = [
        Column("#", [Cell(str(row.rank)) for row in rows]),
        Column("allocator", [Cell(_title(comparison, row, layout)) for row in rows], left=True),
        *_primary_columns(comparison, rows, primary, layout),
    ]
    for spec in others:
        columns += _judged_columns(comparison, rows, spec, layout)
    for key, header, expendable in ((PAGE_FAULTS, "faults", 1), (SYSTEM_TIME, "system", 2)):
        cells = [_median_cell(row, comparison.metric(key)) for row in rows]
        columns.append(Column(header, cells, expendable=expendable))
    return columns


def _title(comparison: Comparison, row: Row, layout: Layout) -> str:
    info = comparison.allocator(row.allocator)
    return info.name if layout.compact else full_name(info)


def full_name(info: AllocatorInfo) -> str:
    """With the version, except for our own, which all have the lab's."""
    unversioned = info.family in ("tsmalloc", "hardened", "fetched") or info.version == "?"
    return info.name if unversioned else f"{info.name} {info.version}"


def _primary_columns(
    comparison: Comparison, rows: Sequence[Row], spec: MetricSpec, layout: Layout
) -> list[Column]:
    header = "time" if spec.key == TIME else spec.name

    def ratio(row: Row) -> Cell:
        estimate = row.metrics[spec.key].ratio
        if row.allocator == comparison.reference:
            return Cell("reference")
        if estimate is None:
            return Cell("-")
        return Cell(change_in_full(estimate))

    def verdict(row: Row) -> Cell:
        summary = row.metrics[spec.key]
        if summary.verdict is None:
            return Cell("")
        style = STYLES.get(summary.verdict, "")
        if summary.verdict is not Verdict.UNRESOLVED:
            return Cell(summary.verdict.value, style)
        more = "" if summary.rounds_more is None else f" +{summary.rounds_more}"
        return Cell(("?" if layout.compact else "unresolved") + more, style)

    return [
        Column(header, [_median_cell(row, spec) for row in rows]),
        Column(f"vs {comparison.reference} [95 % CI]", [ratio(row) for row in rows]),
        Column("verdict", [verdict(row) for row in rows], left=True),
    ]


def _judged_columns(
    comparison: Comparison, rows: Sequence[Row], spec: MetricSpec, layout: Layout
) -> list[Column]:
    """Median, ratio and verdict, the latter two in one column where it is narrow."""
    short = {PEAK_MEMORY: "peak", TIME: "time"}.get(spec.key, spec.name)

    def cell(word: Callable[[MetricSummary], str]) -> list[Cell]:
        cells = []
        for row in rows:
            summary = row.metrics.get(spec.key)
            if summary is None or summary.ratio is None or summary.verdict is None:
                cells.append(Cell(""))
            else:
                cells.append(Cell(word(summary), STYLES.get(summary.verdict, "")))
        return cells

    def ratio(summary: MetricSummary) -> str:
        return change(summary.ratio.ratio) if summary.ratio else ""

    def signed(summary: MetricSummary) -> str:
        signs = {Verdict.EQUAL: " =", Verdict.UNRESOLVED: " ?"}
        return ratio(summary) + signs.get(summary.verdict or Verdict.BETTER, "  ")

    medians = Column(short, [_median_cell(row, spec) for row in rows])
    against = f"vs {comparison.reference}"
    if layout.compact:
        return [medians, Column(against, cell(signed))]
    words = cell(lambda summary: summary.verdict.value if summary.verdict else "")
    return [medians, Column(against, cell(ratio)), Column("verdict", words, left=True)]


def _median_cell(row: Row, spec: MetricSpec) -> Cell:
    summary = row.metrics.get(spec.key)
    return Cell("-" if summary is None else quantity(summary.median, spec.unit))


def legend(comparison: Comparison, rows: Sequence[Row], layout: Layout) -> list[str]:
    """Explains the signs that occur."""
    summaries = [summary for row in rows for summary in row.metrics.values()]
    lines = []
    if any(s.rounds_more is not None for s in summaries):
        word = "?" if layout.compact else "unresolved"
        lines.append(f"{word} +N: not told apart yet; about N more rounds would do it")
    if layout.compact and any(s.verdict is Verdict.EQUAL for s in summaries):
        lines.append(f"=: equal within {share(comparison.settings.margin)}    ?: unresolved")
    return lines


def kind_lines(comparison: Comparison) -> list[str]:
    """The results of each kind of machine by itself, where rounds were made on several; the table
    has all of them, each kind with the same weight."""
    if len(comparison.kinds) < 2:
        return []
    key = comparison.analysis.primary_metric
    lines = [f"by kind of machine ({comparison.metric(key).name} vs {comparison.reference}):"]
    verdicts: dict[str, set[Verdict]] = {}
    for kind in comparison.kinds:
        lines.append(f"  {kind.name}: {kind.workers} workers, {rounds(kind.analysis.rounds)}")
        for row in kind.analysis.rows:
            summary = row.metrics.get(key)
            if summary is None or summary.ratio is None or summary.verdict is None:
                continue
            ratio = change_in_full(summary.ratio)
            lines.append(f"    {row.allocator}  {ratio}  {summary.verdict}")
            verdicts.setdefault(row.allocator, set()).add(summary.verdict)
    apart = [name for name, found in verdicts.items() if {Verdict.BETTER, Verdict.WORSE} <= found]
    if apart:
        lines.append(f"  THE MACHINES DISAGREE about {names(apart)}: go by those that you will use")
    return lines


def failed_lines(comparison: Comparison) -> list[str]:
    """One line for each allocator under which a run failed, and the program's last words."""
    lines = []
    for row in comparison.analysis.rows:
        if row.failure is None and row.rank is None:
            lines.append(f"NOT RANKED {row.allocator}: {_why_not_ranked(row, comparison)}")
        lines += failure_lines(row.allocator, row)
    return lines


def _why_not_ranked(row: Row, comparison: Comparison) -> str:
    spec = comparison.metric(comparison.analysis.primary_metric)
    for other in comparison.analysis.rows:
        summary = other.metrics.get(spec.key)
        is_compared = other.allocator in (row.allocator, comparison.reference)
        if is_compared and summary is not None and summary.minimum <= 0:
            least = quantity(summary.minimum, spec.unit)
            return f"{spec.name} was {least} under {other.allocator}, and has no ratio"
    return "no complete measurement"


def failure_lines(name: str, row: Row | Score) -> list[str]:
    """The lines of an allocator whose runs failed; nothing if none did."""
    if row.failure is None:
        return []
    end = "; not run again" if row.gave_up else ""
    how_many = f"{row.failures} of {row.attempts} runs"
    said = row.failure.stderr_tail.splitlines()[-2:]
    return [
        f"FAILED {name}: {row.failure.text} ({how_many}{end})",
        *(f"       | {s}" for s in said),
    ]


# --- the verdict ---------------------------------------------------------------------------------


def verdict_lines(comparison: Comparison) -> list[tuple[str, str]]:
    """Labels and sentences: the leaders, the trade-off, and what to type."""
    lines = []
    for key in comparison.analysis.leaders:
        others = "fewest" if comparison.metric(key).unit == "count" else "best"
        label = {TIME: "fastest", PEAK_MEMORY: "smallest"}.get(key, others)
        if key == TIME and comparison.analysis.primary_metric == CUSTOM:
            label = "quickest"
        lines.append((label, _leader_sentence(comparison, comparison.metric(key))))
    if front := _front_sentence(comparison):
        lines.append(("trade-off", front))
    if lines:
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
            better = "more" if spec.higher_is_better else "less"
            text = (
                f"none is shown to have {better} {spec.name} than {reference}; "
                f"{title} leads with {text} ({_why_not(summary)})"
            )
    equal = [name for name in leaders.equal if name != leaders.best]
    if equal:
        text += f"; equal within {share(comparison.settings.margin)}: {names(equal)}"
    if leaders.unresolved:
        text += f"; not told apart from it yet: {names(leaders.unresolved)}"
    return text


def _why_not(summary: MetricSummary) -> str:
    if summary.verdict is Verdict.EQUAL:
        return "equal"
    if summary.rounds_more is None:
        return "unresolved"
    return f"unresolved: about {rounds(summary.rounds_more, more=True)} would tell"


def _front_sentence(comparison: Comparison) -> str | None:
    """The Pareto front. One that leads in both has no rival, which is worth saying, too."""
    primary = comparison.metric(comparison.analysis.primary_metric)
    memory = comparison.metric(PEAK_MEMORY)
    front = [row for row in comparison.analysis.rows if row.pareto]
    if not front:
        return None
    points = [
        f"{row.allocator} ({quantity(row.metrics[primary.key].median, primary.unit)}, "
        f"{quantity(row.metrics[PEAK_MEMORY].median, memory.unit)})"
        for row in front
    ]
    axes = f"{primary.name} x {memory.name}"
    if len(front) == 1:
        within = f", where less than {share(comparison.settings.margin)} counts as none"
        return f"none ({axes}): {points[0]} leads in both{within}"
    return f"no other is better in both ({axes}): {names(points, MAX_FRONT)}"


def use_it(comparison: Comparison) -> str:
    """The command line that has the recommended allocator from now on."""
    name = comparison.analysis.recommended
    if name is None or name == comparison.reference:
        return f"keep {comparison.reference}: nothing is shown to serve this program better"
    info = comparison.allocator(name)
    command = shlex.join(comparison.command)
    settings = "".join(f"{key}={shlex.quote(value)} " for key, value in info.env.items())
    if info.path is None:
        return f"{settings}{command}    (without LD_PRELOAD)"
    if paths.is_preloadable(info.path):
        return f"{settings}LD_PRELOAD={shlex.quote(info.path)} {command}"
    allocator = shlex.quote(f"{name}={info.path}")
    return f"{settings}tsmalloc run --allocator {allocator} {shlex.quote(name)} -- {command}"


def _hanging(label: str, text: str, width: int) -> str:
    """Wraps a sentence beside its label; a command line stays in one piece."""
    start = label.ljust(LABEL_WIDTH)
    if label == "use it":
        return start + text
    return textwrap.fill(
        text,
        width=max(40, width),
        initial_indent=start,
        subsequent_indent=" " * LABEL_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


# --- beside the table ----------------------------------------------------------------------------


def warning_lines(troubles: Sequence[Trouble]) -> list[str]:
    lines = []
    for trouble in troubles:
        lines.append(f"warning: {trouble.symptom}")
        lines.append(f"         likely: {trouble.cause}")
        lines.append(f"         remedy: {trouble.remedy}")
    return lines


def markdown(comparison: Comparison) -> str:
    """The same report for a README or an issue."""
    rows = ranked_rows(comparison)
    lines = [f"    {line}" for line in heading(comparison)] + [""]
    if rows:
        columns = table_columns(comparison, rows, ROOMY)
        lines += tables.markdown_table(columns)
        lines.append("")
    lines += [f"- {line.strip()}" for line in (*failed_lines(comparison), *kind_lines(comparison))]
    lines += [f"- **{label}** {_code(label, text)}" for label, text in verdict_lines(comparison)]
    lines += [f"- *warning* {t.symptom}. {t.cause}. {t.remedy}." for t in comparison.warnings]
    lines += ["", tables.measured_on(comparison.machine, comparison.created)]
    return "\n".join(lines) + "\n"


def to_csv(comparison: Comparison) -> str:
    return export.csv_of_comparisons((), [((), comparison)])


def troubles(comparison: Comparison) -> Sequence[Trouble]:
    return comparison.warnings


formatted = export.formatter(csv=to_csv, markdown=markdown)


def _code(label: str, text: str) -> str:
    return f"`{text}`" if label == "use it" and "LD_PRELOAD" in text else text
