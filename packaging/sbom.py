#!/usr/bin/env python3
"""Writes the bill of materials of a folder of artefacts, as CycloneDX 1.6.

    packaging/sbom.py DIR

Each file of DIR is a component with its checksum, and so is each of its dependencies: those that
its package declares (Depends of a .deb, Requires-Dist of a wheel, dependencies of a crate), the
shared libraries that its programs are linked with, and libraries that are linked statically. All of
it is read from the artefacts, so a dependency that a recipe forgets to declare is found, too.
Versions and licences are given only for what is inside an artefact, since the installing machine
chooses the others. The time is SOURCE_DATE_EPOCH: the same files have the same bill.
"""

from __future__ import annotations

import datetime
import email.parser
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LICENCE = "MIT"
SUMS = "SHA256SUMS"
GCC_LICENCE = "GPL-3.0-or-later WITH GCC-exception-3.1"
# Strings that reveal libraries inside a program, with the other facts in the bill about each.
EMBEDDED = (
    (b"Frame requires too much memory for decoding", "zstd", "BSD-3-Clause", b"libzstd"),
    (b"basic_string: construction from null", "libstdc++", GCC_LICENCE, b"libstdc++"),
    (b"GLIBC_TUNABLES", "glibc", "LGPL-2.1-or-later", b"libc.so"),
)


class SbomError(Exception):
    """An error and its remedy."""


@dataclass(frozen=True)
class Need:
    """Something that an artefact needs, or contains."""

    kind: str  # deb, pypi, cargo, soname, or embedded
    name: str
    requirement: str = ""  # as declared by the package
    licence: str = ""

    @property
    def reference(self) -> str:
        return f"{self.kind}:{self.name}"

    def component(self, requirements: list[str]) -> dict[str, Any]:
        """`requirements` are those of all artefacts."""
        inside = self.kind == "embedded"
        component: dict[str, Any] = {
            "type": "library",
            "bom-ref": self.reference,
            "name": self.name,
        }
        component["scope"] = "required"
        if self.licence:
            component["licenses"] = [{"expression": self.licence}]
        if self.kind in {"deb", "pypi", "cargo"}:
            vendor = "debian/" if self.kind == "deb" else ""
            component["purl"] = f"pkg:{self.kind}/{vendor}{self.name.lower()}"
        component["properties"] = [
            {"name": "tsmalloc:linked", "value": "statically" if inside else "at run time"},
            *({"name": "tsmalloc:requirement", "value": text} for text in requirements if text),
        ]
        return component


def needs(artefact: Path) -> set[Need]:
    """From its package, and from the programs and libraries inside."""
    found = set()
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder)
        if artefact.suffix == ".whl":
            with zipfile.ZipFile(artefact) as archive:
                archive.extractall(inside)
            found.update(needs_of_wheel(next(inside.glob("*.dist-info/METADATA"))))
        elif artefact.suffix == ".deb":
            subprocess.run(["dpkg-deb", "--extract", artefact, inside], check=True)
            found.update(needs_of_deb(artefact))
        elif artefact.suffix == ".crate" or ".tar" in artefact.suffixes:
            with tarfile.open(artefact) as archive:
                archive.extractall(inside)
            if artefact.suffix == ".crate":
                found.update(needs_of_crate(next(inside.glob("*/Cargo.toml"))))
        programs = [path for path in inside.rglob("*") if is_elf(path)]
        own = {path.name for path in programs}
        for program in programs:
            found.update(
                need
                for need in needs_of_elf(program)
                if need.kind == "embedded" or need.name not in own
            )
    return found


def needs_of_wheel(metadata: Path) -> Iterator[Need]:
    headers = email.parser.HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
    for line in headers.get_all("Requires-Dist") or []:
        name = re.match(r"[\w.-]+", line)
        if name and "extra ==" not in line:
            yield Need("pypi", name[0], line)


def needs_of_deb(package: Path) -> Iterator[Need]:
    fields = ("Depends", "Pre-Depends", "Built-Using", "Static-Built-Using")
    for field in fields:
        text = subprocess.run(
            ["dpkg-deb", "--field", package, field], capture_output=True, text=True, check=True
        ).stdout
        for item in filter(None, re.split(r"[,|]\s*", text.strip())):
            yield Need("deb", item.split()[0].partition(":")[0], item.strip())


def needs_of_crate(manifest: Path) -> Iterator[Need]:
    described = tomllib.loads(manifest.read_text(encoding="utf-8"))
    for table in ("dependencies", "build-dependencies"):
        for name, value in described.get(table, {}).items():
            version = value if isinstance(value, str) else value.get("version", "")
            yield Need("cargo", name, f"{name} {version}".strip())


def is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def needs_of_elf(path: Path) -> Iterator[Need]:
    dynamic = subprocess.run(
        ["readelf", "--dynamic", "--wide", path], capture_output=True, text=True, check=True
    ).stdout
    sonames = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    for name in sonames:
        yield Need("soname", name)
    content = path.read_bytes()
    for text, name, licence, soname in EMBEDDED:
        if text in content and not any(soname in other.encode() for other in sonames):
            yield Need("embedded", name, licence=licence)


def build_sbom(folder: Path, version: str, time: int) -> dict[str, Any]:
    artefacts = sorted(path for path in folder.iterdir() if path.is_file() and path.name != SUMS)
    found = {artefact: needs(artefact) for artefact in artefacts}
    everything = {need.reference: need for each in found.values() for need in each}
    requirements: dict[str, set[str]] = {reference: set() for reference in everything}
    for each in found.values():
        for need in each:
            requirements[need.reference].add(need.requirement)
    sums = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in artefacts}
    licence = [{"license": {"id": LICENCE}}]
    files = [
        {
            "type": "file",
            "bom-ref": f"file:{path.name}",
            "name": path.name,
            "version": version,
            "hashes": [{"alg": "SHA-256", "content": sums[path]}],
            "licenses": licence,
        }
        for path in artefacts
    ]
    root = f"pkg:generic/tsmalloc@{version}"
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, ' '.join(sums.values()))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.datetime.fromtimestamp(time, datetime.UTC).isoformat(),
            "lifecycles": [{"phase": "build"}],
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": "tsmalloc",
                "version": version,
                "licenses": licence,
                "purl": root,
            },
        },
        "components": [
            *files,
            *(
                everything[reference].component(sorted(requirements[reference]))
                for reference in sorted(everything)
            ),
        ],
        "dependencies": [
            {"ref": root, "dependsOn": [f"file:{path.name}" for path in artefacts]},
            *(
                {
                    "ref": f"file:{path.name}",
                    "dependsOn": sorted({need.reference for need in found[path]}),
                }
                for path in artefacts
            ),
        ],
    }


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 1
    folder = Path(arguments[0])
    if not folder.is_dir() or not any(folder.iterdir()):
        raise SbomError(f"{folder} has no artefacts: build them with dev/package")
    time = os.environ.get("SOURCE_DATE_EPOCH")
    if time is None:
        raise SbomError("SOURCE_DATE_EPOCH is not set: git log -1 --format=%ct prints its value")
    version = subprocess.run(
        [ROOT / "dev" / "version.py"], capture_output=True, text=True, check=True
    ).stdout.strip()
    target = folder / f"tsmalloc-{version}.cdx.json"
    target.unlink(missing_ok=True)
    text = json.dumps(build_sbom(folder, version, int(time)), indent=2)
    target.write_text(text + "\n", encoding="utf-8")
    print(target)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (SbomError, FileNotFoundError, subprocess.CalledProcessError) as error:
        print(f"sbom: {error}", file=sys.stderr)
        sys.exit(2)
