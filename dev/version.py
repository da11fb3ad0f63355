#!/usr/bin/env python3
"""Prints the version, which has one source: three macros in include/tsmalloc/tsmalloc.h.

    dev/version.py

The library, the CMake package, wheels, Debian packages and crates have the same version.
CMakeLists.txt and lab/tsmlab read the header themselves, since they cannot call this.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

HEADER = Path("include/tsmalloc/tsmalloc.h")


class VersionError(Exception):
    """The header does not define a version."""


def version(root: Path) -> str:
    """The version of a checkout."""
    try:
        text = (root / HEADER).read_text(encoding="utf-8")
    except OSError as error:
        raise VersionError(f"{HEADER}: {error.strerror}") from error
    numbers = []
    for part in ("MAJOR", "MINOR", "PATCH"):
        found = re.search(rf"^#define TSMALLOC_VERSION_{part} (\d+)$", text, re.MULTILINE)
        if found is None:
            raise VersionError(f"{HEADER}: `#define TSMALLOC_VERSION_{part} NUMBER` is missing")
        numbers.append(found[1])
    return ".".join(numbers)


if __name__ == "__main__":
    try:
        print(version(Path(__file__).resolve().parents[1]))
    except VersionError as error:
        sys.exit(f"version: {error}")
