"""`tsmalloc worker`: makes rounds for studies that are begun elsewhere.

Why: a cluster's machines need this lab, one round at a time, and nothing else to know.
Refuses to: make two rounds at once, which would measure each other.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from tsmlab import fleet
from tsmlab.errors import UserError


@click.command("worker")
@click.argument("address")
def command(address: str) -> NoReturn:
    """Make rounds for the cluster whose scheduler is at ADDRESS, until it ends.

    One worker a machine measures times; several of them disturb each other, which matters to times
    only. All machines need the same tsmalloc, and the program and its files under the same paths.

    \b
    Examples:
      dask scheduler                             on one machine; it prints its address
      tsmalloc worker tcp://10.0.0.1:8786        on each machine
      tsmalloc compare --cluster tcp://10.0.0.1:8786 -- ./server --selftest

    Exit status: that of the worker; 1 wrong usage or environment.
    """
    if fleet.REMOTE.fullmatch(address) is None:
        raise UserError(f"{address!r} is no address.", "For example: tcp://10.0.0.1:8786")
    fleet.need_dask()
    lab = str(Path(fleet.__file__).parents[1])
    path = os.pathsep.join(filter(None, (lab, os.environ.get("PYTHONPATH", ""))))
    sys.stdout.flush()
    os.execve(
        sys.executable,
        [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1",
         "--memory-limit", "0", "--no-dashboard", "--death-timeout", "60"],
        os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
