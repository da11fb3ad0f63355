"""dev/price without its measurements, and the parts that it knows."""

import sys
from pathlib import Path

from captured import captured

PRICE = Path(__file__).resolve().parents[2] / "dev/price"


def price(*arguments):
    return captured(sys.executable, PRICE, *arguments)


def test_a_build_without_the_core_is_named_with_the_remedy(tmp_path):
    done = price(tmp_path)
    assert done.returncode == 2
    assert str(tmp_path / "bin/instruction_calls") in done.stderr
    assert "cmake --build" in done.stderr


def test_help_says_what_it_prints():
    done = price("--help")
    assert done.returncode == 0
    assert "core alone" in done.stdout
