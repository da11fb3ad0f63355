"""A comparison of simulated programs: the order of events, and what is saved. Its progress: a bar
on a terminal, sparse lines in a pipe, nothing with --quiet.
"""

import csv
import io
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from conftest import Behaviour, SimulatedExecutor, World
from experiment_fixtures import Notes, programs
from refusals import mentions, refused
from rich.console import Console

from tsmlab import doctor, records, render, tables, texts
from tsmlab.compare import MIN_TIMEOUT_SECONDS
from tsmlab.metrics import CUSTOM, TIME, parse_all, parse_custom
from tsmlab.progress import Bar, Lines, SilentReporter, reporter_for
from tsmlab.schedule import StopRule
from tsmlab.stats import Verdict
from tsmlab.study import Study, from_json
from tsmlab.sweep import Parameter

TWO = {"glibc": Behaviour(), "a": Behaviour()}


def codes(comparison):
    return {warning.code for warning in comparison.warnings}


def test_the_reference_is_tried_first_then_warmed_up_then_measured():
    comparison = World.comparison(TWO, rule=StopRule(runs=2))
    phases = [(s.phase, s.round) for s in comparison.samples]
    assert phases == [("probe", 0), *[("warmup", 1)] * 3, *[("measured", 1)] * 3,
                      *[("measured", 2)] * 3]  # fmt: skip
    assert comparison.samples[0].allocator == "glibc"


@pytest.mark.parametrize(
    ("seconds", "given", "at_first", "later"),
    [(2.0, None, None, 40.0), (0.01, None, None, MIN_TIMEOUT_SECONDS), (0.1, 3.0, 3.0, 3.0)],
)
def test_a_hang_is_told_by_the_references_time_or_by_the_user(seconds, given, at_first, later):
    executor = SimulatedExecutor(TWO | {"glibc": Behaviour(seconds=seconds)})
    settings = World.comparison(TWO, executor=executor, timeout_seconds=given).settings
    assert executor.requests[0].timeout_seconds == at_first
    assert {r.timeout_seconds for r in executor.requests[1:]} == {later}
    assert settings.timeout_seconds == later
    assert settings.timeout_chosen_by == ("user" if given else "lab")


@pytest.mark.parametrize(
    ("change", "message", "remedy"),
    [
        ({"exit_code": 3, "stderr": "no such table"}, "exit 3\nno such table", "--expect-exit 3"),
        ({"signal": 6}, "SIGABRT", ""),
        ({"timed_out": True}, "", "--timeout"),
        ({"spawn_error": {"errno": 2, "message": "not there"}}, "not there", "name"),
        ({"stdout": "no rate"}, "", "--metric"),
    ],
)
def test_a_failing_reference_ends_it_with_a_remedy(change, message, remedy):
    program = {"metrics": (parse_custom(r"(\d+)"),)}
    with refused(message, remedy=remedy):
        World.comparison(TWO | {"glibc": Behaviour(**change)}, program=program)


def test_output_that_varies_by_itself_fails_nobody():
    def varying(*texts):
        changes = tuple((n, Behaviour(stdout=text)) for n, text in enumerate(texts))
        return Behaviour(changes=changes)

    behaviours = {"glibc": varying("1", "2", "3"), "a": varying("4")}
    comparison = World.comparison(behaviours)
    assert comparison.output_comparable is False
    assert not comparison.failed_rows
    assert "output-varies" in codes(comparison)


@pytest.mark.parametrize(("run", "rounds"), [(15, 4), (2, 0)])
def test_ctrl_c_keeps_what_was_measured(run, rounds):
    comparison = World.comparison(TWO, interrupt_at_run=run)
    assert comparison.interrupted
    assert (len(comparison.samples), comparison.analysis.rounds) == (run, rounds)
    for row in comparison.analysis.rows:
        assert bool(row.metrics) == bool(rounds)
        assert not rounds or row.allocator == "glibc" or row.metrics[TIME].ratio.pairs >= 3
    with pytest.raises(KeyboardInterrupt):
        World.comparison(TWO, interrupt_at_run=0)


