"""`tsmalloc record`: records a program's heap events as a trace.

A trace can be replayed under any allocator, analysed, and passed on, which the program itself often
cannot.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from tsmlab import allocators, export
from tsmlab.commands import parameters
from tsmlab.commands.parameters import option, whole_number
from tsmlab.commands.studies import let_termination_interrupt
from tsmlab.doctor import diagnose
from tsmlab.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_PROGRAM_FAILED, UserError, print_error
from tsmlab.traces import files, recording
from tsmlab.traces.recording import Recording

MAX_RING_MIB = 256


@click.command("record", context_settings={"allow_interspersed_args": False})
@option("-o --output FILE", "[default: PROGRAM.tstrace]")
@option("-f --force", "Overwrite the file.")
@option("-a --allocators NAME", "The allocator to run the program under.", "name", default="glibc")
@parameters.extra_option
@option(
    "--timeout TIME", "Stop the program after this time; the trace holds what it did until then."
)
@parameters.input_option("this command's")
@option(
    "--ring-mib N",
    "Size of the event ring buffer; a larger one absorbs longer bursts. [default: 32]",
    type=whole_number(1),
)
@option("-i --ignore-failure", "Exit with 0 even if the program failed.")
@option("--json", "Print JSON instead of the summary.", "as_json")
@option("-q --quiet", "Print no summary and no warnings.")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    output: Path | None,
    force: bool,
    name: str,
    extra: Sequence[str],
    timeout: float | None,
    input_file: Path | None,
    ring_mib: int | None,
    ignore_failure: bool,
    as_json: bool,
    quiet: bool,
    program: Sequence[str],
) -> int:
    """Run PROGRAM, and record the allocator calls of it and of all programs it starts.

    The trace holds every malloc, free and the like, with its size, thread, time and block, but no
    contents, addresses or paths. Even if everything is killed, at most the last second is lost.

    \b
    Examples:
      tsmalloc record -o server.tstrace -- ./server --selftest
      tsmalloc record -a jemalloc -- python3 job.py

    Exit status: 0 success; 1 usage or environment error; 2 the program failed; 130 interrupted. In
    both cases the trace so far is kept."""
    if ring_mib is not None and ring_mib > MAX_RING_MIB:
        raise UserError(f"--ring-mib {ring_mib} is too large.", f"At most {MAX_RING_MIB}.")
    words = parameters.command_line(program, "record")
    trace = output or Path(Path(words[0]).name + files.SUFFIX)
    allocator = allocators.find(name, allocators.discover(extra, versions=False))
    diagnose(words).raise_if_fatal()
    export.check_new(trace, force)
    let_termination_interrupt()
    try:
        found = recording.record(trace, words, allocator, force, timeout, input_file, ring_mib)
    except KeyboardInterrupt:
        print_error(f"tsmalloc: interrupted; {trace} holds what was recorded")
        return EXIT_INTERRUPTED
    if as_json:
        click.echo(json.dumps({"trace": str(found.trace), **found.raw}))
    elif not quiet:
        print_error(recording.summary(found))
    return _status(found, quiet, ignore_failure)


def _status(found: Recording, quiet: bool, ignore_failure: bool) -> int:
    if not quiet:
        for warning in found.warnings():
            print_error(f"warning: {warning}")
    if found.write_error:
        raise UserError(f"the trace is not complete: {found.write_error}")
    if not found.images:
        raise UserError(
            "nothing was recorded: no program loaded the recorder.",
            "For the reason: tsmalloc doctor PROGRAM",
        )
    if found.interrupted:
        return EXIT_INTERRUPTED
    if found.failed:
        print_error(f"tsmalloc: the program failed: {found.failure_text()}")
        return EXIT_OK if ignore_failure else EXIT_PROGRAM_FAILED
    return EXIT_OK
