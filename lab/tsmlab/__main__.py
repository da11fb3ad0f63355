"""Lets `python -m tsmlab` be the `tsmalloc` command."""

from __future__ import annotations

import sys

from tsmlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
