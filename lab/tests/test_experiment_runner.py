"""The flow of a run of experiments and its texts, on simulated programs."""

from __future__ import annotations

import csv
import io
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Behaviour, World
from experiment_world import (
    MIB,
    NAMES,
    Counting,
    Notes,
    Programs,
    definition,
    go_on,
    plans,
    prints,
    single,
)
from refusals import refused

from tsmlab import records
from tsmlab.errors import UserError
from tsmlab.experiments import causes, model, plan, text
from tsmlab.experiments.model import (
    Causes,
    Curve,
    Definition,
    ExperimentResults,
    HeapMap,
    MapBlock,
    MapChunk,
    Metric,
    Parameter,
    Reported,
    Run,
)
from tsmlab.parts import OVERHEAD_SECONDS, WATCHED_FACTOR, Progress
from tsmlab.progress import Lines, Silence
from tsmlab.results import Outcome


def run(
    *definitions: Definition,
    executor: Programs | None = None,
    observers: Any = (),
    reporter: Any = None,
    **changes: Any,
) -> Outcome[ExperimentResults]:
    """Runs experiments in a simulated world."""
    executor = executor or Programs()
    return go_on(definitions or (definition(),), executor, observers, reporter, **changes)


def order(found: ExperimentResults, index: int = 0) -> dict[int, list[tuple[int, str]]]:
    """For each round the cells in the order in which they ran."""
    experiment = found.experiments[index]
    runs = sorted(
        (r.round, r.position, c.point, c.allocator) for c in experiment.cells for r in c.runs
    )
    return {
        number: [(point, name) for _, _, point, name in group]
        for number, group in itertools.groupby(runs, key=lambda each: each[0])
    }


def all_runs(found: ExperimentResults, index: int = 0) -> list[Run]:
    return [run for cell in found.experiments[index].cells for run in cell.runs]


# --- order ---------------------------------------------------------------------------------------


def test_every_round_has_every_cell_once_in_an_order_of_its_own() -> None:
    found = run().results
    rounds = order(found)
    assert list(rounds) == [1, 2, 3]
    for cells in rounds.values():
        assert sorted(cells) == sorted(itertools.product((0, 1, 2), NAMES))
    assert len({tuple(cells) for cells in rounds.values()}) == 3
    # Points are mixed within a round: it is not one after the other.
    assert [point for point, _ in rounds[1]] != sorted(point for point, _ in rounds[1])
    assert (found.stop.reason, found.stop.text) == ("runs", "all 3 rounds done")
    executor = Programs()
    runs = sorted(all_runs(run(executor=executor).results), key=lambda r: r.started_seconds)
    assert [(r.round, r.position) for r in runs] == list(itertools.product((1, 2, 3), range(1, 10)))
    assert [r.started_seconds for r in runs] == [1.5 * number for number in range(27)]


def test_orders_follow_from_the_seed_and_the_experiment_alone() -> None:
    def orders(seed: int) -> list[dict[int, list[tuple[int, str]]]]:
        found = run(definition("one"), definition("two"), seed=seed).results
        return [order(found, 0), order(found, 1)]

    first = orders(7)
    assert first[0] != first[1]
    assert orders(7) == first
    assert orders(8) != first
    alone = order(run(definition("two")).results)
    assert order(run(definition("one"), definition("two")).results, 1) == alone


def test_rounds_of_all_experiments_alternate() -> None:
    executor = Programs()
    found = run(single("short", rounds=2), single("long", rounds=4), executor=executor).results
    starts = [
        sorted((r.started_seconds, r.round) for r in all_runs(found, index)) for index in (0, 1)
    ]
    assert [len(each) for each in starts] == [2 * 3, 4 * 3]
    assert starts[0][2] < starts[1][0] < starts[0][3] < starts[1][3]
    assert {number for _, number in starts[1]} == {1, 2, 3, 4}


# --- what is run, and what is kept of it ----------------------------------------------------------


def test_placeholders_timeout_and_allocator_reach_the_program() -> None:
    executor = Programs()
    run(executor=executor)
    seen = {(r.allocator.name, *r.command[1:]) for r in executor.requests}
    assert seen == {
        (name, "--threads", str(threads), "--under", name)
        for name in NAMES
        for threads in (1, 2, 4)
    }
    assert {r.timeout_seconds for r in executor.requests} == {9.0}


