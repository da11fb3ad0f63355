"""The page of a trace's analysis: what is damaged, the sums, the figures, the tables.

Why: a trace is passed on as a file; what it tells is passed on as a page.
Refuses to: word a number anew. The sentences and tables are the terminal's (analysis_text.py).
"""

from typing import Any

from tsmlab import __version__, export
from tsmlab.report.figures import of_analysis
from tsmlab.report.pages.common import Report, Tile, capital, data_table
from tsmlab.text import shortened, slug
from tsmlab.traces import analysis_text
from tsmlab.traces.analysis import CurvePoint, TraceAnalysis
from tsmlab.wording import quantity, share


def report(analysis: TraceAnalysis) -> Report:
    """The whole report of an analysis."""
    figures = list(of_analysis.figures(analysis))
    sentences = [(capital(label), text) for label, text in analysis_text.sums(analysis)]
    tables = [
        (slug(title), title, data_table(title, columns))
        for title, columns in analysis_text.all_tables(analysis)
    ]
    program = analysis.image["program"] or "a program"
    page: dict[str, Any] = {
        "title": f"{shortened(analysis.trace, 40)}: what {shortened(program, 40)} allocates",
        "kind": "trace",
        "kicker": f"What {shortened(program, 60)} does with its memory",
        "heading": shortened(analysis.trace, 140),
        "tiles": _tiles(analysis),
        "sums": sentences,
        "extent": analysis_text.heading(analysis),
        "damage": analysis_text.damage_lines(analysis),
        "figures": figures,
        "tables": tables,
        "footer": f"Written by tsmalloc {__version__}. This file stands alone: it loads nothing, "
        "and needs no script.",
        "contents": [
            ("sums", "In short"),
            *((f"s-{figure.name}", figure.title) for figure in figures),
            *((f"t-{name}", title) for name, title, _ in tables),
            ("reading", "How to read this"),
            ("raw", "Raw data"),
        ],
    }
    return Report(
        name=slug(f"trace-{analysis.trace}"),
        title=shortened(analysis.trace, 100),
        summary="; ".join(f"{label.lower()}: {text}" for label, text in sentences[:2]),
        template="analysis.html",
        page=page,
        figures=figures,
        markdown=analysis_text.markdown(analysis),
        csv=curve_csv(analysis),
        data=dict(analysis.raw),
        thin=thin,
    )


def thin(data: dict[str, Any]) -> None:
    """What is largest, and is drawn in any case."""
    data.pop("curve", None)
    for each in data.get("predicted", []):
        each.pop("by_size", None)


def curve_csv(analysis: TraceAnalysis) -> str:
    """Live bytes over time, a line for each stretch of events."""
    return export.csv_lines(CurvePoint._fields, analysis.curve)


def _tiles(analysis: TraceAnalysis) -> list[Tile]:
    allocated = analysis.amount("allocations")
    return [
        Tile("Events", quantity(analysis.events, "count"), f"{allocated.objects:,} allocations"),
        Tile(
            "Peak",
            quantity(analysis.peak.bytes, "bytes"),
            f"of {quantity(allocated.bytes, 'bytes')} allocated in all",
        ),
        Tile("Temporary", share(analysis.temporary_share), "of all allocations"),
        Tile("Cross-thread", share(analysis.cross_thread_share), "of all frees"),
    ]
