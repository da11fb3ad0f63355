"""`tsmalloc tune` at the prompt: a library with an option that helps and some that do nothing."""

import json
from functools import partial

import prompt
import pytest

from tsmlab.counting import Counters

COUNTERS = Counters.installed()


@pytest.fixture
def tune(tsmalloc):
    return partial(tsmalloc, "tune")


WASTE = ("--only", "--option", "WASTE=0,2", "--option", "NOTHING=1,2,3", "--no-doctor")


def test_the_option_that_helps_is_found_and_its_line_works(tune, waste, tmp_path):
    files = {name: tmp_path / f"tune.{name}" for name in ("json", "csv", "markdown")}
    exports = [word for name, file in files.items() for word in (f"--export-{name}", file)]
    words = ("--allocator", f"waste={waste}", "--for", "memory", *WASTE, *exports)
    # Options may be on both sides of the allocator's name.
    done = tune(*words[:4], "waste", *words[4:], "--", "/bin/echo", "found")
    line = done.stdout.splitlines()[-1]
    assert line == f"use it     WASTE=0 LD_PRELOAD={waste} /bin/echo found"
    pasted = prompt.ran("/bin/sh", "-c", line.removeprefix("use it"), status=0)
    assert pasted.stdout == "found\n"
    results = json.loads(files["json"].read_text())["tune"]
    assert results["settings"] == ["WASTE=0"]
    assert results["rows"][0]["verdict"] == "better"
    assert "**use it** `WASTE=0" in files["markdown"].read_text()
    assert files["csv"].read_text().count("\n") > 20
    assert len(list((tmp_path / "state").rglob("*-tune-echo-*.json"))) == 1
    assert not list((tmp_path / "state").rglob("*.jsonl"))


@pytest.mark.long
@pytest.mark.skipif(not COUNTERS.valgrind, reason="valgrind is not installed")
def test_instructions_decide_where_times_tell_nothing(tune, waste):
    words = ("--allocator", f"waste={waste}", "--deterministic", "--json", "--no-doctor", "--only")
    words = (*words, "--option", "WASTE=0", "--option", "NOTHING=1")
    done = tune("waste", *words, "--", "/bin/true")
    found = json.loads(done.stdout)["tune"]
    assert (found["settings"], found["goal"]["key"]) == (["WASTE=0"], "instructions")
    nothing = [raced for raced in found["steps"][0]["raced"] if "NOTHING" in raced["change"]]
    assert {(raced["rounds"], raced["fate"]) for raced in nothing} == {(3, "no better")}


def test_a_value_that_breaks_the_program_is_a_failure(tune, waste):
    words = ("waste", "--allocator", f"waste={waste}", "--no-doctor", "--only", "--option")
    done = tune(*words, "WASTE=9", "--", "/bin/true", status=2)
    assert "FAILED WASTE=9: SIGABRT" in done.stdout
    tune(*words, "WASTE=9", "-i", "--", "/bin/true")