def test_allocators_are_paired_by_rounds() -> None:
    def pick(name: str, arguments: tuple[str, ...]) -> Any:
        factor = 2.0 if name == "other" else 1.0
        return prints(factor / int(arguments[1]))

    experiment = run(executor=Programs(pick)).results.experiments[0]
    cell, other = experiment.cell(2, "glibc"), experiment.cell(2, "other")
    assert cell.values("seconds") == {1: 0.25, 2: 0.25, 3: 0.25}
    assert other.values("seconds") == {1: 0.5, 2: 0.5, 3: 0.5}
    assert [(c.point, c.allocator) for c in experiment.cells] == list(
        itertools.product((0, 1, 2), NAMES)
    )


def test_built_in_metrics_are_there_beside_the_printed_ones() -> None:
    live = prints(1.0, peak_bytes=30 * MIB, more=f"live_bytes: {20 * MIB}\nother: 3\n")
    experiment = run(single(), executor=Programs(lambda *_: live)).results.experiments[0]
    values = experiment.cells[0].runs[0].values
    assert values["seconds"] == 1.0
    assert values["wall_seconds"] == pytest.approx(1.5)
    assert values["peak_bytes"] == 30 * MIB
    assert values["peak_over_live"] == 1.5
    assert {"user_seconds", "system_seconds", "page_faults"} <= set(values)
    assert "other" not in values
    bare = run(single(metrics=[])).results.experiments[0].cells[0].runs[0]
    assert bare.failure is None
    assert "peak_over_live" not in bare.values


# --- failures ------------------------------------------------------------------------------------


def test_a_failure_is_a_row_and_two_in_a_row_end_that_cell_only() -> None:
    def pick(name: str, arguments: tuple[str, ...]) -> Any:
        if name == "other" and arguments[1] == "4":
            return Behaviour(signal=11, stderr="free(): invalid pointer\n")
        return prints(1.0)

    notes = Notes()
    found = run(definition(rounds=5), executor=Programs(pick), reporter=notes).results
    experiment = found.experiments[0]
    bad, good = experiment.cell(2, "other"), experiment.cell(1, "other")
    assert [r.failure.kind for r in bad.runs if r.failure] == ["signal", "signal"]
    assert (bad.gave_up, good.gave_up) == (True, False)
    assert len(good.runs) == 5
    assert len(all_runs(found)) == 8 * 5 + 2
    assert "sweep: other at threads=4: SIGSEGV" in notes.texts
    assert "sweep: other at threads=4 failed twice in a row and is not run again" in notes.texts
    assert notes.texts[-1] == "sweep: done: 42 runs, 2 failed"


def test_one_failure_now_and_then_does_not_end_a_cell() -> None:
    count = itertools.count()

    def pick(name: str, _arguments: tuple[str, ...]) -> Any:
        flaky = name == "other" and next(count) % 2 == 0
        return Behaviour(exit_code=3) if flaky else prints(1.0)

    cell = run(single(rounds=6), executor=Programs(pick)).results.experiments[0].cells[2]
    assert [r.failure is None for r in cell.runs] == [False, True] * 3
    assert not cell.gave_up
    assert set(cell.values("seconds")) == {2, 4, 6}


def test_a_metric_that_is_not_printed_is_a_failure() -> None:
    mute = Behaviour(seconds=2.0, stdout="done\n")
    cell = run(single(), executor=Programs(lambda *_: mute)).results.experiments[0].cells[0]
    failure = cell.runs[0].failure
    assert (failure.kind, failure.text) == ("metric", "no line `seconds: NUMBER` in the output")
    assert cell.runs[0].values["wall_seconds"] == pytest.approx(2.0)
    assert cell.values("wall_seconds") == {}


# --- causes --------------------------------------------------------------------------------------


def test_causes_come_after_the_rounds_once_for_each_cell() -> None:
    executor = Programs()
    inside = Counting(executor, ["tsmalloc"], merges=3.0, frees=1.0)
    outside = Counting(executor, frees=2.0)
    found = run(executor=executor, observers=[inside, outside]).results
    assert len(outside.requests) == 9
    assert {r.allocator.name for r in inside.requests} == {"tsmalloc"}
    assert len(executor.requests) == 27  # the timed ones; none of them watched
    for cell in found.experiments[0].cells:
        expected = {"merges": 3.0, "frees": 2.0} if cell.allocator == "tsmalloc" else {"frees": 2.0}
        assert cell.causes.counts == expected
    request = outside.requests[0]
    assert request.command[1:] == ("--threads", "1", "--under", "tsmalloc")
    assert request.timeout_seconds == max(causes.MIN_TIMEOUT_SECONDS, 1.5 * causes.TIMEOUT_FACTOR)


