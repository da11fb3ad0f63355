"""Upgrades: a newer artefact replaces all of an installed older one.

The older one is the artefact itself with a lower version and one more file.
"""

import re
import shutil
import sys
import zipfile
from pathlib import Path

import chroots
import pytest
from package_commands import artefacts, run

from tsmlab import __version__

OLDER = "0.0.1"

pytestmark = pytest.mark.long


def older_wheel(wheel, folder):
    made = folder / wheel.name.replace(f"-{__version__}-", f"-{OLDER}-")
    old, new = f"tsmalloc-{__version__}.dist-info/", f"tsmalloc-{OLDER}.dist-info/"
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(made, "w") as target:
        for entry in source.infolist():
            content = source.read(entry)
            if entry.filename == f"{old}METADATA":
                content = re.sub(rb"(?m)^Version: .*$", f"Version: {OLDER}".encode(), content)
            elif entry.filename == f"{old}RECORD":
                content = content.replace(old.encode(), new.encode()) + b"tsmlab/gone.py,,\n"
            entry.filename = entry.filename.replace(old, new)
            target.writestr(entry, content)
        target.writestr("tsmlab/gone.py", "")
    return made


def test_a_wheel_replaces_an_older_one(tmp_path):
    (wheel,) = artefacts("wheel").glob("tsmalloc-*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    install = (tmp_path / "venv/bin/python", "-m", "pip", "install", "--no-index", "--no-deps")
    run(*install, older_wheel(wheel, tmp_path))
    (gone,) = tmp_path.glob("venv/lib/*/site-packages/tsmlab/gone.py")
    assert f"Successfully installed tsmalloc-{__version__}" in run(*install, wheel)
    assert not gone.exists()
    assert "--force-reinstall" in run(*install, wheel)


def test_dpkg_replaces_an_older_package(tmp_path):
    chroots.need_chroots()
    (package,) = artefacts("debian").glob("libtsmalloc0_*.deb")
    tree = tmp_path / "tree"
    run("dpkg-deb", "--raw-extract", package, tree)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*$", f"Version: {OLDER}", control.read_text()))
    gone = Path("usr/share/doc/libtsmalloc0/gone")
    (tree / gone).touch()
    root = chroots.unpack(chroots.archive("minbase"), tmp_path / "root")
    run("dpkg-deb", "--build", tree, root / "tmp/older.deb")
    shutil.copy(package, root / "tmp/newer.deb")
    variables = {"PATH": chroots.PATH}
    chroots.in_root(root, ["/usr/bin/dpkg", "--install", "/tmp/older.deb"], variables)
    assert (root / gone).exists()
    said = chroots.in_root(root, ["/usr/bin/dpkg", "--install", "/tmp/newer.deb"], variables)
    assert f"over ({OLDER})" in said
    assert not (root / gone).exists()
    said = chroots.in_root(root, ["/usr/bin/dpkg", "--install", "/tmp/older.deb"], variables)
    assert "warning: downgrading libtsmalloc0" in said
