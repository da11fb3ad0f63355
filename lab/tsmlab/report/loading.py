"""Results from a file, whichever verb wrote it.

Why: a report is made from a file, and its schema says what it holds.
Refuses to: guess. A file without a schema, or with an unknown one, is named as such.
"""

import json
from collections.abc import Callable
from pathlib import Path

from tsmlab import results, suite_results
from tsmlab.errors import UserError
from tsmlab.experiments import model
from tsmlab.report import Results
from tsmlab.traces import analysis, replay_results

_REMEDY = (
    "Give a file that `tsmalloc compare`, `bench`, `experiment` or `replay` saved (its path was "
    "printed at the end) or wrote with --export-json."
)


def read(path: Path) -> Results:
    """The results in a file; raises UserError for one that holds none."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UserError(f"there is no file {path}.", _REMEDY) from error
    except IsADirectoryError as error:
        raise UserError(f"{path} is a folder.", _REMEDY) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text.", _REMEDY) from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.", _REMEDY) from error
    readers: dict[str, Callable[[str, str], Results]] = {
        results.SCHEMA: results.from_json,
        suite_results.SCHEMA: suite_results.from_json,
        model.SCHEMA: model.from_json,
        replay_results.SCHEMA: replay_results.from_json,
        analysis.SCHEMA: lambda text, _source: analysis.decode(text),
    }
    schema = _schema(text, path)
    if schema not in readers:
        what = f"its schema is {schema!r}" if schema else "it has no schema"
        raise UserError(f"{path} holds no results that can be shown: {what}.", _REMEDY)
    return readers[schema](text, str(path))


def _schema(text: str, path: Path) -> str:
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}.", _REMEDY) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    return schema if isinstance(schema, str) else ""
