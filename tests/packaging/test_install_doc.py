"""docs/install.md: each installation method works as written, in a directory of its own.

All blocks of a section run in order: files announced by a line such as "`NAME`:" are written, and
shell commands run, each of which must succeed. `sudo` runs a command unchanged. Whatever cannot run
on a machine is skipped with the reason.
"""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import chroots
import pytest
from package_commands import ROOT, artefacts, run
from prompt import merged
from prompt import script as make_script

TEXT = (ROOT / "docs/install.md").read_text(encoding="utf-8")
FENCE = re.compile(
    r"(?:`(?P<name>[^`\n]+)`:\n\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
OFFLINE = ("Temporary failure in name resolution", "Could not connect", "No matching distribution")


@dataclass(frozen=True)
class Way:
    """What a section of the document needs in order to be tested."""

    parts: tuple[str, ...] = ()  # whose artefacts are in dist/
    tools: dict[str, str] = field(default_factory=dict)  # the Debian package of each program
    in_checkout: bool = False
    in_debian: bool = False  # in a system of its own
    spaces: bool = True  # in a path with a space; pkg-config does not quote for a shell


COMPILER = {"cmake": "cmake", "g++": "g++", "make": "make"}
CROSS_COMPILERS = {
    f"{machine}-linux-gnu-g++": f"g++-{machine}-linux-gnu" for machine in ("aarch64", "riscv64")
}
PKG_CONFIG = {"gcc": "gcc", "pkg-config": "pkg-config"}
WAYS = {
    "pip": Way(("wheel",), {"perl": "perl"}),
    "Checkout": Way(tools=COMPILER, in_checkout=True),
    "Debian packages": Way(("debian",), in_debian=True),
    "CMake": Way(("source", "prefix"), COMPILER),
    "FetchContent": Way(("source",), COMPILER),
    "pkg-config": Way(("prefix",), PKG_CONFIG, spaces=False),
    "Beside another allocator": Way(("prefix",), PKG_CONFIG, spaces=False),
    "Rust": Way(("rust",), {"cargo": "cargo", "g++": "g++"}),
    "Conan": Way((), COMPILER, in_checkout=True, spaces=False),
    "Containers": Way(("debian",), in_debian=True),  # packaging/docker
    "systemd": Way(("debian",), {"systemd-analyze": "systemd"}, in_debian=True),
    "musl": Way((), COMPILER | {"musl-gcc": "musl-tools"}, in_checkout=True),
    "Other machines": Way((), COMPILER | CROSS_COMPILERS, in_checkout=True),
}


def sections():
    parts = re.split(r"^## (.+)\n", TEXT, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(section):
    return list(FENCE.finditer(sections()[section]))


def script(section, folder):
    """A section's files and commands, in order."""
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


def test_every_block_belongs_to_a_way():
    with_blocks = {name for name in sections() if blocks(name)}
    assert with_blocks == set(WAYS)
    fences = TEXT.count("\n```") // 2
    assert sum(len(blocks(name)) for name in sections()) == fences


@pytest.fixture
def folder(request, tmp_path):
    """Where a section runs: with the artefacts that it needs, or in a checkout."""
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


def run_section(section, folder):
    tools = folder / ".tools"
    tools.mkdir()
    make_script(tools / "sudo", SUDO)
    kept = CACHES | {name: value for name, value in os.environ.items() if name not in DROPPED}
    kept |= {"HOME": str(folder / "home"), "PATH": f"{tools}:{kept['PATH']}"}
    command = ("bash", "-c", script(section, folder))
    status, said = merged(*command, cwd=folder, env=kept, stdin=subprocess.DEVNULL)
    if status != 0 and any(words in said for words in OFFLINE):
        pytest.skip(f"no network: {said.splitlines()[-1]}")
    assert status == 0, said
    return said


SUDO = '#!/bin/sh\nexec "$@"\n'
DROPPED = {"LD_PRELOAD", "TSMALLOC_BUILD_DIR", "CC", "CXX", "MAKEFLAGS", "MAKELEVEL", "PYTHONPATH"}
# Caches of downloads and compilations, which a home of its own would lack.
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
def test_a_way_works_as_it_is_written(folder, section):
    run_section(section, folder)


@pytest.fixture
def debian(tmp_path):
    """A fresh Debian with the packages in /work/dist, and a sudo that runs commands unchanged."""
    chroots.need_chroots()
    packages = artefacts("debian")
    root = chroots.unpack(chroots.archive("minbase"), tmp_path / "root")
    shutil.copytree(packages, root / "work/dist")
    for name, text in (("sudo", SUDO), ("systemctl", "#!/bin/sh\n")):
        make_script(root / "usr/bin" / name, text)
    # Recommended packages take minutes to download.
    (root / "etc/apt/apt.conf.d/90tests").write_text('APT::Install-Recommends "0";\n')
    in_debian(root, "apt-get update")
    return root


def in_debian(root, commands):
    variables = {"PATH": chroots.PATH, "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive"}
    return chroots.in_root(root, ["/bin/bash", "-c", f"cd /work\n{commands}"], variables)


@pytest.mark.long
def test_debian_packages_as_it_is_written(debian):
    in_debian(debian, script("Debian packages", debian / "work"))


@pytest.mark.long
def test_the_drop_in_of_systemd_is_valid_and_preloads(debian, tmp_path):
    """No systemd runs there, so `systemctl` is a dummy."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("it needs: sudo apt install systemd")
    in_debian(debian, "apt-get install --yes ./dist/libtsmalloc0_*.deb")
    in_debian(debian, script("systemd", debian / "work"))
    installed = debian / "etc/systemd/system/SERVICE.service.d"
    shutil.copytree(installed, tmp_path / "SERVICE.service.d")
    (tmp_path / "SERVICE.service").write_text("[Service]\nExecStart=/bin/true\n")
    assert run("systemd-analyze", "verify", tmp_path / "SERVICE.service") == ""
    variable = (installed / "tsmalloc.conf").read_text().partition("Environment=")[2].strip()
    assert "/libtsmalloc.so.0" in in_debian(debian, f"env {variable} cat /proc/self/maps")


def test_the_dockerfile_is_the_one_that_test_images_performs():
    (block,) = blocks("Containers")
    whole = (ROOT / "packaging/docker/Dockerfile.debian").read_text(encoding="utf-8")
    assert block["language"] == "dockerfile"
    assert whole.endswith(f"\n{block['body']}")
