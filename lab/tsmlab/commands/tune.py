"""`tsmalloc tune`: which of an allocator's own options are better for this program?"""

import shlex
from collections.abc import Sequence
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import counting
from tsmlab import tune as flow
from tsmlab.commands import parameters
from tsmlab.commands.parameters import option
from tsmlab.commands.studies import Study, conduct, resume_option
from tsmlab.counting import Counters
from tsmlab.errors import UserError
from tsmlab.study import Objective
from tsmlab.tune import FIRST_ROUNDS, TIME_BUDGET_SECONDS, Options
from tsmlab.tune_options import options_for


class _AllocatorFirst(Study):
    """Accepts options before and after ALLOCATOR, but none from PROGRAM on."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, words = self._split(ctx, args)
        if args[len(before) : len(before) + 1] == ["--"] and words:
            line = shlex.join(words)
            raise UserError("no allocator given before --.", f"tsmalloc tune jemalloc -- {line}")
        if len(words) > 1:
            options, program = self._split(ctx, words[1:])
            args = [*before, *options, words[0], *program]
        return super().parse_args(ctx, args)

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        """The options at the beginning, and the words from the first that is not an option."""
        parsed, _, _ = self.make_parser(ctx).parse_args(list(args))
        first, rest = parsed.get("allocator"), parsed.get("program")
        count = int(isinstance(first, str)) + (len(rest) if isinstance(rest, tuple) else 0)
        border = len(args) - count
        options = args[:border]
        return options[:-1] if options[-1:] == ["--"] else options, args[border:]


@click.command("tune", cls=_AllocatorFirst, context_settings={"allow_interspersed_args": False})
@click.option(
    "--for",
    "objective",
    type=click.Choice(["time", "memory", "both"]),
    help="What to minimize. [default: time, or the number that --metric finds]",
)
@option(
    "--option NAME=V1,V2",
    "Try these values of an option instead of the known ones. NAME is a variable "
    "(MIMALLOC_PURGE_DELAY), or an option of MALLOC_CONF or GLIBC_TUNABLES (narenas).",
    "own",
    multiple=True,
)
@option("--only", "Try only the options given with --option.")
@parameters.extra_option
@parameters.rounds_option(
    "Rounds of the first rung of a race, in which all changes run; each further rung doubles the "
    "total.",
    minimum=2,
    default=FIRST_ROUNDS,
)
@parameters.time_budget_option(
    "The total: two thirds for races, the rest for fresh rounds, at least one round each. "
    "[default: 600s]",
    default=TIME_BUDGET_SECONDS,
)
@parameters.timeout_option("20 times the default's time, at least 10 s")
@parameters.seed_option
@parameters.margin_option
@parameters.program_options
@parameters.ignore_failure_option
@parameters.deterministic_option
@parameters.study_options
@resume_option
@click.argument("allocator", required=True)
@click.argument("program", metavar="PROGRAM...", nargs=-1, required=True, type=click.UNPROCESSED)
def command(allocator: str, program: Sequence[str], **params: Any) -> int:
    """Search for options of ALLOCATOR that make PROGRAM with its arguments faster or smaller.

    All single-option changes race against the default, by successive halving. The winner is tested
    against the default again in fresh rounds, so that being selected does not flatter it; only if
    it wins there as well does the search go on to a second change. The result is a line for the
    shell, or a statement that nothing beats the default.

    \b
    Examples:
      tsmalloc tune jemalloc --for memory -- ./server --selftest
      tsmalloc tune glibc --deterministic -- perl job.pl
      tsmalloc tune mimalloc --only --option MIMALLOC_PURGE_DELAY=0,5,50 -- ./server --selftest
      tsmalloc tune jemalloc-5 --allocator jemalloc-5=./libje.so -- ./a.out
      tsmalloc tune --resume

    Exit status: 0 success, whether or not a better setting was found; 1 usage or environment error;
    2 the program failed with an option; 130 interrupted (results so far are kept)."""
    executor, counters, notes = counting.measuring(params["deterministic"])
    options = _options(allocator, program, params, counters)
    return conduct(
        params,
        options.seed,
        [options.allocator],
        parameters.files_of(program, params),
        lambda journal, reporter, fleet: flow.tune(options, executor, reporter, journal, fleet),
        notes=notes,
    )


def _options(
    name: str, program: Sequence[str], params: dict[str, Any], counters: Counters | None
) -> Options:
    allocator = known.find(name, known.discover(params["extra"]))
    if params["only"] and not params["own"]:
        raise UserError("--only leaves nothing to try.", "Add --option NAME=V1,V2.")
    if params["metrics"] and params["objective"]:
        raise UserError("--metric and --for cannot be combined.", "Choose one of them.")
    objective: Objective = "metric" if params["metrics"] else params["objective"] or "time"
    options, unknown = options_for(allocator, params["own"], params["only"])
    found = parameters.options_of(
        Options,
        params,
        program=parameters.program_of(program, params),
        allocator=allocator,
        options=options,
        unknown=tuple(unknown),
        objective=objective,
        first_rounds=params["rounds"],
        check_output=not params["ignore_output"],
        consult_doctor=not params["no_doctor"],
        counters=counters,
    )
    found.metrics  # noqa: B018 - says at once what cannot be counted here
    return found
