"""Experiments: reading their files, the error for each mistake, and running them with simulated
programs.
"""

import hashlib
import itertools
import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import Behaviour, World
from experiment_fixtures import (
    MIB,
    NAMES,
    Counting,
    Programs,
    asked,
    definition,
    go_on,
    plan_of,
    prints,
    single,
)
from prompt import script
from refusals import mentions, refused

from tsmlab import causes, experiments, records, texts
from tsmlab.definition import Definition, Reported
from tsmlab.errors import UserError
from tsmlab.experiments import program_path, read_file, read_files, select
from tsmlab.metrics import PEAK_MEMORY, PEAK_OVER_LIVE, TIME, MetricSpec
from tsmlab.sweep import Parameter

TOP = {
    "name": '"threads"',
    "title": '"Threads"',
    "question": '"Which is best?"',
    "program": '"bench-threads"',
    "arguments": '["--threads", "{threads}", "--{fit}", "{{fit}}", "{", "{allocator}"]',
}
PARTS = {
    "parameter": {"name": '"threads"', "values": "[1, 2, 4]"},
    "parameter ": {"name": '"fit"', "title": '"the fit"', "values": '["best", "worst"]'},
    "metric": {"name": '"seconds"', "unit": '"seconds"'},
    "metric ": {"name": '"blocks"', "optional": "true", "unit": '"count"'},
    "analysis": {
        "kind": '"fit"',
        "law": '"amdahl"',
        "parameter": '"threads"',
        "at": '{fit = "best"}',
    },
    "reported": {
        "report": '"E"',
        "machine": '"one of 2012"',
        "columns": '["threads", "s"]',
        "rows": '[[1, 1.25], ["20", 1]]',
    },
}


def write(path, **changed):
    """The file above with some keys changed or, by None, left out; `top` are keys outside of
    tables."""

    def keys(table, changes):
        merged = {k: v for k, v in {**table, **changes}.items() if v is not None}
        return "".join(f"{key} = {value}\n" for key, value in merged.items())

    text = keys(TOP, changed.get("top", {}))
    for name, table in PARTS.items():
        text += f"\n[[{name.strip()}]]\n" + keys(table, changed.get(name, {}))
    path.write_text(text)
    return path


# --- what is read ---------------------------------------------------------------------------------


def test_a_file_is_read_as_it_stands_and_survives_being_kept(tmp_path):
    path = write(tmp_path / "good.toml")
    good = read_file(path)
    assert (good.name, good.title, good.program) == ("threads", "Threads", "bench-threads")
    assert (good.file, good.sha256) == (str(path), hashlib.sha256(path.read_bytes()).hexdigest())
    assert good.parameters == [
        Parameter("threads", "threads", [1, 2, 4]),
        Parameter("fit", "the fit", ["best", "worst"]),
    ]
    assert [(m.key, m.unit, m.higher_is_better) for m in good.metrics] == [
        ("seconds", "seconds", False),
        ("blocks", "count", False),
    ]
    assert (good.printed, good.printed_perhaps) == (("seconds",), ("blocks", "live_bytes"))
    fit = asked("fit", "seconds", "threads", {"fit": "best"}, law="amdahl")
    assert good.analyses == [fit]
    assert good.reported[0].rows == [[1, 1.25], ["20", 1]]
    assert (good.rounds, good.timeout_seconds, good.run_seconds) == (5, 60.0, 1.0)
    assert (good.causes, good.allocators) == ("all", ["tsmalloc", "system"])
    assert records.restore(Definition, json.loads(records.to_json(good))) == good


def test_the_least_that_a_file_must_say(tmp_path):
    path = tmp_path / "least.toml"
    path.write_text('name = "a"\ntitle = "A"\nquestion = "?"\nprogram = "true"\n')
    assert (read_file(path).parameters, read_file(path).printed) == ([], ())
    ends = {"wall_seconds": TIME, "peak_bytes": PEAK_MEMORY, PEAK_OVER_LIVE: PEAK_OVER_LIVE}
    for name, key in ends.items():
        table = f'[[analysis]]\nkind = "order"\nmetric = "{name}"\n'
        path.write_text(f'name = "a"\ntitle = "A"\nquestion = "?"\nprogram = "true"\n{table}')
        found = read_file(path)
        assert found.analyses[0].metric == key
        assert (PEAK_OVER_LIVE in [m.key for m in found.metrics]) == (key == PEAK_OVER_LIVE)
        assert found.printed == ()


