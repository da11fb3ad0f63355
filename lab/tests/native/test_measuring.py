"""The lab's interface to the native tools: requests become command lines, output becomes values."""

from itertools import pairwise
from pathlib import Path

import pytest
from conftest import run_request as request
from prompt import script

from tsmlab.allocators import Allocator
from tsmlab.errors import UserError
from tsmlab.measuring import MeasureExecutor, Measurement, measure_arguments


class TestRequests:
    def test_least_command_line(self):
        expected = ["--sample-ms", "10", "--stdin", "/dev/null", "--", "ls", "--all"]
        assert measure_arguments(request("ls", "--all")) == expected

    def test_everything_is_passed_on(self):
        allocator = Allocator("mine", Path("/mine.so"), "user", "1", env={"A": "1", "B": "1"})
        full = request(
            "x",
            allocator=allocator,
            env={"B": "2", "C": "3"},
            stdin=Path("i"),
            stdout=Path("o"),
            stderr=Path("e"),
            timeout_seconds=0.25,
            cwd=Path("/d"),
            preload_first=(Path("/first.so"),),
            sample_ms=0,
        )
        assert measure_arguments(full) == [
            *("--sample-ms", "0", "--env", "A=1", "--env", "B=2", "--env", "C=3"),
            *("--preload", "/first.so", "--preload", "/mine.so"),
            *("--stdin", "i", "--stdout", "o", "--stderr", "e", "--cwd", "/d"),
            *("--timeout", "0.250000000", "--", "x"),
        ]


class TestExecutor:
    def test_measures(self, tmp_path):
        out = tmp_path / "out"
        measurement = MeasureExecutor().run(request("sh", "-c", "echo hello; exit 3", stdout=out))
        assert out.read_text() == "hello\n"
        assert (measurement.exit_code, measurement.failed) == (3, True)
        assert measurement.wall_ns > 0
        assert measurement.peak_rss_bytes > 0
        assert measurement.raw["schema"] == "tsmalloc-measure/1"
        assert measurement.raw["wall_ns"] == measurement.wall_ns

    def test_program_without_input_reads_nothing_and_one_that_is_not_there_fails(self):
        assert not MeasureExecutor().run(request("cat")).failed
        measurement = MeasureExecutor().run(request("/no/such/program"))
        assert measurement.failed
        assert measurement.spawn_error.errno == 2
        assert measurement.wall_ns == 0

    def test_tools_that_do_not_start_fail_or_are_of_another_version(self, tmp_path, capfd):
        with pytest.raises(UserError, match="cannot start"):
            MeasureExecutor(tmp_path / "measure").run(request("true"))
        with pytest.raises(UserError, match=r"failed \(exit 1\)"):
            MeasureExecutor().run(request("true", timeout_seconds=0))
        assert "--timeout" in capfd.readouterr().err
        old = '#!/bin/sh\necho \'{"schema": "tsmalloc-measure/0"}\' > "$2"\n'
        with pytest.raises(UserError, match="tsmalloc-measure/0"):
            MeasureExecutor(script(tmp_path / "measure", old)).run(request("true"))


@pytest.fixture
def answer():
    return MeasureExecutor().run(request("true")).raw


@pytest.mark.parametrize(
    ("changes", "failed", "text"),
    [
        ({}, False, "ok"),
        ({"exit_code": 3}, True, "exit 3"),
        ({"exit_code": None, "signal": 11}, True, "SIGSEGV"),
        ({"exit_code": None, "signal": 40}, True, "signal 40"),
        ({"timed_out": True, "timeout_ns": 5 * 10**9}, True, "timed out after 5 s"),
        (
            {"timed_out": True, "timeout_ns": 25 * 10**7, "exit_code": None, "signal": 15},
            True,
            "timed out after 0.25 s",
        ),
        ({"interrupted": True}, True, "interrupted"),
        ({"exit_code": None}, True, "could not be stopped"),
        (
            {"exit_code": None, "wall_ns": None, "spawn_error": {"errno": 2, "message": "no x"}},
            True,
            "could not start: no x",
        ),
    ],
)
def test_failures_in_words(answer, changes, failed, text):
    measurement = Measurement.from_json(answer | changes)
    assert (measurement.failed, measurement.failure_text()) == (failed, text)


class TestSeries:
    def test_series_are_asked_for_and_given_only_then(self):
        arguments = measure_arguments(request("x", series_points=400))
        assert arguments[:4] == ["--sample-ms", "10", "--series", "400"]
        assert "--series" not in measure_arguments(request("x"))
        measured = MeasureExecutor().run(request("sleep", "0.05"))
        assert measured.series == ()
        assert "series" not in measured.raw

    def run(self, points, *command):
        return MeasureExecutor().run(request(*command, series_points=points, sample_ms=1))

    def test_grows_as_the_program_does(self):
        step = "push @a, 'x' x 1000000; select undef, undef, undef, 0.02"
        # After a sample that a busy machine delayed by 100 ms, the sampler waits for 3 s.
        script = f"my @a; for (1..20) {{ {step} }} sleep 4"
        for _ in range(3):
            measured = self.run(1000, "perl", "-e", script)
            if measured.wall_ns - measured.series[-1][0] < 3.5e9:
                break  # otherwise the machine delayed the sampler until the end: try again
        times = [time_ns for time_ns, _ in measured.series]
        sizes = [size for _, size in measured.series]
        assert len(times) == measured.samples > 10
        assert times == sorted(times)
        assert times[-1] <= measured.wall_ns
        assert max(sizes) == measured.tree_peak_rss_bytes
        # The last samples may see the process ending, which frees its memory in parts.
        assert max(sizes) - sizes[0] > 10_000_000
        assert measured.sampling_ns <= 0.03 * measured.wall_ns

    @pytest.mark.parametrize("points", [1, 2, 7, 8])
    def test_never_more_points_than_asked_for(self, points):
        measured = self.run(points, "sleep", "0.4")
        assert points // 2 < len(measured.series) <= points < measured.samples
        gaps = {b[0] - a[0] for a, b in pairwise(measured.series)}
        assert all(gap > 0 for gap in gaps)
        assert measured.series[0][0] < 50_000_000  # the beginning is kept
