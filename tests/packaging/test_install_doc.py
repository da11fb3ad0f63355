"""docs/install.md: each way of it works as it is written, in a folder of its own.

The blocks of a way run in their order: a file that a line such as "`NAME`:" announces is written,
and shell commands run, each of which has to succeed. `sudo` runs a command as it is.
Refuses to: leave a block out. What cannot run on a machine is skipped with the reason.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from debian_machine import Machine, fresh_debian
from package_commands import ROOT, artefacts, run

TEXT = (ROOT / "docs/install.md").read_text(encoding="utf-8")
FENCE = re.compile(
    r"(?:`(?P<name>[^`\n]+)`:\n\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OFFLINE = ("Temporary failure in name resolution", "Could not connect", "No matching distribution")


@dataclass(frozen=True)
class Way:
    """What a section of the document needs to be tried."""

    parts: tuple[str, ...] = ()  # whose artefacts are in dist/
    tools: dict[str, str] = field(default_factory=dict)  # the Debian package of each program
    in_checkout: bool = False
    in_debian: bool = False  # in a system of its own
    spaces: bool = True  # in a path with a space; what pkg-config prints is no shell's text


COMPILER = {"cmake": "cmake", "g++": "g++", "make": "make"}
PKG_CONFIG = {"gcc": "gcc", "pkg-config": "pkg-config"}
WAYS = {
    "pip": Way(("python",), {"perl": "perl"}),
    "Checkout": Way(tools=COMPILER, in_checkout=True),
    "Debian packages": Way(("debian",), in_debian=True),
    "CMake": Way(("source", "prefix"), COMPILER),
    "FetchContent": Way(("source",), COMPILER),
    "pkg-config": Way(("prefix",), PKG_CONFIG, spaces=False),
    "Beside another allocator": Way(("prefix",), PKG_CONFIG, spaces=False),
    "Rust": Way(("rust",), {"cargo": "cargo", "g++": "g++"}),
    "Containers": Way(("debian",), in_debian=True),
    "systemd": Way(("debian",), {"systemd-analyze": "systemd"}, in_debian=True),
    "musl": Way((), COMPILER | {"musl-gcc": "musl-tools"}, in_checkout=True),
    "Other machines": Way(
        (), COMPILER | {"aarch64-linux-gnu-g++": "g++-aarch64-linux-gnu"}, in_checkout=True
    ),
}


def sections() -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(section: str) -> list[re.Match[str]]:
    return list(FENCE.finditer(sections()[section]))


def script(section: str, folder: Path) -> str:
    """The files and commands of a section, in their order."""
    lines = ["set -euo pipefail"]
    for number, block in enumerate(blocks(section)):
        if block["name"]:
            kept = folder / ".blocks" / str(number)
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(block["body"])
            lines.append(f"install -D -m 644 .blocks/{number} {block['name']!r}")
        elif block["language"] == "sh":
            lines += ["set -x", block["body"].rstrip(), "{ set +x; } 2>/dev/null"]
        else:
            assert block["language"] == "text", f"what is this block of `{section}`? {block[0]}"
    return "\n".join(lines) + "\n"


def test_every_block_belongs_to_a_way() -> None:
    with_blocks = {name for name in sections() if blocks(name)}
    assert with_blocks == set(WAYS)
    fences = TEXT.count("\n```") // 2
    assert sum(len(blocks(name)) for name in sections()) == fences


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where a section runs: with the artefacts that it names, or in a checkout."""
    way = WAYS[request.param]
    missing = sorted({package for tool, package in way.tools.items() if not shutil.which(tool)})
    if missing:
        pytest.skip(f"it needs: sudo apt install {' '.join(missing)}")
    work = tmp_path / ("a folder" if way.spaces else "folder")
    if way.in_checkout:
        subprocess.run(["git", "clone", "-q", ROOT, work], check=True)
    (work / "dist").mkdir(parents=True)
    for part in way.parts:
        for path in artefacts(part).iterdir():
            shutil.copy(path, work / "dist")
    return work


def run_section(section: str, folder: Path) -> str:
    tools = folder / ".tools"
    tools.mkdir()
    (tools / "sudo").write_text(SUDO)
    (tools / "sudo").chmod(0o755)
    kept = CACHES | {name: value for name, value in os.environ.items() if name not in DROPPED}
    done = subprocess.run(
        ["bash", "-c", script(section, folder)],
        cwd=folder,
        env=kept | {"HOME": str(folder / "home"), "PATH": f"{tools}:{kept['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0 and any(words in done.stdout for words in OFFLINE):
        pytest.skip(f"no network: {done.stdout.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout
    return done.stdout


SUDO = '#!/bin/sh\nexec "$@"\n'
DROPPED = {"LD_PRELOAD", "TSMALLOC_BUILD_DIR", "CC", "CXX", "MAKEFLAGS", "MAKELEVEL", "PYTHONPATH"}
# Downloads and compilations, which a home of its own would not have.
CACHES = {
    name: str(Path.home() / folder)
    for name, folder in (
        ("CARGO_HOME", ".cargo"),
        ("RUSTUP_HOME", ".rustup"),
        ("CCACHE_DIR", ".cache/ccache"),
        ("PIP_CACHE_DIR", ".cache/pip"),
    )
}
HERE = [name for name, way in WAYS.items() if not way.in_debian]


@pytest.mark.long
@pytest.mark.parametrize(
    ("folder", "section"), [(name, name) for name in HERE], indirect=["folder"], ids=HERE
)
def test_a_way_works_as_it_is_written(folder: Path, section: str) -> None:
    run_section(section, folder)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A fresh Debian with the packages in /work/dist, and a sudo that runs commands as they are."""
    packages = artefacts("debian")
    with fresh_debian(tmp_path) as made:
        shutil.copytree(packages, made.root / "work/dist")
        sudo = made.root / "usr/bin/sudo"
        sudo.write_text(SUDO)
        sudo.chmod(0o755)
        yield made


@pytest.mark.long
def test_debian_packages_as_it_is_written(machine: Machine) -> None:
    text = script("Debian packages", machine.root / "work")
    machine.run("bash", "-c", f"cd /work\n{text}")


@pytest.mark.long
def test_the_drop_in_of_systemd_is_valid_and_preloads(machine: Machine, tmp_path: Path) -> None:
    """Where no systemd runs, `systemctl` is one that does nothing."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("it needs: sudo apt install systemd")
    systemctl = machine.root / "usr/bin/systemctl"
    systemctl.write_text("#!/bin/sh\n")
    systemctl.chmod(0o755)
    machine.run("sh", "-c", "apt-get install --yes /work/dist/libtsmalloc0_*.deb")
    text = script("systemd", machine.root / "work")
    machine.run("bash", "-c", f"cd /work\n{text}")
    installed = machine.root / "etc/systemd/system/SERVICE.service.d"
    shutil.copytree(installed, tmp_path / "SERVICE.service.d")
    (tmp_path / "SERVICE.service").write_text("[Service]\nExecStart=/bin/true\n")
    assert run("systemd-analyze", "verify", tmp_path / "SERVICE.service") == ""
    variable = (installed / "tsmalloc.conf").read_text().partition("Environment=")[2].strip()
    assert "/libtsmalloc.so.0" in machine.run("env", variable, "cat", "/proc/self/maps")
