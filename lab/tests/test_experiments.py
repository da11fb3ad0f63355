"""Experiments: reading their files, the error for each mistake, and running them with simulated
programs. Each shipped file can run, and its parts fit together.
"""

import hashlib
import itertools
import json
import re

import pytest
from conftest import Behaviour, World
from experiment_fixtures import (
    MIB,
    NAMES,
    Counting,
    asked,
    definition,
    go_on,
    plan_of,
    prints,
    programs,
    single,
)
from prompt import script
from refusals import mentions, refused

from tsmlab import causes, experiments, paths, records, texts
from tsmlab.allocators import GROUPS, own_names
from tsmlab.definition import Definition, Reported
from tsmlab.errors import UserError
from tsmlab.experiments import program_path, read_file, read_files
from tsmlab.metrics import PEAK_MEMORY, PEAK_OVER_LIVE, TIME, MetricSpec
from tsmlab.sweep import Parameter, filled, points_of

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
    least = 'name = "a"\ntitle = "A"\nquestion = "?"\nprogram = "true"\n'
    path.write_text(least)
    assert (read_file(path).parameters, read_file(path).printed) == ([], ())
    ends = {"wall_seconds": TIME, "peak_bytes": PEAK_MEMORY, PEAK_OVER_LIVE: PEAK_OVER_LIVE}
    for name, key in ends.items():
        path.write_text(f'{least}[[analysis]]\nkind = "order"\nmetric = "{name}"\n')
        found = read_file(path)
        assert found.analyses[0].metric == key
        assert (PEAK_OVER_LIVE in [m.key for m in found.metrics]) == (key == PEAK_OVER_LIVE)
        assert found.printed == ()


