"""`tsmalloc worker`: joins a cluster as a measurement worker."""

import os
import socket
import sys
import time
from pathlib import Path
from typing import NoReturn

import click

from tsmlab import fleet
from tsmlab.errors import UserError, print_error

# The scheduler may start up to this much later than its workers.
PATIENCE_SECONDS = 30.0


def wait_for_scheduler(address: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Waits until something listens at an address like tcp://HOST:8786. Raises UserError if nothing
    does in time."""
    host, _, port = address.partition("://")[2].rpartition(":")
    end = time.monotonic() + seconds
    is_told = False
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
        except (OSError, OverflowError) as error:
            if time.monotonic() > end:
                reason = getattr(error, "strerror", None) or error
                raise UserError(
                    f"no scheduler at {address}: {reason}.", "Start one there with: dask scheduler"
                ) from error
            if not is_told:
                print_error(f"waiting    for a scheduler at {address}, up to {seconds:.0f} s")
                is_told = True
        else:
            return
        time.sleep(0.2)


@click.command("worker")
@click.argument("address")
def command(address: str) -> NoReturn:
    """Join the cluster whose scheduler is at ADDRESS as a measurement worker, until it ends.

    To measure times, run one worker per machine: several slow each other down. Counts are not
    affected. All machines need the same tsmalloc, and the program and its files under the same
    paths.

    \b
    Examples:
      dask scheduler                             on one machine; it prints its address
      tsmalloc worker tcp://10.0.0.1:8786        on each machine
      tsmalloc compare --cluster tcp://10.0.0.1:8786 -- ./server --selftest

    Exit status: that of the worker; 1 usage or environment error.
    """
    if fleet.REMOTE.fullmatch(address) is None:
        raise UserError(f"{address!r} is not an address.", "For example: tcp://10.0.0.1:8786")
    fleet.need_dask()
    wait_for_scheduler(address)
    lab = str(Path(fleet.__file__).parents[1])
    path = os.pathsep.join(filter(None, (lab, os.environ.get("PYTHONPATH", ""))))
    sys.stdout.flush()
    os.execve(
        sys.executable,
        [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads", "1",
         "--memory-limit", "0", "--no-dashboard", "--death-timeout", "60"],
        os.environ | {"PYTHONPATH": path},
    )  # fmt: skip
