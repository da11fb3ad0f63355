"""Checks errors that the lab raises, and their messages."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tsmlab.errors import UserError


@contextmanager
def refused(*words, remedy=""):
    """Expects a UserError in the `with` block, with these words in the message, and in the
    remedy."""
    with pytest.raises(UserError) as caught:
        yield caught
    assert all(each in caught.value.message for each in words), caught.value.message
    assert remedy in caught.value.remedy, caught.value.remedy