MISTAKES: list[tuple[str, str, str | None, str, str]] = [
    ("top", "name", None, "name is missing", "a string"),
    ("top", "name", '"Big Name"', "name is 'Big Name'", "lowercase letters"),
    ("top", "question", '" "', "question is ' '", "a string"),
    ("top", "programm", '"x"', "unknown key 'programm'", "Did you mean program?"),
    ("top", "parameters", "[]", "unknown key 'parameters'", "Did you mean parameter?"),
    ("top", "plot", "[]", "unknown key 'plot'", "Keys: "),
    ("top", "rounds", "0", "rounds is 0", "at least 1"),
    ("top", "rounds", "true", "rounds is True", "at least 1"),
    ("top", "rounds", "2.5", "rounds is 2.5", "at least 1"),
    ("top", "timeout_seconds", "-1", "timeout_seconds is -1", "above 0"),
    ("top", "run_seconds", "inf", "run_seconds is inf", "above 0"),
    ("top", "causes", '"end"', "causes is 'end'", "all, ends, none"),
    ("top", "allocators", "[]", "allocators is []", "a list of names"),
    ("top", "arguments", "[4]", "arguments is [4]", "a list of strings"),
    ("top", "arguments", '["{thread}", "{fit}"]', "{thread}, which is", "Did you mean {threads}?"),
    ("top", "arguments", '["{threads}"]', "does not use the parameter fit", "Write {fit}"),
    ("parameter", "name", '"allocator"', "name is 'allocator'", "choose another"),
    ("parameter", "values", "[]", "values is []", "distinct numbers"),
    ("parameter", "values", '[1, "2"]', "values is [1, '2']", "distinct numbers"),
    ("parameter", "values", "[1, 1]", "values is [1, 1]", "distinct numbers"),
    ("parameter", "values", "[1, 1.0]", "values is [1, 1.0]", "distinct numbers"),
    ("parameter", "values", "[true]", "values is [True]", "distinct numbers"),
    ("parameter ", "name", '"threads"', "two parameters are called threads", "Rename"),
    ("metric", "name", '"a b"', "name is 'a b'", "letters"),
    ("metric", "name", '"time_seconds"', "name is 'time_seconds'", "remove this table"),
    ("metric", "name", '"peak_bytes"', "name is 'peak_bytes'", "remove this table"),
    ("metric", "unit", '"ms"', "unit is 'ms'", "seconds, bytes, count, number"),
    ("metric", "higher_is_better", '"yes"', "higher_is_better is 'yes'", "true or false"),
    ("metric", "source", '"causes"', "unknown key 'source'", "name, title"),
    ("metric ", "name", '"seconds"', "two metrics are called seconds", "Rename"),
    ("analysis", "kind", '"fitt"', "kind is 'fitt'", "pair, order, fit"),
    ("analysis", "metric", '"secnds"', "unknown metric 'secnds'", "Did you mean seconds?"),
    ("analysis", "parameter", '"thread"', "parameter is 'thread'", "Did you mean threads?"),
    ("analysis", "when", "2020-01-01", "unknown key 'when'", "Keys: kind"),
    ("analysis", "first", '"glibc"', "unknown key 'first'", "Keys: kind"),
    ("analysis", "lw", '"amdahl"', "unknown key 'lw'", "Did you mean law?"),
    ("analysis", "tolerance", "0.3", "law has no option tolerance", "none"),
    ("analysis", "law", '"linear"', "law is 'linear'", "growth, amdahl"),
    ("analysis", "allocators", '"glibc"', "allocators is 'glibc'", "a list of names"),
    ("analysis", "at", "4", "at is 4", "{parameter = value}"),
    ("analysis", "at", "{thread = 4}", "at refers to 'thread'", "Parameters: threads, fit"),
    ("analysis", "at", "{threads = 3}", "threads never has the value 3", "Its values: 1, 2, 4"),
    ("reported", "rows", "[[1]]", "row 1 is [1]", "each of the 2 columns"),
    ("reported", "rows", "[1]", "row 1 is 1", "each of the 2 columns"),
]