def test_a_hook_that_fails_later_keeps_what_was_measured(tmp_path):
    # The probe, three warm-up runs and five measured ones each take a token; then there is none.
    (tmp_path / "tokens").write_text("x" * 9)
    line = (
        f"n=$(wc -c < {tmp_path}/tokens); test $n -gt 0 && "
        f"head -c $((n - 1)) {tmp_path}/tokens > {tmp_path}/t && mv {tmp_path}/t {tmp_path}/tokens"
    )
    outcome = World.outcome(TWO, program={"setup": line})
    assert "setup command failed" in outcome.error.message
    assert outcome.results.stop.reason == "aborted"
    assert sum(s.phase == "measured" for s in outcome.results.samples) == 5


def test_a_budget_too_small_for_five_rounds_is_announced():
    behaviours = {"glibc": Behaviour(seconds=10.0), "a": Behaviour(seconds=10.0)}
    notes, rule = Notes(), StopRule(time_budget_seconds=70.0)
    comparison = World.comparison(behaviours, reporter=notes, rule=rule)
    assert notes.expected == 2
    for told in ("2 of 5 rounds", "--time-budget 165"):
        assert any(told in text for text in notes.texts)
    assert comparison.analysis.rounds == 2
    assert "few-rounds" in codes(comparison)


def test_it_stops_by_itself_when_all_is_clear():
    behaviours = {
        "glibc": Behaviour(noise=0.001),
        "a": Behaviour(seconds=0.2, noise=0.001, peak_bytes=1 << 20),
    }
    comparison = World.comparison(behaviours, rule=StopRule())
    assert (comparison.stop.reason, comparison.analysis.rounds) == ("resolved", 5)


# --- sweeps --------------------------------------------------------------------------------------


THREADS = Parameter("threads", "threads", [1, 4])


def swept(pick, rounds=6, **changes):
    """A comparison at two points; `pick` determines the program's behaviour."""
    executor = programs(lambda name, arguments: pick(name, int(arguments[0])))
    comparison = World.comparison(
        dict.fromkeys(("glibc", "a", "b")),
        executor=executor,
        program={"command": ("./program", "{threads}")},
        parameters=(THREADS,),
        rule=StopRule(runs=rounds),
        **changes,
    )
    return comparison, executor


def crossing(name, threads):
    """a is best with one thread, b with four; on average, both are at 0.8 of glibc."""
    factor = {"glibc": 1.0, "a": 0.8 * 2 ** (threads - 2.5), "b": 0.8 * 2 ** (2.5 - threads)}[name]
    return Behaviour(seconds=threads * factor)


def test_a_sweep_runs_every_allocator_at_every_point_of_a_round():
    comparison, executor = swept(lambda *_: Behaviour(), rounds=2)
    probes = [s for s in comparison.samples if s.phase == "probe"]
    assert [(s.allocator, s.point) for s in probes] == [("glibc", 0), ("glibc", 1)]
    for number in (1, 2):
        own = [s for s in comparison.samples if (s.phase, s.round) == ("measured", number)]
        assert sorted((s.point, s.allocator, s.replicate) for s in own) == sorted(
            (point, name, replicate)
            for point in (0, 1)
            for name, replicate in (("glibc", 0), ("glibc", 1), ("a", 0), ("b", 0))
        )
        assert [s.position for s in own] == list(range(1, 9))
        assert len({s.padding_bytes for s in own}) == 1
        # Points are mixed within a round, not one after the other.
        assert [s.point for s in own] != sorted(s.point for s in own)
    assert {request.command[1] for request in executor.requests} == {"1", "4"}
    assert comparison.command == ["./program", "{threads}"]


