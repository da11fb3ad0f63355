"""`tsmalloc bench` at the command line: tiny programs, with real allocators."""

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
    times = {"pairs": "seconds", "whole": "wall", "fail": "seconds"}
    entries = [ENTRY.format(name=name, time=time) for name, time in times.items()]
    (folder / "suite.toml").write_text("".join(entries))
    return folder / "suite.toml"


@pytest.fixture
def bench(tsmalloc, suite):
    return partial(tsmalloc, "bench", "--suite", suite)


def test_two_workloads_over_glibc_and_tsmalloc(bench, tmp_path):
    words = ("pairs", "whole", "-a", "tsmalloc,glibc", "--rounds", "3", "--seed", "5")
    done = bench(*words, "--export-markdown", tmp_path / "table.md")
    results = kept(tmp_path, "bench")
    suite, found = results.suite, results.comparison
    assert (suite.candidate, suite.peers, suite.analysis.rounds) == ("tsmalloc", ["glibc"], 3)
    pairs, whole = ([s for s in found.samples if s.point == place] for place in range(2))
    # The trial, and three rounds of two allocators.
    assert (len(pairs), len(whole)) == (1 + 3 * 2, 1 + 3 * 2)
    for sample in (*pairs, *whole):
        time, wall = sample.values["time_seconds"], sample.measurement["wall_ns"] / 1e9
        assert 0.0 < time < wall if sample in pairs else time == wall
        libraries = [each["path"] for each in sample.measurement["preloaded"]]
        assert libraries == list(filter(None, [found.allocator(sample.allocator).path]))
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
    own = []
    for name, file in (("mine", "libmine.so"), ("ours2", "libtsmalloc.so")):
        (tmp_path / file).write_bytes(waste.read_bytes())
        own += ["--allocator", f"{name}={tmp_path / file}"]
    done = bench("whole", "-r", "3", "--json", "-q", "-a", "mine,ours2", *own)
    results = from_json(done.stdout)
    assert done.stderr == ""
    assert kept(tmp_path, "bench") == results
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
