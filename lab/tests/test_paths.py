"""The two locations of the lab's files: a checkout, and the home of an installed lab."""

import sys

import pytest
from refusals import mentions, refused

from tsmlab import paths
from tsmlab.experiments import default_folder
from tsmlab.traces.workloads import corpus


@pytest.fixture
def package(tmp_path, monkeypatch):
    """The package's folder, as if the lab were installed under a path with a space."""
    folder = tmp_path / "site packages" / "tsmlab"
    folder.mkdir(parents=True)
    monkeypatch.setattr(paths, "__file__", str(folder / "paths.py"))
    monkeypatch.delenv("TSMALLOC_BUILD_DIR", raising=False)
    return folder


def remedy_of_a_missing_tool():
    with refused("measure") as caught:
        paths.tool("measure")
    return caught.value.remedy


def test_without_a_home_the_lab_is_in_a_checkout(package):
    root = package.parents[1]
    assert paths.installed_home() is None
    assert paths.build_dir() == root / "build" / "release"
    assert paths.suite_file("workloads") == root / "bench" / "workloads.toml"
    assert "make -C" in remedy_of_a_missing_tool()


def test_a_home_has_the_libraries_the_tools_and_the_data(package):
    home = package / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "measure").touch()
    assert paths.tool("measure") == home / "bin" / "measure"
    assert paths.library_dir() == home / "lib"
    assert paths.suite_file("workloads") == home / "bench" / "workloads.toml"
    assert default_folder() == home / "experiments"
    assert corpus() == home / "traces"


def test_what_an_installation_lacks_pip_or_its_package_brings(package):
    (package / "home").mkdir()
    mentions(remedy_of_a_missing_tool(), "-m pip install --force-reinstall", sys.executable)
    (package / "home").rmdir()
    (package / "home").symlink_to("../nowhere")  # all is gone
    assert "tsmalloc-lab" in remedy_of_a_missing_tool()


def test_a_build_folder_that_is_named_goes_before_the_home(package, tmp_path, monkeypatch):
    (package / "home").mkdir()
    monkeypatch.setenv("TSMALLOC_BUILD_DIR", str(tmp_path))
    assert paths.build_dir() == tmp_path
    assert paths.data_dir() == package / "home"
    assert "unset it" in remedy_of_a_missing_tool()
