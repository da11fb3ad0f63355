"""`tsmalloc gate` and `compare --deterministic` at the command line: small program, real tools."""

import json
import shutil
from functools import partial
from xml.etree import ElementTree

import pytest

from tsmlab.counting import Counters

COUNTERS = Counters.installed()


def rows(text):
    return {row["metric"]: row for row in json.loads(text)["gate"]["rows"]}


def test_a_larger_program_is_a_regression_in_every_form(tsmalloc, work, tmp_path):
    files = {name: tmp_path / f"gate.{name}" for name in ("json", "markdown", "junit", "sarif")}
    exports = [word for name, file in files.items() for word in (f"--export-{name}", file)]
    words = ("--max-time", "none", "-r", "5", "--against", f"{work} 2000", *exports)
    done = tsmalloc("gate", *words, "--", work, "4000", status=3)
    assert "REGRESSION peak memory: " in done.stdout
    found = rows(files["json"].read_text())
    assert found["peak_memory_bytes"]["verdict"] == "regression"
    assert found["time_seconds"]["verdict"] == "measured"
    assert "❌" in files["markdown"].read_text()
    assert ElementTree.parse(files["junit"]).getroot().get("failures") == "1"
    assert json.loads(files["sarif"].read_text())["runs"][0]["results"][0]["level"] == "error"
    kept = list((tmp_path / "state").rglob(f"*-gate-{work.name}-*.json"))
    assert len(kept) == 1
    assert not list((tmp_path / "state").rglob("*.jsonl"))


def test_a_baseline_is_made_and_judged_by(tsmalloc, work, tmp_path):
    base = tmp_path / "base.json"
    done = tsmalloc("gate", "-r", "6", "--export-json", base, "--", work, "2000")
    assert "no baseline" in done.stdout
    assert {row["verdict"] for row in rows(base.read_text()).values()} == {"measured"}
    words = ("gate", "--baseline", base, "--max-time", "none", "--max-peak", "10%", "-r", "6", "--")
    assert "PASS: " in tsmalloc(*words, work, "2000").stdout
    tsmalloc(*words, work, "4000", status=3)
    base.write_text(base.read_text().replace('"candidate"', '"other"'))
    assert f"{base} is damaged" in tsmalloc(*words, work, "4000", status=1).stderr


def test_what_cannot_be_judged_is_refused_beforehand(tsmalloc, build, work, tmp_path):
    static = build("static.c", "int main(void) { return 0; }\n", "-static")
    for words in (("-a", "tsmalloc"), ("--against-allocator", "tsmalloc")):
        done = tsmalloc("gate", "-r", "3", *words, "--", static, status=1)
        assert f"{static.name} " in done.stderr
    base = tmp_path / "base.json"
    tsmalloc("gate", "-r", "3", "--export-json", base, "--", work)
    if COUNTERS.valgrind:
        done = tsmalloc("gate", "--deterministic", "--baseline", base, "--", work, status=1)
        assert "no data for instructions" in done.stderr


def test_why_there_is_no_verdict(tsmalloc, work):
    words = ("gate", "--max-peak", "none", "--max-time", "none", "--against", str(work))
    done = tsmalloc(*words, "-r", "2", "--", work)
    assert "--max-peak, --max-time" in done.stdout
    done = tsmalloc("gate", "--against", str(work), "-r", "1", "--", work)
    assert "no interval" in done.stdout


@pytest.mark.skipif(not COUNTERS.valgrind, reason="valgrind is not installed")
def test_two_per_cent_more_instructions_are_found(tsmalloc, work):
    words = ("gate", "--deterministic", "--max-instructions", "1%", "--json", "--against")
    more = tsmalloc(*words, f"{work} 10000", "--", work, "10400", status=3)
    found = rows(more.stdout)["instructions"]
    assert found["verdict"] == "regression"
    assert 1.01 < found["ratio"]["ratio"] < 1.05
    same = tsmalloc(*words, f"{work} 10000", "--", work, "10000")
    found = rows(same.stdout)["instructions"]
    assert found["verdict"] == "pass"
    assert found["ratio"]["ratio"] == pytest.approx(1.0, abs=0.002)


@pytest.mark.skipif(not COUNTERS.valgrind, reason="valgrind is not installed")
def test_a_comparison_by_counts_ranks_by_instructions(tsmalloc, work):
    done = tsmalloc(
        *("compare", "--deterministic", "-a", "tsmalloc,glibc,lock-best", "--json", "-q"),
        *("--", work, "5000"),
    )
    (data,) = json.loads(done.stdout)["parts"]
    assert data["analysis"]["primary_metric"] == "instructions"
    assert data["analysis"]["rounds"] == 3
    by_name = {row["allocator"]: row for row in data["analysis"]["rows"]}
    for row in by_name.values():
        assert row["metrics"]["instructions"]["median"] > 1e5
        assert row["metrics"]["time_seconds"]["verdict"] is None
    assert by_name["lock-best"]["metrics"]["instructions"]["verdict"] == "worse"
    if COUNTERS.strace:
        assert by_name["glibc"]["metrics"]["system_calls"]["median"] > 10
    assert "noise-floor" not in {warning["code"] for warning in data["warnings"]}


def test_without_the_tools_memory_is_judged_and_the_rest_is_said(tsmalloc, work, tmp_path):
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in ("sh", "dpkg-query", "ldconfig", "true"):
        if found := shutil.which(tool):
            (bin_folder / tool).symlink_to(found)
    gate = partial(tsmalloc, "gate", "--deterministic", PATH=str(bin_folder))
    done = gate("--against", f"{work} 9", "--", work, "9")
    assert "sudo apt install valgrind strace" in done.stderr
    assert "instructions" not in done.stdout
    done = gate("--max-instructions", "1", "--", work, "9", status=1)
    assert "cannot be counted" in done.stderr


def test_a_program_that_fails_is_no_verdict(tsmalloc, work):
    done = tsmalloc("gate", "-r", "3", "--against", f"{work} 5", "--", work, "-1", status=2)
    assert "FAILED candidate: exit 3" in done.stdout
    done = tsmalloc("gate", "-r", "3", "--", work, "-1", status=2)
    assert "the program fails: exit 3" in done.stderr
    done = tsmalloc("gate", "-r", "3", "--against", f"{work} -1", "--", work, "5", status=2)
    assert "the baseline's program fails: exit 3" in done.stderr
    strict = ("gate", "--strict", "--max-time", "+0%", "--max-peak", "none", "-r", "2")
    done = tsmalloc(*strict, "--against", f"{work} 5", "--", work, "5", status=None)
    assert done.returncode == (3 if "UNRESOLVED" in done.stdout else 0)
