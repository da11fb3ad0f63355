"""Recipes that no test builds: what can be checked without their tools."""

import json

import pytest
from package_commands import ROOT

from tsmlab import __version__

PACKAGING = ROOT / "packaging"
UNTESTED = ("homebrew/tsmalloc.rb", "nix/default.nix", "vcpkg/portfile.cmake")


@pytest.mark.parametrize("name", UNTESTED)
def test_a_recipe_names_options_of_the_build(name):
    build = (ROOT / "CMakeLists.txt").read_text(encoding="utf-8")
    for option in ("TSMALLOC_TESTS", "TSMALLOC_LAB", "TSMALLOC_INSTALL"):
        assert f"option({option} " in build
        assert f"-D{option}=" in (PACKAGING / name).read_text(encoding="utf-8")


def test_the_version_that_vcpkg_wants_is_the_headers():
    manifest = json.loads((PACKAGING / "vcpkg/vcpkg.json").read_text(encoding="utf-8"))
    assert manifest["version"] == __version__
