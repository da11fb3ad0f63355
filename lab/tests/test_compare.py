"""The flow of a comparison on simulated programs: what happens after what, and what is kept."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import Behaviour, SimulatedExecutor, World
from experiment_world import Notes
from refusals import refused

from tsmlab import doctor
from tsmlab.compare import MIN_TIMEOUT_SECONDS, compare
from tsmlab.errors import UserError
from tsmlab.journal import Unkept
from tsmlab.metrics import TIME, parse_custom
from tsmlab.schedule import StopRule


def test_the_reference_is_tried_first_then_warmed_up_then_measured() -> None:
    behaviours = {"glibc": Behaviour(), "a": Behaviour()}
    comparison = World.comparison(behaviours, rule=StopRule(runs=2))
    phases = [(s.phase, s.round) for s in comparison.samples]
    assert phases == [("probe", 0), *[("warmup", 1)] * 3, *[("measured", 1)] * 3,
                      *[("measured", 2)] * 3]  # fmt: skip
    assert comparison.samples[0].allocator == "glibc"


def test_a_hang_is_told_by_the_references_time_or_by_the_user() -> None:
    slow = {"glibc": Behaviour(seconds=2.0), "a": Behaviour()}
    executor = SimulatedExecutor(slow)
    comparison = World.comparison(slow, executor=executor, rule=StopRule(runs=1))
    assert executor.requests[0].timeout_seconds is None
    assert {r.timeout_seconds for r in executor.requests[1:]} == {40.0}
    assert comparison.settings.timeout_seconds == 40.0
    assert comparison.settings.timeout_chosen_by == "lab"

    quick = {"glibc": Behaviour(seconds=0.01), "a": Behaviour()}
    assert World.comparison(quick).settings.timeout_seconds == MIN_TIMEOUT_SECONDS
    behaviours = {"glibc": Behaviour(), "a": Behaviour()}
    executor = SimulatedExecutor(behaviours)
    comparison = World.comparison(behaviours, executor=executor, timeout_seconds=3.0)
    assert {r.timeout_seconds for r in executor.requests} == {3.0}
    assert comparison.settings.timeout_chosen_by == "user"


@pytest.mark.parametrize(
    ("change", "message", "remedy"),
    [
        ({"exit_code": 3, "stderr": "no such table"}, "exit 3\nno such table", "--expect-exit 3"),
        ({"signal": 6}, "SIGABRT", "by itself"),
        ({"timed_out": True}, "timed out", "--timeout"),
        ({"spawn_error": {"errno": 2, "message": "not there"}}, "not there", "name"),
    ],
)
def test_a_failing_reference_ends_it_with_a_remedy(
    change: dict[str, Any], message: str, remedy: str
) -> None:
    with refused(message, remedy=remedy):
        World.comparison({"glibc": Behaviour(**change), "a": Behaviour()})


def test_a_metric_that_the_reference_does_not_print_ends_it() -> None:
    with refused("no number for metric in the output", remedy="--metric"):
        World.comparison({"glibc": Behaviour()}, program={"metric": parse_custom(r"rate: (\d+)")})


def test_output_that_varies_by_itself_fails_nobody() -> None:
    def varying(*texts: str) -> Any:
        changes = tuple((n, Behaviour(stdout=text)) for n, text in enumerate(texts))
        return Behaviour(changes=changes)

    behaviours = {"glibc": varying("1", "2", "3"), "a": varying("4")}
    comparison = World.comparison(behaviours)
    assert comparison.output_comparable is False
    assert not comparison.failed_rows
    assert "output-varies" in {w.code for w in comparison.warnings}


def test_ctrl_c_keeps_what_was_measured() -> None:
    behaviours = {"glibc": Behaviour(), "a": Behaviour(seconds=0.05)}
    executor = SimulatedExecutor(behaviours, interrupt_at_run=15)
    comparison = World.comparison(behaviours, executor=executor)
    assert comparison.interrupted
    assert len(comparison.samples) == 15
    assert comparison.analysis.rounds == 4
    a = next(r for r in comparison.analysis.rows if r.allocator == "a")
    assert a.metrics[TIME].ratio.pairs >= 3
    behaviours = {"glibc": Behaviour(), "a": Behaviour()}
    executor = SimulatedExecutor(behaviours, interrupt_at_run=2)
    comparison = World.comparison(behaviours, executor=executor)
    assert comparison.interrupted
    assert comparison.analysis.rounds == 0
    assert all(not row.metrics for row in comparison.analysis.rows)
    behaviours = {"glibc": Behaviour()}
    with pytest.raises(KeyboardInterrupt):
        World.comparison(behaviours, executor=SimulatedExecutor(behaviours, interrupt_at_run=0))


def test_a_hook_that_fails_later_keeps_what_was_measured(tmp_path: Any) -> None:
    # The probe, three warm-up runs and five measured ones may take a token; then there is none.
    (tmp_path / "tokens").write_text("x" * 9)
    line = (
        f"n=$(wc -c < {tmp_path}/tokens); test $n -gt 0 && "
        f"head -c $((n - 1)) {tmp_path}/tokens > {tmp_path}/t && mv {tmp_path}/t {tmp_path}/tokens"
    )
    behaviours = {"glibc": Behaviour(), "a": Behaviour()}
    outcome = World.outcome(behaviours, program={"setup": line})
    assert "setup command failed" in outcome.error.message
    assert outcome.results.stop.reason == "aborted"
    assert sum(s.phase == "measured" for s in outcome.results.samples) == 5


def test_a_budget_too_small_for_five_rounds_is_announced() -> None:
    behaviours = {"glibc": Behaviour(seconds=10.0), "a": Behaviour(seconds=10.0)}
    executor, notes = SimulatedExecutor(behaviours), Notes()
    options = World.options(list(behaviours), rule=StopRule(time_budget_seconds=70.0))
    comparison = compare(options, executor, notes, Unkept(executor.clock)).results
    assert notes.expected == 2
    assert any("only 2 of 5 rounds fit into 70 s" in text for text in notes.texts)
    assert any("--time-budget 165" in text for text in notes.texts)
    assert comparison.analysis.rounds == 2
    assert "few-rounds" in {w.code for w in comparison.warnings}


def test_it_stops_by_itself_when_all_is_clear() -> None:
    behaviours = {
        "glibc": Behaviour(noise=0.001),
        "a": Behaviour(seconds=0.2, noise=0.001, peak_bytes=1 << 20),
    }
    comparison = World.comparison(behaviours, rule=StopRule())
    assert comparison.stop.reason == "resolved"
    assert comparison.analysis.rounds == 5


# --- the doctor ----------------------------------------------------------------------------------


def diagnosis(*findings: doctor.Finding, found: bool = True) -> doctor.Diagnosis:
    resolved: Any = object() if found else None
    return doctor.Diagnosis(("./program",), resolved, findings)


def test_a_fatal_finding_stops_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = doctor.Finding("fatal", "static", "It is linked statically.", "Link it dynamically.")
    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: diagnosis(finding))
    behaviours = {"glibc": Behaviour()}
    executor = SimulatedExecutor(behaviours)
    with refused("linked statically", remedy="Link it dynamically.") as caught:
        World.comparison(behaviours, executor=executor, consult_doctor=True)
    assert "--no-doctor" in caught.value.remedy
    assert not executor.requests


def test_what_cannot_start_has_no_way_around(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = doctor.Finding("fatal", "not-found", "There is no ./program.", "Check the name.")
    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: diagnosis(finding, found=False))
    with pytest.raises(UserError) as caught:
        World.comparison({"glibc": Behaviour()}, consult_doctor=True)
    assert caught.value.message == "There is no ./program."
    assert "--no-doctor" not in caught.value.remedy


def test_the_doctors_warnings_are_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = doctor.Finding("warning", "python", "Python has its own.", "PYTHONMALLOC=malloc")
    monkeypatch.setattr(doctor, "diagnose", lambda *_, **__: diagnosis(finding))
    behaviours = {"glibc": Behaviour()}
    executor, notes = SimulatedExecutor(behaviours), Notes()
    options = World.options(list(behaviours), consult_doctor=True)
    compare(options, executor, notes, Unkept(executor.clock))
    assert sum("Python has its own. PYTHONMALLOC=malloc" in text for text in notes.texts) == 1
