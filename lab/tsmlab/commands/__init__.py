"""The verbs of `tsmalloc`: one module each, with one click command object named `command`."""

import click

from tsmlab.errors import EXIT_USAGE


class Group(click.Group):
    """A group that prints its help, as an error, if no verb is given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:  # versions of click differ here
            click.echo(ctx.get_help(), err=True, color=ctx.color)
            ctx.exit(EXIT_USAGE)
        return super().parse_args(ctx, args)
