"""The search for options: on simulated programs with known truth, and at the prompt with a library
of which one option helps, and some do nothing.
"""

import itertools
import json
import random
from pathlib import Path

import prompt
import pytest
from conftest import MIB, Behaviour, SimulatedExecutor, World
from experiment_fixtures import timeless
from refusals import mentions, refused

from tsmlab import records, texts, tune_text
from tsmlab.allocators import Allocator
from tsmlab.counting import Counters
from tsmlab.journal import Header, Journal, NullJournal
from tsmlab.metrics import parse_custom
from tsmlab.progress import SilentReporter
from tsmlab.stats import Verdict
from tsmlab.study import from_json
from tsmlab.trial import PADDING_VARIABLE, Program
from tsmlab.tune import Options, tune
from tsmlab.tune_options import Option


def tuned(effects, noise=0.003, seed=1, broken=(), steady=False, interrupt_at_run=None):
    """A program whose time and memory depend on its variables. effects: factors for both, by
    variable and value. steady: the noise of a run depends only on its settings and round, so that
    it is the same when run again."""
    runs = itertools.count(1)

    def pick(request):
        env = {**request.allocator.env, **request.env}
        padding = len(env.pop(PADDING_VARIABLE))
        key = f"{sorted(env.items())}/{padding}" if steady else next(runs)
        generator = random.Random(f"{seed}/{key}")
        seconds, memory = (generator.lognormvariate(0.0, noise) for _ in range(2))
        for setting in env.items():
            factors = effects.get(setting, (1.0, 1.0))
            seconds, memory = seconds * factors[0], memory * factors[1]
        return Behaviour(
            seconds=0.1 * seconds,
            peak_bytes=int(100 * MIB * memory),
            signal=11 if any(f"{n}={v}" in broken for n, v in env.items()) else None,
            stdout=f"rate {1.0 / seconds:.6f}\n",
        )

    return SimulatedExecutor(pick, interrupt_at_run=interrupt_at_run)


def variable(name, values=3):
    return Option(name, tuple(map(str, range(values))), name)


FAST, SMALL, NOTHING = variable("FAST"), variable("SMALL"), variable("NOTHING", 8)
EFFECTS = {
    ("FAST", "1"): (0.9, 1.0),
    ("FAST", "2"): (1.2, 1.0),
    ("SMALL", "1"): (1.0, 0.8),
    ("SMALL", "2"): (1.3, 0.5),
}


def options(*tried, **changes):
    given = {
        "program": Program(("./program", "-x"), Path("/dev/null")),
        "allocator": Allocator("mine", None, "user", "1.0"),
        "options": tried,
        "unknown": (),
        "objective": "time",
        "seed": 7,
        "consult_doctor": False,
        "check_output": False,
    }
    return Options(**(given | changes))


def search(*tried, executor=None, memo=None, **changes):
    executor = executor or tuned(EFFECTS)
    memo = memo or NullJournal(executor.clock)
    return tune(options(*tried, **changes), executor, SilentReporter(), memo)


def verdicts(results):
    return {row.name: row.verdict for row in results.tune.rows}


@pytest.mark.parametrize(
    ("objective", "found"),
    [("time", ["FAST=1"]), ("memory", ["SMALL=2"]), ("both", ["SMALL=1", "FAST=1"])],
)
def test_the_objective_decides(objective, found):
    """SMALL=2 has the smallest product of time and memory, but costs time, so it is excluded for
    both."""
    results = search(FAST, SMALL, objective=objective).results
    assert results.tune.settings == found
    goal = {"time": "time", "memory": "peak memory", "both": "time x memory"}[objective]
    assert verdicts(results)[goal] is Verdict.BETTER
    assert results.tune.rows[0].name == goal


