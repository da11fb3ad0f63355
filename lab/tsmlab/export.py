"""Exports: all results as JSON, every run as CSV, the table as Markdown."""

import csv
import io
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tsmlab.errors import UserError
from tsmlab.records import write_atomically
from tsmlab.results import Comparison, Sample

Format = Literal["json", "csv", "markdown", "junit", "sarif"]

# The columns of the CSV form before and after the metrics.
CSV_SAMPLE = (
    *("phase", "round", "position", "allocator", "replicate", "started_seconds", "padding_bytes"),
)
CSV_CHECK = ("failure", "failure_text", "output_sha256")


@dataclass(frozen=True)
class Target:
    format: Format
    path: Path

    @property
    def option(self) -> str:
        return f"--export-{self.format}"


def check_targets(targets: Sequence[Target], force: bool) -> None:
    """Raises UserError for the first target that cannot be written, or must not be overwritten."""
    seen: dict[Path, Target] = {}
    for target in targets:
        path = target.path
        real = path.resolve()
        if real in seen and real.is_file() | (not real.exists()):
            raise UserError(
                f"{seen[real].option} and {target.option} point to the same file, {path}.",
                "Give each its own file.",
            )
        seen[real] = target
        check_new(path, force, f"{target.option}: ")


def write_all(text_in: Callable[[Format], str], targets: Sequence[Target]) -> list[str]:
    """Writes every target that it can, with the text in its format; returns a message for each
    failure."""
    problems = []
    for target in targets:
        try:
            write_atomically(target.path, text_in(target.format))
        except OSError as error:
            problems.append(f"{target.option} {target.path}: {error.strerror}")
    return problems


def csv_lines(headers: Sequence[str], lines: Iterable[Iterable[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headers)
    writer.writerows(lines)
    return text.getvalue()


def csv_of_comparisons(
    before: Sequence[str], parts: Sequence[tuple[Sequence[object], Comparison]]
) -> str:
    """A line for each run of several comparisons, including failed and warm-up ones, with all of
    their metrics in base units. Each comparison comes with its values for `before`; parameters of a
    sweep have a column each."""
    keys = dict.fromkeys(spec.key for _, comparison in parts for spec in comparison.metrics)
    names = dict.fromkeys(p.name for _, comparison in parts for p in comparison.parameters)
    lines = (
        [
            *values,
            *(_point(comparison, sample).get(name, "") for name in names),
            *_csv_line(sample, keys),
        ]
        for values, comparison in parts
        for sample in comparison.samples
    )
    return csv_lines([*before, *names, *CSV_SAMPLE, *keys, *CSV_CHECK], lines)


def _point(comparison: Comparison, sample: Sample) -> Mapping[str, Any]:
    return comparison.points[sample.point].values if comparison.points else {}


def _csv_line(sample: Sample, keys: Iterable[str]) -> list[object]:
    return [
        *(getattr(sample, name) for name in CSV_SAMPLE),
        *(sample.values.get(key, "") for key in keys),
        sample.failure.kind if sample.failure else "",
        sample.failure.text if sample.failure else "",
        sample.output_sha256 or "",
    ]


def check_new(path: Path, force: bool, prefix: str = "") -> None:
    """Raises UserError, with a message that begins with `prefix`, for a file that cannot be
    written, or must not be overwritten."""
    folder = path.absolute().parent
    if path.is_dir():
        raise UserError(f"{prefix}{path} is a directory.", "Give a file in it.")
    if path.is_file() and not force:
        raise UserError(
            f"{prefix}{path} already exists.", "Overwrite it with --force, or name another file."
        )
    if not folder.is_dir():
        raise UserError(
            f"{prefix}no such directory: {folder}.", f"Create it first: mkdir -p {folder}"
        )
    # A regular file is replaced, which needs a writable folder; a device or pipe is written to.
    special = path.exists() and not path.is_file()
    if not os.access(path if special else folder, os.W_OK):
        raise UserError(
            f"{prefix}cannot write {path}.", "Choose a directory that you can write to."
        )
