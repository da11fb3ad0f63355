"""`tsmalloc gate` and `compare --deterministic` at the command line: small program, real tools."""

import json
import shutil
from functools import partial
from xml.etree import ElementTree

import pytest

from tsmlab.counting import Counters

COUNTERS = Counters.installed()
needs_valgrind = pytest.mark.skipif(not COUNTERS.valgrind, reason="valgrind is not installed")


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
    if COUNTERS.valgrind:
        done = tsmalloc("gate", "--deterministic", "--baseline", base, "--", work, status=1)
        assert "no data for instructions" in done.stderr
    base.write_text(base.read_text().replace('"candidate"', '"other"'))
    assert f"{base} is damaged" in tsmalloc(*words, work, "4000", status=1).stderr


def test_what_cannot_be_judged_is_refused_beforehand(tsmalloc, build):
    static = build("static.c", "int main(void) { return 0; }\n", "-static")
    for words in (("-a", "tsmalloc"), ("--against-allocator", "tsmalloc")):
        done = tsmalloc("gate", "-r", "3", *words, "--", static, status=1)
        assert f"{static.name} " in done.stderr


def test_why_there_is_no_verdict(tsmalloc, work):
    words = ("gate", "--max-peak", "none", "--max-time", "none", "--against", str(work))
    done = tsmalloc(*words, "-r", "2", "--", work)
    assert "--max-peak, --max-time" in done.stdout
    done = tsmalloc("gate", "--against", str(work), "-r", "1", "--", work)
    assert "no interval" in done.stdout


@needs_valgrind
@pytest.mark.parametrize(("blocks", "verdict", "least"), [(10400, "regression", 1.01),
                                                          (10000, "pass", 0.998)])  # fmt: skip
def test_two_per_cent_more_instructions_are_found(tsmalloc, work, blocks, verdict, least):
    words = ("--max-instructions", "1%", "--json", "--against", f"{work} 10000", "--", work, blocks)
    done = tsmalloc("gate", "--deterministic", *words, status=3 if verdict == "regression" else 0)
    found = rows(done.stdout)["instructions"]
    assert found["verdict"] == verdict
    assert least < found["ratio"]["ratio"] < least + (0.04 if verdict == "regression" else 0.004)


@needs_valgrind
def test_a_comparison_by_counts_ranks_by_instructions(tsmalloc, work):
    words = ("--deterministic", "-a", "tsmalloc,glibc,lock-best", "--json", "-q", "--")
    (data,) = json.loads(tsmalloc("compare", *words, work, "5000").stdout)["parts"]
    assert data["analysis"]["primary_metric"] == "instructions"
    assert data["analysis"]["rounds"] == 3
    by_name = {row["allocator"]: row["metrics"] for row in data["analysis"]["rows"]}
    for metrics in by_name.values():
        assert metrics["instructions"]["median"] > 1e5
        assert metrics["time_seconds"]["verdict"] is None
    assert by_name["lock-best"]["instructions"]["verdict"] == "worse"
    if COUNTERS.strace:
        assert by_name["glibc"]["system_calls"]["median"] > 10
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
    for baseline, blocks, stream, told in (
        (("--against", f"{work} 5"), "-1", "stdout", "FAILED candidate: exit 3"),
        ((), "-1", "stderr", "the program fails: exit 3"),
        (("--against", f"{work} -1"), "5", "stderr", "the baseline's program fails: exit 3"),
    ):
        done = tsmalloc("gate", "-r", "3", *baseline, "--", work, blocks, status=2)
        assert told in getattr(done, stream)
    strict = ("gate", "--strict", "--max-time", "+0%", "--max-peak", "none", "-r", "2")
    done = tsmalloc(*strict, "--against", f"{work} 5", "--", work, "5", status=None)
    assert done.returncode == (3 if "UNRESOLVED" in done.stdout else 0)