@pytest.mark.parametrize(("table", "key", "value", "message", "remedy"), MISTAKES)
def test_each_mistake_is_named_with_its_file_and_remedy(
    tmp_path, table, key, value, message, remedy
):
    path = write(tmp_path / "bad.toml", **{table: {key: value}})
    with refused(message, remedy=remedy) as caught:
        read_file(path)
    assert caught.value.message.startswith(str(path))
    assert "\n" not in caught.value.message


def test_a_pair_needs_both_sides(tmp_path):
    changes = {"analysis": {"kind": '"pair"', "law": None, "first": '"glibc"'}}
    with refused("first and second"):
        read_file(write(tmp_path / "bad.toml", **changes))


def test_a_mistake_in_a_table_names_the_table(tmp_path):
    changes = {"parameter ": {"value": "[1]"}}
    with refused("bad.toml: parameter 2 (fit): ", "'value'", remedy="Did you mean values?"):
        read_file(write(tmp_path / "bad.toml", **changes))


def test_what_is_no_experiment_is_refused(tmp_path):
    path = tmp_path / "bad.toml"
    with refused(str(path)):
        read_file(path)
    for content, message in (
        (b"name = \n", "valid TOML"),
        (b"name = '\xff'\n", "valid TOML"),
        (b"[metric]\nname = 'a'\n", "metric"),
    ):
        path.write_bytes(content)
        with refused(str(path), message):
            read_file(path)
    one, two = write(tmp_path / "one.toml"), write(tmp_path / "two.toml")
    with refused(str(one), str(two), "threads"):
        read_files([one, two])


def test_names_and_globs_choose_in_the_catalogues_order(tmp_path):
    definitions = [
        read_file(write(tmp_path / f"{name}.toml", top={"name": f'"{name}"'}))
        for name in ("x2-lock", "x3-pairs", "x4-ring")
    ]

    def chosen(*names):
        return [definition.name for definition in select(names, definitions)]

    assert chosen("all") == ["x2-lock", "x3-pairs", "x4-ring"]
    assert chosen("x4-ring", "x[23]*") == ["x2-lock", "x3-pairs", "x4-ring"]
    with refused("'x3-pair'", remedy="Did you mean x3-pairs?") as caught:
        chosen("x3-pair")
    assert experiments.SHOW_ALL in caught.value.remedy


def test_where_a_program_is(tmp_path, monkeypatch):
    def resolved(program):
        return program_path(read_file(write(tmp_path / "e.toml", top={"program": program})))

    monkeypatch.setenv("TSMALLOC_BUILD_DIR", str(tmp_path / "build"))
    built = tmp_path / "build" / "bin" / "sh"
    assert resolved('"sh"').name == "sh"
    assert resolved('"sh"') != built
    built.parent.mkdir(parents=True)
    script(built, "#!/bin/sh\n")
    assert resolved('"sh"') == resolved('"./build/bin/sh"') == built
    with refused("bench-nothing", remedy="TSMALLOC_BUILD_DIR"):
        resolved('"bench-nothing"')
    built.chmod(0o644)
    with refused(str(built), remedy="chmod +x"):
        resolved('"./build/bin/sh"')


# --- the plan -------------------------------------------------------------------------------------


def test_what_a_file_names_but_is_not_installed_is_left_out_with_a_note():
    available = [World.allocator(name) for name in NAMES]
    notes: list[str] = []

    def planned(*allocators, chosen=()):
        wanted = single(program="sh", allocators=list(allocators))
        return experiments.plan(wanted, available, chosen, "glibc", None, True, notes.append)

    assert [allocator.name for allocator in planned("glibc", "mimalloc").allocators] == ["glibc"]
    assert notes[0].startswith("single: without mimalloc (sudo apt install libmimalloc")
    with refused("none of its allocators"):
        planned("mimalloc")
    with refused("unknown allocator 'glibk'", remedy="Did you mean glibc?"):
        planned("glibk")
    # The reference always takes part, whatever is selected.
    assert [a.name for a in planned("glibc", chosen=["other"]).allocators] == ["glibc", "other"]


@pytest.mark.parametrize(("at", "points"), [("all", [0, 1, 2]), ("ends", [0, 2]), ("none", [])])
def test_a_file_says_at_which_points_causes_are_counted(at, points):
    assert plan_of(definition(causes=at)).causes_points == points
    assert plan_of(definition(causes=at), with_causes=False).causes_points == []
    executor = Programs()
    found = only(run(definition(causes=at), executor=executor, observers=[Counting(executor)]))
    assert [(c.point, c.allocator) for c in found.causes] == list(itertools.product(points, NAMES))


