"""The Dockerfiles of packaging/docker, run instruction by instruction without Docker.

Only the instructions and flags that our Dockerfiles use are supported; others are errors.
"""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import chroots
import pytest
from package_commands import ROOT, artefacts, run

DOCKERFILES = ROOT / "packaging" / "docker"
# The replacement for an image: how mmdebstrap makes a root like it, and the user of its processes.
BASES = {
    "debian:12": (("minbase",), 0),
    "debian:12-slim": (("minbase",), 0),
    "gcr.io/distroless/base-debian12:nonroot": (("extract", "base-files", "libc6"), 65532),
}
NOBODY = 65534


@dataclass
class Image:
    """A stage: its root, and its processes' initial environment."""

    root: Path
    user: int
    variables: dict[str, str] = field(default_factory=lambda: {"PATH": chroots.PATH})
    entrypoint: list[str] = field(default_factory=list)

    def run(self, *command, user=None, read_only=False):
        by = self.user if user is None else user
        return chroots.in_root(self.root, command, self.variables, user=by, read_only=read_only)


def instructions(text):
    """Each instruction and its arguments, without comments, and with continued lines joined."""
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, arguments = line.split(None, 1)
        yield word, arguments


def performed(name, folder, context):
    """The last stage of a Dockerfile, with the roots of all of them in the folder."""
    stages = {}
    for word, arguments in instructions((DOCKERFILES / name).read_text()):
        match word:
            case "FROM":
                base, _, stage = arguments.partition(" AS ")
                (variant, *packages), user = BASES[base]
                root = chroots.unpack(chroots.archive(variant, *packages), folder / (stage or "_"))
                image = stages[stage] = Image(root, user)
            case "COPY":
                *sources, target = arguments.split()
                start = context
                if sources[0].startswith("--from="):
                    start = stages[sources.pop(0).removeprefix("--from=")].root
                copy(start, sources, image.root / target.lstrip("/"), target.endswith("/"))
            case "RUN":
                image.run("/bin/sh", "-c", arguments)
            case "ENV":
                image.variables |= dict([arguments.split("=", 1)])
            case "ENTRYPOINT":
                image.entrypoint = json.loads(arguments)
            case _:
                raise NotImplementedError(f"{word} {arguments}")
    return image


def copy(start, patterns, place, is_folder):
    for pattern in patterns:
        found = [start] if pattern == "." else sorted(start.glob(pattern.lstrip("/")))
        assert found, f"COPY: there is no {pattern}"
        for source in found:
            if source.is_dir() or is_folder:
                place.mkdir(parents=True, exist_ok=True)
            # Copies the contents of a directory, but not the directory.
            run("cp", "-a", f"{source}/." if source.is_dir() else source, place)


@pytest.fixture
def roots(tmp_path):
    """A directory for roots, which are large: it is deleted after the test."""
    chroots.need_chroots()
    yield tmp_path / "roots"
    shutil.rmtree(tmp_path / "roots", ignore_errors=True)


def expect_served(maps, image):
    """Checks a process's maps in the image: our library is there, with libc's and its own."""
    assert re.search(r" /usr/lib/\S*libtsmalloc\.so\.0\S*$", maps, re.MULTILINE), maps
    assert image.entrypoint[1:] == ["/proc/self/maps"]


@pytest.mark.long
def test_debian(tmp_path, roots):
    context = tmp_path / "context"
    (context / "dist").mkdir(parents=True)
    for package in artefacts("debian").glob("libtsmalloc0_*.deb"):
        shutil.copy2(package, context / "dist")
    image = performed("Dockerfile.debian", roots, context)
    expect_served(image.run(*image.entrypoint), image)
    expect_served(image.run(*image.entrypoint, user=NOBODY, read_only=True), image)
    # And its children.
    expect_served(image.run("/bin/sh", "-c", "cat /proc/self/maps; true"), image)


@pytest.mark.long
def test_distroless(tmp_path, roots):
    context = tmp_path / "context"
    context.mkdir()
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    archive = tmp_path / "context.tar"
    subprocess.run(
        ["tar", "--create", "--null", "--files-from=-", "--file", archive],
        cwd=ROOT,
        input=tracked.stdout,
        check=True,
    )
    run("tar", "--extract", "--file", archive, "--directory", context)
    image = performed("Dockerfile.distroless", roots, context)
    assert not (image.root / "bin" / "sh").exists()
    expect_served(image.run(*image.entrypoint, read_only=True), image)
    # Only the command, in an environment that preloads nothing.
    del image.variables["LD_PRELOAD"]
    assert "libtsmalloc" not in image.run(*image.entrypoint)
    expect_served(image.run("/usr/bin/tsmalloc", "run", "--", *image.entrypoint), image)
