"""`tsmalloc floors`: how far is each allocator from what a trace needs at least?

Why: a comparison says who is better; the floors say how much better anybody could be.
Refuses to: measure before everything that can be checked has been checked, and to end, however it
ends, without saying where the measurements are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import paths
from tsmlab.allocators import ENGINE
from tsmlab.commands.parameters import (
    FILE,
    Duration,
    Whole,
    allocators_option,
    chosen_seed,
    cpus_option,
    export_targets,
    extra_option,
    ignore_failure_option,
    seed_option,
    timeout_option,
    touch_option,
)
from tsmlab.commands.publishing import exit_status, let_termination_interrupt, publish
from tsmlab.export import Format
from tsmlab.measuring import MeasureExecutor
from tsmlab.progress import reporter_for
from tsmlab.schedule import TIME_BUDGET_SECONDS
from tsmlab.traces import floors_results, floors_text, planning
from tsmlab.traces.floors import Options, floors
from tsmlab.traces.floors_results import FloorResults


@click.command("floors")
@allocators_option(
    "Which to measure: names, globs (lock-*), groups (ours, system, all), with commas or "
    "repeatedly. [default: tsmalloc, system, and yours]"
)
@extra_option
@touch_option
@click.option(
    "--image",
    type=Whole(minimum=0),
    metavar="N",
    help="Which program image of the trace. [default: the one with the most events]",
)
@seed_option
@click.option(
    "-r",
    "--rounds",
    type=Whole(minimum=1),
    metavar="N",
    help="Exactly N measured rounds. [default: until every verdict is resolved]",
)
@click.option(
    "--time-budget",
    type=Duration(),
    default=TIME_BUDGET_SECONDS,
    metavar="TIME",
    help="For each trace: begin no round that would end later. [default: 120s]",
)
@timeout_option("20 times the floor's, at least 10 s")
@ignore_failure_option
@cpus_option
@click.option("--export-json", type=FILE, metavar="FILE", help="Write everything, raw samples too.")
@click.option("--export-csv", type=FILE, metavar="FILE", help="Write one line for each run.")
@click.option("--export-markdown", type=FILE, metavar="FILE", help="Write the tables.")
@click.option("-f", "--force", is_flag=True, help="Overwrite files.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of the tables.")
@click.option("-q", "--quiet", is_flag=True, help="No progress, notes or warnings.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=FILE)
def command(
    traces: Sequence[Path],
    as_json: bool,
    quiet: bool,
    ignore_failure: bool,
    force: bool,
    **given: Any,
) -> int:
    """Say how much time and memory each allocator takes beyond the least that TRACE needs.

    The least memory is the highest sum of live bytes; the least time is that of the same calls on
    addresses that were planned with the whole future known. One thread makes all calls, in the
    order in which they were recorded, for the floor and for each allocator alike.

    \b
    Examples:
      tsmalloc floors traces/sqlite3.tstrace
      tsmalloc floors traces/*.tstrace -a ours,glibc -r 10

    Exit status: 0; 1 wrong usage or environment; 2 a replay failed under an allocator;
    130 interrupted, and what was measured until then is kept.
    """
    targets = export_targets(given, force)
    planning.check_traces(traces)
    options = _options(traces, given)
    program = paths.tool("replay")
    if options.cpus is not None:
        os.sched_setaffinity(0, options.cpus)
    let_termination_interrupt()
    with reporter_for(quiet) as reporter:
        outcome = floors(options, MeasureExecutor(), reporter, program)
    problems = publish(_Publication(outcome.results), targets, as_json, quiet)
    return exit_status(
        interrupted=outcome.results.interrupted,
        error=outcome.error,
        problems=problems,
        failed=outcome.results.has_failures and not ignore_failure,
    )


class _Publication:
    """The texts of floors."""

    def __init__(self, results: FloorResults) -> None:
        self._results = results

    def save(self) -> Path:
        return floors_results.save(self._results)

    def text(self, file_format: Format) -> str:
        return floors_text.formatted(self._results, file_format)

    def report(self) -> str:
        return floors_text.report_for_stdout(self._results)

    def warnings(self) -> list[str]:
        return floors_text.warnings(self._results)


def _options(traces: Sequence[Path], given: dict[str, Any]) -> Options:
    available = known.discover(given["extra"])
    own = [each.name for each in available if each.family == "user"]
    return Options(
        traces=tuple(traces),
        allocators=tuple(known.select(given["chosen"] or [ENGINE, "system", *own], available)),
        seed=chosen_seed(given["seed"]),
        rounds=given["rounds"],
        time_budget_seconds=given["time_budget"],
        timeout_seconds=given["timeout"],
        cpus=given["cpus"],
        touch=given["touch"],
        image=given["image"],
    )