# --- the flow -------------------------------------------------------------------------------------


def run(*definitions, executor=None, observers=(), reporter=None, **changes):
    """Runs experiments in a simulated world."""
    executor = executor or Programs()
    return go_on(definitions or (definition(),), executor, observers, reporter, **changes)


def only(outcome):
    (found,) = outcome.results.parts
    return found


def measured(found):
    return [sample for sample in found.samples if sample.phase == "measured"]


def test_rounds_arguments_and_the_time_limit_are_the_files():
    executor = Programs()
    found = only(run(executor=executor))
    assert found.stop.reason == "runs"
    seen = {(r.allocator.name, *r.command[1:]) for r in executor.requests}
    assert seen == {
        (name, "--threads", str(threads), "--under", name)
        for name in NAMES
        for threads in (1, 2, 4)
    }
    assert {r.timeout_seconds for r in executor.requests} == {9.0}


def test_built_in_metrics_are_there_beside_the_printed_ones():
    live = prints(1.0, peak_bytes=30 * MIB, more=f"live_bytes: {20 * MIB}\nother: 3\n")
    values = measured(only(run(single(), executor=Programs(lambda *_: live))))[0].values
    assert (values["seconds"], values[TIME], values[PEAK_MEMORY]) == (1.0, 1.5, 30 * MIB)
    assert values[PEAK_OVER_LIVE] == 1.5
    assert "other" not in values
    bare = measured(only(run(single(metrics=[]))))[0]
    assert bare.failure is None
    assert PEAK_OVER_LIVE not in bare.values


def test_an_experiment_whose_reference_fails_costs_only_itself():
    def pick(_name, arguments):
        return Behaviour(exit_code=3) if arguments else prints(1.0)

    outcome = run(definition("bad"), single("good"), executor=Programs(pick))
    assert [each.subject for each in outcome.results.parts] == ["good"]
    assert "glibc at threads=1: exit 3" in outcome.error.message


def test_findings_are_those_that_the_file_asks_for():
    def pick(name, arguments):
        return prints((3.0 if name == "other" else 1.0) / int(arguments[1]))

    questions = [
        asked("pair", first="tsmalloc", second="other"),
        asked("fit", parameter="threads", law="amdahl"),
    ]
    found = only(run(definition(analyses=questions), executor=Programs(pick)))
    assert found.findings[0].verdict == "tsmalloc is better"
    assert found.findings[0].estimates["ratio at threads=1"].value == pytest.approx(1 / 3)


# --- causes ---------------------------------------------------------------------------------------


def test_causes_come_after_the_rounds_once_for_each_cell_that_ran():
    def pick(name, _arguments):
        return Behaviour(exit_code=1) if name == "other" else prints(1.0)

    executor = Programs(pick)
    counting = Counting(executor, frees=2.0)
    found = only(run(single(), executor=executor, observers=[counting]))
    assert [(c.allocator, c.counts) for c in found.causes] == [
        ("tsmalloc", {"frees": 2.0}),
        ("glibc", {"frees": 2.0}),
    ]
    request = counting.requests[0]
    assert request.timeout_seconds == max(causes.MIN_TIMEOUT_SECONDS, 1.5 * causes.TIMEOUT_FACTOR)
    counting = Counting(executor)
    run(single(), executor=executor, observers=[counting], with_causes=False)
    assert counting.requests == []


def test_of_a_count_that_two_know_the_later_holds_and_what_fails_is_a_note():
    def broken(*_):
        raise UserError("the tool syscalls is not built.", "Build it.")

    executor = Programs()
    observers = [Counting(executor, frees=1.0, a=2.0), broken, Counting(executor, frees=3.0)]
    found = causes.count(run_one(executor), 4, observers)
    assert (found.point, found.counts) == (4, {"frees": 3.0, "a": 2.0})
    assert found.notes == ["the tool syscalls is not built."]


def run_one(executor):
    """A request of an experiment that ran."""
    run(single(), executor=executor)
    return executor.requests[0]