def test_each_point_is_judged_by_itself_and_the_whole_by_geometric_means():
    comparison, _ = swept(crossing, ask_order=True)
    assert [point.values for point in comparison.points] == [{"threads": 1}, {"threads": 4}]
    verdicts = [
        {row.allocator: row.metrics[TIME].verdict for row in point.analysis.rows}
        for point in comparison.points
    ]
    assert verdicts[0] == {"glibc": None, "a": Verdict.BETTER, "b": Verdict.WORSE}
    assert verdicts[1] == {"glibc": None, "a": Verdict.WORSE, "b": Verdict.BETTER}
    whole = {row.allocator: row.metrics[TIME].ratio for row in comparison.analysis.rows}
    for name in ("a", "b"):
        assert whole[name].ratio == pytest.approx(0.8)
        assert whole[name].pairs == 6
    (finding,) = comparison.findings
    assert finding.verdict == "the winner changes"
    assert "outliers" not in codes(comparison)


def test_all_forms_of_the_results_have_the_points():
    comparison, _ = swept(crossing, ask_order=True)
    study = Study.of("compare", [comparison])
    assert from_json(records.to_json(study)) == study
    lines = list(csv.DictReader(io.StringIO(texts.to_csv(study))))
    assert {(line["threads"], line["allocator"]) for line in lines} == {
        (threads, name) for threads in ("1", "4") for name in ("glibc", "a", "b")
    }
    for text in (texts.report(study, 100), texts.markdown(study)):
        assert text.index("Recommendation: ") < text.index("The winner changes: ")
        mentions(text, "time by threads: medians (lower is better)", "$ ./program {threads}")
    table = texts.report(study, 100).split("time by threads")[1].splitlines()
    assert next(line for line in table if line.startswith("a ")).split()[1:] == [
        *("283", "ms", "<", "9.05", "s", ">")
    ]


def test_a_hang_is_told_by_the_longest_probe():
    comparison, _ = swept(lambda _, threads: Behaviour(seconds=float(threads)))
    assert comparison.settings.timeout_seconds == 80.0
    with refused("under the reference glibc at threads=4: exit 3"):
        swept(lambda _, threads: Behaviour(exit_code=3 if threads == 4 else 0))


def test_an_allocator_that_fails_at_one_point_is_not_run_there_again_and_has_no_rank():
    def pick(name, threads):
        return Behaviour(signal=11) if (name, threads) == ("a", 4) else Behaviour()

    comparison, _ = swept(pick)
    runs = [s.point for s in comparison.samples if s.allocator == "a" and s.phase == "measured"]
    assert (runs.count(0), runs.count(1)) == (6, 1)  # and one in the warm-up
    rows = {row.allocator: row for row in comparison.analysis.rows}
    assert (rows["a"].rank, rows["a"].gave_up) == (None, True)
    own = {row.allocator: row.rank for row in comparison.points[0].analysis.rows}
    assert own["a"] is not None
    report = tables.text_of(render.blocks(comparison), 100)
    table = report.split("time by threads")[1].splitlines()
    assert next(line for line in table if line.startswith("a ")).split()[-1] == "failed"


def test_outputs_are_compared_with_the_references_at_the_same_point():
    def pick(name, threads):
        wrong = name == "b" and threads == 4
        return Behaviour(stdout="wrong" if wrong else f"{threads} threads")

    comparison, _ = swept(pick)
    assert comparison.output_comparable is True
    assert {(s.allocator, s.point) for s in comparison.samples if s.failure} == {("b", 1)}


def test_placeholders_reach_hooks_and_variables(tmp_path):
    own = replace(World.allocator("a"), env={"CONF": "n:{threads},{other}"})
    executor = programs(lambda *_: Behaviour())
    World.comparison(
        {"glibc": None},
        executor=executor,
        program={
            "command": ("./program", "{threads}", "{{threads}}", "{allocator}"),
            "setup": f"echo {{threads}} >> {tmp_path}/log",
        },
        allocators=(World.allocator("glibc"), own),
        parameters=(THREADS,),
        rule=StopRule(runs=1),
        warmup_rounds=0,
    )
    ran = [(*r.command[1:], r.env["CONF"]) for r in executor.requests if r.allocator.name == "a"]
    assert sorted(ran) == [(n, "{threads}", "a", f"n:{n},{{other}}") for n in ("1", "4")]
    assert sorted((tmp_path / "log").read_text().split()) == ["1"] * 4 + ["4"] * 4


