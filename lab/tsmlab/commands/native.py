"""The verbs that inspect a running process: explain, stats, top, purge, set."""

import os
from collections.abc import Sequence
from typing import NoReturn

import click

from tsmlab import paths


class Native(click.Command):
    """A command that passes its words on as they are: other commands drop a leading `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["arguments"] = tuple(args)
        return []


def command_of(name: str) -> click.Command:
    """A verb of the native command, which gets all words after it."""

    def exec_native(arguments: Sequence[str]) -> NoReturn:
        starts_program = "--" in arguments
        environment = paths.environment_of_native_programs() if starts_program else os.environ
        os.execve(paths.tool("tsmalloc"), ["tsmalloc", name, *arguments], environment)

    return Native(name, callback=exec_native, add_help_option=False)
