"""`trace analyze` and `tsmalloc analyze`: known traces, damaged ones, and what is printed of them.

Every figure is checked against an oracle in C++ (analysis/). Here: its way into tables and pages.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import prompt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prompt import ran

from tsmlab import cli, paths, report
from tsmlab.errors import UserError
from tsmlab.report.figures import of_analysis
from tsmlab.traces import analysis_text
from tsmlab.traces.analysis import TraceAnalysis, analyse
from tsmlab.traces.size_classes import SizeClasses, classes_of, file_text
from tsmlab.wording import quantity

Sample = Callable[[str], Path]


@pytest.fixture(scope="module")
def plausible(sample: Sample) -> TraceAnalysis:
    classes = [
        SizeClasses("sixteens", ((16, 16, 1000, 0),)),
        SizeClasses("also-sixteens", ((16, 16, 500, 0),)),
        SizeClasses("wasteful", ((100, 100, 1000, 24),)),
    ]
    return analyse(sample("plausible"), classes=classes)


def run_trace(*arguments: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    return ran(paths.tool("trace"), "analyze", *arguments, **more)


# --- figures --------------------------------------------------------------------------------------


def test_each_figure_of_a_known_trace(sample: Sample) -> None:
    found = analyse(sample("known"))
    raw = found.raw
    assert found.image["number"] == 0
    assert found.image["program"] == "mother"
    assert raw["events"] == 9
    assert set(raw["calls"].values()) == {1}
    assert raw["allocations"] == {"objects": 3, "bytes": 77}
    assert raw["grown_bytes"] == 4072
    assert raw["refused_bytes"] == 1 << 62
    assert raw["frees"] == raw["cross_thread_frees"] == {"objects": 1, "bytes": 48}
    assert raw["temporaries"] == {"objects": 0, "bytes": 0}
    assert found.cross_thread_share == 1.0
    assert (found.peak_event, found.peak) == (3, (3, 4149))
    assert found.peak_sizes == [(4096, 1, 4096), (48, 1, 48), (5, 1, 5)]
    assert raw["peak"]["by_thread"] == [[0, 3, 4149]]
    assert (found.left_own, found.left_inherited) == ((2, 4101), (0, 0))
    lifetimes = {name: found.lifetimes(name).quantile("p50") for name in ("events", "ns", "bytes")}
    assert lifetimes == {"events": 5, "ns": 500, "bytes": 4077}
    assert found.lifetimes("events").by_size == [(64, 8, 1, 48)]
    assert raw["sizes"]["alignments"] == [[4096, 1]]
    assert [(row.size, row.allocations, row.resizes) for row in found.sizes] == [
        (5, 1, 0),
        (24, 1, 0),
        (48, 1, 0),
    ]
    assert raw["chains"]["longest"] == raw["chains"]["grown"] == 1
    assert raw["chains"]["growth_thousandths"]["max"] == 170_667
    assert [point.live_bytes for point in found.curve][-1] == 4101
    assert raw["threads"][1]["foreign_frees"] == {"objects": 1, "bytes": 48}
    assert raw["threads"][0]["given_away"] == {"objects": 1, "bytes": 48}


def test_what_a_forked_child_inherits_is_told_apart(sample: Sample) -> None:
    found = analyse(sample("known"), image=1)
    assert found.amount("inherited") == (2, 4101)
    assert found.amount("inherited_frees") == (1, 5)
    assert found.amount("frees") == (0, 0)
    assert (found.left_own, found.left_inherited) == ((0, 0), (1, 4096))
    assert (found.peak_event, found.peak, found.inherited_at_peak) == (None, (2, 4101), (2, 4101))
    assert found.freed_objects == 0


def test_an_image_that_was_execed_inherits_nothing(sample: Sample) -> None:
    found = analyse(sample("known"), image=2)
    assert (found.events, found.amount("inherited")) == (0, (0, 0))
    assert "daughter" in found.image["program"]
    assert analysis_text.report(found, 100)


def test_sums_of_a_large_trace_agree_with_each_other(plausible: TraceAnalysis) -> None:
    raw = plausible.raw
    allocated = plausible.amount("allocations")
    assert plausible.events == 300_000
    assert sum(b.allocations for b in plausible.buckets) == allocated.objects
    assert sum(b.allocated_bytes for b in plausible.buckets) == allocated.bytes
    assert sum(b.at_peak_bytes for b in plausible.buckets) == plausible.peak.bytes
    assert allocated.objects == plausible.amount("frees").objects + plausible.left_own.objects
    for measure in ("events", "ns", "bytes"):
        lifetimes = plausible.lifetimes(measure)
        assert sum(o.objects for o in lifetimes.octaves) == plausible.freed_objects
        assert sum(c.objects for c in lifetimes.by_size) == plausible.freed_objects
        names = ("p01", "p10", "p25", "p50", "p75", "p90", "p99", "p999", "max")
        quantiles = [lifetimes.quantile(name) for name in names]
        assert quantiles == sorted(quantiles)
    threads = plausible.threads
    assert sum(t["allocations"]["objects"] for t in threads) == allocated.objects
    given = sum(t["given_away"]["objects"] for t in threads)
    assert given == plausible.amount("cross_thread_frees").objects
    assert max(point.highest_bytes for point in plausible.curve) == plausible.peak.bytes
    assert 500 <= len(plausible.curve) <= 1000
    assert raw["whole"]


def test_predicted_waste_is_what_the_classes_say(plausible: TraceAnalysis) -> None:
    by_name = {each.allocator: each for each in plausible.predicted}
    assert list(by_name)[:2] in (["sixteens", "also-sixteens"], ["also-sixteens", "sixteens"])
    classes = {
        "sixteens": SizeClasses("", ((16, 16, 1000, 0),)),
        "wasteful": SizeClasses("", ((100, 100, 1000, 24),)),
    }
    exact = {row.size: row for row in plausible.sizes}
    for name, each in classes.items():
        found = by_name[name]
        assert found.requested_all == plausible.amount("allocations").bytes
        assert found.requested_at_peak == plausible.peak.bytes
        assert sum(everything for everything, _ in found.by_size) == found.usable_all
        assert sum(at_peak for _, at_peak in found.by_size) == found.usable_at_peak
        if len(exact) == plausible.distinct_sizes:
            expected = sum(each.usable(row.size) * row.allocations for row in exact.values())
            assert found.usable_all == expected


@given(
    first=st.integers(0, 100),
    runs=st.lists(
        st.tuples(st.integers(1, 64), st.integers(1, 20), st.integers(0, 32)), max_size=4
    ),
    size=st.integers(0, 3000),
)
def test_usable_is_the_least_class_that_holds_a_request(
    first: int, runs: list[tuple[int, int, int]], size: int
) -> None:
    made, upper = [(first, 1, 1, 8)], first
    for step, count, slack in runs:
        made.append((upper + step, step, count, slack))
        upper += step * count
    steps = [(a + k * b, s) for a, b, c, s in made for k in range(c)]
    usable = SizeClasses("any", tuple(made)).usable(size)
    if size <= upper:
        bound, slack = next(each for each in steps if size <= each[0])
        assert usable == bound + slack
    else:
        assert usable >= size


# --- damage ---------------------------------------------------------------------------------------


def test_a_damaged_trace_is_analysed_and_the_damage_said_first(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = sample("plausible").read_bytes()
    damaged = tmp_path / "damaged.tstrace"
    damaged.write_bytes(whole[: len(whole) // 2] + b"\xff" * 64 + whole[len(whole) // 2 + 64 :])
    run_trace(damaged, status=1)
    found = analyse(damaged)
    assert not found.is_whole
    assert found.damage
    assert 0 < found.events < 300_000
    assert found.raw["unknown_frees"] > 0
    status = cli.main(["analyze", str(damaged), "-a", "none"])
    assert status == 0
    text = capsys.readouterr().out
    assert text.startswith("DAMAGED")
    assert f"{found.raw['unknown_frees']:,} calls on objects" in text


def test_an_unfinished_trace_is_analysed(sample: Sample) -> None:
    found = analyse(sample("unfinished"))
    assert not found.is_whole
    assert found.events == 9


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(seed=st.integers(0, 10_000))
def test_whatever_is_damaged_there_is_an_answer_or_an_error(
    seed: int, sample: Sample, tmp_path_factory: pytest.TempPathFactory
) -> None:
    generator = random.Random(seed)
    data = bytearray(sample(generator.choice(["plausible", "known"])).read_bytes())
    for _ in range(generator.randrange(1, 6)):
        data[generator.randrange(len(data))] ^= 1 << generator.randrange(8)
    if generator.random() < 0.3:
        del data[generator.randrange(len(data)) :]
    file = tmp_path_factory.mktemp("hurt") / "hurt.tstrace"
    file.write_bytes(bytes(data))
    done = run_trace(file)
    assert done.returncode in (0, 1)
    if done.stdout:
        analysis_text.report(TraceAnalysis(json.loads(done.stdout)), 100)
    else:
        assert done.stderr.startswith("trace: ")


# --- errors ---------------------------------------------------------------------------------------


def test_wrong_use_is_named(sample: Sample, tmp_path: Path) -> None:
    known = sample("known")
    for arguments, words in (
        (["--image", "9", known], "no image 9"),
        (["--image", "x", known], "whole number"),
        (["--classes", tmp_path / "absent", known], "cannot be read"),
        (["--windows", known], "no option"),
        ([], "name the trace"),
        ([tmp_path / "absent.tstrace"], "absent.tstrace"),
    ):
        done = run_trace(*arguments)
        assert done.returncode != 0
        assert words in done.stderr
        assert done.stdout == ""
    assert "--classes" in run_trace("--help").stdout


def test_what_trace_complains_of_is_the_users_error(sample: Sample) -> None:
    with pytest.raises(UserError, match="no image 77"):
        analyse(sample("known"), image=77)


def test_an_existing_page_is_not_overwritten(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    page.write_text("mine")
    assert cli.main(["analyze", str(sample("known")), "-a", "none", "--html", str(page)]) == 1
    assert "exists already" in capsys.readouterr().err
    assert page.read_text() == "mine"


# --- text and pages -------------------------------------------------------------------------------


def test_tables_show_the_figures(plausible: TraceAnalysis) -> None:
    text = analysis_text.report(plausible, 120)
    assert "300,000 events" in text
    assert f"{plausible.peak.objects:,} objects" in text
    assert f"{plausible.amount('temporaries').objects:,}" in text
    bound = next(line for line in text.splitlines() if line.startswith("lower bound"))
    assert bound.split()[2].startswith(quantity(plausible.peak.bytes, "bytes"))
    assert "Lifetimes of" in text
    assert "Threads" in text
    assert max(map(len, text.splitlines())) <= 200
    markdown = analysis_text.markdown(plausible)
    assert markdown.count("| --: ") > 10


def test_allocators_of_the_same_classes_share_a_row(plausible: TraceAnalysis) -> None:
    groups = analysis_text.grouped(plausible.predicted)
    assert sorted(len(group) for group in groups) == [1, 2]
    assert {p.allocator for p in max(groups, key=len)} == {"sixteens", "also-sixteens"}


def test_a_page_and_its_files(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, page, folder = sample("plausible"), tmp_path / "page.html", tmp_path / "report"
    arguments = ["analyze", str(trace), "-a", "none", "--html", str(page), "--report", str(folder)]
    assert cli.main(arguments) == 0
    assert "300,000 events" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 4
    assert "<script" not in text
    assert "var(--blue)" in text
    figures = {path.name for path in (folder / "figures").glob("*.svg")}
    assert figures == {"live.svg", "sizes.svg", "lifetimes-ns.svg", "lifetimes-bytes.svg"}
    assert (folder / "index.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_json_that_was_printed_can_be_reported(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["analyze", str(sample("known")), "-a", "none", "--json"]) == 0
    file = tmp_path / "analysis.json"
    file.write_text(capsys.readouterr().out)
    loaded = report.read(file)
    assert isinstance(loaded, TraceAnalysis)
    assert loaded.events == 9
    assert cli.main(["report", str(file), "-o", str(tmp_path / "pages")]) == 0
    file.write_text(file.read_text().replace('"events": 9', '"events": "many"'))
    with pytest.raises(UserError, match=r"analysis\.json is damaged: it was changed"):
        report.read(file)


def test_notes_that_cannot_be_written_cost_nothing(sample: Sample, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    words = ("analyze", str(sample("known")), "-a", "none", "--html", str(page))
    with Path("/dev/full").open("w") as full:
        process = prompt.start(*words, stderr=full)
        shown, _ = process.communicate()
    assert (process.returncode, page.exists()) == (0, True)
    assert "9 events" in shown


def test_shares_of_a_heat_map_are_steps_of_ten() -> None:
    steps = [of_analysis.strength(share) for share in (1.0, 0.11, 0.09, 0.011, 0.009, 0.0009, 1e-9)]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] == steps[1] > steps[2] == steps[3] > steps[4] > steps[5] > 0.0
    assert of_analysis.strength(0.0) == 0.0


@given(value=st.integers(0, 1 << 40))
def test_bounds_of_octaves_and_buckets(value: int) -> None:
    octave = of_analysis.octave_of(value)
    assert octave >= value
    assert value <= 1 or octave < 2 * value
    upper = max(value, 9)
    eighth = 1 << max(0, (upper - 1).bit_length() - 4)
    bound = -(-upper // eighth) * eighth
    assert of_analysis.lower_of(bound) == bound - eighth


# --- size classes ---------------------------------------------------------------------------------


def test_who_tells_no_classes_is_noted() -> None:
    runs = {
        "quiet": None,
        "literal": [[0, 1, 67108864, 0]],
        "good": [[8, 8, 2, 0], [32, 16, 3, 4]],
        "half": [[8, 8, 1000, 0], [8001, 1, 99999, 0]],
    }
    notes: list[str] = []

    def answer(allocator: Any) -> dict[str, Any]:
        if allocator.name not in runs:
            raise UserError(f"usable fails under {allocator.name}.")
        return {"runs": runs[allocator.name]}

    fakes = [SimpleNamespace(name=name) for name in ("quiet", "broken", "literal", "good", "half")]
    found = classes_of(fakes, notes.append, answer)  # type: ignore[arg-type]
    assert [each.allocator for each in found] == ["good", "half"]
    assert len(notes) == 4
    assert "above 8,001 bytes" in notes[-1]
    assert file_text(found[:1]) == "allocator good\nrun 8 8 2 0\nrun 32 16 3 4\n"