@pytest.mark.parametrize(("at", "points"), [("all", [0, 1, 2]), ("ends", [0, 2]), ("none", [])])
def test_a_file_says_at_which_points_causes_are_counted(at: Any, points: list[int]) -> None:
    executor = Programs()
    observers = [Counting(executor, futex_calls=1.0)]
    found = run(definition(causes=at), executor=executor, observers=observers).results
    counted = [cell for cell in found.experiments[0].cells if cell.causes is not None]
    assert [(c.point, c.allocator) for c in counted] == list(itertools.product(points, NAMES))


def test_causes_are_counted_if_asked_and_all_went_well() -> None:
    def pick(name: str, _arguments: tuple[str, ...]) -> Any:
        return Behaviour(exit_code=1) if name == "other" else prints(1.0)

    executor = Programs(pick)
    counting = Counting(executor)
    cells = run(single(), executor=executor, observers=[counting]).results.experiments[0].cells
    assert [cell.causes is not None for cell in cells] == [True, True, False]
    none = Counting(executor)
    run(single(), executor=executor, observers=[none], with_causes=False)
    assert none.requests == []


def test_maps_are_kept_at_the_last_point_and_not_too_large() -> None:
    blocks = [MapBlock(1, 16, "used" if i % 2 else "free", 0, 0.0) for i in range(9000)]
    heap = HeapMap("all live", [MapChunk(0, 9000 * 16, blocks)], 1)

    class Mapping(Counting):
        def observe(self, request: Any, folder: Path) -> Causes:
            return replace(super().observe(request, folder), maps=[heap])

    executor = Programs()
    found = run(executor=executor, observers=[Mapping(executor)]).results
    for cell in found.experiments[0].cells:
        assert len(cell.causes.maps) == (1 if cell.point == 2 else 0)
        for kept in cell.causes.maps:
            assert len(kept.chunks[0].blocks) < 4000


def test_what_cannot_be_counted_is_a_note() -> None:
    class Broken(Counting):
        def observe(self, request: Any, folder: Path) -> Causes:
            raise UserError("the tool syscalls is not built.", "Build it.")

    executor = Programs()
    observers = [Broken(executor), Counting(executor, frees=2.0)]
    cell = run(single(), executor=executor, observers=observers).results.experiments[0].cells[0]
    assert cell.causes.notes == ["the tool syscalls is not built."]
    assert cell.causes.counts == {"frees": 2.0}


def test_causes_are_merged_by_count_and_by_thread() -> None:
    curve = Curve([[0.0, 1.0]], [[0.0, 0.5]], 0.01)
    first = Causes({"frees": 1.0, "merges": 2.0}, [{"frees": 1.0}], None, [], ["a", "b"])
    second = Causes({"frees": 3.0}, [], curve, [], ["b"])
    merged = causes.merged([first, second])
    assert merged.counts == {"frees": 3.0, "merges": 2.0}
    assert merged.threads == [{"frees": 1.0}]
    assert merged.memory == curve
    assert merged.notes == ["a", "b"]
    assert causes.merged([]) == causes.NOTHING

    def part(*threads: dict[str, float]) -> Causes:
        return Causes({}, list(threads), None, [], [])

    both = causes.merged([part({"a": 1.0}, {"a": 2.0}), part({"b": 3.0}, {"a": 4.0})])
    assert both.threads == [{"a": 1.0, "b": 3.0}, {"a": 4.0}]
    assert causes.merged([part({"a": 1.0}), part({"b": 3.0}, {"b": 4.0})]).threads == [{"a": 1.0}]
    many = causes.merged([part(*({"a": float(number)} for number in range(1000)))])
    assert [thread["a"] for thread in many.threads] == list(range(causes.MOST_THREADS))
    assert "of 1000 threads or more" in many.notes[0]


# --- how it ends ---------------------------------------------------------------------------------


def test_a_budget_takes_rounds_from_all_but_leaves_three() -> None:
    # A round of both takes 2 * 3 * 1.5 = 9 simulated seconds, and the estimate a little more.
    both = [single("one", rounds=50), single("two", rounds=50)]
    found = run(*both, time_budget_seconds=48.0).results
    assert [len(order(found, index)) for index in (0, 1)] == [5, 5]
    assert found.stop.reason == "budget"
    assert "5 rounds done" in found.stop.text
    found = run(*both, time_budget_seconds=1.0).results
    assert [len(order(found, index)) for index in (0, 1)] == [3, 3]
    found = run(single(rounds=2), time_budget_seconds=1.0).results
    assert (len(order(found)), found.stop.reason if found.stop else "") == (2, "runs")


