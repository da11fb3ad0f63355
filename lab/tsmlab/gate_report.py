"""The results of a gate for people and for machines: a table, Markdown, JUnit, SARIF, CSV.

Why: the same verdict is read in a log, in a pull request, in a list of tests and in a tab of
findings.
Refuses to: judge. Every verdict is in the results.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from tsmlab import export, render, tables
from tsmlab.gate import GateResults, GateRow
from tsmlab.render import failed_lines
from tsmlab.results import Trouble
from tsmlab.tables import Cell, Column, Sheet
from tsmlab.wording import change, change_in_full, quantity_or, rounds

STYLES = {"pass": "green", "regression": "red", "unresolved": "yellow", "measured": ""}
ADDRESS = "https://json.schemastore.org/sarif-2.1.0.json"


def report(results: GateResults, width: int, colours: bool = False) -> str:
    sheet = Sheet(width, colours)
    sheet.say(*heading(results))
    sheet.table(table(results))
    sheet.say(*failed_lines(results.comparison), style="red")
    sheet.say(*conclusion(results))
    return sheet.text


def heading(results: GateResults) -> Iterator[str]:
    """The program, its baseline, and the time that it took."""
    analysis, settings = results.comparison.analysis, results.comparison.settings
    yield f"$ {shlex.join(results.command)}"
    if results.baseline_file is not None:
        yield f"against {results.baseline_file}: $ {shlex.join(results.against)}"
    elif "baseline" in {info.name for info in results.comparison.allocators}:
        yield f"against $ {shlex.join(results.against)}, in the same rounds"
    stop = results.comparison.stop.text
    yield f"{rounds(analysis.rounds)}, seed {settings.seed}; stopped: {stop}"


def table(results: GateResults) -> list[Column]:
    rows = results.rows
    return [
        Column("metric", [Cell(row.name) for row in rows], left=True),
        Column("baseline", [Cell(quantity_or(row.baseline, row.unit)) for row in rows]),
        Column("candidate", [Cell(quantity_or(row.candidate, row.unit)) for row in rows]),
        Column("change [95 % CI]", [Cell(change_in_full(row.ratio)) for row in rows]),
        Column("limit", [Cell(_limit(row)) for row in rows]),
        Column("verdict", [Cell(row.verdict, STYLES[row.verdict]) for row in rows], left=True),
    ]


def _limit(row: GateRow) -> str:
    return "" if row.limit is None else change(1.0 + row.limit)


def sentence(row: GateRow) -> str:
    """One row in words."""
    if row.ratio is None or row.limit is None:
        return f"{row.name}: {quantity_or(row.candidate, row.unit)}, not judged"
    told = f"{row.name}: {change_in_full(row.ratio)}, limit {_limit(row)}"
    if row.verdict != "unresolved":
        return told
    if row.ratio.low is None:
        return f"{told}; one round has no interval: -r 3 or more"
    if row.rounds_more is None:
        return f"{told}; not to be told by any sensible number of rounds: judge by --deterministic"
    return f"{told}; about {rounds(row.rounds_more, more=True)} would tell"


def conclusion(results: GateResults) -> Iterator[str]:
    verdict = results.verdict
    if verdict == "failed":
        yield "FAILED: a run failed"
    elif verdict == "measured":
        has_baseline = results.baseline_file is not None or len(results.comparison.allocators) > 1
        lacks = "no limit is set" if has_baseline else "there is nothing to judge it by"
        remedy = "--max-peak, --max-time" if has_baseline else "--against or --baseline"
        yield f"measured; {lacks} ({remedy})"
    for row in results.rows:
        if row.verdict in ("regression", "unresolved"):
            yield f"{row.verdict.upper()} {sentence(row)}"
    if verdict == "pass":
        yield "PASS: every limit is kept"


def markdown(results: GateResults) -> str:
    """For a pull request."""
    mark = {"pass": "✅", "regression": "❌", "failed": "❌", "unresolved": "⚠️", "measured": ""}
    lines = [f"### {mark[results.verdict]} tsmalloc gate: {results.verdict}".replace("  ", " "), ""]
    lines += [*tables.markdown_table(table(results)), ""]
    lines += [f"- {line}" for line in (*conclusion(results), *heading(results))]
    lines += ["", tables.measured_on(results.comparison.machine, results.created)]
    return "\n".join(lines) + "\n"


def junit(results: GateResults) -> str:
    """A test for each metric: a failure is a regression, what is unresolved was skipped."""
    rows, failed = results.rows, failed_lines(results.comparison)
    suite = ElementTree.Element(
        "testsuite",
        name="tsmalloc gate",
        tests=str(len(rows) + 1),
        failures=str(sum(row.verdict == "regression" for row in rows)),
        errors=str(int(bool(failed))),
        skipped=str(sum(row.verdict in ("unresolved", "measured") for row in rows)),
        timestamp=results.created.partition("+")[0],
    )
    name = Path(results.command[0]).name
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


def sarif(results: GateResults) -> str:
    """A result for each regression (error) and each limit that could not be resolved (note)."""
    levels = {"regression": "error", "unresolved": "note"}
    place = {"physicalLocation": {"artifactLocation": {"uri": _relative(results.command[0])}}}
    found: list[dict[str, Any]] = [
        {
            "ruleId": row.metric,
            "level": levels[row.verdict],
            "message": {"text": f"{row.verdict}: {sentence(row)}"},
            "locations": [place],
        }
        for row in results.rows
        if row.verdict in levels
    ]
    rules = [
        {"id": row.metric, "shortDescription": {"text": f"{row.name} within its limit"}}
        for row in results.rows
        if row.limit is not None
    ]
    driver = {"name": "tsmalloc gate", "version": results.tsmalloc_version, "rules": rules}
    log = {
        "$schema": ADDRESS,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": found}],
    }
    return json.dumps(log, indent=1) + "\n"


def _relative(program: str) -> str:
    """As a code host wants it: from the folder of the checkout, which the gate is run in."""
    path = Path(program)
    if not path.is_absolute():
        return path.as_posix().removeprefix("./")
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.name


def to_csv(results: GateResults) -> str:
    return render.to_csv(results.comparison)


def troubles(results: GateResults) -> Sequence[Trouble]:
    return results.comparison.warnings


formatted = export.formatter(csv=to_csv, markdown=markdown, junit=junit, sarif=sarif)
