"""The Dockerfiles of packaging/docker, run instruction by instruction without Docker.

Only the instructions and flags that our Dockerfiles use are supported; others are errors.
"""

import json
import re
import shlex
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


class Refused(Exception):
    """An unsupported instruction."""


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
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    split = [line.strip().partition(" ") for line in joined.splitlines() if line.strip()]
    return [(word, arguments.strip()) for word, _, arguments in split]


class Performer:
    """Runs the instructions of one file in roots below a directory."""

    def __init__(self, folder, context):
        self.folder, self.context = folder, context
        self.stages = {}
        self.image = None

    def perform(self, text):
        for word, arguments in instructions(text):
            if word == "FROM":
                self.begin(arguments)
                continue
            if self.image is None:
                raise Refused(f"{word} before FROM")
            method = {"COPY": self.copy, "RUN": self.run, "ENV": self.env, "ENTRYPOINT": self.entry}
            if word not in method:
                raise Refused(f"{word} {arguments}")
            method[word](self.image, arguments)
        if self.image is None:
            raise Refused("a file without FROM")
        return self.image

    def begin(self, arguments):
        found = re.fullmatch(r"(\S+)(?: AS (\w+))?", arguments)
        if found is None or found[1] not in BASES:
            raise Refused(f"FROM {arguments}")
        (variant, *packages), user = BASES[found[1]]
        name = found[2] or str(len(self.stages))
        root = chroots.unpack(chroots.archive(variant, *packages), self.folder / name)
        self.image = self.stages[name] = Image(root, user)

    def copy(self, image, arguments):
        *sources, target = arguments.split()
        start = self.context
        if sources[0].startswith("--from="):
            start = self.stages[sources.pop(0).removeprefix("--from=")].root
        if not sources or any(source.startswith("-") for source in sources):
            raise Refused(f"COPY {arguments}")
        place = image.root / target.lstrip("/")
        for pattern in sources:
            found = [start] if pattern == "." else sorted(start.glob(pattern.lstrip("/")))
            assert found, f"COPY {arguments}: there is no {pattern}"
            for source in found:
                if source.is_dir() or target.endswith("/"):
                    place.mkdir(parents=True, exist_ok=True)
                # Copies the contents of a directory, but not the directory.
                run("cp", "-a", f"{source}/." if source.is_dir() else source, place)

    def run(self, image, arguments):
        if arguments.startswith(("[", "-")):
            raise Refused(f"RUN {arguments}")
        image.run("/bin/sh", "-c", arguments)

    def env(self, image, arguments):
        for pair in shlex.split(arguments):
            name, equals, value = pair.partition("=")
            if not equals or "$" in value:
                raise Refused(f"ENV {arguments}")
            image.variables[name] = value

    def entry(self, image, arguments):
        if not arguments.startswith("["):
            raise Refused(f"ENTRYPOINT {arguments}")
        image.entrypoint = json.loads(arguments)


@pytest.fixture
def roots(tmp_path):
    """A directory for roots, which are large: it is deleted after the test."""
    chroots.need_chroots()
    yield tmp_path / "roots"
    shutil.rmtree(tmp_path / "roots", ignore_errors=True)


def performed(name, folder, context):
    return Performer(folder, context).perform((DOCKERFILES / name).read_text())


def expect_served(maps, image):
    """Checks a process's maps in the image: our library is there, with libc's and its own."""
    assert re.search(r" /usr/lib/\S*libtsmalloc\.so\.0\S*$", maps, re.MULTILINE), maps
    assert image.entrypoint[1:] == ["/proc/self/maps"]


@pytest.mark.parametrize(
    "text",
    [
        "FROM scratch",
        "RUN true",
        "FROM debian:12\nADD a /b",
        "FROM --platform=linux/arm64 debian:12",
    ],
)
def test_what_is_not_known_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(chroots, "archive", lambda *_: tmp_path)
    monkeypatch.setattr(chroots, "unpack", lambda _, root: root)
    with pytest.raises(Refused):
        Performer(tmp_path, tmp_path).perform(text)


def test_lines_are_joined():
    text = "# a comment\nFROM a AS b\nRUN one \\\n    && two\n\nENV A=1\n"
    assert instructions(text) == [("FROM", "a AS b"), ("RUN", "one && two"), ("ENV", "A=1")]


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
