"""Shared fixtures of the native tools' tests: a program with known calls, and small disks."""

import pytest
from prompt import small_disk
from shim_programs import CALLS

__all__ = ["small_disk"]


@pytest.fixture(scope="session")
def calls(build):
    """The program of CALLS."""
    return build("calls.c", CALLS)
