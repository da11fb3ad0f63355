"""Sets the wheel's tag: any Python 3, on the systems that the variable names."""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class PlatformTag(BuildHookInterface):  # type: ignore[misc, type-arg]
    """The package has no extension module, but libraries and programs for one architecture."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{os.environ['TSMALLOC_WHEEL_PLATFORM']}"
