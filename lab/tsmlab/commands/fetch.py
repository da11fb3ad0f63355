"""`tsmalloc fetch`: the newest peers, built from their crates into the user's cache."""

from collections.abc import Sequence

import click

from tsmlab import fetch as flow
from tsmlab import fetched, tables
from tsmlab.commands.parameters import option
from tsmlab.errors import UserError, print_error
from tsmlab.tables import Column


@click.command("fetch")
@option("--version X.Y.Z", "Version of the crate. [default: one pinned with its checksum]")
@option("-f --force", "Rebuild what already exists.")
@option("-q --quiet", "Print only the path, for --allocator NAME=PATH.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def command(names: Sequence[str], version: str | None, force: bool, quiet: bool) -> None:
    """Build the newest mimalloc, jemalloc, tcmalloc and others, to compare with.

    Cargo downloads a crate that contains the allocator's sources, which are then built with the
    allocator's own build files, into $XDG_CACHE_HOME/tsmalloc/allocators (by default under
    ~/.cache). From then on every verb finds it as NAME-VERSION. Without a NAME, lists them.

    \b
    Examples:
      tsmalloc fetch mimalloc jemalloc
      tsmalloc fetch jemalloc --version 0.6.1
      tsmalloc compare -a 'tsmalloc,mimalloc-*,jemalloc-*' -- ./server --selftest

    Exit status: 0 success; 1 usage error, or a tool or the network is missing.
    """
    if not names:
        click.echo(tables.plain_text(listed()), nl=False)
        return
    if version is not None and len(names) > 1:
        raise UserError("--version applies to one crate only.", "Give one allocator with it.")
    for peer in [flow.peer_of(name) for name in names]:
        manifest, library = flow.fetch(
            peer, version, force, lambda text: None if quiet else print_error(text)
        )
        settings = [f":{name}={value}" for name, value in manifest.environment.items()]
        click.echo("".join([str(library), *settings]) if quiet else f"{manifest.folder}  {library}")


def listed() -> list[Column]:
    present = list(fetched.present())
    rows = [
        (
            peer.name,
            peer.holds,
            f"{peer.crate} {peer.version}",
            " ".join(m.folder for m, _ in present if m.name == peer.name),
        )
        for peer in flow.peers()
    ]
    return tables.columns_of(("name", "version", "crate", "built"), rows, left=4)
