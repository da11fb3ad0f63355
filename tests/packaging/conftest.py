"""What the tests of packages share: an installed prefix."""

from __future__ import annotations

from pathlib import Path

import pytest
from package_commands import run

from tsmlab import paths


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All components of the release build, installed; of tests that change it, none."""
    made = tmp_path_factory.mktemp("prefix")
    run("cmake", "--install", paths.build_dir(), "--prefix", made)
    return made
