"""What the lab refuses, and what it says then."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from tsmlab.errors import UserError


@contextmanager
def refused(*words, remedy=""):
    """What is done in it is the user's error, whose message has these words, and whose remedy."""
    with pytest.raises(UserError) as caught:
        yield caught
    assert all(each in caught.value.message for each in words), caught.value.message
    assert remedy in caught.value.remedy, caught.value.remedy