def test_a_budget_leaves_time_for_the_causes() -> None:
    # A round takes 4.5 s (4.65 s by the estimate), causes by the estimate three times that: what
    # fits into 38 s without them is 8 rounds, with them 5.
    executor = Programs()
    observers = [Counting(executor)]
    found = run(
        single(rounds=50), executor=executor, observers=observers, time_budget_seconds=38.0
    ).results
    assert len(order(found)) == 5
    assert len(observers[0].requests) == 3


def test_an_interrupt_loses_the_run_in_progress_only() -> None:
    executor = Programs()
    executor.interrupt_at_run = 10
    outcome = run(executor=executor)
    assert outcome.error is None
    assert outcome.results.stop.reason == "interrupted"
    assert len(all_runs(outcome.results)) == 10
    assert "interrupted by the user" in text.report(outcome.results, 100)


def test_an_interrupt_while_counting_keeps_what_was_timed() -> None:
    class Interrupted(Counting):
        def observe(self, request: Any, folder: Path) -> Causes:
            if len(self.requests) == 2:
                raise KeyboardInterrupt
            return super().observe(request, folder)

    executor = Programs()
    found = run(executor=executor, observers=[Interrupted(executor)]).results
    assert found.stop.reason == "interrupted"
    assert len(all_runs(found)) == 27
    assert sum(cell.causes is not None for cell in found.experiments[0].cells) == 2


def test_what_breaks_the_run_leaves_what_was_measured() -> None:
    executor = Programs()
    executor.interrupt_at_run, executor.error = 5, UserError("measure failed.")
    outcome = run(executor=executor)
    assert outcome.error is not None
    stop = outcome.results.stop
    assert (stop.reason, stop.text) == ("aborted", "measure failed.")
    assert len(all_runs(outcome.results)) == 5
    for error in (KeyboardInterrupt(), UserError("measure failed.")):
        executor = Programs()
        executor.interrupt_at_run, executor.error = 0, error
        with pytest.raises(type(error)):
            run(executor=executor)