def test_two_changes_that_both_help_are_found_one_after_the_other():
    effects = {("FAST", "1"): (0.8, 1.0), ("SMALL", "2"): (0.9, 1.0)}
    results = search(FAST, SMALL, NOTHING, executor=tuned(effects)).results
    assert results.tune.settings == ["FAST=1", "SMALL=2"]
    assert results.tune.variables == {"FAST": "1", "SMALL": "2"}
    steps = results.tune.steps
    assert [step.base for step in steps] == [[], ["FAST=1"], ["FAST=1", "SMALL=2"]]
    assert [step.confirmed for step in steps] == [True, True, False]
    # What chose a change does not confirm it: the rounds that count begin after the race.
    fresh = next(part for part in results.parts if part.name == "step 1, fresh rounds")
    assert {info.name for info in fresh.allocators} == {"mine", "tuned version"}
    assert steps[0].rows[0].ratio.pairs == fresh.analysis.rounds
    # Compared with the default, in rounds that decided nothing else.
    assert results.parts[-1].name == "the winner against the default"
    assert results.tune.rows[0].ratio.ratio == pytest.approx(0.72, rel=0.01)


@pytest.mark.parametrize("objective", ["time", "memory", "both"])
@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 60), marks=pytest.mark.long)])
def test_an_option_without_effect_never_wins(objective, seeds):
    for seed in seeds:
        executor = tuned({}, noise=0.02 if seed % 2 else 0.2, seed=seed)
        results = search(NOTHING, executor=executor, objective=objective, seed=seed).results
        assert results.tune.settings == []
        assert results.tune.variables == {}
        assert "defaults of mine" in texts.report(results, 120)
        if seed < 4 and objective == "time":  # nor does it ride along
            executor = tuned({("FAST", "1"): (0.9, 1.0)}, noise=0.02, seed=seed)
            results = search(FAST, NOTHING, executor=executor, seed=seed).results
            assert results.tune.settings in (["FAST=1"], [])


def test_a_number_that_the_program_prints_is_an_objective():
    program = Program(
        ("./program",), Path("/dev/null"), metrics=(parse_custom("rate=rate ([0-9.]+):higher"),)
    )
    results = search(FAST, SMALL, program=program, objective="metric").results
    assert results.tune.settings == ["FAST=1"]
    assert verdicts(results)["rate"] is Verdict.BETTER
    assert "more rate: 6 changes of 2 options" in texts.report(results, 120)


def test_the_worse_half_falls_and_the_better_one_runs_twice_as_long():
    effects = {("NOTHING", str(n)): (0.9 - 0.01 * n, 1.0) for n in range(8)}
    results = search(NOTHING, executor=tuned(effects, noise=0.001)).results
    ran = {raced.change: raced.rounds for raced in results.tune.steps[0].raced}
    assert ran == {
        **{f"NOTHING={n}": 3 for n in range(4)},
        **{f"NOTHING={n}": 6 for n in (4, 5)},
        **{f"NOTHING={n}": 12 for n in (6, 7)},
    }
    assert results.tune.steps[0].raced[0].change == "NOTHING=7"


def test_what_cannot_be_better_any_more_falls_at_once():
    executor = tuned({("NOTHING", str(n)): (1.5, 1.0) for n in range(8)}, noise=0.001)
    results = search(NOTHING, executor=executor).results
    assert {raced.fate for raced in results.tune.steps[0].raced} == {"no better"}
    # The probe, a warm-up and one rung.
    assert len(executor.requests) == 1 + (8 + 2) * (1 + 3)


def test_a_value_that_breaks_the_program_is_named_and_never_wins():
    effects = {("FAST", "2"): (0.5, 1.0), ("FAST", "1"): (0.9, 1.0)}
    results = search(FAST, executor=tuned(effects, broken={"FAST=2"})).results
    assert results.tune.settings == ["FAST=1"]
    assert "FAILED FAST=2: SIGSEGV" in texts.report(results, 120)


def test_the_time_budget_ends_a_race_and_leaves_time_for_fresh_rounds():
    results = search(FAST, SMALL, NOTHING, time_budget_seconds=8.0).results
    assert "out of time" in {raced.fate for raced in results.tune.steps[0].raced}
    assert results.tune.steps[0].raced[0].change == results.tune.steps[0].change == "FAST=1"
    assert results.tune.settings == ["FAST=1"]


@pytest.mark.parametrize("budget", [2.0, 5.0, 8.0, 20.0])
def test_a_search_keeps_to_its_time_budget(budget):
    """Except for a round that has begun: in the first rung, all changes."""
    executor = tuned(EFFECTS, noise=0.05)
    search(FAST, SMALL, NOTHING, executor=executor, time_budget_seconds=budget)
    assert executor.now <= budget + 0.1 * 2.5 * (3 + 3 + 8 + 2)


