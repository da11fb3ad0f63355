"""`tsmalloc replay`: repeats the calls of a recorded program under every allocator.

The same calls in the same order compare allocators without the program's own noise. Under a
schedule of its own, even fragmentation repeats to the byte.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import export, paths
from tsmlab.allocators import ENGINE, Allocator
from tsmlab.commands import parameters
from tsmlab.commands.parameters import option
from tsmlab.commands.studies import Study, conduct, resume_option
from tsmlab.errors import EXIT_OK, EXIT_PROGRAM_FAILED, UserError, print_error
from tsmlab.measuring import MeasureExecutor
from tsmlab.schedule import TIME_BUDGET_SECONDS
from tsmlab.traces import files
from tsmlab.traces.replay_results import is_deterministic
from tsmlab.traces.replaying import FAIR, SCHEDULES, SETTLE_SECONDS, Options, command_of, replay

ALL = "all"
FITS = ("lock-first", "lock-best", "lock-worst")


@click.command("replay", cls=Study)
@parameters.allocators_option(
    "Which to replay on",
    "tsmalloc, system, and yours; under a repeatable schedule, tsmalloc, lock-first, lock-best, "
    "lock-worst and yours",
)
@parameters.extra_option
@parameters.reference_option
@option(
    "--schedule NAME",
    "How threads run: as fast as possible (asap), at the recorded times (paced), or one at a time, "
    "repeatably: recorded, round-robin, lottery, stride. `all` compares the last three.",
    type=click.Choice([*SCHEDULES, ALL]),
    default="asap",
)
@option(
    "--tickets LIST", "Tickets per thread for lottery and stride, such as 3,2,1. [default: 1 each]"
)
@option(
    "--quantum N",
    "Calls that a thread makes per tick. [default: 100]",
    type=parameters.whole_number(1),
)
@parameters.seed_option
@option(
    "--touch HOW",
    "What to write in each object: nothing (none), its first byte (first), a byte of each page "
    "(page), or every byte (all).",
    type=click.Choice(["none", "first", "page", "all"]),
    default="page",
)
@option("--verify", "Fill every object, and check its contents when it is freed.")
@option("--latency", "Time each call; this slows down the replay.")
@option(
    "--settle TIME",
    "Idle time at the end, before resident memory is read again. [default: 0.1s]",
    "settle_seconds",
    default=SETTLE_SECONDS,
)
@option(
    "--image N",
    "Which process of the trace to replay, with its forked children. [default: the one with the "
    "most events]",
)
@option(
    "--window N",
    "How many events a thread may run ahead of the others; 0 means no limit. [default: 1000]",
)
@parameters.rounds_option(
    "Exactly N measured rounds. [default: until every verdict is resolved; 2 under a repeatable "
    "schedule]"
)
@parameters.time_budget_option(
    "For each trace: start no round that would end later than this. [default: 120s]",
    TIME_BUDGET_SECONDS,
)
@parameters.timeout_option("20 times the reference's time, at least 10 s")
@parameters.margin_option
@parameters.ignore_failure_option
@parameters.study_options
@parameters.report_option
@option(
    "--movie FILE",
    "Instead of measuring, write a page that shows each heap filling, call by call. Needs one "
    "trace, in the recorded order or under a repeatable schedule.",
)
@resume_option
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True, type=parameters.FILE)
def command(traces: Sequence[Path], **params: Any) -> int:
    """Replay TRACE, which `tsmalloc record` wrote, on every allocator, and compare them.

    All allocators get the same calls in the same order. Under the schedules recorded, round-robin,
    lottery and stride, exactly one thread runs at any time, so addresses and fragmentation are the
    same in every run; with two or more runs, the table confirms it.

    \b
    Examples:
      tsmalloc replay lab/traces/sqlite3.tstrace
      tsmalloc replay mine.tstrace -a tsmalloc,glibc --latency --report pages
      tsmalloc replay mine.tstrace --schedule stride --tickets 3,2,1 -r 10
      tsmalloc replay mine.tstrace --schedule all
      tsmalloc replay mine.tstrace -a lock-first,jemalloc,tsmalloc --movie heap.html

    Exit status: 0 success; 1 usage or environment error; 2 a replay failed under an allocator;
    130 interrupted (results so far are kept).
    """
    files.check_traces(traces)
    if params["movie"] is not None:
        return _film(traces, params)
    options = options_of(traces, params)
    program = paths.tool("replay")
    return conduct(
        params,
        options.seed,
        options.allocators,
        [program, *traces],
        lambda journal, reporter, fleet: replay(
            options, MeasureExecutor(), reporter, program, journal, fleet=fleet
        ),
    )


def options_of(traces: Sequence[Path], params: dict[str, Any]) -> Options:
    """The options of a replay; raises UserError if options contradict each other."""
    schedules = FAIR if params["schedule"] == ALL else (params["schedule"],)
    if params["tickets"] is not None and not set(schedules) & {"lottery", "stride"}:
        raise UserError(
            f"--tickets has no effect under {schedules[0]}.",
            "Choose --schedule lottery, stride or all.",
        )
    if params["quantum"] is not None and not set(schedules) & set(FAIR):
        raise UserError(
            f"--quantum has no effect under {schedules[0]}.",
            "Choose --schedule round-robin, lottery, stride or all.",
        )
    chosen, available = _chosen(params, schedules)
    reference, compared = known.with_reference(params["reference"], chosen, available)
    return parameters.options_of(
        Options,
        params,
        traces=tuple(traces),
        allocators=tuple(compared),
        reference=reference,
        schedules=schedules,
    )


def _chosen(
    params: dict[str, Any], schedules: Sequence[str]
) -> tuple[list[Allocator], list[Allocator]]:
    available = known.discover(params["extra"])
    own = [each.name for each in available if each.family == "user"]
    default = [ENGINE, *(FITS if all(map(is_deterministic, schedules)) else ["system"]), *own]
    return known.select(params["chosen"] or default, available), available


def _film(traces: Sequence[Path], params: dict[str, Any]) -> int:
    # Imported here because other replays do not need it.
    from tsmlab.movie.builder import make  # noqa: PLC0415

    target, schedule = params["movie"], params["schedule"]
    schedule = "recorded" if schedule == "asap" else schedule
    if len(traces) != 1 or not is_deterministic(schedule) or schedule == ALL:
        raise UserError(
            "--movie needs a single trace and a repeatable schedule.",
            "Choose --schedule recorded, round-robin, lottery or stride.",
        )
    export.check_new(target, params["force"])
    options = options_of(traces, {**params, "schedule": schedule})
    page, left_out = make(
        files.read_whole_trace(traces[0]),
        command_of(options, schedule, traces[0], paths.tool("replay")),
        _chosen(params, [schedule])[0],
        MeasureExecutor(),
        (lambda _: None) if params["quiet"] else print_error,
        options.timeout_seconds,
    )
    parameters.write(target, page)
    for each in left_out:
        print_error(f"note       {each}")
    print_error(f"movie      {target}")
    return EXIT_PROGRAM_FAILED if any("is left out: " in each for each in left_out) else EXIT_OK
