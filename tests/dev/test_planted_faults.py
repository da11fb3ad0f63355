"""The faults of dev/planted-faults still fit the sources."""

import importlib.machinery
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def planted_faults():
    """dev/planted-faults as a module."""
    loader = importlib.machinery.SourceFileLoader(
        "planted_faults", str(ROOT / "dev/planted-faults")
    )
    spec = importlib.util.spec_from_loader(loader.name, loader)
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


FAULTS = planted_faults()


@pytest.mark.parametrize("fault", FAULTS.FAULTS, ids=lambda fault: fault.name)
def test_each_edit_has_its_place(fault):
    text = FAULTS.source_of(fault, ROOT).read_text()
    for right, _ in fault.edits:
        assert text.count(right) == 1, right