# --- metrics -------------------------------------------------------------------------------------


def test_every_metric_is_read_with_its_unit_and_judged():
    behaviours = {
        "glibc": Behaviour(stdout="latency 3.61ms\nrate 900\n"),
        "a": Behaviour(stdout="latency 174us\nrate 45.9k\n"),
    }
    metrics = parse_all([r"latency=latency (\S+)", r"rate=rate ([0-9.]+):higher"])
    comparison = World.comparison(behaviours, program={"metrics": metrics}, check_output=False)
    assert comparison.analysis.primary_metric == CUSTOM
    specs = {spec.key: spec for spec in comparison.metrics}
    assert (specs[CUSTOM].unit, specs["custom2"].unit) == ("seconds", "count")
    assert (comparison.output_comparable, comparison.failed_rows) == (None, [])
    row = next(r for r in comparison.analysis.rows if r.allocator == "a")
    assert row.metrics[CUSTOM].median == pytest.approx(174e-6)
    assert row.metrics["custom2"].median == pytest.approx(45_900)
    assert row.metrics["custom2"].verdict is Verdict.BETTER
    assert comparison.settings.metric_patterns == [m.pattern for m in metrics]


def test_a_column_of_mixed_units_is_refused():
    behaviours = {
        "glibc": Behaviour(stdout="took 12 ms\n"),
        "a": Behaviour(stdout="took 12\n"),
        "b": Behaviour(stdout="took 0.01s\n"),
    }
    metrics = parse_all([r"took (.*)"])
    comparison = World.comparison(behaviours, program={"metrics": metrics}, check_output=False)
    (failed,) = comparison.failed_rows
    assert failed.allocator == "a"
    assert "seconds" in failed.failure.text


# --- the doctor ----------------------------------------------------------------------------------


def diagnosis(*findings, found=True):
    resolved = object() if found else None
    return doctor.Diagnosis(("./program",), resolved, findings)


@pytest.mark.parametrize("found", [True, False])
def test_a_fatal_finding_stops_it_at_once(monkeypatch, found):
    """The remedy offers --no-doctor only if the program was found."""
    finding = doctor.Finding("fatal", "code", "It cannot be done.", "Do something else.")
    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: diagnosis(finding, found=found))
    executor = SimulatedExecutor(TWO)
    with refused(finding.message, remedy=finding.remedy) as caught:
        World.comparison(TWO, executor=executor, consult_doctor=True)
    assert ("--no-doctor" in caught.value.remedy) is found
    assert not executor.requests


def test_the_doctors_warnings_are_shown_once(monkeypatch):
    finding = doctor.Finding("warning", "python", "Python has its own.", "PYTHONMALLOC=malloc")
    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: diagnosis(finding))
    notes = Notes()
    World.comparison(TWO, reporter=notes, consult_doctor=True)
    assert sum(finding.full_text in text for text in notes.texts) == 1


def counted(program, provider):
    """A diagnosis of a run under the reference in which this library provided malloc."""
    image = SimpleNamespace(pid=1, program=program, provider=provider, calls=5000, deep_bound="")
    measurement = SimpleNamespace(failed=False, exit_code=0)
    proof = doctor.Proof(World.allocator("glibc"), measurement, (image,))
    return doctor.Diagnosis(("./program",), None, tuple(doctor._proof_findings(proof)), (proof,))  # noqa: SLF001


