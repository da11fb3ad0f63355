"""The hashes of files: whether a program or library is still the one that was measured.

Why: who builds while something is measured mixes the numbers of two versions without noticing.
Refuses to: fail. A file that is not there at the moment has no hash, which is a change, too.
"""

from collections.abc import Iterable
from pathlib import Path

from tsmlab.allocators import file_sha256

Digests = dict[str, str | None]


def digests(files: Iterable[Path]) -> Digests:
    """The SHA-256 of each file by its name, sorted; None where it cannot be read."""
    return {str(path): _digest(path) for path in sorted(set(files))}


def changed(before: Digests) -> list[str]:
    """The files that are not what they were."""
    now = digests(map(Path, before))
    return [name for name, digest in before.items() if now[name] != digest]


def _digest(path: Path) -> str | None:
    try:
        return file_sha256(path)
    except OSError:
        return None
