"""dev/price without its measurements."""

import sys
from pathlib import Path

from prompt import ran
from refusals import mentions

PRICE = Path(__file__).resolve().parents[2] / "dev/price"


def test_a_build_without_the_core_is_named_with_the_remedy(tmp_path):
    said = ran(sys.executable, PRICE, tmp_path, status=2).stderr
    mentions(said, str(tmp_path / "bin/instruction_calls"), "cmake --build")
