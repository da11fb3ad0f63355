"""Exports: checked before anything is measured, complete, and careful with other people's files.

test_compare_cli.py tests writing them, and full disks.
"""

import csv
import io
from pathlib import Path

from conftest import Behaviour, World, typical
from refusals import refused

from tsmlab.export import Target, check_targets
from tsmlab.study import Study
from tsmlab.texts import to_csv


def lines_of(comparison):
    return list(csv.DictReader(io.StringIO(to_csv(Study.of("compare", [comparison])))))


def test_the_csv_has_a_line_for_every_run():
    comparison = typical()
    lines = lines_of(comparison)
    assert len(lines) == len(comparison.samples)
    for line, sample in zip(lines, comparison.samples, strict=True):
        assert line["allocator"] == sample.allocator
        assert float(line["time_seconds"]) == sample.values["time_seconds"]
        assert line["failure"] == (sample.failure.kind if sample.failure else "")
    assert {line["phase"] for line in lines} == {"probe", "warmup", "measured"}
    absent = {"errno": 12, "message": 'Cannot allocate, "memory"\n'}
    behaviours = {"glibc": Behaviour(), "a": Behaviour(spawn_error=absent)}
    lines = lines_of(World.comparison(behaviours))
    failed = [line for line in lines if line["failure"] == "start"]
    assert failed
    assert failed[0]["time_seconds"] == ""
    assert "memory" in failed[0]["failure_text"]


def test_force_allows_overwriting_but_nothing_else(tmp_path):
    (tmp_path / "there").write_text("old")
    check_targets([Target("csv", tmp_path / "there")], force=True)
    with refused("--export-csv"):
        check_targets([Target("csv", tmp_path)], force=True)
    targets = [Target("csv", tmp_path / "x"), Target("json", tmp_path / "x")]
    with refused("same file"):
        check_targets(targets, force=True)
    devices = [Target("csv", Path("/dev/null")), Target("json", Path("/dev/null"))]
    check_targets(devices, force=False)