def test_a_program_that_fails_by_itself_ends_the_search():
    executor = tuned({}, broken={"ALWAYS=1"})
    allocator = Allocator("mine", None, "user", "1.0", env={"ALWAYS": "1"})
    with refused("SIGSEGV"):
        search(FAST, executor=executor, allocator=allocator)


@pytest.mark.parametrize("run", [3, 20, 60, 75])
def test_an_interrupted_search_keeps_what_it_has_and_goes_on(run, tmp_path):
    def journalled(journal=None, at=None):
        executor = tuned(EFFECTS, steady=True, interrupt_at_run=at)
        if journal is None:
            folder = tmp_path / ("whole" if at is None else "cut")
            opened = Journal.begin(Header.of("tune", [], 7, []), [folder], executor.clock)
        else:
            opened = Journal.resume(journal, executor.clock)
        with opened:
            found = search(FAST, SMALL, executor=executor, memo=opened, objective="both").results
        return found, len(executor.requests), opened.path

    expected, runs, _ = journalled()
    assert expected.tune.settings == ["SMALL=1", "FAST=1"]
    partial, _, path = journalled(at=run)
    assert partial.interrupted
    resumed, rest, _ = journalled(path)
    assert rest == runs - run
    assert timeless(resumed) == timeless(expected)


def test_the_line_is_ready_for_a_shell():
    path = Path(World.allocator("mine").path or "")
    allocator = Allocator("mine", path, "user", "1.0", env={"KEPT": "a b"})
    program = Program(("./my program", "-x"), Path("/dev/null"))
    results = search(FAST, allocator=allocator, program=program).results
    assert tune_text.line(results.tune) == f"KEPT='a b' FAST=1 LD_PRELOAD={path} './my program' -x"


def test_results_are_read_back_and_every_run_is_a_line():
    results = search(FAST, SMALL, objective="memory").results
    assert from_json(records.to_json(results)) == results
    lines = texts.formatted(results, "csv").splitlines()
    assert len(lines) == sum(len(part.samples) for part in results.parts) + 1
    assert lines[0].startswith("part,phase,round,")
    text = texts.formatted(results, "markdown")
    mentions(text, "| peak memory |", "**use it** `SMALL=2 ")
    assert "at the cost of: time +30" in texts.report(results, 120)


# --- at the prompt --------------------------------------------------------------------------------


COUNTERS = Counters.installed()


WASTE = ("--only", "--option", "WASTE=0,2", "--option", "NOTHING=1,2,3", "--no-doctor")


def test_the_option_that_helps_is_found_and_its_line_works(tsmalloc, waste, tmp_path):
    files = {name: tmp_path / f"tune.{name}" for name in ("json", "csv", "markdown")}
    exports = [word for name, file in files.items() for word in (f"--export-{name}", file)]
    words = ("--allocator", f"waste={waste}", "--for", "memory", *WASTE, *exports)
    # Options may be on both sides of the allocator's name.
    done = tsmalloc("tune", *words[:4], "waste", *words[4:], "--", "/bin/echo", "found")
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
def test_instructions_decide_where_times_tell_nothing(tsmalloc, waste):
    words = ("--allocator", f"waste={waste}", "--deterministic", "--json", "--no-doctor", "--only")
    words = (*words, "--option", "WASTE=0", "--option", "NOTHING=1")
    done = tsmalloc("tune", "waste", *words, "--", "/bin/true")
    found = json.loads(done.stdout)["tune"]
    assert (found["settings"], found["goal"]["key"]) == (["WASTE=0"], "instructions")
    nothing = [raced for raced in found["steps"][0]["raced"] if "NOTHING" in raced["change"]]
    assert {(raced["rounds"], raced["fate"]) for raced in nothing} == {(3, "no better")}


def test_a_value_that_breaks_the_program_is_a_failure(tsmalloc, waste):
    words = ("waste", "--allocator", f"waste={waste}", "--no-doctor", "--only", "--option")
    done = tsmalloc("tune", *words, "WASTE=9", "--", "/bin/true", status=2)
    assert "FAILED WASTE=9: SIGABRT" in done.stdout
    tsmalloc("tune", *words, "WASTE=9", "-i", "--", "/bin/true")
