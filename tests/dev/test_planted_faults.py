"""The faults of dev/planted-faults still fit the sources."""

from pathlib import Path

import pytest
from prompt import dev_script

ROOT = Path(__file__).resolve().parents[2]


FAULTS = dev_script("planted-faults")


@pytest.mark.parametrize("fault", FAULTS.FAULTS, ids=lambda fault: fault.name)
def test_each_edit_has_its_place(fault):
    text = FAULTS.source_of(fault, ROOT).read_text()
    for right, _ in fault.edits:
        assert text.count(right) == 1, right
