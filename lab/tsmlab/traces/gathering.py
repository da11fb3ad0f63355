"""Comparisons one after the other, of which what is done is kept.

Why: replays and floors compare on one trace after the other, and an error or Ctrl-C at the fifth
must not cost the four before it.
Refuses to: hide why it ended early.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from tsmlab.errors import UserError
from tsmlab.results import Comparison


class Compared(Protocol):
    """Something of which a comparison is part."""

    @property
    def comparison(self) -> Comparison: ...


Each = TypeVar("Each", bound=Compared)


def gather(
    measured: Iterable[tuple[Each, UserError | None]],
) -> tuple[list[Each], bool, UserError | None]:
    """All that was measured until something ended it, whether that was an interrupt, and the error
    that it was otherwise. Raises UserError and KeyboardInterrupt only where nothing has been
    measured."""
    done: list[Each] = []
    try:
        for each, error in measured:
            done.append(each)
            if error is not None or each.comparison.interrupted:
                return done, each.comparison.interrupted, error
    except UserError as error:
        if not done:
            raise
        return done, False, error
    except KeyboardInterrupt:
        if not done:
            raise
        return done, True, None
    return done, False, None
