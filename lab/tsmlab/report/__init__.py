"""Reports: a page that stands alone for each of the results, its figures as files, and exports.

Why: results convince when they can be looked at, and are passed on when they are one file.
Refuses to: load what draws before a report is written, since that takes a second: `check` is for
verbs that measure first.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tsmlab import results, study
from tsmlab.errors import UserError
from tsmlab.report.folder import check
from tsmlab.results import Comparison
from tsmlab.study import Study
from tsmlab.traces import analysing, analysis
from tsmlab.traces.analysis import TraceAnalysis

__all__ = ["Results", "check", "read", "write"]

Results = Study | Comparison | TraceAnalysis


def write(results: Results | Sequence[Results], directory: Path, force: bool = False) -> Path:
    """Writes the report of one result, or of each of several with a page that leads to them, into
    a folder; returns the path of the page to open.

    Raises UserError if the folder holds something else, unless `force` is given."""
    from tsmlab.report import writing  # noqa: PLC0415 (loads matplotlib and jinja2)

    check(directory, force)
    several = [results] if isinstance(results, Results) else list(results)
    return writing.write(several, directory, force)


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
        results.SCHEMA: study.from_json,
        analysing.SCHEMA: analysis.from_json,
    }
    schema = _schema(text, path)
    if schema not in readers:
        what = f"its schema is {schema!r}" if schema else "it has no schema"
        raise UserError(f"{path} holds no results that can be shown: {what}.", _REMEDY)
    return readers[schema](text, str(path))


def _schema(text: str, path: Path) -> str:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}.", _REMEDY) from error
    schema = data.get("schema") if isinstance(data, dict) else None
    return schema if isinstance(schema, str) else ""
