"""Shared by the packaging tests: an installed prefix."""

import pytest
from package_commands import run

from tsmlab import paths


@pytest.fixture(scope="session")
def prefix(tmp_path_factory):
    """All components of the release build, installed. Tests must not change it."""
    made = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", paths.build_dir(), "--prefix", made)
    return made
