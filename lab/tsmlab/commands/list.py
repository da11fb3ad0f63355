"""`tsmalloc list`: the allocators that can be used on this machine."""

import json
from collections.abc import Sequence
from dataclasses import asdict

import click

from tsmlab import allocators, paths, system_libraries, tables
from tsmlab.allocators import Allocator
from tsmlab.commands.parameters import extra_option, option
from tsmlab.errors import print_error
from tsmlab.results import AllocatorInfo

SCHEMA = "tsmalloc-list/1"
HEADINGS = ("NAME", "FAMILY", "VERSION", "DESCRIPTION", "LIBRARY")


@click.command("list")
@extra_option
@option("--json", "Print JSON, with the libraries' SHA-256.", "as_json")
def command(extra: Sequence[str], as_json: bool) -> None:
    """List the allocators that can be used here.

    These are tsmalloc's own, the C library's (glibc), those of the system's packages, those that
    `tsmalloc fetch` has built, and those that you add. The other verbs accept each NAME.

    \b
    Examples:
      tsmalloc list
      tsmalloc list --json
    """
    found = allocators.discover(extra)
    packages = system_libraries.missing_packages()
    if as_json:
        click.echo(json.dumps(as_document(found, packages), indent=2))
        return
    click.echo(table(found), nl=False)
    built = {allocator.name for allocator in found}
    if unbuilt := [name for name in allocators.own_names() if name not in built]:
        note(f"missing: {' '.join(unbuilt)}", paths.remedy())
    fetched = {a.name.partition("-")[0] for a in found if a.family == "fetched"}
    if unfetched := [name for name in allocators.FETCHABLE if name not in fetched]:
        note("build the newest versions", f"tsmalloc fetch {' '.join(unfetched)}")
    if packages:
        note("more allocators are available as packages", f"sudo apt install {' '.join(packages)}")


def table(found: Sequence[Allocator]) -> str:
    """The library comes last, since paths can be long."""
    rows = [
        (a.name, a.family, a.version, a.summary, str(a.path or "(the program's own)"))
        for a in found
    ]
    return tables.plain_text(tables.columns_of(HEADINGS, rows, left=len(HEADINGS)))


def as_document(found: Sequence[Allocator], packages: Sequence[str]) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "allocators": [
            asdict(AllocatorInfo.of(allocator)) | {"summary": allocator.summary}
            for allocator in found
        ],
        "missing_packages": list(packages),
    }


def note(text: str, remedy: str) -> None:
    print_error(f"tsmalloc: {text}:\n  {remedy}")