@pytest.mark.parametrize(
    ("provider", "row"),
    [
        ("/lib/x86_64-linux-gnu/libjemalloc.so.2", "glibc 1.0 (libjemalloc.so.2)"),
        ("/lib/x86_64-linux-gnu/libc.so.6", "glibc 1.0"),
    ],
)
def test_the_row_of_a_program_with_an_allocator_of_its_own_says_so(monkeypatch, provider, row):
    """Also if a script starts it, whose own file does not reveal that."""
    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: counted("/usr/bin/server", provider))
    found = World.comparison(TWO, consult_doctor=True)
    text = tables.text_of(render.blocks(found), 160)
    table = next(part for part in text.split("\n\n") if "95% CI" in part)
    assert any(f"  {row}  " in line for line in table.splitlines())
    sentence = "server uses libjemalloc.so.2"
    is_other = "jemalloc" in provider
    assert (found.served_by == {"server": "libjemalloc.so.2"}) is is_other
    assert ("linked-allocator" in codes(found)) is is_other
    assert (sentence in text[: text.index(table)]) is is_other
    assert (sentence in texts.markdown(Study.of("compare", [found]))) is is_other


def test_a_daemon_is_an_error_that_says_what_to_do(monkeypatch):
    class Leaving(SimulatedExecutor):
        def run(self, request):
            measurement = super().run(request)
            return replace(measurement, raw={**measurement.raw, "left_behind": 1})

    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: diagnosis())
    with refused("1 process", remedy="foreground"):
        World.comparison(TWO, executor=Leaving(TWO), consult_doctor=True)
    assert World.comparison(TWO, executor=Leaving(TWO), consult_doctor=False)


# --- progress -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_the_stream_decides():
    assert type(reporter_for(quiet=True, stream=Terminal())) is SilentReporter
    assert type(reporter_for(quiet=False, stream=io.StringIO())) is Lines
    assert type(reporter_for(quiet=False, stream=Terminal())) is Bar


def test_a_pipe_gets_a_line_every_ten_seconds_at_most():
    behaviours = {"glibc": Behaviour(seconds=1.0), "a": Behaviour(seconds=1.0)}
    executor, stream = SimulatedExecutor(behaviours), io.StringIO()
    reporter = Lines(stream, clock=executor.clock)
    World.comparison(behaviours, executor=executor, reporter=reporter, rule=StopRule(runs=40))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("preflight")
    rounds = [line for line in lines if line.startswith("round")]
    assert 8 <= len(rounds) <= 12  # 120 simulated seconds
    assert re.fullmatch(r"round \d+ of at most 40, run \d of 3, about \d+ s left", rounds[-1])
    assert not set("\x1b\r") & set(stream.getvalue())


def test_a_terminal_sees_rounds_allocators_failures_and_notes_that_are_no_markup():
    good, stream = Behaviour(seconds=1.0), Terminal()
    behaviours = {"glibc": good, "bad": Behaviour(signal=11), "good": good}
    with Bar(Console(file=stream, force_terminal=True, width=100)) as reporter:
        World.comparison(behaviours, reporter=reporter, rule=StopRule(runs=3))
        reporter.note("a [red]plain[/red] note")
    told = ("bad: SIGSEGV", "bad failed", "3/≤3", "a [red]plain[/red] note")
    mentions(stream.getvalue(), *told)


def test_more_rounds_than_were_expected_have_no_end_that_is_known():
    """Later rounds may be shorter than the first, from which the number was estimated."""
    behaviours = {"glibc": Behaviour(seconds=20.0)}
    executor, stream = SimulatedExecutor(behaviours), io.StringIO()
    reporter = Lines(stream, clock=executor.clock)
    reporter.expect = lambda _: None
    reporter._expected = 4  # noqa: SLF001
    World.comparison(behaviours, executor=executor, reporter=reporter, rule=StopRule(runs=9))
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("round ")]
    assert lines[-1] == "round 9, run 2 of 2"
    assert "round 4 of at most 4, run 2 of 2, about 20 s left" in lines
