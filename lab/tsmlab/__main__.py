"""Lets `python -m tsmlab` be the `tsmalloc` command."""

import sys

from tsmlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
