"""Exports: checked before anything is measured, complete, and careful with other people's files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tsmlab.errors import UserError
from tsmlab.export import Target, check_targets, write_all
from tsmlab.render import formatted, to_csv
from tsmlab.results import Comparison, from_json

Typical = Callable[..., Comparison]


def test_all_three_formats_are_written(typical: Typical, tmp_path: Path) -> None:
    comparison = typical()
    targets = [
        Target("json", tmp_path / "r.json"),
        Target("csv", tmp_path / "r.csv"),
        Target("markdown", tmp_path / "r.md"),
    ]
    check_targets(targets, force=False)
    assert write_all(partial(formatted, comparison), targets) == []
    assert from_json((tmp_path / "r.json").read_text()) == comparison
    assert (tmp_path / "r.csv").read_text() == to_csv(comparison)
    assert "| allocator |" in (tmp_path / "r.md").read_text()


def test_the_csv_has_a_line_for_every_run(typical: Typical, world: Any) -> None:
    comparison = typical()
    lines = list(csv.DictReader(io.StringIO(to_csv(comparison))))
    assert len(lines) == len(comparison.samples)
    for line, sample in zip(lines, comparison.samples, strict=True):
        assert line["allocator"] == sample.allocator
        assert float(line["time_seconds"]) == sample.values["time_seconds"]
        assert line["failure"] == (sample.failure.kind if sample.failure else "")
    assert {line["phase"] for line in lines} == {"probe", "warmup", "measured"}
    absent = {"errno": 12, "message": 'Cannot allocate, "memory"\n'}
    behaviours = {"glibc": world.Behaviour(), "a": world.Behaviour(spawn_error=absent)}
    lines = list(csv.DictReader(io.StringIO(to_csv(world.comparison(behaviours)))))
    failed = [line for line in lines if line["failure"] == "start"]
    assert failed
    assert failed[0]["time_seconds"] == ""
    assert "memory" in failed[0]["failure_text"]


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        ("there", "exists already", "--force"),
        ("folder", "is a folder", "file in it"),
        ("no/such/file", "there is no folder", "mkdir -p"),
    ],
)
def test_bad_targets_are_refused(tmp_path: Path, name: str, message: str, remedy: str) -> None:
    (tmp_path / "there").write_text("precious")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError) as caught:
        check_targets([Target("csv", tmp_path / name)], force=False)
    assert message in caught.value.message
    assert "--export-csv" in caught.value.message
    assert remedy in caught.value.remedy


def test_force_allows_overwriting_but_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("old")
    check_targets([Target("csv", tmp_path / "there")], force=True)
    with pytest.raises(UserError):
        check_targets([Target("csv", tmp_path)], force=True)
    targets = [Target("csv", tmp_path / "x"), Target("json", tmp_path / "x")]
    with pytest.raises(UserError, match="name the same file"):
        check_targets(targets, force=True)
    devices = [Target("csv", Path("/dev/null")), Target("json", Path("/dev/null"))]
    check_targets(devices, force=False)


def test_a_full_disk_is_told_and_the_others_are_written(typical: Typical, tmp_path: Path) -> None:
    targets = [Target("json", Path("/dev/full")), Target("csv", tmp_path / "r.csv")]
    check_targets(targets, force=False)
    (problem,) = write_all(partial(formatted, typical()), targets)
    assert problem == "--export-json /dev/full: No space left on device"
    assert (tmp_path / "r.csv").stat().st_size > 0
