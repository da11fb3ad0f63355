"""Machines that cannot build tsmalloc: one line says so and names the remedy.

(lab/tests/test_launcher.py tests ./tsmalloc.)
"""

from pathlib import Path

from package_commands import ROOT, try_to_run
from prompt import script

# What g++ 8 prints about itself, with a newer one after it.
OLD_GCC = """#!/bin/sh
exec g++ -U__GNUC__ -D__GNUC__=8 -U__GNUC_MINOR__ -D__GNUC_MINOR__=3 "$@"
"""


def configure(folder, **environment):
    """The output of `cmake` where it must fail."""
    status, said = try_to_run("cmake", "-S", ROOT, "-B", folder / "build", **environment)
    assert status != 0, said
    return said


def test_an_old_compiler_is_refused_by_name(tmp_path):
    compiler = script(tmp_path / "old-g++", OLD_GCC)
    said = configure(tmp_path, CXX=str(compiler))
    (line,) = [line for line in said.splitlines() if "tsmalloc needs" in line]
    assert f"{compiler} is GNU 8.3" in line
    assert "g++ 12, clang++ 16 or newer" in line
    assert "cmake --fresh -DCMAKE_CXX_COMPILER=" in line


def test_a_package_names_all_tools_that_are_missing(tmp_path):
    for name in ("bash", "basename", "dirname", "env"):
        (tmp_path / name).symlink_to(Path("/usr/bin") / name)
    status, said = try_to_run(ROOT / "packaging" / "wheel" / "build", PATH=str(tmp_path))
    (line,) = said.splitlines()
    assert (status, line.startswith("wheel: missing: ")) == (2, True)
    lacking, packages = line.split(": sudo apt install ")
    assert {"git", "cmake", "g++", "make", "python3"} <= set(lacking.split(": ")[-1].split(","))
    assert {"git", "cmake", "g++", "make", "python3-venv", "libzstd-dev"} <= set(packages.split())
