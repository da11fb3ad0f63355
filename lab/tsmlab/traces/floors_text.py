"""The floors as text: a table of what each allocator takes beyond.

Why: the answer is two numbers for each allocator, with their intervals.
Refuses to: compute. Every number is in the results.
"""

from collections.abc import Sequence

from tsmlab import export
from tsmlab.results import Trouble
from tsmlab.tables import Cell, Column, Sheet, markdown_table, measured_on
from tsmlab.traces import planning
from tsmlab.traces.floors import Excess, FloorResults, FloorRow, TraceFloors
from tsmlab.wording import change, quantity, rounds

NOTES = (
    "Excess time: over the same calls on lists of freed blocks by size (the floor lifo).",
    "Excess memory: peak resident memory over the most bytes live at one time (the bound).",
)


def to_csv(results: FloorResults) -> str:
    keys: dict[str, str] = {}
    for each in results.traces:
        keys |= {spec.key: spec.key for spec in each.comparison.metrics}
    runs = (
        ((each.trace,), sample) for each in results.traces for sample in each.comparison.samples
    )
    return export.csv_text(("trace",), runs, keys)


def report(results: FloorResults, width: int, colours: bool = False) -> str:
    sheet = Sheet(width, colours)
    for each in results.traces:
        sheet.say(*heading(each))
        sheet.table(columns_of(each))
        sheet.say(*failed_lines(each), style="red")
        sheet.gap()
    sheet.say(*NOTES, style="dim")
    return sheet.text


def markdown(results: FloorResults) -> str:
    lines: list[str] = []
    for each in results.traces:
        lines += [*heading(each), "", *markdown_table(columns_of(each)), ""]
        lines += [f"- {line}" for line in failed_lines(each)]
    lines += [*NOTES, "", measured_on(results.machine, results.created)]
    return "\n".join(lines) + "\n"


def troubles(results: FloorResults) -> list[Trouble]:
    """Of all comparisons, each once."""
    found = {
        trouble.code: trouble for each in results.traces for trouble in each.comparison.warnings
    }
    return list(found.values())


formatted = export.formatter(csv=to_csv, markdown=markdown)


def heading(each: TraceFloors) -> list[str]:
    bound = quantity(each.bound_bytes, "bytes")
    done = rounds(each.comparison.analysis.rounds)
    lines = [f"{each.trace}: bound {bound}, floor {_seconds(each.floor_seconds)}; {done}"]
    damage = planning.damage(each.left_out, each.is_damaged)
    return [damage, *lines] if damage else lines


def ordered(each: TraceFloors) -> list[FloorRow]:
    """Those that did not fail, the quickest first; the floor leads."""
    rows = [row for row in each.rows if row.failure is None and row.seconds is not None]
    floor = each.comparison.reference
    return sorted(rows, key=lambda row: (row.allocator != floor, row.seconds))


def failed_lines(each: TraceFloors) -> list[str]:
    return [f"{row.allocator} failed: {row.failure}" for row in each.rows if row.failure]


def columns_of(each: TraceFloors) -> list[Column]:
    rows = ordered(each)
    return [
        Column("allocator", [Cell(row.allocator) for row in rows], left=True),
        Column("time", [Cell(_seconds(row.seconds)) for row in rows]),
        *_excess_columns("excess time", [row.time for row in rows]),
        Column("peak", [Cell(_bytes(row.peak_bytes)) for row in rows]),
        *_excess_columns("excess memory", [row.memory for row in rows]),
    ]


def _excess_columns(header: str, excesses: Sequence[Excess | None]) -> list[Column]:
    return [
        Column(header, [Cell("" if e is None else change(1 + e.excess)) for e in excesses]),
        Column("[95 % CI]", [Cell(_interval(e)) for e in excesses], left=True, expendable=1),
    ]


def _interval(excess: Excess | None) -> str:
    if excess is None or excess.low is None or excess.high is None:
        return ""
    return f"[{change(1 + excess.low)}, {change(1 + excess.high)}]"


def _seconds(value: float | None) -> str:
    return "" if value is None else quantity(value, "seconds")


def _bytes(value: int | None) -> str:
    return "" if value is None else quantity(value, "bytes")
