"""Sets the checkout up: .venv with the lab's packages, build/release with libraries and tools.

    python3 dev/setup run [ARGS...]   what ./tsmalloc calls: set up what its verb needs and is
                                      missing, start the lab
    python3 dev/setup lab             set up for every verb, and for linking
    python3 dev/setup dev             set up for use and for the tests and checks

The first use shows what it does, later ones start at once, and an interrupted set-up repairs
itself. It uses only the standard library and no sudo, writes nothing outside the checkout, and
needs no network once set up.
"""

from __future__ import annotations

# Ctrl-C waits until the lab, or a step of the set-up, can report it: exec keeps the mask. (From the
# module below `signal`, whose own import takes some milliseconds.)
from _signal import (  # type: ignore[import-not-found]
    SIG_BLOCK,
    SIG_UNBLOCK,
    SIGINT,
    pthread_sigmask,
)

pthread_sigmask(SIG_BLOCK, [SIGINT])

import os  # noqa: E402
import sys  # noqa: E402

import state  # noqa: E402


def main(arguments: list[str]) -> int:
    verb = arguments[0] if arguments else ""
    if verb not in ("run", "lab", "dev"):
        print(__doc__, file=sys.stderr)
        return 1
    if sys.version_info < (3, 11):  # noqa: UP036 - run by hand, this meets older interpreters
        print("tsmalloc: needs Python 3.11 or newer: sudo apt install python3", file=sys.stderr)
        return 1
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    checkout = state.Checkout(root)
    for_development = verb == "dev"
    parts = state.parts_for(arguments[1:]) if verb == "run" else frozenset(state.PARTS)
    if for_development or not (
        state.python_is_current(checkout, False) and state.build_is_current(checkout, parts)
    ):
        # Imported only here, so that the fast path does not pay for it.
        import steps

        pthread_sigmask(SIG_UNBLOCK, [SIGINT])
        status = steps.set_up(checkout, parts, for_development)
        if status != 0:
            return status
    if verb == "run":
        os.execv(checkout.python, [checkout.python, "-I", "-m", "tsmlab", *arguments[1:]])
    return 0


sys.exit(main(sys.argv[1:]))
