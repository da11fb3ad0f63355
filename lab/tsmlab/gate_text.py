"""A gate as text and tables, and as JUnit and SARIF for tools."""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tsmlab.gate import BASELINE, verdict_of
from tsmlab.render import failed_lines
from tsmlab.study import Gate, GateRow, Study, given
from tsmlab.tables import Block, Cell, Column
from tsmlab.wording import change, change_in_full, quantity_or, rounds

STYLES = {"pass": "green", "regression": "red", "unresolved": "yellow", "measured": ""}
ADDRESS = "https://json.schemastore.org/sarif-2.1.0.json"


def blocks(study: Study) -> Iterator[Block]:
    gate, comparison = given(study.gate), study.comparison
    yield Block(lines=list(conclusion(study)), style="bold")
    yield Block(lines=list(heading(study)))
    yield Block(table=table(gate), fails=failed_lines(comparison))


def title(gate: Gate, failed: Sequence[object]) -> str:
    mark = {"pass": "✅", "regression": "❌", "failed": "❌", "unresolved": "⚠️", "measured": ""}
    found = verdict_of(gate, failed)
    return f"### {mark[found]} tsmalloc gate: {found}\n\n".replace("  ", " ")


def heading(study: Study) -> Iterator[str]:
    gate, comparison = given(study.gate), study.comparison
    analysis, settings = comparison.analysis, comparison.settings
    yield f"$ {shlex.join(gate.command)}"
    if gate.baseline_file is not None:
        yield f"against {gate.baseline_file}: $ {shlex.join(gate.against)}"
    elif BASELINE in {info.name for info in comparison.allocators}:
        yield f"against $ {shlex.join(gate.against)}, in the same rounds"
    stop = comparison.stop.text
    yield f"{rounds(analysis.rounds)}, seed {settings.seed}; stopped: {stop}"


def table(gate: Gate) -> list[Column]:
    rows = gate.rows
    return [
        Column("metric", [Cell(row.name) for row in rows], left=True),
        Column("baseline", [Cell(quantity_or(row.baseline, row.unit)) for row in rows]),
        Column("candidate", [Cell(quantity_or(row.candidate, row.unit)) for row in rows]),
        Column("change [95% CI]", [Cell(change_in_full(row.ratio)) for row in rows]),
        Column("limit", [Cell(_limit(row)) for row in rows]),
        Column("verdict", [Cell(row.verdict, STYLES[row.verdict]) for row in rows], left=True),
    ]


def _limit(row: GateRow) -> str:
    return "" if row.limit is None else change(1.0 + row.limit)


def sentence(row: GateRow) -> str:
    if row.ratio is None or row.limit is None:
        return f"{row.name}: {quantity_or(row.candidate, row.unit)}, not judged"
    message = f"{row.name}: {change_in_full(row.ratio)}, limit {_limit(row)}"
    if row.verdict != "unresolved":
        return message
    if row.ratio.low is None:
        return f"{message}; one round has no interval: -r 3 or more"
    if row.rounds_more is None:
        return f"{message}; no sensible number of rounds would resolve it: use --deterministic"
    return f"{message}; about {rounds(row.rounds_more, more=True)} would resolve it"


def conclusion(study: Study) -> Iterator[str]:
    gate = given(study.gate)
    verdict = verdict_of(gate, study.failed_rows)
    if verdict == "failed":
        yield "FAILED: a run failed"
    elif verdict == "measured":
        has_baseline = gate.baseline_file is not None or len(study.comparison.allocators) > 1
        lacks = "no limit set" if has_baseline else "no baseline given, so nothing was judged"
        remedy = "--max-peak, --max-time" if has_baseline else "--against or --baseline"
        yield f"measured; {lacks} ({remedy})"
    for row in gate.rows:
        if row.verdict in ("regression", "unresolved"):
            yield f"{row.verdict.upper()} {sentence(row)}"
    if verdict == "pass":
        yield "PASS: within all limits"


def junit(study: Study) -> str:
    """A test for each metric: a regression is a failure, and an unresolved limit is skipped."""
    gate = given(study.gate)
    rows, failed = gate.rows, failed_lines(study.comparison)
    suite = ElementTree.Element(
        "testsuite",
        name="tsmalloc gate",
        tests=str(len(rows) + 1),
        failures=str(sum(row.verdict == "regression" for row in rows)),
        errors=str(int(bool(failed))),
        skipped=str(sum(row.verdict in ("unresolved", "measured") for row in rows)),
        timestamp=study.created.partition("+")[0],
    )
    name = Path(gate.command[0]).name
    run = ElementTree.SubElement(suite, "testcase", classname=name, name="runs")
    if failed:
        ElementTree.SubElement(run, "error", message=failed[0]).text = "\n".join(failed)
    for row in rows:
        case = ElementTree.SubElement(suite, "testcase", classname=name, name=row.name)
        if row.verdict == "regression":
            ElementTree.SubElement(case, "failure", message=sentence(row))
        elif row.verdict != "pass":
            ElementTree.SubElement(case, "skipped", message=sentence(row))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def sarif(study: Study) -> str:
    """A result for each regression (error) and each unresolved limit (note)."""
    gate = given(study.gate)
    levels = {"regression": "error", "unresolved": "note"}
    place = {"physicalLocation": {"artifactLocation": {"uri": _relative(gate.command[0])}}}
    found: list[dict[str, Any]] = [
        {
            "ruleId": row.metric,
            "level": levels[row.verdict],
            "message": {"text": f"{row.verdict}: {sentence(row)}"},
            "locations": [place],
        }
        for row in gate.rows
        if row.verdict in levels
    ]
    rules = [
        {"id": row.metric, "shortDescription": {"text": f"{row.name} within its limit"}}
        for row in gate.rows
        if row.limit is not None
    ]
    driver = {"name": "tsmalloc gate", "version": study.tsmalloc_version, "rules": rules}
    log = {
        "$schema": ADDRESS,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": found}],
    }
    return json.dumps(log, indent=1) + "\n"


def _relative(program: str) -> str:
    """Relative to the folder of the checkout, in which the gate runs, as code hosts want it."""
    path = Path(program)
    if not path.is_absolute():
        return path.as_posix().removeprefix("./")
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.name
