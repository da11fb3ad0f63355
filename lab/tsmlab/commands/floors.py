"""`tsmalloc floors`: how far is each allocator from the least that a trace needs?

Why: a comparison says which allocator is better; the floors say how much better one could be.
Refuses to: measure before everything that can be checked has been checked.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import paths
from tsmlab.commands import parameters
from tsmlab.commands.studies import Publication, Study, conduct, resume_option
from tsmlab.measuring import MeasureExecutor
from tsmlab.traces import floors as flow
from tsmlab.traces import planning
from tsmlab.traces.floors import Options, floors


@click.command("floors", cls=Study)
@parameters.allocators_option("Which to measure")
@parameters.extra_option
@parameters.touch_option
@parameters.image_option
@parameters.seed_option
@parameters.rounds_option("Exactly N measured rounds. [default: until every verdict is resolved]")
@parameters.trace_budget_option
@parameters.timeout_option("20 times the floor's, at least 10 s")
@parameters.ignore_failure_option
@parameters.study_options
@resume_option
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=parameters.FILE)
def command(traces: Sequence[Path], **given: Any) -> int:
    """Say how much time and memory each allocator takes beyond the least that TRACE needs.

    The least memory is the most bytes that were live at one time. The least time is that of the
    same calls on lists of freed blocks by size, which is less than an allocator has to do. One
    thread makes all calls, in the order in which they were recorded, for all alike.

    \b
    Examples:
      tsmalloc floors lab/traces/sqlite3.tstrace
      tsmalloc floors lab/traces/*.tstrace -a ours,glibc -r 10

    Exit status: 0; 1 wrong usage or environment; 2 a replay failed under an allocator;
    130 interrupted, and what was measured until then is kept.
    """
    planning.check_traces(traces)
    available = known.discover(given["extra"])
    allocators = known.select_or_default(given["chosen"], available)
    options = parameters.options_of(
        Options, given, traces=tuple(traces), allocators=tuple(allocators)
    )
    program = paths.tool("replay")
    return conduct(
        given,
        options.seed,
        options.allocators,
        [program, *traces],
        lambda journal, reporter, fleet: floors(
            options, MeasureExecutor(), reporter, program, journal, fleet=fleet
        ),
        lambda found: Publication(found, flow, found.has_failures),
    )
