"""The corpus in traces/: whole, small, and what its README says of each trace."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from tsmlab import paths
from tsmlab.traces.analysis import analyse

FOLDER = paths.repository_root() / "traces"
TRACES = sorted(FOLDER.glob("*.tstrace"))
MOST_BYTES = 420_000


def run(tool: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(paths.tool(tool)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def described() -> dict[str, int]:
    """The traces of the README's table, and their events."""
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([\d,]+) \|[^|]*\|$", text, re.MULTILINE)
    return {name: int(events.replace(",", "")) for name, events in rows}


def test_the_readme_lists_each() -> None:
    assert sorted(described()) == [trace.stem for trace in TRACES]
    assert len(TRACES) >= 8


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.stem)
class TestTrace:
    def test_it_is_whole_and_small(self, trace: Path) -> None:
        checked = run("trace", "check", trace)
        assert checked.returncode == 0, checked.stdout
        assert trace.stat().st_size <= MOST_BYTES
        told = json.loads(run("trace", "info", "--json", trace).stdout)
        assert told["events"] == described()[trace.stem]

    def test_its_analysis_adds_up(self, trace: Path) -> None:
        found = analyse(trace)
        assert found.is_whole
        assert found.raw["unknown_frees"] == found.raw["unknown_resizes"] == 0
        allocated, freed = found.amount("allocations"), found.amount("frees")
        assert allocated.objects == freed.objects + found.left_own.objects
        assert max(point.highest_bytes for point in found.curve) == found.peak.bytes
        assert sum(bucket.at_peak_bytes for bucket in found.buckets) == found.peak.bytes

    @pytest.mark.long
    def test_a_plan_is_within_two_per_cent_of_the_bound(self, trace: Path, tmp_path: Path) -> None:
        plan = tmp_path / "floors.plan"
        planned = run("trace", "floors", "-o", plan, trace)
        assert planned.returncode == 0, planned.stderr
        told = json.loads(planned.stdout)
        assert told["bound_bytes"] <= told["touched_bytes"] + 4096
        assert told["touched_bytes"] <= 1.02 * told["bound_bytes"] + 4096
        options = ["--schedule", "recorded", "--one-thread", "--touch", "all", "--verify"]
        replayed = run("replay", *options, "--addresses", plan)
        assert replayed.returncode == 0, replayed.stderr
        assert json.loads(replayed.stdout)["matches"]
