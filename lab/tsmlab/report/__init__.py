"""Reports: a page that stands alone for each of the results, its figures as files, and exports.

Why: results convince when they can be looked at, and are passed on when they are one file.
Refuses to: load what draws before a report is written, since that takes a second: `check` is for
verbs that measure first.
"""

from collections.abc import Sequence
from pathlib import Path

from tsmlab.experiments.model import ExperimentResults
from tsmlab.report.folder import check
from tsmlab.results import Comparison
from tsmlab.suite_results import SuiteResults
from tsmlab.traces.analysis import TraceAnalysis
from tsmlab.traces.replay_results import ReplayResults

__all__ = ["Results", "check", "write"]

Results = Comparison | SuiteResults | ExperimentResults | ReplayResults | TraceAnalysis


def write(results: Results | Sequence[Results], directory: Path, force: bool = False) -> Path:
    """Writes the report of one result, or of each of several with a page that leads to them, into
    a folder; returns the path of the page to open.

    Raises UserError if the folder holds something else, unless `force` is given."""
    from tsmlab.report import writing  # noqa: PLC0415 (loads matplotlib and jinja2)

    check(directory, force)
    several = [results] if isinstance(results, Results) else list(results)
    return writing.write(several, directory, force)
