"""The files in which the results of experiments are kept.

Why: a sentence in a document must be traceable to the runs that it comes from.
Refuses to: know what is in them (model.py) or how they are shown (text.py).
"""

from collections.abc import Iterable
from pathlib import Path

from tsmlab import records
from tsmlab.errors import UserError
from tsmlab.experiments.model import SCHEMA, ExperimentResults


def from_json(text: str, source: str = "the results") -> ExperimentResults:
    """The inverse of records.to_json; raises UserError for what it did not write."""
    remedy = records.saved_by("experiment run")
    return records.from_json(ExperimentResults, SCHEMA, text, source, remedy)


def read(path: Path) -> ExperimentResults:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UserError(
            f"the results {path} cannot be read: {error.strerror}.",
            "`tsmalloc experiment run` prints the path of its results.",
        ) from error
    return from_json(text, str(path))


def save(results: ExperimentResults, folders: Iterable[Path] | None = None) -> Path:
    """Keeps the results in the first folder that takes them; returns the file's path."""
    return records.keep(records.to_json(results), results.created, "experiment", folders)
