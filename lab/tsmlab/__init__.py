"""tsmlab: runs any program under many memory allocators and compares them."""

import re
from pathlib import Path


def _version() -> str:
    """An installed package has its version in a file; in a checkout it is the public header's."""
    installed = Path(__file__).with_name("VERSION")
    if installed.is_file():
        return installed.read_text(encoding="ascii").strip()
    header = Path(__file__).resolve().parents[2] / "include" / "tsmalloc" / "tsmalloc.h"
    text = header.read_text(encoding="utf-8")
    macro = r"^#define TSMALLOC_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$"
    return ".".join(re.findall(macro, text, re.MULTILINE))


__version__ = _version()
