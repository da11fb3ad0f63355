"""The flow of `tsmalloc fetch`: from a crate's sources to a library that can be preloaded."""

import json
import os
import re
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tsmlab import doctor, fetched, records, system_libraries, toml_tables
from tsmlab.allocators import Allocator, file_sha256
from tsmlab.errors import UserError
from tsmlab.fetched import MANIFEST, SCHEMA, Manifest
from tsmlab.system_libraries import run_tool

TABLE = Path(__file__).parent / "fetch.toml"
PROOF_SECONDS = 60.0
LOG_LINES = 8
# How to install each tool on Debian and its derivatives.
REMEDIES = {
    "cargo": "sudo apt install cargo, or install Rust with rustup",
    "cc": "sudo apt install gcc",
    "c++": "sudo apt install g++",
    "cmake": "sudo apt install cmake",
    "make": "sudo apt install make",
}
# cargo's message for a version that does not exist.
_NO_VERSION = re.compile(r"failed to select a version|no matching package|unexpected end of input")

Log = Callable[[str], None]


@dataclass(frozen=True)
class Peer:
    """One entry of the table; comments at its head explain the fields."""

    name: str
    summary: str
    crate: str
    version: str
    sha256: str
    holds: str
    tools: list[str]
    steps: list[str]
    library: str
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Crate:
    """An unpacked archive. version: the full version; sha256: of the archive."""

    folder: Path
    version: str
    sha256: str


def peers() -> list[Peer]:
    return [Peer(**entry) for entry in tomllib.loads(TABLE.read_text(encoding="utf-8"))["peer"]]


def peer_of(name: str) -> Peer:
    known = peers()
    for peer in known:
        if peer.name == name:
            return peer
    names = [peer.name for peer in known]
    raise UserError(
        f"no recipe for {name!r}.",
        f"{toml_tables.guess(name, names)}Recipes: {', '.join(names)}.",
    )


def fetch(peer: Peer, version: str | None, force: bool, log: Log) -> tuple[Manifest, Path]:
    """Builds the peer from the crate of this version, by default the pinned one; returns what was
    built, and its library. An existing library is not rebuilt, unless `force`."""
    wanted = peer.version if version is None else version
    if not re.fullmatch(r"\d+(\.\d+)*([-+][0-9A-Za-z.+-]+)?", wanted):
        raise UserError(f"{wanted!r} is not a version.", f"For example: {peer.version}")
    for manifest, library in fetched.present():
        same = (manifest.name, _plain(manifest.crate_version)) == (peer.name, _plain(wanted))
        if same and not force:
            log(f"{manifest.folder} already exists (--force rebuilds it)")
            return manifest, library
    _check_tools("cargo", *peer.tools)
    cache = fetched.cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)  # other users' servers load from there
        with tempfile.TemporaryDirectory(prefix=f".{peer.name}-", dir=cache) as name:
            return _fetch(peer, wanted, Path(name), log)
    except OSError as error:
        raise UserError(
            f"cannot write {cache}: {error.strerror}.",
            "Free some space, or set XDG_CACHE_HOME to a writable directory.",
        ) from error


def _fetch(peer: Peer, wanted: str, work: Path, log: Log) -> tuple[Manifest, Path]:
    log(f"downloading {peer.crate} {wanted}")
    crate = _download(peer, wanted, work / "project")
    log(f"building {peer.name} from {peer.crate} {crate.version}")
    built = _build(peer, crate, work / "build")
    version = peer.holds if _plain(crate.version) == peer.version else None
    version = version or system_libraries.version_from_library(built) or _plain(crate.version)
    _prove(Allocator(f"{peer.name}-{version}", built, "fetched", version, env=peer.environment))
    new = work / "new"
    new.mkdir()
    library = f"lib{peer.name}.so"
    shutil.copyfile(built, new / library)  # follows links
    manifest = Manifest(
        schema=SCHEMA,
        created=records.now(),
        name=peer.name,
        version=version,
        summary=peer.summary,
        crate=peer.crate,
        crate_version=crate.version,
        crate_sha256=crate.sha256,
        library=library,
        library_sha256=file_sha256(new / library),
        environment=peer.environment,
    )
    (new / MANIFEST).write_text(records.to_json(manifest), encoding="utf-8")
    final = fetched.cache_dir() / manifest.folder
    if final.exists():
        final.replace(work / "old")
    new.replace(final)
    return manifest, final / library


