"""The page of replays: what was replayed, verdicts, tables, figures, circumstances.

Why: one trace under one schedule is a comparison with more to show; several are told one after the
other, with fragmentation side by side.
Refuses to: word a number anew. Sentences and tables are the terminal's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tsmlab import render, texts
from tsmlab.report.figures import of_replay
from tsmlab.report.figures.canvas import Figure
from tsmlab.report.pages import common, comparison
from tsmlab.report.tables import DataTable
from tsmlab.text import shortened, slug
from tsmlab.traces import replay_text as replay_report
from tsmlab.traces.replay_results import Replay, ReplayResults, TraceInfo
from tsmlab.wording import share


@dataclass(frozen=True)
class Section:
    """A part of the page: tables, then figures."""

    id: str
    title: str
    tables: Sequence[DataTable]
    figures: Sequence[Figure] = ()


def report(results: ReplayResults) -> common.Report:
    """The whole report of replays."""
    first = results.replays[0]
    traces = ", ".join(trace.name for trace in results.traces)
    schedules = ", ".join(results.schedules)
    sections = [section for trace in results.traces for section in _sections(results, trace)]
    replays = [(trace, results.replays_of(trace)) for trace in results.traces]
    lines = [line for each in replays for line in replay_report.heading(*each)]
    verdict = list(_verdict(results))
    page: dict[str, Any] = {
        "title": f"{shortened(traces, 40)}: replayed on {len(results.allocators)} allocators",
        "kind": "replay",
        "kicker": f"The same calls on {len(results.allocators)} allocators, under {schedules}",
        "heading": shortened(f"Replay of {traces}", 140),
        "tiles": _tiles(results),
        "verdict": verdict or [("Verdict", "No allocator could be ranked.")],
        "extent": lines,
        "troubles": results.study.warnings,
        "failures": [
            line for each in results.replays for line in render.failed_lines(each.comparison)
        ],
        "sections": sections,
        **common.circumstances(
            results, results.allocators, {**asdict(results.settings), **_rounds(first)}
        ),
        "reading": "reading-replay.html",
        "reference": results.reference,
        "margin": share(first.comparison.settings.margin),
        "contents": [
            ("verdict", "Verdict"),
            *((section.id, section.title) for section in sections),
            *common.LAST_CONTENTS,
        ],
    }
    return common.Report(
        name=slug(f"replay-{traces}"),
        title=page["heading"],
        summary="; ".join(f"{label.lower()}: {text}" for label, text in verdict[:2]),
        template="replay.html",
        page=page,
        figures=[figure for section in sections for figure in section.figures],
        markdown=texts.markdown(results.study),
        csv=texts.to_csv(results.study),
        data=asdict(results.study),
        thin=thin,
    )


def thin(data: dict[str, Any]) -> None:
    """Without curves and buckets."""
    for part in data["parts"]:
        for sample in part["samples"]:
            line = sample["measurement"].get("replay") or {}
            line.pop("samples", None)
            line.pop("meters", None)
            for latency in (line.get("latency") or {}).values():
                latency.pop("buckets", None)


def _rounds(replay: Replay) -> dict[str, Any]:
    settings = asdict(replay.comparison.settings)
    kept = ("runs", "warmup_rounds", "time_budget_seconds", "timeout_seconds", "margin", "cpus")
    return {key: settings[key] for key in kept}


def _verdict(results: ReplayResults) -> Iterator[tuple[str, str]]:
    """Of a single replay its sentences; of several, how far they repeated."""
    if len(results.replays) == 1:
        for label, text in replay_report.verdicts(results.replays[0]):
            yield common.capital(label), text
        return
    for replay in results.replays:
        name = f"{replay.trace.name}, {replay.schedule}"
        for label, text in replay_report.verdicts(replay):
            if label in ("smallest", "repeated"):
                yield name, f"{label}: {text}"


def _tiles(results: ReplayResults) -> list[common.Tile]:
    """The leaders of a single replay; else those that fragment least under each schedule."""
    if len(results.replays) == 1 and not results.replays[0].is_deterministic:
        return comparison.tiles(results.replays[0].comparison)
    tiles = []
    for replay in results.replays:
        able = [f for f in replay.findings if f.over_time is not None]
        if able:
            least = min(able, key=lambda f: f.over_time or 0.0)
            tiles.append(
                common.Tile(
                    f"Least fragmentation: {least.allocator}",
                    replay_report.percent(least.over_time),
                    f"over time, {replay.trace.name} under {replay.schedule}",
                )
            )
    return tiles


def _sections(results: ReplayResults, trace: TraceInfo) -> Iterator[Section]:
    replays = results.replays_of(trace)
    anchor = slug(trace.name, "trace")
    of_trace = f" of {trace.name}" if len(results.traces) > 1 else ""
    if len(replays) == 1:
        tables = [comparison.results_table(replays[0].comparison)]
        memory = common.data_table(
            "Memory and fragmentation", replay_report.memory_columns(replays[0])
        )
        yield Section(f"{anchor}-results", f"Results{of_trace}", [*tables, memory])
    else:
        caption = "Fragmentation over time, and (in parentheses) at the peak"
        tables = [common.data_table(caption, replay_report.fit_columns(replays))]
        tables += [
            common.data_table(f"Memory under {each.schedule}", replay_report.memory_columns(each))
            for each in replays
        ]
        yield Section(f"{anchor}-results", f"Fragmentation{of_trace} by schedule", tables)
    more = []
    for replay in replays:
        if columns := replay_report.latency_columns(replay):
            more.append(
                common.data_table(f"Latency under {replay.schedule}, all runs", columns, False)
            )
        if len(replay.shares) > 1:
            columns = replay_report.share_columns(replay_report.most_owed(replay))
            more.append(common.data_table(f"Shares under {replay.schedule}", columns))
    if more:
        yield Section(f"{anchor}-more", f"Latencies and shares{of_trace}", more)
    for figure in of_replay.figures(replays):
        yield Section(f"s-{figure.name}", figure.title, [], [figure])
