"""`tsmalloc doctor`: can an allocator be preloaded into this program? With proof."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

import click

from tsmlab import allocators as known
from tsmlab.allocators import Allocator
from tsmlab.commands.parameters import option
from tsmlab.commands.studies import let_termination_interrupt
from tsmlab.doctor import Diagnosis, Proof, diagnose
from tsmlab.errors import EXIT_OK, EXIT_PROGRAM_FAILED, print_error
from tsmlab.tracker import Tracked
from tsmlab.wording import quantity

SCHEMA = "tsmalloc-doctor/1"
MAX_PROGRAMS_SHOWN = 10
DEFAULT_ALLOCATOR = "tsmalloc"
MARKS = {"ok": "ok     ", "note": "note   ", "warning": "warning", "fatal": "FATAL  "}
COLOURS = {"ok": "green", "note": "cyan", "warning": "yellow", "fatal": "red"}


@click.command("doctor", context_settings={"allow_interspersed_args": False})
@option(
    "--allocator NAME[=PATH.so]",
    f"Allocator to prove it with (default: {DEFAULT_ALLOCATOR}). May be given several times.",
    "wanted",
    multiple=True,
)
@option("--no-run", "Only examine the program's file; do not run it.")
@option(
    "--timeout TIME",
    "Stop the program after this time; a server is judged by its calls until then.",
    "timeout_seconds",
    default="10s",
)
@option("--json", "Print JSON.", "as_json")
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED)
def command(
    wanted: Sequence[str],
    no_run: bool,
    timeout_seconds: float,
    as_json: bool,
    program: Sequence[str],
) -> int:
    """Check whether an allocator can be preloaded into PROGRAM.

    First it examines the program's file: nothing can be preloaded into a static, setuid, Go, musl
    or sanitizer build, and a program with a heap of its own would ignore the allocator. Then it
    runs the program once, without input and with its output discarded, and counts its malloc calls
    to prove that they reach the allocator.

    Exit status: 0 the allocator can be preloaded; 1 usage or environment error; 2 it cannot.

    \b
    Example:
      tsmalloc doctor ./server --selftest
    """
    let_termination_interrupt()
    proving = () if no_run else chosen(wanted or (DEFAULT_ALLOCATOR,))
    if proving:
        names = ", ".join(each.name for each in proving)
        limit = quantity(timeout_seconds, "seconds")
        print_error(
            f"running the program under {names}, without input or output, for at most {limit}"
        )
    diagnosis = diagnose(program, allocators=proving, timeout_seconds=timeout_seconds)
    if as_json:
        click.echo(json.dumps(as_document(diagnosis), indent=2))
    else:
        show(diagnosis)
    return EXIT_OK if diagnosis.preloadable else EXIT_PROGRAM_FAILED


def chosen(wanted: Sequence[str]) -> list[Allocator]:
    """The allocators that were named, or given as NAME=PATH.so."""
    extra = [text for text in wanted if "=" in text]
    names = [text.partition("=")[0] for text in wanted]
    return known.select(names, known.discover(extra, versions=False))


def show(diagnosis: Diagnosis) -> None:
    click.echo(shlex.join(diagnosis.command))
    for finding in diagnosis.findings:
        mark = click.style(MARKS[finding.severity], COLOURS[finding.severity])
        click.echo(f"  {mark}  {finding.message}")
        if finding.remedy:
            click.echo(f"           {finding.remedy}")
    for proof in diagnosis.proofs:
        show_proof(proof)
    click.echo(verdict(diagnosis))


def show_proof(proof: Proof) -> None:
    groups = by_program(proof)
    if groups:
        click.echo(f"calls under {proof.allocator.name}:")
    for (program, provider), processes in groups[:MAX_PROGRAMS_SHOWN]:
        total = Counter[str]()
        for counts in processes:
            total.update(dict(counts.by_kind))
        kinds = ", ".join(f"{number:,} {kind}" for kind, number in total.items() if number)
        asked = sum(counts.bytes_requested for counts in processes)
        times = f" ({len(processes)} times)" if len(processes) > 1 else ""
        click.echo(f"  {program}{times}: {kinds or 'none'}; {asked:,} bytes requested")
        click.echo(f"    served by {provider or '(unknown)'}")
    if (hidden := len(groups) - MAX_PROGRAMS_SHOWN) > 0:
        click.echo(f"  ... and {hidden} more programs; --json lists all")


def by_program(proof: Proof) -> list[tuple[tuple[str, str], list[Tracked]]]:
    """The counts of processes that ran the same program, most calls first."""
    groups: dict[tuple[str, str], list[Tracked]] = {}
    for counts in proof.processes:
        groups.setdefault((counts.program, counts.provider), []).append(counts)
    return sorted(groups.items(), key=lambda group: -sum(counts.calls for counts in group[1]))


def verdict(diagnosis: Diagnosis) -> str:
    if not diagnosis.preloadable and not diagnosis.proofs:
        return "verdict: an allocator CANNOT be preloaded into this program."
    if not diagnosis.preloadable:
        return "verdict: NOT proven; the run did not show that a preloaded allocator is used."
    if not diagnosis.proofs:
        return "verdict: nothing in the file prevents it; for proof, run without --no-run."
    return "verdict: an allocator can be preloaded into this program, with proof."


def as_document(diagnosis: Diagnosis) -> dict[str, object]:
    chain = diagnosis.resolved.chain if diagnosis.resolved else ()
    return {
        "schema": SCHEMA,
        "command": list(diagnosis.command),
        "program": str(chain[-1]) if chain else None,
        "scripts": [str(path) for path in chain[:-1]],
        "preloadable": diagnosis.preloadable,
        "findings": [asdict(finding) for finding in diagnosis.findings],
        "proofs": [proof_document(proof) for proof in diagnosis.proofs],
    }


def proof_document(proof: Proof) -> dict[str, object]:
    return {
        "allocator": proof.allocator.name,
        "calls": proof.calls,
        "outcome": proof.measurement.failure_text(),
        "processes": [
            {
                "pid": counts.pid,
                "program": counts.program,
                "served_by": counts.provider,
                "calls": dict(counts.by_kind),
                "bytes_requested": counts.bytes_requested,
            }
            for counts in proof.processes
        ],
    }