def _download(peer: Peer, wanted: str, project: Path) -> Crate:
    """Downloads with `cargo vendor` for a package that depends only on the crate."""
    (project / "src").mkdir(parents=True)
    (project / "src" / "lib.rs").touch()
    (project / "Cargo.toml").write_text(
        '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n'
        f'[dependencies]\n{peer.crate} = "={wanted}"\n',
        encoding="utf-8",
    )
    done = run_tool(["cargo", "vendor", "--quiet", "vendor"], project)
    if done.returncode != 0:
        # Offline, cargo finds no version, and mentions being offline.
        if _NO_VERSION.search(done.stderr) and "offline mode" not in done.stderr:
            raise UserError(
                f"the crate {peer.crate} has no version {wanted}.",
                f"Omit --version to get {peer.version}, or see: cargo info {peer.crate}",
            )
        raise UserError(
            f"could not download {peer.crate}: {_last_line(done.stderr)}.",
            "Cargo needs network access, or a mirror in its settings; then retry: tsmalloc fetch "
            f"{peer.name}",
        )
    folder = project / "vendor" / peer.crate
    try:
        sums = json.loads((folder / ".cargo-checksum.json").read_text(encoding="utf-8"))
        sha256 = str(sums["package"])
        version = str(
            tomllib.loads((folder / "Cargo.toml").read_text("utf-8"))["package"]["version"]
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"cargo did not download the crate {peer.crate}: {error}.", "Is cargo 1.64 or newer?"
        ) from error
    if _plain(version) == peer.version and sha256 != peer.sha256:
        raise UserError(
            f"{peer.crate} {wanted} does not match its pinned checksum: got {sha256}.",
            "Do not use it: the registry, or its mirror, serves a different archive than before.",
        )
    return Crate(folder, version, sha256)


def _build(peer: Peer, crate: Crate, folder: Path) -> Path:
    folder.mkdir()
    log = fetched.cache_dir() / f"{peer.name}.log"
    words = {
        "crate": str(crate.folder),
        "jobs": str(len(os.sched_getaffinity(0))),
        "metadata": crate.version.partition("+")[2],
    }
    with log.open("w", encoding="utf-8") as file:
        for step in peer.steps:
            command = [word.format_map(words) for word in shlex.split(step)]
            done = run_tool(command, folder)
            file.write(f"$ {shlex.join(command)}\n{done.stdout}{done.stderr}")
            if done.returncode != 0:
                log_tail = "\n".join((done.stdout + done.stderr).splitlines()[-LOG_LINES:])
                raise UserError(
                    f"could not build {peer.name} ({command[0]}: exit {done.returncode}).",
                    f"{log_tail}\nFull log: {log}.",
                )
    library = folder / peer.library
    if not system_libraries.is_loadable_library(library):
        raise UserError(
            f"the build of {peer.name} did not produce {peer.library}.", f"Full log: {log}."
        )
    log.unlink()
    return library


def _prove(allocator: Allocator) -> None:
    """Runs a program under the library, and checks which library provided its malloc."""
    command = (sys.executable, "-I", "-S", "-c", "print(list(range(100000))[-1])")
    shown = doctor.prove(command, allocator, PROOF_SECONDS, None)
    if shown.measurement.failed or not shown.calls or shown.other_providers:
        how = shown.measurement.failure_text()
        others = ", ".join(map(str, shown.other_providers))
        raise UserError(
            f"{allocator.name} was built, but cannot be preloaded: {others or how}.",
            "Try another version of the crate: --version",
        )


def _check_tools(*tools: str) -> None:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
            "\n".join(REMEDIES[tool] for tool in missing),
        )


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "no output"


def _plain(version: str) -> str:
    """The version without the parts that do not count in comparisons."""
    return version.partition("+")[0]
