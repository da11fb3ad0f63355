"""`tsmalloc bench` at the command line: tiny programs, with real allocators."""

import json
from functools import partial

import pytest
from prompt import kept
from refusals import mentions

from tsmlab.study import from_json

ENTRY = """
[[workload]]
name = "{name}"
stresses = "what {name} stresses"
program = "./work"
arguments = ["{name}", "timed"]
threads = 1
time = "{time}"
memory = true
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory, work):
    folder = tmp_path_factory.mktemp("suite")
    (folder / "work").symlink_to(work)
    entries = [
        ENTRY.format(name="pairs", time="seconds"),
        ENTRY.format(name="whole", time="wall"),
        ENTRY.format(name="fail", time="seconds"),
    ]
    (folder / "suite.toml").write_text("".join(entries))
    return folder / "suite.toml"


@pytest.fixture
def bench(tsmalloc, suite):
    return partial(tsmalloc, "bench", "--suite", suite)


def test_two_workloads_over_glibc_and_tsmalloc(bench, tmp_path):
    done = bench(
        *("pairs", "whole", "-a", "tsmalloc,glibc", "--rounds", "3", "--seed", "5"),
        *("--export-markdown", tmp_path / "table.md", "--export-json", tmp_path / "r.json"),
    )
    results = kept(tmp_path, "bench")
    assert from_json((tmp_path / "r.json").read_text()) == results
    suite, found = results.suite, results.comparison
    assert (suite.candidate, suite.peers, suite.analysis.rounds) == ("tsmalloc", ["glibc"], 3)
    runs = [[s for s in found.samples if s.point == place] for place in range(2)]
    # The trial, and three rounds of two allocators.
    assert list(map(len, runs)) == [1 + 3 * 2] * 2
    walls = [[s.measurement["wall_ns"] / 1e9 for s in each] for each in runs]
    times = [[s.values["time_seconds"] for s in each] for each in runs]
    assert all(0.0 < time < wall for time, wall in zip(times[0], walls[0], strict=True))
    assert times[1] == walls[1]
    for sample in runs[0]:
        libraries = [each["path"] for each in sample.measurement["preloaded"]]
        wanted = [] if sample.allocator == "glibc" else [found.allocator(sample.allocator).path]
        assert libraries == wanted
    for analysis in suite.analysis.workloads:
        assert (analysis.fastest_peer, analysis.smallest_peer) == ("glibc", "glibc")
        ours = analysis.score("tsmalloc")
        assert ours.time.ratio.pairs == 3
        assert ours.memory.ratio is not None
    mentions(done.stdout, "tsmalloc [95% CI]", "geometric mean", "Time: tsmalloc at")
    assert "results    " in done.stderr
    assert "| pairs | time |" in (tmp_path / "table.md").read_text()


def test_a_failure_is_a_row_and_an_exit_status(bench, tmp_path):
    arguments = ("fail", "-a", "tsmalloc,glibc", "-r", "3")
    done = bench(*arguments, status=2)
    mentions(done.stdout, "FAILED fail: tsmalloc: exit 3 (2 of 2 runs", "| FAILED: not today")
    assert kept(tmp_path, "bench").suite.analysis.overall[-1].time.workloads == 0
    bench(*arguments, "--ignore-failure", "-q")


def test_a_library_of_ones_own_is_a_peer_unless_it_is_a_build_of_ours(bench, waste, tmp_path):
    for name in ("libmine.so", "libtsmalloc.so"):
        (tmp_path / name).write_bytes(waste.read_bytes())
    done = bench(
        *("whole", "-r", "3", "--json", "-a", "mine,ours2"),
        *("--allocator", f"mine={tmp_path / 'libmine.so'}"),
        *("--allocator", f"ours2={tmp_path / 'libtsmalloc.so'}"),
    )
    results = from_json(done.stdout)
    assert (results.suite.candidate, results.suite.peers) == ("ours2", ["mine"])


def test_the_list_says_what_each_workload_stresses(bench):
    done = bench("--list", "pairs", "whole")
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["workload", "threads", "memory", "stresses"]
    assert [row.split()[0] for row in rows] == ["pairs", "whole"]
    assert rows[1].rstrip().endswith("what whole stresses")


def test_all_missing_programs_are_named_at_once(bench, work, tmp_path):
    (tmp_path / "there").symlink_to(work)
    (tmp_path / "closed").write_text("")
    text = "".join(
        ENTRY.format(name=name, time="wall").replace("./work", f"./{name}")
        for name in ("there", "closed", "gone")
    )
    (tmp_path / "suite.toml").write_text(text)
    said = bench("--suite", tmp_path / "suite.toml", status=1).stderr
    mentions(said, "closed, gone", str(tmp_path), "one of tsmalloc's own: ")
    assert "there," not in said


def test_json_on_stdout_is_all_of_it(bench, tmp_path):
    done = bench("whole", "-a", "glibc", "-r", "3", "--json", "-q")
    assert done.stderr == ""
    assert json.loads(done.stdout)["schema"] == "tsmalloc-study/1"
    assert from_json(done.stdout) == kept(tmp_path, "bench")
    assert kept(tmp_path, "bench").suite.candidate is None
