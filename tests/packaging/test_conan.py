"""The Conan 2 recipe: builds each form of the library, and links a program with it."""

import shutil
import subprocess
import sys

import pytest
from package_commands import ROOT, run, try_to_run
from prompt import ran
from refusals import mentions

from tsmlab import __version__

pytestmark = pytest.mark.long

CONAN = "conan==2.34.0"
RECIPE = ROOT / "packaging/conan"


@pytest.fixture(scope="module")
def conan(tmp_path_factory):
    """Runs the command in an environment of its own, with the parent directory as its home."""
    made = tmp_path_factory.mktemp("conan")
    subprocess.run([sys.executable, "-m", "venv", made / "venv"], check=True)
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", CONAN)
    done = ran(made / "venv/bin/python", *install, timeout=600)
    if done.returncode != 0:
        pytest.skip(f"{CONAN} cannot be had from PyPI: {done.stderr.strip().splitlines()[-1]}")
    command = made / "venv/bin/conan"
    run(command, "profile", "detect", CONAN_HOME=str(made))
    return command


def home(conan):
    """Environment variables; two compilers at once."""
    return {"CONAN_HOME": str(conan.parents[2]), "CMAKE_BUILD_PARALLEL_LEVEL": "2"}


@pytest.mark.parametrize("form", ["shared", "static", "prefixed", "secure"])
def test_each_form_is_built_and_used(conan, tmp_path, form):
    program = shutil.copytree(RECIPE / "test_package", tmp_path / "program")
    create = (conan, "create", RECIPE, "--test-folder", program)
    said = run(*create, "--options", f"&:form={form}", **home(conan))
    mentions(said, f"tsmalloc/{__version__}", f"tsmalloc::{form}")


@pytest.mark.parametrize("setting", ["os=Windows", "arch=x86"])
def test_other_systems_are_refused_in_one_line(conan, setting):
    status, said = try_to_run(conan, "create", RECIPE, "--settings", setting, **home(conan))
    assert status != 0
    assert "tsmalloc is for 64-bit Linux, not for" in said
