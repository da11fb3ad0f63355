"""`tsmalloc explain`: where the resident memory of a running process is.

Why: the same command from a checkout and from a wheel as from an installation.
Refuses to: look itself. The native command does that, in a process of a megabyte.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NoReturn

import click

from tsmlab import paths


def native_verb(name: str) -> click.Command:
    """A verb of the native command, which gets all that stands behind it."""

    def become(arguments: Sequence[str]) -> NoReturn:
        os.execv(paths.tool("tsmalloc"), ["tsmalloc", name, *arguments])

    return click.Command(
        name,
        callback=become,
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    )


command = native_verb("explain")
