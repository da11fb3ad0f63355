"""The end of a verb that measured: results are kept, exported and printed, and the status told.

Why: however the measuring ended, what was measured must not be lost, and everybody must be told
where it is.
Refuses to: fail in the middle. A file that cannot be written is a message and an exit status.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Protocol

import click

from tsmlab import export, report
from tsmlab.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_PROGRAM_FAILED,
    EXIT_USAGE,
    UserError,
)
from tsmlab.export import Target
from tsmlab.report import Results


class Publication(Protocol):
    """Results that can be kept, written in a format, and read by a person."""

    def save(self) -> Path: ...
    def text(self, file_format: export.Format) -> str: ...
    def report(self) -> str: ...
    def warnings(self) -> Sequence[str]: ...


def publish(
    publication: Publication,
    targets: Sequence[Target],
    as_json: bool,
    quiet: bool,
    write_report: Callable[[], Path] | None = None,
    offer_report: bool = False,
) -> bool:
    """Keeps, exports and prints; files first, since a reader of stdout may go away. Returns whether
    any of it failed. write_report comes last, since it takes seconds; without it, offer_report says
    how to have one."""
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
            if offer_report and write_report is None:
                command = f"tsmalloc report {shlex.quote(str(kept))}"
                click.echo(f"report     {command}    (a page with figures)", err=True)
    if write_report and (problem := _report(write_report)):
        problems.append(f"{problem} {where}".rstrip())
    for problem in problems:
        click.echo(f"tsmalloc: {problem}", err=True)
    return bool(problems)


def _report(write: Callable[[], Path]) -> str | None:
    """Writes the report and says where it is; returns what went wrong."""
    try:
        click.echo(f"report     {write()}", err=True)
    except UserError as error:
        return f"{error.message}\n  {error.remedy}"
    return None


def report_writer(
    results: Results, directory: Path | None, force: bool
) -> Callable[[], Path] | None:
    """What writes the report of --report; None where none was asked for."""
    return None if directory is None else lambda: report.write(results, directory, force)


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
