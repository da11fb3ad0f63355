"""The allocators that `tsmalloc fetch` has built, and where they are."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tsmlab import paths, records, system_libraries
from tsmlab.errors import UserError

SCHEMA = "tsmalloc-fetched/1"
MANIFEST = "fetched.json"


@dataclass(frozen=True)
class Manifest:
    """A file next to each library that says what it was built from. library: the file's name.
    environment: variables that a program needs besides the library."""

    schema: str
    created: str
    name: str
    version: str
    summary: str
    crate: str
    crate_version: str
    crate_sha256: str
    library: str
    library_sha256: str
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.version}"


def cache_dir() -> Path:
    return paths.cache_dir() / "allocators"


def present() -> Iterator[tuple[Manifest, Path]]:
    """Each manifest with its library, in the order of names and versions. Skips damaged folders,
    which fetching again repairs."""
    for path in sorted(cache_dir().glob(f"*/{MANIFEST}"), key=system_libraries.natural_order):
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
            manifest = records.from_json(Manifest, SCHEMA, text, str(path), "")
        except (OSError, UserError):
            continue
        library = path.parent / manifest.library
        if path.parent.name == manifest.folder and system_libraries.is_loadable_library(library):
            yield manifest, library
