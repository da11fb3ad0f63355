"""`tsmalloc experiment` at the command line: a small program, real allocators, real signals."""

import csv
import io
import json
import shutil
from functools import partial
from pathlib import Path

import prompt
import pytest
from experiment_fixtures import write_experiments
from refusals import mentions

from tsmlab import experiments, records
from tsmlab.allocators import discover
from tsmlab.journal import Header, Journal
from tsmlab.study import from_json


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_experiments(tmp_path_factory.mktemp("experiments"), "plain", "fail")


@pytest.fixture
def experiment(tsmalloc):
    return partial(tsmalloc, "experiment")


def runs(found):
    return [run for run in found.parts[0].samples if run.phase == "measured"]


def test_without_strace_its_package_is_named(experiment, folder, tmp_path):
    (tmp_path / "empty").mkdir()
    where = {"PATH": str(tmp_path / "empty")}
    run = ("run", "--file", folder / "plain.toml", "-a", "glibc", "-r", "3")
    assert "sudo apt install strace" in experiment(*run, **where).stderr
    causes = prompt.kept(tmp_path).parts[0].causes
    assert causes
    for each in causes:
        (note,) = each.notes
        assert "sudo apt install strace" in note
        assert "allocations" in each.counts
    assert "install strace" not in experiment(*run, "--no-causes", **where).stderr


def test_an_experiment_from_its_file_to_its_answer(experiment, folder, tmp_path):
    files = {name: tmp_path / f"all.{name}" for name in ("csv", "markdown", "json")}
    exports = [word for name, file in files.items() for word in (f"--export-{name}", file)]
    words = ("--file", folder / "plain.toml", "--seed", "5", "--no-causes", *exports)
    done = experiment("run", *words)
    found = prompt.kept(tmp_path)
    assert experiments.read(files["json"]) == found
    assert (found.parts[0].settings.seed, len(runs(found))) == (5, 2 * 3 * 3)
    for run in runs(found):
        assert run.values["time_seconds"] > 0.0
        assert run.values["under"] == 7.0
        assert run.values["seconds"] == (0.25, 0.5)[run.point]
    mentions(done.stdout, "plain: What plain costs", "seconds by digits", "250 ms =")
    mentions(done.stderr, "18 runs", "results    ")
    assert not list((tmp_path / "state").rglob("*.jsonl")), "nothing is left to be resumed"
    rows = list(csv.DictReader(io.StringIO(files["csv"].read_text())))
    assert len(rows) == 2 + 18
    assert {row["digits"] for row in rows} == {"25", "5"}
    assert "**plain: What plain costs**" in files["markdown"].read_text()
    assert experiment("show", files["json"]).stdout == done.stdout


def test_a_failure_is_a_row_and_an_exit_status(experiment, folder, tmp_path):
    arguments = ("run", "--file", folder / "fail.toml", "--no-causes")
    done = experiment(*arguments, status=2)
    mentions(done.stdout, "FAILED tsmalloc at digits=5: exit 3 (2 of 2 runs", "| FAILED: not today")
    found = prompt.kept(tmp_path)
    assert len(runs(found)) == 2 * (2 * 2 + 2)  # after two rounds there is nothing left to compare
    experiment(*arguments, "--ignore-failure", "-q")


def test_resume_refuses_what_has_changed_and_what_is_chosen_anew(experiment, tsmalloc, tmp_path):
    mine = write_experiments(tmp_path, "plain") / "plain.toml"
    words = ["--file", str(mine), "--no-causes", "-q"]
    files = [mine, tmp_path / "program"]
    glibc = [each for each in discover() if each.name in ("tsmalloc", "glibc")]
    folder = tmp_path / "state" / "tsmalloc" / "results"
    with Journal.begin(Header.of("experiment", words, 5, glibc, files), [folder]) as begun:
        journal = begun.path
    for option in (["plain"], ["-r", "9"], ["-a", "glibc"], ["--seed", "1"], ["--no-causes"]):
        refused = experiment("run", "--resume", journal, *option, status=1)
        assert "cannot be given" in refused.stderr
    refused = experiment("run", "--resume", journal, cwd=tmp_path, status=1)
    assert str(Path.cwd()) in refused.stderr
    refused = tsmalloc("bench", "--resume", journal, status=1)
    assert "`tsmalloc experiment`" in refused.stderr
    copied = tmp_path / "copy.jsonl"
    header = json.loads(journal.read_text()) | {"folder": "/gone"}
    copied.write_text(json.dumps(records.with_checksum(header)) + "\n")
    refused = experiment("run", "--resume", copied, status=1)
    assert "/gone" in refused.stderr
    shutil.copy(journal, copied)
    again = from_json(experiment("run", "--resume", copied, "--json").stdout)
    assert (again.stop.reason, len(runs(again))) == ("runs", 2 * 3 * 3)
    assert not copied.exists()
    mine.write_text(mine.read_text() + "\n# longer\n")
    refused = experiment("run", "--resume", status=1)
    assert refused.stdout == ""
    mentions(refused.stderr, str(mine), "without --resume")


def test_a_dry_run_says_what_would_be_done_and_does_nothing(experiment, folder, tmp_path):
    arguments = ("run", "--file", folder / "plain.toml", "--dry-run", "--seed", "3")
    done = experiment(*arguments, "-a", "glibc", "-r", "9")
    told = ("program plain '{digits}' 7", "9, of 4 runs each", "\n1 experiment, 36 runs, about ")
    mentions(done.stdout, *told)
    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line.strip()}
    assert (lines["sweep"], lines["allocators"]) == (["digits", "25", "5"], ["glibc"])
    assert not (tmp_path / "state").exists()


def test_the_list_has_the_shipped_ones_and_ones_own(experiment, folder):
    done = experiment("list", "--file", folder / "plain.toml")
    mentions(done.stdout, "What plain costs (2 points, 3 rounds)", "under all allocators?", "x3-")
