"""`tsmalloc lib`: the path of an allocator's library, for use in scripts."""

import click

from tsmlab import allocators
from tsmlab.errors import UserError


@click.command("lib")
@click.argument("name", default=allocators.ENGINE)
def command(name: str) -> None:
    """Print the path of the library of the allocator NAME, by default the engine.

    \b
    Examples:
      LD_PRELOAD=$(tsmalloc lib) ./server
      LD_PRELOAD=$(tsmalloc lib lock-best) ./server
    """
    allocator = allocators.find(name, allocators.discover(versions=False))
    if allocator.path is None:
        raise UserError(
            f"{name} is the C library's own allocator: nothing to preload.",
            "Run the program as it is, or use `tsmalloc run glibc`.",
        )
    click.echo(allocator.path)
