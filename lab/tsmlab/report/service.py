"""The page of a service: how latency, throughput and memory over time differ. The sentences and the
table are the terminal's."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from tsmlab import render, series, texts
from tsmlab.report import charts, comparison, parts
from tsmlab.report.charts import Axis, Line
from tsmlab.report.comparison import Styles
from tsmlab.report.page import DataTable, Figure, Page, Section, figure_sections, table_of
from tsmlab.results import Comparison, Sample
from tsmlab.service import render as text
from tsmlab.service.loads import PERCENTILES, THROUGHPUT, key_of
from tsmlab.service.results import END, READY
from tsmlab.service.study import Life, lives_of, memory_of
from tsmlab.study import Study
from tsmlab.text import shortened, slug
from tsmlab.wording import quantity

TERMS = """\
p50, p99, max: Half of the requests, 99 of 100, and all were answered within this time.
Open loop: Requests are sent when they are due, so a stall of the server delays all that were due
  meanwhile. A closed loop waits for answers, and its percentiles look too good.
CPU per request: Processor time of all processes of the server, over the requests.
Memory: The sum over the server's processes, where pages that they share count once (PSS): when it
  is ready, under load, after the load, and after idle time.
Verdict: Better or worse: the whole 95% interval lies beyond the margin and the noise floor, after
  a correction for comparing many (Holm). Equal: it lies within the margin. ?: neither, so far.
"""


def page(study: Study) -> Page:
    found, served = study.comparison, text.answer_of(study)
    server = shortened(served.setup.server, 140)
    settings = {**asdict(found.settings), **asdict(served.setup)}
    table = DataTable(f"Against {found.reference}", text.table(found))
    return Page(
        kind="service",
        name=slug(f"service-{shlex.split(served.setup.server)[0].rpartition('/')[2]}"),
        title=server,
        window_title=f"{shortened(server, 40)}: {len(found.allocators)} allocators",
        is_command=True,
        question=f"Which of {len(found.allocators)} allocators is best for this server?",
        answer=text.answer(study),
        facts=[("Growth", line) for line in text.growth_lines(served)],
        use=text.use_it(study) or "",
        warnings=parts.warned(study.warnings),
        failures=render.failed_lines(found),
        extent=" · ".join(text.heading(study)),
        sections=[
            Section("Results", [table], anchor="results"),
            *figure_sections(list(figures(found))),
            *parts.circumstances(
                found,
                found.allocators,
                settings,
                TERMS,
                f"{served.setup.server}\n{served.setup.load}",
            ),
        ],
        footer=parts.footer(found),
        files={"results.md": texts.markdown(study), "runs.csv": texts.to_csv(study)},
    )


def figures(found: Comparison) -> Iterator[Figure]:
    styles = comparison.styles_of(found)
    known = {key for row in found.analysis.rows for key in row.metrics}
    makers = [
        comparison.trade_off(found, styles),
        memory_over_time(found, styles),
        percentiles(found, styles),
        comparison.distribution(found, styles, THROUGHPUT) if THROUGHPUT in known else None,
        comparison.ratios(found, styles),
    ]
    yield from filter(None, makers)


def percentiles(found: Comparison, styles: Styles) -> Figure | None:
    """Medians over the rounds of each percentile that the load generator told."""
    names = [n for n in PERCENTILES.values() if any(key_of(n) == m.key for m in found.metrics)]
    rows = [row for row in text.ordered(found) if key_of(names[0]) in row.metrics] if names else []
    if not rows or len(names) < 2:
        return None
    medians = {
        row.allocator: [row.metrics[key_of(n)].median for n in names if key_of(n) in row.metrics]
        for row in rows
    }
    drawn = [Line(name, list(enumerate(own)), styles[name], marked=True)
             for name, own in medians.items()]  # fmt: skip
    cells = [[name, *(quantity(each, "seconds") for each in own)] for name, own in medians.items()]
    return Figure(
        "percentiles",
        "Latency by percentile",
        "Medians over the rounds of what the load generator told. Lower is better.",
        [charts.lines(drawn, Axis("requests", names=names), Axis("latency", "seconds", log=True))],
        table_of("Latency by percentile", ["allocator", *names], cells),
        charts.legend({line.name: line.style for line in drawn}),
    )


def memory_over_time(found: Comparison, styles: Styles) -> Figure | None:
    """One server of each allocator: of the run whose memory after the load is nearest to the
    median."""
    lives: dict[str, Life] = {}
    for row in text.ordered(found):
        key = END if END in row.metrics else READY
        sample = series.typical_run(found, row.allocator, key, _was_watched)
        if sample is not None:
            lives[row.allocator] = lives_of(sample)[0]
    if not lives:
        return None
    drawn = [Line(name, series.thinned(memory_of(life)), styles[name])
             for name, life in lives.items()]  # fmt: skip
    bands = phases(next(iter(lives.values())))
    cells = [
        [line.name, *(quantity(size, "bytes") for size in (
            max(y for _, y in line.points), series.mean_bytes(line.points), line.points[-1][1]))]
        for line in drawn
    ]  # fmt: skip
    heads = ("allocator", "highest", "mean over time", "at the end")
    return Figure(
        "memory",
        "Memory over time",
        "Memory of all processes of one server under each allocator: of the run whose memory after "
        "the load is nearest to its median. The loads are shaded.",
        [charts.lines(drawn, Axis("time since the start", "seconds", zero=True),
                      Axis("memory", "bytes", zero=True), bands=bands)],
        table_of("Memory of the servers shown", heads, cells),
        charts.legend({line.name: line.style for line in drawn}),
    )  # fmt: skip


def _was_watched(sample: Sample) -> bool:
    return any(len(life.series) > 1 for life in lives_of(sample)[:1])


def phases(life: Life) -> Sequence[tuple[str, float, float]]:
    """Those with load: name, begin and end. Those of one name that follow each other are one."""
    found: list[tuple[str, float, float]] = []
    for part in life.loaded:
        begin, end = part.before.at_seconds, part.after.at_seconds
        if found and found[-1][0] == part.phase.name:
            begin = found.pop()[1]
        found.append((part.phase.name, begin, end))
    return found