def test_a_failing_program_is_no_count(monkeypatch, tmp_path):
    request = run_one(Programs())
    failed = SimpleNamespace(failed=True, failure_text=lambda: "exit 9")
    monkeypatch.setattr(causes.strace, "count", lambda *_: (failed, {}))
    found = causes.count(request, 0, [causes.system_calls])
    assert found.counts == {}
    (note,) = found.notes
    assert "exit 9" in note
    # Other allocators' libraries have no internal counters.
    glibc = replace(request, allocator=World.allocator("glibc"))
    assert causes.inside(glibc, tmp_path) == ({}, [])


# --- how it ends ----------------------------------------------------------------------------------


def test_a_budget_is_shared_and_leaves_three_rounds():
    # A round takes 4 * 1.5 = 6 s, after a probe of 1.5 s.
    both = [single("one", rounds=50), single("two", rounds=50)]
    found = run(*both, time_budget_seconds=63.0, with_causes=False).results
    assert [each.analysis.rounds for each in found.parts] == [5, 5]
    assert {each.stop.reason for each in found.parts} == {"budget"}
    found = run(*both, time_budget_seconds=1.0).results
    assert [each.analysis.rounds for each in found.parts] == [3, 3]
    found = run(single(rounds=2), time_budget_seconds=1.0).results
    assert [each.analysis.rounds for each in found.parts] == [2]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), UserError("measure failed.")])
def test_what_ends_it_before_the_first_run_leaves_no_results(error):
    executor = Programs()
    executor.interrupt_at_run, executor.error = 0, error
    with pytest.raises(type(error)):
        run(executor=executor)


def test_an_interrupt_while_counting_keeps_what_was_timed():
    class Interrupted(Counting):
        def __call__(self, request, folder):
            if len(self.requests) == 2:
                raise KeyboardInterrupt
            return super().__call__(request, folder)

    executor = Programs()
    outcome = run(executor=executor, observers=[Interrupted(executor)])
    assert outcome.results.stop.reason == "interrupted"
    assert len(measured(only(outcome))) == 36
    assert len(only(outcome).causes) == 2


# --- texts ----------------------------------------------------------------------------------------


def test_the_answer_comes_before_the_table():
    questions = [asked("order"), asked("order", PEAK_MEMORY)]
    outcome = run(definition(analyses=questions, answers="Read it so."))
    text = texts.report(outcome.results, 100)
    places = [text.index(part) for part in (
        "sweep: sweep and more", "Which is best?", "Best in time", "time by threads: medians",
        "peak memory by threads: medians", "Read it so.",
    )]  # fmt: skip
    assert places == sorted(places)
    assert "Recommendation" not in text


def test_a_wide_sweep_is_folded():
    threads = Parameter("threads", "threads", list(range(1, 21)))
    found = run(definition(parameters=[threads], rounds=1)).results
    lines = texts.report(found, 60).splitlines()
    heads = [line.split()[1:] for line in lines if line.startswith("allocator")]
    assert len(heads) > 1
    columns = [int(head) for part in heads for head in part]
    assert columns[:20] == list(range(1, 21))
    assert all(len(line.rstrip()) <= 60 for line in lines if line.startswith(("alloc", *NAMES)))


def test_markdown_has_tables_reported_ones_and_the_machine():
    reported = Reported("D", "a phenom", ["allocator", "s"], [["ptmalloc", 5.142]], "32 threads")
    found = run(definition(reported=[reported], analyses=[asked("order")])).results
    markdown = texts.formatted(found, "markdown")
    mentions(
        markdown, "**sweep: sweep and more**", "| ptmalloc | 5.142 |", "Reported (D; a phenom)"
    )
    mentions(markdown, "32 threads", found.parts[0].machine.kernel)
    assert re.search(r"(?m)^\| glibc 1.0 +\|", markdown)


def test_where_higher_is_better_more_is_green():
    metric = MetricSpec("seconds", "speed", "number", True, higher_is_better=True)

    def pick(name, _arguments):
        return prints(3.0 if name == "other" else 1.0)

    found = run(definition(metrics=[metric], rounds=6), executor=Programs(pick)).results
    coloured = texts.report(found, 100, True)
    line = next(each for each in coloured.splitlines() if each.startswith("other"))
    assert line.count("\x1b[32m3 >") == 3
    assert "medians (higher is better)" in coloured
