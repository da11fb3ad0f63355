"""The end of a verb that measured: results are kept, exported and printed, and the status told.

Why: however the measuring ended, what was measured must not be lost, and everybody must be told
where it is.
Refuses to: fail in the middle. A file that cannot be written is a message and an exit status.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

import click

from tsmlab import export
from tsmlab.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PROGRAM_FAILED,
    EXIT_USAGE,
    UserError,
)
from tsmlab.export import Target


class Publication(Protocol):
    """Results that can be kept, written in a format, and read by a person."""

    def save(self) -> Path: ...
    def text(self, file_format: export.Format) -> str: ...
    def report(self) -> str: ...
    def warnings(self) -> Sequence[str]: ...


def publish(
    publication: Publication, targets: Sequence[Target], as_json: bool, quiet: bool
) -> bool:
    """Keeps, exports and prints; files first, since a reader of stdout may go away. Returns whether
    any of it failed."""
    problems: list[str] = []
    kept: Path | None = None
    try:
        kept = publication.save()
    except UserError as error:
        problems.append(f"{error.message}\n  {error.remedy}")
    where = f"All results are in {kept}." if kept else ""
    problems += [
        f"could not write {target}. {where}".rstrip()
        for target in export.write_all(publication.text, targets)
    ]
    if problem := _print(publication.text("json") if as_json else publication.report()):
        problems.append(problem)
    if not quiet:
        for line in publication.warnings():
            click.echo(line, err=True)
        if kept:
            click.echo(f"results    {kept}", err=True)
    for problem in problems:
        click.echo(f"tsmalloc: {problem}", err=True)
    return bool(problems)


def _print(text: str) -> str | None:
    """To stdout; returns what went wrong. A reader who goes away (as `| head` does) has read
    enough, which is nothing wrong."""
    try:
        click.echo(text, nl=False)
        sys.stdout.flush()
    except OSError as error:
        # The interpreter flushes stdout again at its end, which must not fail a second time.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return f"could not print the results: {error.strerror}."
    return None


def exit_status(interrupted: bool, error: UserError | None, problems: bool, failed: bool) -> int:
    """The status of a verb that measured, and what remains to be said of it."""
    if interrupted:
        click.echo("tsmalloc: interrupted; the above is what was measured until then", err=True)
        return EXIT_INTERRUPTED
    if error is not None:
        click.echo(error.render(), err=True)
        return error.exit_code
    if problems:
        return EXIT_USAGE
    return EXIT_PROGRAM_FAILED if failed else EXIT_OK


def let_termination_interrupt() -> None:
    """SIGTERM ends the measuring as Ctrl-C does: with the measurements kept."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
