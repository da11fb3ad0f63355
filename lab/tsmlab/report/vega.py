"""Vega and Vega-Lite, which draw the figures of pages: pinned, fetched by npm, never committed.

A package has them in the folder `vega` next to this file, put there by `python3 vega.py FOLDER`
when it is built. In a checkout the first page with a figure fetches them into the user's cache. The
variable TSMALLOC_VEGA names another folder, or disables figures if it is empty. A page without them
still has its tables, and says why.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

# Name, version, file in the package, and its SHA-256.
PARTS = (
    ("vega", "6.4.0", "build/vega.min.js",
     "8f6a3587cf8d4f42c7e08120e3eb05d067e746d554e39d2dcf52acc0bd5ba28f"),
    ("vega-lite", "6.4.3", "build/vega-lite.min.js",
     "35a9821df838825b05a6a73e9414b58747a1b18321583858ed903c66393a5c7e"),
    # Evaluates Vega's expressions, so that the page's policy need not allow eval().
    ("vega-interpreter", "2.3.2", "build/vega-interpreter.js",
     "c0bdb735a63f9276f136e8d90d7fdf5d8e9df8031eb069048fc9975c876fd7f9"),
)  # fmt: skip
SECONDS = 120.0
# After a failure, pages do not try npm again for this long.
PAUSE_SECONDS = 3600.0
MISSING = (
    "The figures are drawn by Vega, which is not installed here, so this page shows their "
    "numbers as tables. For figures, install npm, go online and write the report again."
)


class FetchError(Exception):
    """Why Vega could not be fetched."""


@lru_cache(maxsize=1)
def library() -> str:
    """All three as one script; empty if they are neither installed nor can be fetched."""
    from tsmlab import paths  # noqa: PLC0415 (this file is also run by itself)
    from tsmlab.errors import print_error  # noqa: PLC0415

    if (chosen := os.environ.get("TSMALLOC_VEGA")) is not None:
        return read(Path(chosen)) if chosen else ""
    cache = paths.cache_dir() / "vega"
    for folder in (Path(__file__).parent / "vega", cache):
        if text := read(folder):
            return text
    failed = cache / "failed"
    try:
        if time.time() - failed.stat().st_mtime < PAUSE_SECONDS:
            return ""
    except OSError:
        pass
    print_error("fetching   Vega, which draws the figures (once, 2 MB, with npm)")
    try:
        fetch(cache)
    except (FetchError, OSError) as error:
        print_error(f"tsmalloc: no figures, only tables: {error}")
        try:
            cache.mkdir(parents=True, exist_ok=True)
            failed.touch()
        except OSError:
            pass
        return ""
    return read(cache)


def read(folder: Path) -> str:
    """The scripts in a folder as one; empty unless all exist and match their pinned hashes."""
    texts = []
    for name, version, _, sha256 in PARTS:
        try:
            data = (folder / f"{name}-{version}.js").read_bytes()
        except OSError:
            return ""
        if hashlib.sha256(data).hexdigest() != sha256:
            return ""
        texts.append(data.decode())
    *scripts, interpreter = (re.sub(r"\n//# sourceMappingURL=.*", "", text) for text in texts)
    imports = re.compile(r"^import (\{[^}]*\}) from 'vega-util';", re.MULTILINE)
    exports = re.compile(r"^export \{ expression as expressionInterpreter \};", re.MULTILINE)
    interpreter = imports.sub(r"const \1 = vega;", interpreter)
    interpreter = exports.sub("globalThis.expressionInterpreter = expression;", interpreter)
    licence = "/* Vega, Vega-Lite: University of Washington Interactive Data Lab, BSD-3-Clause */"
    return "\n".join((licence, *scripts, f"(() => {{\n{interpreter}\n}})();\n"))


def fetch(
    folder: Path, run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
) -> None:
    """Puts the scripts and their licences into a folder; raises FetchError."""
    npm = shutil.which("npm")
    if npm is None:
        raise FetchError("npm, which fetches Vega, is not installed (sudo apt install npm).")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        wanted = [f"{package}@{version}" for package, version, _, _ in PARTS]
        command = [npm, "pack", "--silent", "--fetch-retries=0", "--cache=.npm", *wanted]
        try:
            done = run(command, cwd=work, capture_output=True, text=True, errors="replace",
                       check=False, timeout=SECONDS, stdin=subprocess.DEVNULL)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise FetchError(f"npm did not download Vega within {SECONDS:.0f} s.") from error
        if done.returncode != 0:
            output_lines = (done.stderr or done.stdout).strip().splitlines() or ["no output"]
            raise FetchError(f"npm could not download Vega: {output_lines[0]}")
        files = {}
        for package, version, member, sha256 in PARTS:
            try:
                with tarfile.open(work / f"{package}-{version}.tgz") as archive:
                    data, licence = (_member(archive, f"package/{m}") for m in (member, "LICENSE"))
            except (OSError, tarfile.TarError) as error:
                raise FetchError(f"npm did not download the package {package}: {error}") from error
            if hashlib.sha256(data).hexdigest() != sha256:
                raise FetchError(
                    f"{package} {version} does not match its pinned checksum; do not use it."
                )
            files[f"{package}-{version}.js"] = data
            files[f"LICENSE.{package}"] = licence
    folder.mkdir(parents=True, exist_ok=True)
    for file, data in files.items():
        (folder / f".{file}").write_bytes(data)
        (folder / f".{file}").replace(folder / file)


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    try:
        file = archive.extractfile(name)
    except KeyError:
        file = None
    if file is None:
        raise FetchError(f"the package that npm downloaded has no {name}.")
    return file.read()


def main(arguments: list[str]) -> str | None:
    """Puts Vega into a folder, from npm or from TSMALLOC_VEGA; returns an error message, if any."""
    if len(arguments) != 1:
        return "usage: python3 vega.py DIRECTORY"
    folder, chosen = Path(arguments[0]), os.environ.get("TSMALLOC_VEGA")
    if chosen == "":
        return None
    if chosen:
        if not read(Path(chosen)):
            return f"vega.py: TSMALLOC_VEGA={chosen} does not contain the pinned versions"
        shutil.copytree(chosen, folder, dirs_exist_ok=True)
        return None
    try:
        fetch(folder)
    except (FetchError, OSError) as problem:
        return f"vega.py: {problem} (TSMALLOC_VEGA= builds without figures)"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
