"""The verbs that look into a running process: explain, stats, top, purge, set."""

import os
from collections.abc import Sequence
from typing import NoReturn

import click

from tsmlab import paths


class Native(click.Command):
    """A command that takes its words as they are: to others, a leading `--` is none."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.params["arguments"] = tuple(args)
        return []


def command_of(name: str) -> click.Command:
    """A verb of the native command, which gets all that stands behind it."""

    def become(arguments: Sequence[str]) -> NoReturn:
        starts_program = "--" in arguments
        environment = paths.environment_of_native_programs() if starts_program else os.environ
        os.execve(paths.tool("tsmalloc"), ["tsmalloc", name, *arguments], environment)

    return Native(name, callback=become, add_help_option=False)
