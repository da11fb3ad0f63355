"""tsmlab: the laboratory that runs any program under many memory allocators and compares them."""

from __future__ import annotations

__version__ = "0.1.0"
