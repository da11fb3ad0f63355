"""The results of a study for readers and files: text for a terminal, Markdown, CSV, JSON, warnings.

Each verb has its own blocks of text; everything else is the same for all of them.
"""

from collections.abc import Callable, Iterator, Sequence

from tsmlab import bench_text, export, gate_text, records, render, tables, tune_text
from tsmlab.results import ResultWarning
from tsmlab.service import render as service_text
from tsmlab.study import Study, Verb
from tsmlab.tables import Block
from tsmlab.traces import replay_text


def _parts(study: Study) -> Iterator[Block]:
    for part in study.parts:
        yield from render.blocks(part)


_BLOCKS: dict[Verb, Callable[[Study], Iterator[Block]]] = {
    "compare": _parts,
    "experiment": _parts,
    "service": service_text.blocks,
    "bench": bench_text.blocks,
    "gate": gate_text.blocks,
    "tune": tune_text.blocks,
    "replay": replay_text.blocks,
}


def blocks(study: Study) -> Iterator[Block]:
    return _BLOCKS[study.verb](study)


def report(study: Study, width: int, colours: bool = False) -> str:
    return tables.text_of(blocks(study), width, colours)


def markdown(study: Study) -> str:
    """With warnings, the machine and the time."""
    title = gate_text.title(study.gate, study.failed_rows) if study.gate else ""
    lines = tables.markdown_of(blocks(study))
    lines += [f"- *warning* {t.symptom}. {t.cause}. {t.remedy}." for t in study.warnings]
    lines += ["", tables.measured_on(study.machine, study.created)]
    return title + "\n".join(lines) + "\n"


def to_csv(study: Study) -> str:
    """A line for each run, including failed and warm-up ones; with the part's name if there are
    several."""
    if study.replay:
        places = [(each.trace.name, each.schedule) for each in study.replay.parts]
        pairs = list(zip(places, study.parts, strict=True))
        return export.csv_of_comparisons(("trace", "schedule"), pairs)
    if study.verb in ("compare", "service", "bench", "gate"):
        return export.csv_of_comparisons((), [((), study.comparison)])
    return export.csv_of_comparisons(("part",), [((part.name,), part) for part in study.parts])


def formatted(study: Study, file_format: export.Format) -> str:
    writers: dict[export.Format, Callable[[Study], str]] = {
        "json": records.to_json,
        "csv": to_csv,
        "markdown": markdown,
        "junit": gate_text.junit,
        "sarif": gate_text.sarif,
    }
    return writers[file_format](study)


def warning_lines(result_warnings: Sequence[ResultWarning], verbose: bool = False) -> list[str]:
    lines = []
    for warning in result_warnings:
        lines.append(f"warning: {warning.symptom}")
        if verbose:
            lines.append(f"         likely: {warning.cause}")
            lines.append(f"         remedy: {warning.remedy}")
    if result_warnings and not verbose:
        lines.append("         (-v shows likely causes and remedies)")
    return lines