def test_a_file_that_changes_meanwhile_is_told(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("old")

    def pick(*_: object) -> Any:
        program.write_text("new")
        return prints(1.0)

    found = run(single(), executor=Programs(pick), program=program).results
    assert found.changed == [str(program)]
    assert text.troubles(found)[0].code == "changed"
    assert run(single()).results.changed == []


def test_results_can_be_read_back(tmp_path: Path) -> None:
    executor = Programs()
    found = run(
        definition(reported=[Reported("E", "?", ["t"], [[1]], "")]),
        executor=executor,
        observers=[Counting(executor, frees=2.0)],
    ).results
    path = records.save(found, [tmp_path])
    assert model.read(path) == found
    with pytest.raises(UserError, match="'tsmalloc-compare/1'"):
        model.from_json('{"schema": "tsmalloc-compare/1"}')
    with pytest.raises(UserError, match="No such file"):
        model.read(tmp_path / "none")


# --- the plan ------------------------------------------------------------------------------------


def test_the_estimate_is_made_of_rounds_and_causes() -> None:
    several = plans([definition(rounds=2, run_seconds=0.95), single(rounds=4, run_seconds=1.95)])
    expected = plan.estimate(several, lambda _: 2)
    assert expected.rounds == pytest.approx([9 + 6, 9 + 6, 6, 6])
    assert expected.causes == pytest.approx(2 * WATCHED_FACTOR * (9 + 6))
    assert expected.seconds == pytest.approx(42 + expected.causes)
    assert expected.rounds_within(expected.causes + 37.0) == 3
    assert expected.rounds_within(expected.causes + 36.0) == 3
    assert expected.rounds_within(1.0) == 3
    assert expected.shortened(None) == expected
    assert plan.budget_note(expected, None) is None
    assert plan.budget_note(expected, expected.seconds) is None
    note = plan.budget_note(expected, expected.causes + 37.0)
    assert note.startswith("about 3 of 4 rounds fit into ")
    note = plan.budget_note(replace(expected, causes=60.0), 30.0)
    assert note.startswith("even 3 rounds take about 96 s, not 30 s: ")
    assert "2 experiments, 30 runs in 2 to 4 rounds, about 102 s" in plan.summary(
        several, replace(expected, causes=60.0)
    ).replace("about 2 min", "about 102 s")


def test_what_a_file_names_but_is_not_installed_is_left_out_with_a_note() -> None:
    available = [World.allocator(name) for name in NAMES]
    notes: list[str] = []

    def planned(*allocators: str) -> plan.Plan:
        asked = single(program="sh", allocators=list(allocators))
        return plan.plan(asked, available, [], None, True, notes.append)

    assert [allocator.name for allocator in planned("glibc", "mimalloc").allocators] == ["glibc"]
    assert notes[0].startswith("single: without mimalloc (sudo apt install libmimalloc")
    with pytest.raises(UserError, match="none of its allocators is installed"):
        planned("mimalloc")
    with refused("no allocator 'glibk'", remedy="Did you mean glibc?"):
        planned("glibk")
    asked = plan.plan(single(program="sh"), available, ["other"], 9, False, notes.append)
    assert ([a.name for a in asked.allocators], asked.rounds) == (["other"], 9)
    assert asked.causes_points == []


# --- texts ---------------------------------------------------------------------------------------


def scaled() -> Programs:
    """other is twice as slow as the rest, glibc best at four threads, tsmalloc elsewhere."""

    def pick(name: str, arguments: tuple[str, ...]) -> Any:
        threads = int(arguments[1])
        factor = {"tsmalloc": 1.0, "glibc": 1.1 if threads < 4 else 0.5, "other": 3.0}[name]
        if name == "other" and threads == 2:
            return Behaviour(signal=11, stderr="first\nfree(): invalid pointer\n")
        return prints(factor / threads)

    return Programs(pick)


def test_the_table_has_medians_and_marks_the_best() -> None:
    found = run(executor=scaled()).results
    report = text.report(found, 100)
    rows = {line.split()[0]: line.split()[1:] for line in report.splitlines() if line.strip()}
    assert rows["allocator"] == ["1", "2", "4"]
    assert rows["tsmalloc"] == ["1.00", "s*", "500", "ms*", "250", "ms"]
    assert rows["glibc"] == ["1.0", "1.10", "s", "550", "ms", "125", "ms*"]
    assert rows["other"] == ["3.00", "s", "failed", "750", "ms"]
    assert report.index("\nglibc") < report.index("\ntsmalloc") < report.index("\nother")
    assert "median of time (lower is better), by threads; 3 rounds" in report
    assert "FAILED other at threads=2: SIGSEGV (2 of 2 runs; not run again)" in report
    assert "| free(): invalid pointer" in report


def test_where_higher_is_better_the_highest_is_marked() -> None:
    metric = Metric("seconds", "speed", "number", higher_is_better=True)
    report = text.report(run(definition(metrics=[metric]), executor=scaled()).results, 100)
    (line,) = [line for line in report.splitlines() if line.startswith("other")]
    assert line.split()[1] == "3.00*"
    assert "median of speed (higher is better)" in report


def test_one_point_shows_every_metric_counted_ones_too() -> None:
    metrics = [
        Metric("seconds", "time", "seconds", higher_is_better=False),
        Metric("frees", "calls of free", "count", higher_is_better=False, source="causes"),
    ]
    executor = Programs()
    observers = [Counting(executor, ["glibc"], frees=1234.0)]
    found = run(single(metrics=metrics), executor=executor, observers=observers).results
    lines = text.report(found, 100).splitlines()
    head = next(line for line in lines if line.startswith("allocator"))
    assert head.split("  ")[-1].strip() == "peak memory"
    assert "calls of free" in head
    glibc = next(line for line in lines if line.startswith("glibc"))
    assert "1.23k" in glibc
    other = next(line for line in lines if line.startswith("other"))
    assert " - " in other


def test_a_wide_sweep_is_folded() -> None:
    sweep = Parameter("threads", "threads", list(range(1, 21)))
    found = run(definition(parameters=[sweep], rounds=1)).results
    lines = text.report(found, 60).splitlines()
    heads = [line.split()[1:] for line in lines if line.startswith("allocator")]
    assert len(heads) > 1
    assert [int(head) for part in heads for head in part] == list(range(1, 21))
    assert all(len(line.rstrip()) <= 60 for line in lines if line.startswith(("alloc", *NAMES)))


def test_markdown_has_tables_reported_ones_and_the_machine() -> None:
    reported = Reported("D", "a phenom", ["allocator", "s"], [["ptmalloc", 5.142]], "32 threads")
    found = run(definition(reported=[reported]), executor=scaled()).results
    markdown = text.markdown(found)
    assert "## sweep and more" in markdown
    assert "| ptmalloc | 5.142 |" in markdown
    assert "Reported (D; a phenom):" in markdown
    assert "32 threads" in markdown
    assert "- FAILED other at threads=2" in markdown
    assert found.machine.kernel in markdown
    assert "- glibc 1.0" in markdown


def test_csv_has_a_line_for_each_run_and_few_rounds_are_a_warning() -> None:
    found = run(definition(), single("other-one"), executor=None).results
    lines = list(csv.DictReader(io.StringIO(text.formatted(found, "csv"))))
    assert len(lines) == 27 + 9
    assert {line["parameters"] for line in lines if line["experiment"] == "sweep"} == {
        f"threads={threads}" for threads in (1, 2, 4)
    }
    assert {float(line["seconds"]) for line in lines} == {1.0}
    assert {float(line["peak_bytes"]) for line in lines} == {20 * MIB}
    assert "few-rounds" in [t.code for t in text.troubles(run(single(rounds=2)).results)]
    assert "few-rounds" not in [t.code for t in text.troubles(run(single()).results)]


# --- progress ------------------------------------------------------------------------------------


def test_a_pipe_is_told_where_it_is_and_the_time_that_is_left() -> None:
    executor, stream = Programs(), io.StringIO()
    lines = Lines(stream, clock=executor.clock)
    # The files guess a second and the runs take one and a half: what has run is believed.
    both = [definition("one", rounds=20), single("two", rounds=40)]
    run(*both, executor=executor, observers=[Counting(executor)], reporter=lines)
    lines_written = stream.getvalue().splitlines()
    steps = [line for line in lines_written if ": done: " not in line]
    assert len(lines_written) == len(steps) + 2
    total = 20 * 9 + 40 * 3 + 9 + 3
    assert len(steps) > 20
    assert steps[0].startswith("round 1/40, one, run 8 of 312, about 7 min left")
    assert all(f" of {total}" in step for step in steps)
    done = [int(step.partition("run ")[2].split()[0]) for step in steps]
    assert done == sorted(done)
    # The last lines: counting, and hardly any time left.
    assert "counting, " in steps[-1]
    assert steps[-1].endswith(" s left")


def test_two_parameters_have_a_line_each_in_the_head() -> None:
    fits = Parameter("fit", "fit", ["best", "worst"])
    threads = Parameter("threads", "threads", [1, 16])
    arguments = ["{threads}", "{fit}"]
    found = run(definition(parameters=[fits, threads], arguments=arguments)).results
    lines = text.report(found, 100).splitlines()
    head = next(index for index, line in enumerate(lines) if line.startswith("allocator"))
    assert lines[head - 1].split() == ["best", "best", "worst", "worst"]
    assert lines[head].split() == ["allocator", "1", "16", "1", "16"]
    assert "| best 16 |" in text.markdown(found)
    # All are equally good here: none is marked as the best.
    assert not any("*" in line for line in lines[head:])


def test_a_table_shows_what_there_is() -> None:
    """The first metric needs causes, which were not asked for."""
    metrics = [
        Metric("merges", "merges", "count", higher_is_better=False, source="causes"),
        Metric("seconds", "time", "seconds", higher_is_better=False),
    ]
    report = text.report(run(definition(metrics=metrics)).results, 100)
    assert "median of time (lower is better)" in report
    report = text.report(run(single(metrics=metrics)).results, 100)
    assert "time  peak memory" in report


def test_time_left_is_as_the_runs_were_so_far() -> None:
    progress = Progress(Silence(), rounds=3)
    part = progress.add("one", 2.0, {"a": 3, "b": 3}, {"a": 2, "b": 2})
    margin = pytest.approx
    over = OVERHEAD_SECONDS
    # Nothing has run: the file's guess, and watched runs slower by the usual factor.
    assert progress.seconds_left() == margin((2.0 + over) * (6 + 4 * WATCHED_FACTOR))
    part.watched("a", 3.0 * part.run_seconds("a"))
    assert progress.causes_seconds() == margin((2.0 + over) * 3 * 3.0)
    part.end_rounds()
    part.forget("b")
    assert progress.seconds_left() == margin((2.0 + over) * 3.0)
