"""How the `tsmalloc` command ends: the one exception that users see, the exit statuses, and streams
without a reader.
"""

import contextlib
import os
from typing import TextIO

import click

EXIT_OK = 0
EXIT_USAGE = 1
EXIT_PROGRAM_FAILED = 2
EXIT_REGRESSION = 3
EXIT_CANNOT_EXECUTE = 126  # as in shells
EXIT_INTERRUPTED = 130


class UserError(Exception):
    """An expected failure: what went wrong, and what the user can do about it."""

    def __init__(self, message: str, remedy: str = "", exit_code: int = EXIT_USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.exit_code = exit_code

    def render(self) -> str:
        lines = [f"tsmalloc: {self.message}"]
        lines += [f"  {line}" for line in self.remedy.splitlines()]
        return "\n".join(lines)


def print_error(text: str) -> None:
    """Writes a line to stderr. Ignores errors, such as a full disk."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def discard(stream: TextIO) -> None:
    """Redirects a stream to nowhere: the interpreter flushes it once more, which must not fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
