"""`tsmalloc bench`: the project's own workloads, under our engine and all of its peers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import paths, tables, workloads
from tsmlab.allocators import ENGINE, Allocator
from tsmlab.bench import DEFAULT_ROUNDS, MIN_ROUNDS, Options, bench
from tsmlab.commands import parameters
from tsmlab.commands.parameters import option
from tsmlab.commands.studies import Study, conduct, resume_option
from tsmlab.errors import EXIT_OK, UserError
from tsmlab.measuring import MeasureExecutor
from tsmlab.traces.replaying import ReplayExecutor
from tsmlab.traces.workloads import corpus, trace_workloads
from tsmlab.workloads import Workload


@click.command("bench", cls=Study)
@option("--list", "List the workloads without running them.", "as_list")
@parameters.allocators_option()
@parameters.extra_option
@parameters.rounds_option(
    "How many times each workload runs under each allocator.", MIN_ROUNDS, DEFAULT_ROUNDS
)
@parameters.time_budget_option("Start no round that would end later than this. [default: none]")
@parameters.timeout_option("60 times the first run, at least 60 s")
@parameters.seed_option
@option(
    "--suite FILE",
    "Run other workloads: a file, or `scaling` (1 to 16 threads).",
    type=str,
    default="workloads",
    show_default=False,
)
@option(
    "--traces",
    "Also replay the programs recorded in lab/traces/, as workloads trace-NAME.",
    "with_traces",
)
@parameters.ignore_failure_option
@parameters.study_options
@parameters.report_option
@resume_option
@click.argument("names", metavar="[NAME]...", nargs=-1)
def command(names: Sequence[str], as_list: bool, **params: Any) -> int:
    """Run the project's own workloads, or those of a NAME or glob, under tsmalloc and its peers.

    Each round runs every workload under every allocator, in random order. The table says how each
    allocator compares with the best peer in time and in memory; a peer is any allocator that is
    not ours (so is a library of your own, unless its file is called libtsmalloc*). All measurements
    are saved as they are made, and the path is printed.

    \b
    Examples:
      tsmalloc bench --list
      tsmalloc bench 'remote-*' hot-pair -r 10
      tsmalloc bench --allocator mine=./libmine.so --export-markdown table.md
      tsmalloc bench --suite scaling -r 6 --report curves
      tsmalloc bench --traces 'trace-*'

    Exit status: 0 success; 1 usage or environment error; 2 a workload failed under an allocator;
    130 interrupted (results so far are kept).
    """
    suite = workloads.suite(params["suite"])
    replay = paths.tool("replay") if params["with_traces"] else None
    replays = [] if replay is None else trace_workloads(corpus(), replay)
    chosen = workloads.select(names, [*workloads.read_suite(suite), *replays])
    if as_list:
        click.echo(_list(chosen), nl=False)
        return EXIT_OK
    workloads.check_programs(chosen)
    options = _options(suite, chosen, params)
    plain = MeasureExecutor()
    executor = plain if replay is None else ReplayExecutor(plain, replay)
    return conduct(
        params,
        options.seed,
        options.allocators,
        [suite, *(Path(word) for each in chosen for word in each.command if Path(word).is_file())],
        lambda journal, reporter, fleet: bench(options, executor, reporter, journal, fleet=fleet),
        notes=known.advice(params["chosen"]),
    )


def _list(chosen: Sequence[Workload]) -> str:
    headers = ("workload", "threads", "memory", "stresses")
    rows = [(w.name, str(w.threads), "yes" if w.memory else "no", w.stresses) for w in chosen]
    return tables.plain_text(tables.columns_of(headers, rows, left=len(headers)))


def _options(suite: Path, chosen: Sequence[Workload], params: dict[str, Any]) -> Options:
    allocators = known.select_or_default(params["chosen"], known.discover(params["extra"]))
    peers = [each.name for each in allocators if not is_ours(each)]
    if not peers:
        raise UserError(
            "no peer to compare with: all chosen allocators are ours.",
            "Add one, as in -a tsmalloc,glibc (or -a tsmalloc,system for all of them).",
        )
    ours = [each.name for each in allocators if is_ours(each)]
    return parameters.options_of(
        Options,
        params,
        suite=suite,
        workloads=tuple(chosen),
        allocators=tuple(allocators),
        # The trial run is under the first peer: the C library, which is everywhere, if it takes
        # part.
        peers=tuple(sorted(peers, key=lambda name: name != "glibc")),
        candidate=ENGINE if ENGINE in ours else next(iter(ours), None),
    )


def is_ours(allocator: Allocator) -> bool:
    """Whether this is one of the project's libraries; other versions of them count, too."""
    if allocator.family == "tsmalloc":
        return True
    return allocator.path is not None and allocator.path.resolve().name.startswith("libtsmalloc")
