"""What a person reads of a run of the suite: headline, table, failures; and the same as Markdown.

Why: one line must say where the candidate stands, and everything that qualifies it must be near.
Refuses to: compute. Every number here comes from suite_analysis.py.
"""

import sys
from collections import Counter
from collections.abc import Iterator

from tsmlab import export, tables, warnings
from tsmlab.bench import MIN_ROUNDS
from tsmlab.metrics import BUILT_IN, CUSTOM
from tsmlab.render import failure_lines, full_name
from tsmlab.results import Trouble
from tsmlab.stats import Verdict
from tsmlab.suite_analysis import QUICK
from tsmlab.suite_results import SuiteResults
from tsmlab.suite_table import goal_of_time, mean_number, table_columns
from tsmlab.tables import ROOMY, Sheet
from tsmlab.wording import names, quantity, rounds

HASH_DIGITS = 12


def report(suite: SuiteResults, width: int, colours: bool = False) -> str:
    """The whole report. A terminal that is too narrow gets a compact table; a pipe the full one, as
    wide as that is."""
    room = width if colours else sys.maxsize
    columns, layout = tables.fitted(lambda layout: table_columns(suite, layout), room)
    sheet = Sheet(width, colours)
    sheet.say(*heading(suite))
    sheet.gap()
    sheet.table(columns, layout)
    sheet.say(*failed_lines(suite), style="red")
    sheet.gap()
    sheet.say(*headline(suite))
    return sheet.text


def heading(suite: SuiteResults) -> Iterator[str]:
    """How much was measured, and how to read it."""
    count = len(suite.runs)
    yield (
        f"{count} workload{'' if count == 1 else 's'}, {rounds(suite.analysis.rounds)}, "
        f"seed {suite.settings.seed}; stopped: {suite.stop.text}"
    )
    yield f"peers: {', '.join(full_name(suite.allocator(name)) for name in suite.peers)}"
    yield (
        "ratios to the best peer of each line (geometric mean over the rounds, paired; 95 % "
        "confidence): below 1.00 is better than every peer"
    )


def headline(suite: SuiteResults) -> Iterator[str]:
    """Where the candidate stands, in the geometric means of all workloads."""
    name, analysis = suite.candidate, suite.analysis
    overall = next((each for each in analysis.overall if each.name == name), None)
    if overall is None:
        return
    verdicts = Counter(goal_of_time(suite, each) for each in analysis.workloads)
    words = [f"{each.value} in {verdicts[each]}" for each in Verdict if verdicts[each]]
    if verdicts[None]:
        words.append(f"without a result in {verdicts[None]}")
    yield (
        f"time       {name} at {mean_number(overall.time).with_interval()} of the fastest peer of "
        f"each workload: {', '.join(words)}"
    )
    if analysis.quick_memory is None or overall.memory.possible == 0:
        return
    quick = mean_number(analysis.quick_memory).with_interval()
    yield (
        f"memory     {name} at {mean_number(overall.memory).with_interval()} of the smallest peer, "
        f"at {quick} of the smallest quick one (that takes at most {QUICK:g} times the best time)"
    )


def failed_lines(suite: SuiteResults) -> list[str]:
    """Every failure, by workload; a mean that lacks a workload lacks it for one of these reasons or
    because the run was interrupted."""
    return [
        line
        for workload, score in suite.failed
        for line in failure_lines(f"{workload}: {score.name}", score)
    ]


def troubles(suite: SuiteResults) -> list[Trouble]:
    """What may be wrong with the measurement."""
    found = []
    if suite.changed:
        changed = Trouble(
            "changed",
            f"changed during the run: {names(suite.changed)}",
            "they were built or installed anew",
            "measure again, and build elsewhere meanwhile: these numbers are of two versions",
        )
        found.append(changed)
    if suite.analysis.rounds < MIN_ROUNDS:
        few = Trouble(
            "few-rounds",
            f"only {rounds(suite.analysis.rounds)} of at least {MIN_ROUNDS}: intervals are wide",
            suite.stop.text,
            "more time (--time-budget), fewer workloads, or fewer allocators (-a)",
        )
        found.append(few)
    return [*found, *warnings.about_machine(suite.machine)]


def markdown(suite: SuiteResults) -> str:
    """The same report for a document, with date, machine and versions."""
    lines = [f"- {line}" for line in (*headline(suite), *heading(suite))] + [""]
    lines += [*tables.markdown_table(table_columns(suite, ROOMY)), ""]
    lines += [f"- {line.strip()}" for line in failed_lines(suite)]
    lines += [f"- *warning* {t.symptom}. {t.cause}. {t.remedy}." for t in troubles(suite)]
    lines += ["", tables.measured_on(suite.machine, suite.created), _circumstances(suite), ""]
    lines += [f"- {line}" for line in _versions(suite)]
    return "\n".join(lines) + "\n"


def _circumstances(suite: SuiteResults) -> str:
    machine = suite.machine
    memory = "?" if machine.memory_bytes is None else quantity(machine.memory_bytes, "bytes")
    return (
        f"{memory} of memory, transparent huge pages {machine.transparent_hugepages or '?'}, "
        f"load {machine.load_at_start:.2f} at the start."
    )


def _versions(suite: SuiteResults) -> Iterator[str]:
    """Each library, so that it can be found again."""
    for info in suite.allocators:
        source = f", package {info.package}" if info.package else ""
        digest = f", SHA-256 {info.sha256[:HASH_DIGITS]}" if info.sha256 else ""
        settings = "".join(f", {key}={value}" for key, value in info.env.items())
        yield f"{info.name} {info.version}{source}{digest}{settings}"


def to_csv(suite: SuiteResults) -> str:
    """A line for each run, with the workload before the rest, and `printed_seconds` where compare
    has the metrics of its own."""
    keys = {"printed_seconds": CUSTOM, **{spec.key: spec.key for spec in BUILT_IN}}
    samples = (((runs.workload.name,), sample) for runs in suite.runs for sample in runs.samples)
    return export.csv_text(("workload",), samples, keys)


formatted = export.formatter(csv=to_csv, markdown=markdown)
