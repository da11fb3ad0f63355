"""`tsmalloc run`: a program under one allocator."""

import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from tsmlab import allocators
from tsmlab.allocators import Allocator
from tsmlab.commands.parameters import extra_option, option
from tsmlab.doctor import diagnose
from tsmlab.errors import EXIT_CANNOT_EXECUTE, UserError


class _EngineByDefault(click.Command):
    """Without a NAME before `--`, the engine is meant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            border = args.index("--")
            options, _, _ = self.make_parser(ctx).parse_args(args[:border])
            if not isinstance(options.get("name"), str):
                args = [*args[:border], allocators.ENGINE, *args[border:]]
        return super().parse_args(ctx, args)


@click.command("run", cls=_EngineByDefault, context_settings={"allow_interspersed_args": False})
@extra_option
@option("--force", "Run even if the allocator cannot be preloaded.")
@click.argument("name")
@click.argument("program", metavar="PROGRAM...", nargs=-1, type=click.UNPROCESSED)
def command(extra: Sequence[str], force: bool, name: str, program: Sequence[str]) -> NoReturn:
    """Run PROGRAM with its arguments under the allocator NAME.

    Without NAME (`run -- PROGRAM`), uses the engine. The program replaces this command: it gets the
    terminal, the input and the signals, and its exit status is the result. That is 127 if the
    program is not found, and 126 if it cannot be executed.

    \b
    Examples:
      tsmalloc run nolock-best -- ./server --port 8080
      tsmalloc run --allocator mine=./libmine.so mine -- ./server
    """
    allocator = allocators.find(name, allocators.discover(extra, versions=False))
    command_line = program[1:] if program[:1] == ("--",) else program
    diagnosis = diagnose(command_line)
    if (allocator.path is not None and not force) or diagnosis.resolved is None:
        diagnosis.raise_if_fatal("To run it anyway: tsmalloc run --force ...", as_shells=True)
    start(allocator, command_line)


def start(allocator: Allocator, command_line: Sequence[str]) -> NoReturn:
    # Python ignores these two, and a program would inherit that; the parent's setting is unknown.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    try:
        os.execvpe(command_line[0], list(command_line), allocator.environment())
    except OSError as error:
        raise UserError(
            f"cannot start {command_line[0]}: {error.strerror}.",
            "If it is a script, its first line must name an interpreter (#!/bin/sh).",
            EXIT_CANNOT_EXECUTE,
        ) from error
