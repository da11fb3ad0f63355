"""The Debian packages: their form, their bytes, and their life in a fresh Debian 12.

Nothing is installed on this machine.
"""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import chroots
import pytest
from package_commands import ROOT, artefacts, run
from verbs import USES, check_use

from tsmlab import __version__

PACKAGES = ("libtsmalloc0", "libtsmalloc-dev", "tsmalloc", "tsmalloc-lab")
# With the recipe as it is here, committed or not.
CLONE = 'umask $0 && git clone -q "$1" "$2" && cp -r "$1/packaging/." "$2/packaging"'
# dpkg's and apt's state, caches and logs.
NOT_COMPARED = r"(?:proc|tmp|var/lib/dpkg|var/lib/apt|var/cache|var/log)(?:/|$)"
PROGRAM = r"""
#define TSMALLOC_REQUIRED
#include <stdio.h>
#include <stdlib.h>
#include <tsmalloc/tsmalloc.h>
int main(void) {
  void* block = malloc(100);
  printf("%d %d\n", ts_version() == TSMALLOC_VERSION, ts_usable_size(block) >= 100);
  free(block);
  return 0;
}
"""
COMPILE = """
cd /tmp
gcc program.c -o shared $(pkg-config --cflags --libs tsmalloc)
gcc program.c -o static -static $(pkg-config --cflags --static --libs tsmalloc)
gcc program.c -o object $(pkg-config --variable=libdir tsmalloc)/tsmalloc/tsmalloc.o
./shared; ./static; ./object
nm -D --undefined-only shared | grep -c ts_version
nm --defined-only static | grep -c ts_version
nm --defined-only object | grep -c ts_version
"""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def packages():
    """The file of each package."""
    files = {path.name.partition("_")[0]: path for path in artefacts("debian").glob("*.deb")}
    assert set(files) == set(PACKAGES)
    return files


def test_lintian_has_nothing_to_say(packages):
    if shutil.which("lintian") is None:
        pytest.skip("needs lintian (Debian: sudo apt install lintian)")
    said = run("lintian", "--allow-root", "--fail-on", "error,warning", *packages.values())
    assert said == ""


def test_built_in_two_places_they_have_the_same_bytes(packages, tmp_path):
    copy = tmp_path / "another folder"
    run("sh", "-c", CLONE, "077", ROOT, copy, HOME=str(tmp_path))
    time = run("git", "log", "-1", "--format=%ct", cwd=ROOT).strip()
    made = run(copy / "packaging/debian/build", TZ="Asia/Tokyo", SOURCE_DATE_EPOCH=time)
    again = {Path(path).name: Path(path).read_bytes() for path in made.splitlines()}
    assert set(again) == {path.name for path in packages.values()}
    assert not [path.name for path in packages.values() if path.read_bytes() != again[path.name]]


@dataclass(frozen=True)
class Machine:
    """A Debian system in a directory."""

    root: Path

    def run(self, script):
        """The output of a shell script run as root."""
        variables = {"PATH": chroots.PATH, "HOME": "/tmp", "DEBIAN_FRONTEND": "noninteractive"}
        return chroots.in_root(self.root, ["/bin/sh", "-euc", script], variables)

    def files(self):
        """All paths that a package may have left behind."""
        listed = run("find", self.root, "-mindepth", "1", "-printf", "%P\\n").splitlines()
        return {path for path in listed if not re.match(NOT_COMPARED, path)}


@pytest.fixture(scope="module")
def machine(packages, tmp_path_factory):
    """A fresh Debian 12 in which apt has installed all packages and their dependencies."""
    chroots.need_chroots()
    root = tmp_path_factory.mktemp("debian") / "root"
    made = Machine(chroots.unpack(chroots.archive("minbase"), root))
    for path in packages.values():
        shutil.copy(path, root / "tmp")
    made.run("apt-get update; apt-get install --yes --no-install-recommends /tmp/*.deb")
    return made


def test_what_is_preloaded_serves(machine):
    for name, library in (("", "libtsmalloc"), ("secure", "libtsmalloc-secure")):
        path = machine.run(f"tsmalloc lib {name}").strip()
        assert re.fullmatch(rf"/usr/lib/[\w-]+/{library}\.so\.0", path)
        maps = machine.run(f"tsmalloc run {name} -- cat /proc/self/maps")
        mapped = {line.split()[-1] for line in maps.splitlines() if "libtsmalloc" in line}
        assert mapped == {f"{path}.{__version__.partition('.')[2]}"}
    assert not (machine.root / "etc/ld.so.preload").exists()
    # Here nothing has mounted /proc.
    without_proc = run("/usr/sbin/chroot", machine.root, "tsmalloc", "lib")
    assert without_proc == machine.run("tsmalloc lib")


def test_the_lab_works_with_what_the_distribution_has(machine):
    assert machine.run("tsmalloc --version") == f"tsmalloc, version {__version__}\n"
    assert "  compare " in machine.run("tsmalloc --help")
    assert {"tsmalloc", "lock-first", "lockfree-worst", "glibc"} <= set(
        machine.run("tsmalloc list").split()
    )
    for verb in USES:
        check_use(verb, lambda script: machine.run(f"cd $(mktemp -d); {script}"))


def test_programs_are_compiled_by_pkg_config(machine):
    machine.run("apt-get install --yes --no-install-recommends gcc libc6-dev pkg-config")
    (machine.root / "tmp/program.c").write_text(PROGRAM)
    assert machine.run(COMPILE).split("\n") == ["1 1"] * 3 + ["1"] * 3 + [""]
    # Relative to the .pc file, since a prefix can be moved.
    preload = machine.run("pkg-config --variable=preload tsmalloc")
    assert os.path.normpath(preload) == machine.run("tsmalloc lib")


def test_purged_they_leave_nothing(machine):
    """The first purge leaves only their dependencies, for comparison; then they are reinstalled."""
    purge = f"dpkg --purge {' '.join(reversed(PACKAGES))}"
    machine.run(purge)
    before = machine.files()
    assert not [path for path in before if re.search("tsmalloc|tsmlab", path)]
    machine.run("dpkg --install /tmp/*.deb")
    machine.run("tsmalloc compare -a tsmalloc,glibc --rounds 3 -- perl -e 1; tsmalloc list")
    assert machine.files() > before
    machine.run(purge)
    assert machine.files() == before