MISTAKES: list[tuple[str, str, str | None, str, str]] = [
    ("top", "name", None, "name is missing", "a string"),
    ("top", "name", '"Big Name"', "name is 'Big Name'", "lowercase letters"),
    ("top", "question", '" "', "question is ' '", "a string"),
    ("top", "programm", '"x"', "unknown key 'programm'", "Did you mean program?"),
    ("top", "plot", "[]", "unknown key 'plot'", "Keys: "),
    ("top", "rounds", "0", "rounds is 0", "at least 1"),
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
    ("parameter", "values", "[1, 1.0]", "values is [1, 1.0]", "distinct numbers"),
    ("parameter", "values", "[true]", "values is [True]", "distinct numbers"),
    ("parameter ", "name", '"threads"', "two parameters are called threads", "Rename"),
    ("parameter ", "value", "[1]", "parameter 2 (fit): unknown key 'value'", "mean values?"),
    ("metric", "name", '"a b"', "name is 'a b'", "letters"),
    ("metric", "name", '"time_seconds"', "name is 'time_seconds'", "remove this table"),
    ("metric", "name", '"peak_bytes"', "name is 'peak_bytes'", "remove this table"),
    ("metric", "unit", '"ms"', "unit is 'ms'", "seconds, bytes, count, number"),
    ("metric", "higher_is_better", '"yes"', "higher_is_better is 'yes'", "true or false"),
    ("metric ", "name", '"seconds"', "two metrics are called seconds", "Rename"),
    ("analysis", "kind", '"fitt"', "kind is 'fitt'", "pair, order, fit"),
    ("analysis", "kind", '"pair"', "unknown key 'law'", "first"),
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


def test_what_is_no_experiment_is_refused(tmp_path):
    path = tmp_path / "bad.toml"
    with refused(str(path)):
        read_file(path)
    for content, message in (
        (b"name = '\xff'\n", "valid TOML"),
        (b"[metric]\nname = 'a'\n", "metric"),
    ):
        path.write_bytes(content)
        with refused(str(path), message):
            read_file(path)
    pair = {"analysis": {"kind": '"pair"', "law": None, "first": '"glibc"'}}
    with refused("first and second"):
        read_file(write(path, **pair))
    one, two = write(tmp_path / "one.toml"), write(tmp_path / "two.toml")
    with refused(str(one), str(two), "threads"):
        read_files([one, two])


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
    executor = programs()
    found = only(run(definition(causes=at), executor=executor, observers=[Counting(executor)]))
    assert [(c.point, c.allocator) for c in found.causes] == list(itertools.product(points, NAMES))


# --- the flow -------------------------------------------------------------------------------------


def run(*definitions, executor=None, observers=(), **changes):
    executor = executor or programs()
    return go_on(definitions or (definition(),), executor, observers, **changes)


def only(outcome):
    (found,) = outcome.results.parts
    return found


def measured(found):
    return [sample for sample in found.samples if sample.phase == "measured"]


def test_rounds_arguments_and_the_time_limit_are_the_files():
    executor = programs()
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
    values = measured(only(run(single(), executor=programs(lambda *_: live))))[0].values
    assert (values["seconds"], values[TIME], values[PEAK_MEMORY]) == (1.0, 1.5, 30 * MIB)
    assert values[PEAK_OVER_LIVE] == 1.5
    assert "other" not in values
    bare = measured(only(run(single(metrics=[]))))[0]
    assert bare.failure is None
    assert PEAK_OVER_LIVE not in bare.values


def test_an_experiment_whose_reference_fails_costs_only_itself():
    def pick(_name, arguments):
        return Behaviour(exit_code=3) if arguments else prints(1.0)

    outcome = run(definition("bad"), single("good"), executor=programs(pick))
    assert [each.subject for each in outcome.results.parts] == ["good"]
    assert "glibc at threads=1: exit 3" in outcome.error.message


def test_findings_are_those_that_the_file_asks_for_and_more_may_be_better():
    metric = MetricSpec("seconds", "speed", "number", True, higher_is_better=True)

    def pick(name, _arguments):
        return prints(3.0 if name == "other" else 1.0)

    asks = definition(metrics=[metric], rounds=6, analyses=[
        asked("pair", first="tsmalloc", second="other"),
        asked("fit", parameter="threads", law="amdahl"),
    ])  # fmt: skip
    found = run(asks, executor=programs(pick)).results
    first, _ = found.parts[0].findings
    assert first.verdict == "other is better"
    assert first.estimates["ratio at threads=1"].value == pytest.approx(1 / 3)
    coloured = texts.report(found, 100, True)
    line = next(each for each in coloured.splitlines() if each.startswith("other"))
    assert line.count("\x1b[32m3 >") == 3
    assert "medians (higher is better)" in coloured


# --- causes ---------------------------------------------------------------------------------------


def test_causes_come_after_the_rounds_once_for_each_cell_that_ran():
    def pick(name, _arguments):
        return Behaviour(exit_code=1) if name == "other" else prints(1.0)

    executor = programs(pick)
    counting = Counting(executor, frees=2.0)
    found = only(run(single(), executor=executor, observers=[counting]))
    assert [(c.allocator, c.counts) for c in found.causes] == [
        ("tsmalloc", {"frees": 2.0}),
        ("glibc", {"frees": 2.0}),
    ]
    patience = max(causes.MIN_TIMEOUT_SECONDS, 1.5 * causes.TIMEOUT_FACTOR)
    assert counting.requests[0].timeout_seconds == patience


def test_of_a_count_that_two_know_the_later_holds_and_what_fails_is_a_note():
    def broken(*_):
        raise UserError("the tool syscalls is not built.", "Build it.")

    executor = programs()
    observers = [Counting(executor, frees=1.0, a=2.0), broken, Counting(executor, frees=3.0)]
    found = causes.count(run_one(executor), 4, observers)
    assert (found.point, found.counts) == (4, {"frees": 3.0, "a": 2.0})
    assert found.notes == ["the tool syscalls is not built."]


def run_one(executor):
    """A request of an experiment that ran."""
    run(single(), executor=executor)
    return executor.requests[0]


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


def test_an_interrupt_while_counting_keeps_what_was_timed():
    class Interrupted(Counting):
        def __call__(self, request, folder):
            if len(self.requests) == 2:
                raise KeyboardInterrupt
            return super().__call__(request, folder)

    executor = programs()
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


# --- the shipped experiments ----------------------------------------------------------------------


ROOT = paths.repository_root()
SHIPPED = experiments.read_files(sorted(experiments.default_folder().glob("*.toml")))
SHIPPED_NAMES = [each.name for each in SHIPPED]
BUILT_IN_NAMES = {*experiments.ALIASES, *(spec.key for spec in experiments.OURS)} - {
    *experiments.ALIASES.values()
}
REPORTED_EXPERIMENTS = {
    *("x2-lock", "x3-churn-pairs", "x4-producer-consumer"),
    *("x5-threads", "x6-iterations", "x7-fragmentation"),
}
each = pytest.mark.parametrize("definition", SHIPPED, ids=SHIPPED_NAMES)


def reference():
    return (ROOT / "docs" / "formats" / "experiment.md").read_text(encoding="utf-8")


def documented(heading):
    """The names in the first columns of the tables under a heading of the reference."""
    part = re.split(r"^#+ ", reference().split(f"## {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    rows = re.findall(r"(?m)^\| (`.*?) \|", part)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_reports_experiments_and_three_more_are_shipped():
    assert set(SHIPPED_NAMES) == REPORTED_EXPERIMENTS | {"search-cost", "blow-up", "thread-churn"}
    assert experiments.select(["all"], SHIPPED) == SHIPPED
    with refused("'x3-churn-pair'", remedy=experiments.SHOW_ALL):
        experiments.select(["x3-churn-pair"], SHIPPED)


@each
def test_what_a_reader_needs_is_there_and_its_parts_fit_together(definition):
    assert definition.question.endswith("?")
    assert definition.source
    assert definition.answers
    assert definition.analyses
    assert bool(definition.reported) == (definition.name in REPORTED_EXPERIMENTS)
    assert all(table.rows for table in definition.reported)
    parameters = {parameter.name for parameter in definition.parameters}
    for analysis in definition.analyses:
        if analysis.kind == "fit":
            assert analysis.parameter in parameters
        if analysis.kind == "pair":
            pair = {analysis.options["first"], analysis.options["second"]}
            assert pair <= {*own_names(), "glibc", "tcmalloc"}


@each
def test_the_program_is_built_and_all_take_part(definition):
    lists = (ROOT / "bench" / "CMakeLists.txt").read_text(encoding="utf-8")
    programs = re.search(r"set\(experiment_programs ([^)]*)\)", lists)
    built = {
        "bench-" + source.split("/")[-1].replace("_", "-") for source in programs[1].split()
    } | {"thread_test_measurement"}
    assert definition.program in built
    assert {"tsmalloc", "system"} <= set(definition.allocators)
    for selector in definition.allocators:
        pattern = re.compile(selector.replace("*", ".*"))
        assert selector in GROUPS or any(pattern.fullmatch(name) for name in own_names())


@each
def test_metrics_are_printed_or_counted(definition):
    # Reading the file checks that a metric is defined; this test, that every defined one is
    # measured.
    counts = documented("Counts")
    for analysis in definition.analyses:
        assert set(analysis.options.get("show", [])) <= counts
    sources = [
        *(ROOT / "bench" / "experiments").glob("*.cpp"),
        *(ROOT / "bench" / "workloads").glob("*.*"),
        ROOT / "tests" / "programs" / "measurement.h",
    ]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    for metric in definition.metrics:
        if metric.key != PEAK_OVER_LIVE:
            assert re.search(rf'["\\n]{metric.key}[":]', text), metric.key


def test_what_files_and_analyses_may_say_is_documented():
    part = reference().split("## Analyses\n", 1)[1].split("\n## ", 1)[0]
    for kind, options in experiments.OPTIONS.items():
        row = re.search(rf"^\| `{kind}` .*$", part, flags=re.MULTILINE)
        assert {name for name in options if f"`{name}`" not in row[0]} == set()
    assert documented("Metrics") == BUILT_IN_NAMES
    table = (ROOT / "src" / "libc" / "counters.cpp").read_text(encoding="utf-8")
    counted = set(re.findall(r'\{"(\w+)", [^}]*Event::', table))
    assert len(counted) > 20
    assert counted <= documented("Counts")
    tables = ("parameter", "metric", "analysis", "reported")
    keys = {f"[[{key}]]" if key in tables else key for key in experiments.KEYS}
    part = reference().split("## The file\n", 1)[1].split("\n## ", 1)[0]
    assert {key for key in keys if f"`{key}`" not in part} == set()


def test_figures_of_the_reports_are_as_they_were_printed():
    """One figure of each report, to catch typing errors."""
    figures = {
        (definition.name, table.report): [value for row in table.rows for value in row]
        for definition in SHIPPED
        for table in definition.reported
    }
    assert 0.7064 in figures["x2-lock", "A"]
    assert 48729536 in figures["x2-lock", "B"]
    assert 41942160 in figures["x2-lock", "C"]
    assert 20.501 in figures["x3-churn-pairs", "D, 2014"]
    assert 53653 in figures["x4-producer-consumer", "D, 2014"]
    assert 0.83 in figures["x5-threads", "E"]
    assert 23.7 in figures["x6-iterations", "E"]
    assert 71849 in figures["x7-fragmentation", "E"]


def test_the_example_of_the_guide_is_an_experiment(tmp_path):
    guide = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    example = re.search(r"^```toml\n(.*?)^```$", guide, flags=re.MULTILINE | re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(example[1], encoding="utf-8")
    definition = experiments.read_file(file)
    assert len(points_of(definition.parameters)) == 3
    assert '"x" x 10 for' in filled(definition.arguments[1], {"length": 10})
