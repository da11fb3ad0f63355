"""The source archive: what git tracks, independent of the machine and the time."""

import tarfile
from pathlib import Path

import pytest
from package_commands import ROOT, artefacts, run
from prompt import ran

from tsmlab import __version__

NAME = f"tsmalloc-{__version__}"
# With the recipe as it is here, committed or not.
CLONE = 'umask $0 && git clone -q "$1" "$2" && cp -r "$1/packaging/source" "$2/packaging"'

pytestmark = pytest.mark.long


def test_it_has_the_files_that_git_tracks():
    listed = ran("git", "ls-files", "-z", cwd=ROOT, status=0).stdout
    expected = {f"{NAME}/{name}" for name in listed.split("\0") if name}
    with tarfile.open(artefacts("source") / f"{NAME}.tar.xz") as archive:
        assert set(archive.getnames()) == expected
        assert archive.getmember(f"{NAME}/tsmalloc").mode == 0o755


def test_built_in_two_places_it_has_the_same_bytes(tmp_path):
    made = []
    for umask, zone in (("022", "UTC"), ("077", "Asia/Tokyo")):
        copy = tmp_path / umask
        run("sh", "-c", CLONE, umask, ROOT, copy, HOME=str(tmp_path))
        made.append(run(copy / "packaging/source/build", TZ=zone).strip())
    one, other = (Path(path).read_bytes() for path in made)
    assert one == other
