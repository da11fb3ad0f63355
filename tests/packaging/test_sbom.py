"""The bill of materials: the dependencies of small artefacts, in a valid CycloneDX document."""

import io
import json
import subprocess
import sys
import tarfile
import zipfile

import pytest
from package_commands import ROOT, run, try_to_run
from prompt import ran

from tsmlab import __version__

LIBRARY = "cyclonedx-python-lib[json-validation]==11.12.0"
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read()))
"""
METADATA = """Metadata-Version: 2.4
Name: tsmalloc
Version: 1
Requires-Dist: numpy>=2
Requires-Dist: pytest; extra == "dev"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A wheel, a crate and two archives of programs: one shared, one with zstd linked in."""
    made = tmp_path_factory.mktemp("artefacts")
    program = made.parent / "program"
    source = made.parent / "program.c"
    source.write_text(
        "#include <math.h>\n#include <stdio.h>\n"
        'int main(int argc, char** argv) { return (int)sin(argc) + puts("x"); }\n'
    )
    run("gcc", "-fno-builtin", source, "-o", program, "-lm")
    content = program.read_bytes()
    with zipfile.ZipFile(made / "tsmalloc-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tsmalloc-1.dist-info/METADATA", METADATA)
        wheel.writestr("bin/program", content)
    manifest = '[dependencies]\nlibc = "0.2"\n[build-dependencies]\ncc = { version = "1" }\n'
    archive(made / "tsmalloc-1.crate", {"tsmalloc-1/Cargo.toml": manifest.encode()})
    zstd = content + b"\0Frame requires too much memory for decoding\0"
    archive(made / "tsmalloc-1.tar.xz", {"p/lib/libown.so": content, "p/bin/zstd": zstd})
    return made


def archive(path, files):
    with tarfile.open(path, "w:gz" if path.suffix == ".crate" else "w:xz") as made:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            made.addfile(entry, io.BytesIO(content))


def bill(folder):
    run(ROOT / "packaging/sbom.py", folder, SOURCE_DATE_EPOCH="86400")
    return json.loads((folder / f"tsmalloc-{__version__}.cdx.json").read_text())


def test_it_says_what_each_artefact_needs(folder):
    told = bill(folder)
    needs = {each["ref"]: each["dependsOn"] for each in told["dependencies"]}
    assert needs["file:tsmalloc-1-py3-none-any.whl"] == [
        *("pypi:numpy", "soname:libc.so.6", "soname:libm.so.6")
    ]
    assert needs["file:tsmalloc-1.crate"] == ["cargo:cc", "cargo:libc"]
    assert needs["file:tsmalloc-1.tar.xz"] == [
        *("embedded:zstd", "soname:libc.so.6", "soname:libm.so.6")
    ]
    components = {each["bom-ref"]: each for each in told["components"]}
    assert components["embedded:zstd"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert components["pypi:numpy"]["purl"] == "pkg:pypi/numpy"
    assert {"name": "tsmalloc:requirement", "value": "numpy>=2"} in components["pypi:numpy"][
        "properties"
    ]
    assert told["metadata"]["timestamp"] == "1970-01-02T00:00:00+00:00"
    assert told == bill(folder)  # without the last one, which is no artefact, and without a clock


def test_a_folder_without_artefacts_is_refused(tmp_path):
    status, said = try_to_run(ROOT / "packaging/sbom.py", tmp_path)
    assert status == 2
    assert said == f"sbom: {tmp_path} has no artefacts: build them with dev/package\n"


@pytest.mark.long
def test_it_is_valid_cyclonedx(folder, tmp_path):
    text = json.dumps(bill(folder))
    run(sys.executable, "-m", "venv", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", LIBRARY],
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if installed.returncode != 0:
        pytest.skip(f"{LIBRARY} cannot be installed: {installed.stderr.splitlines()[-1]}")
    for content, is_valid in ((text, True), (text.replace('"SHA-256"', '"SHA-257"'), False)):
        done = ran(python, "-c", VALIDATE, input=content)
        assert (done.returncode == 0) == is_valid, done.stderr
