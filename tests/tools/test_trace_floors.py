"""`trace floors` and `tsmalloc floors` on real plans: what is written can be replayed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tsmlab import cli, paths

Sample = Callable[[str], Path]


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    """sample(kind) is a trace of that kind; see trace/sample_trace.cpp."""
    folder = tmp_path_factory.mktemp("traces")

    def write(kind: str) -> Path:
        file = folder / f"{kind}.tstrace"
        if not file.exists():
            subprocess.run([paths.tool("sample_trace"), kind, file], check=True, timeout=60)
        return file

    return write


def run(tool: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [str(paths.tool(tool)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def plan(sample: Sample, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The plan of a plausible trace, and what is said of it."""
    file = tmp_path_factory.mktemp("plans") / "plausible.plan"
    done = run("trace", "floors", "-o", file, sample("plausible"))
    assert (done.returncode, done.stderr) == (0, "")
    return file, json.loads(done.stdout)


def test_the_plan_is_near_the_bound(plan: tuple[Path, dict[str, Any]]) -> None:
    _, told = plan
    assert told["schema"] == "tsmalloc-floors/1"
    assert told["peak_live_bytes"] <= told["bound_bytes"] <= told["span_bytes"]
    assert told["touched_bytes"] <= told["span_bytes"] + 4096
    assert told["touched_bytes"] < 1.05 * told["bound_bytes"] + 4096
    assert told["robson_bytes"] > told["bound_bytes"]
    taken = next(s for s in told["strategies"] if s["strategy"] == told["strategy"])
    assert taken["touched_bytes"] == told["touched_bytes"]
    fewest = min(each["touched_bytes"] for each in told["strategies"])
    assert told["touched_bytes"] <= 1.01 * fewest


def test_replay_makes_the_same_calls_on_planned_addresses(
    plan: tuple[Path, dict[str, Any]],
) -> None:
    file, told = plan
    options = ["--schedule", "recorded", "--one-thread", "--touch", "all", "--verify"]
    done = run("replay", *options, "--samples", "100", "--addresses", file)
    assert done.returncode == 0, done.stderr
    line = json.loads(done.stdout)
    assert line["addresses"] is True
    assert line["matches"] is True
    assert line["corrupt"] == line["misaligned"] == 0
    assert line["peak_live_bytes"] == told["peak_live_bytes"]
    # What is resident is what the plan touches, besides some pages of the process's own.
    grown = line["peak_resident_bytes"] - line["start_resident_bytes"]
    assert grown <= told["touched_bytes"] + 64 * 1024


def test_two_plans_of_a_trace_are_equal(
    plan: tuple[Path, dict[str, Any]], sample: Sample, tmp_path: Path
) -> None:
    file, told = plan
    again = tmp_path / "again.plan"
    done = run("trace", "floors", "-o", again, sample("plausible"))
    assert json.loads(done.stdout) == told
    assert again.read_bytes() == file.read_bytes()


def test_a_plan_is_not_overwritten_unasked(
    plan: tuple[Path, dict[str, Any]], sample: Sample
) -> None:
    file, _ = plan
    before = file.read_bytes()
    assert run("trace", "floors", "-o", file, sample("known")).returncode == 1
    assert file.read_bytes() == before


def test_wrong_use_is_named(sample: Sample, tmp_path: Path) -> None:
    for arguments, words in (
        ([sample("known")], "-o PLAN"),
        (["-o", tmp_path / "p", "--image", "9", sample("known")], "no image 9"),
        (["-o", tmp_path / "p", tmp_path / "absent"], "absent"),
    ):
        done = run("trace", "floors", *arguments)
        assert done.returncode != 0
        assert words in done.stderr
        assert done.stdout == ""
    assert "--image N" in run("trace", "floors", "--help").stdout


def test_a_damaged_trace_is_planned_and_said_to_be_damaged(sample: Sample, tmp_path: Path) -> None:
    whole = sample("plausible").read_bytes()
    damaged = tmp_path / "damaged.tstrace"
    damaged.write_bytes(whole[: len(whole) // 2] + b"\xff" * 64 + whole[len(whole) // 2 + 64 :])
    plan = tmp_path / "damaged.plan"
    done = run("trace", "floors", "-o", plan, damaged)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["whole"] is False
    assert told["left_out"] > 0
    options = ["--schedule", "recorded", "--one-thread", "--verify", "--addresses"]
    assert run("replay", *options, plan).returncode == 0


def test_a_table_of_excesses(
    sample: Sample,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    arguments = ["floors", str(sample("plausible")), "-a", "tsmalloc,glibc", "-r", "3", "--quiet"]
    assert cli.main([*arguments, "--json"]) == 0
    (trace,) = json.loads(capsys.readouterr().out)["traces"]
    rows = {row["allocator"]: row for row in trace["rows"]}
    assert set(rows) == {"floor", "tsmalloc", "glibc"}
    for name in ("tsmalloc", "glibc"):
        assert rows[name]["memory"]["excess"] > 0.0
        assert rows[name]["time"] is not None
    assert rows["floor"]["memory"]["excess"] < rows["glibc"]["memory"]["excess"]
