"""The wheel: its contents, and all of its verbs in fresh environments that have nothing else."""

import os
import shutil
import sys
import tomllib
import zipfile
from functools import partial
from pathlib import Path

import pytest
from package_commands import ROOT, artefacts, run, try_to_run
from prompt import ran
from verbs import USES, check_use

LONG = pytest.mark.long
CHECKERS = ("auditwheel==6.8.2", "twine==7.0.0")


def tracked_files_of_the_package():
    """Relative to the package's parent."""
    told = run("git", "ls-files", "tsmlab", cwd=ROOT / "lab")
    return set(told.split())


def test_an_installed_lab_has_every_file_of_the_package(prefix):
    package = prefix / "share" / "tsmalloc" / "python"
    missing = {name for name in tracked_files_of_the_package() if not (package / name).is_file()}
    assert not missing
    # The wheel is a complete copy of such a package.
    project = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["tsmlab"]


@pytest.fixture(scope="module")
def wheel():
    (built,) = artefacts("wheel").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheelhouse(wheel, tmp_path_factory):
    """The wheel with all its dependencies, for each Python that it is tested with."""
    folder = tmp_path_factory.mktemp("wheelhouse")
    for python in pythons():
        environment = folder.parent / f"downloader-{python.name}"
        pip(environment, python, "download", "--quiet", "--dest", folder, wheel)
    return folder


def pythons():
    """Two of different versions: this one, and the first other one that is new enough."""
    found = [Path(sys.executable)]
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    for minor in (11, 12, 13, 14):
        name = f"python3.{minor}"
        installed = sorted((Path.home() / ".pyenv" / "versions").glob(f"3.{minor}.*/bin/{name}"))
        on_path = shutil.which(name)
        candidates = installed + ([Path(on_path)] if on_path else [])
        for candidate in candidates:
            status, said = try_to_run(
                candidate, "-c", "import venv, ensurepip, sys; print(sys.version)"
            )
            if len(found) < 2 and status == 0 and not said.startswith(f"{own}."):
                found.append(candidate)
    return found


def pip(environment, python, *words):
    """Runs pip in an environment, creating it if it does not exist."""
    if not environment.exists():
        run(python, "-m", "venv", environment)
    settings = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    tool = (environment / "bin" / "python", "-m", "pip", "--disable-pip-version-check")
    return run(*tool, *words, HOME=os.environ["HOME"], **settings)


@LONG
def test_the_wheel_has_the_package_the_libraries_and_the_licences(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        metadata = next(name for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(metadata).decode()
        version = archive.read("tsmlab/VERSION").decode().strip()
    assert tracked_files_of_the_package() <= names
    home = {name.removeprefix("tsmlab/home/") for name in names if name.startswith("tsmlab/home/")}
    assert {
        "lib/libtsmalloc.so",
        "lib/libtsmalloc-secure.so",
        "lib/libtsmalloc-lock-best.so",
    } <= home
    assert {"lib/counted/libtsmalloc.so", "lib/libtsmalloc-record.so", "bin/record"} <= home
    assert {"bench/workloads.toml", "traces/git.tstrace", "bin/bench-hot-pair"} <= home
    assert not [name for name in names if "__pycache__" in name or name.startswith("/")]
    folder = metadata.removesuffix("METADATA")
    data = f"{folder.removesuffix('.dist-info/')}.data/data/share/"
    assert f"{data}bash-completion/completions/tsmalloc" in names
    assert {f"{folder}licenses/LICENSE", f"{folder}licenses/LICENSE.zstd"} <= names
    assert wheel.name == f"tsmalloc-{version}-py3-none-manylinux_2_28_{os.uname().machine}.whl"
    assert f"Version: {version}\n" in text
    assert version == run(ROOT / "dev" / "version.py").strip()


@LONG
def test_auditwheel_and_twine_find_it_fit(wheel, tmp_path):
    environment = tmp_path / "checkers"
    pip(environment, Path(sys.executable), "install", "--quiet", *CHECKERS)
    said = run(environment / "bin" / "auditwheel", "show", wheel)
    assert f'"manylinux_2_28_{os.uname().machine}"' in " ".join(said.split())
    assert "PASSED" in run(environment / "bin" / "twine", "check", "--strict", wheel)


@LONG
def test_it_is_built_twice_with_the_same_bytes(wheel, tmp_path):
    run(
        *(ROOT / "dev" / "package", "wheel", "--output", tmp_path),
        HOME=os.environ["HOME"],
        PATH=os.environ["PATH"],
    )
    assert (tmp_path / wheel.name).read_bytes() == wheel.read_bytes()


@LONG
@pytest.mark.parametrize("number", [0, 1])
def test_every_verb_works_offline_and_nothing_is_left(number, wheelhouse, tmp_path):
    if number >= len(pythons()):
        pytest.skip("no second Python of 3.11 to 3.14 with venv, on the PATH or of pyenv")
    environment = tmp_path / "an environment"
    python = pythons()[number]
    offline = ("--quiet", "--no-index", "--find-links", wheelhouse)
    pip(environment, python, "install", *offline, "tsmalloc")
    path = f"{environment}/bin:/usr/local/bin:/usr/bin:/bin"
    for verb in USES:
        work = tmp_path / verb  # uses write files with the same names
        work.mkdir()
        in_work = partial(run, "sh", "-euc", cwd=work, HOME=str(tmp_path), PATH=path)
        check_use(verb, in_work)

    pip(environment, python, "uninstall", "--quiet", "--yes", "tsmalloc")
    left = [path for path in environment.rglob("*") if path.name.startswith(("tsmlab", "tsmalloc"))]
    assert not left


@LONG
def test_a_missing_file_is_named_with_its_remedy(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    (tmp_path / "tsmlab" / "home" / "lib" / "libtsmalloc.so").unlink()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    command = (sys.executable, "-m", "tsmlab", "lib")
    done = ran(*command, cwd=tmp_path, env=environment, status=1)
    assert "-m pip install --force-reinstall" in done.stderr
