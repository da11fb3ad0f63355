"""Checks errors that the lab raises, and their messages."""

from contextlib import contextmanager

import pytest

from tsmlab.errors import UserError


@contextmanager
def refused(*words, remedy=""):
    """Expects a UserError in the `with` block, with these words in the message, and a remedy with
    these; None: it has none."""
    with pytest.raises(UserError) as caught:
        yield caught
    assert all(each in caught.value.message for each in words), caught.value.message
    assert bool(caught.value.remedy) == (remedy is not None), caught.value.message
    assert (remedy or "") in caught.value.remedy, caught.value.remedy


def mentions(text, *words):
    """Checks that a message has all these words."""
    assert [word for word in words if word not in text] == [], text
