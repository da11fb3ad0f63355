"""`tsmalloc replay` at the command line: real traces and replays, with real allocators.

Only real tools show that they and the lab mean the same by every field.
"""

import pytest
from prompt import in_process, kept
from refusals import mentions

from tsmlab.commands import bench as verb
from tsmlab.study import from_json
from tsmlab.traces.replay_results import replays_of

FITS = ("lock-first", "lock-best", "lock-worst")


def lines(found):
    samples = [s for s in found.comparison.samples if s.failure is None]
    return [sample.measurement["replay"] for sample in samples]


def test_a_trace_is_compared_with_latencies_report_and_exports(tsmalloc, trace, tmp_path):
    done = tsmalloc(
        *("replay", trace, "-a", "tsmalloc,lock-best", "-r", "2", "--latency", "--seed", "5"),
        *("--report", tmp_path / "page", "--export-csv", tmp_path / "runs.csv"),
        *("--export-json", tmp_path / "all.json"),
    )
    results = kept(tmp_path, "replay")
    assert from_json((tmp_path / "all.json").read_text()) == results
    (found,) = replays_of(results)
    assert {f.allocator for f in found.findings} == {"glibc", "tsmalloc", "lock-best"}
    for line in lines(found):
        assert line["matches"] is True
        assert line["planned"]["calls"] == line["calls"]
    for finding in found.findings:
        assert finding.peak_bytes >= found.lower_bound_bytes == found.trace.peak_live_bytes
        assert None not in (finding.at_peak, finding.over_time)
        timed = {each.kind: each.calls for each in finding.latencies}
        for kind in ("malloc", "calloc"):
            assert timed[kind] == finding.runs * found.trace.calls[kind]
        assert all(0 < e.p50_ns <= e.p99_ns <= e.p9999_ns <= e.max_ns for e in finding.latencies)
    mentions(done.stdout, "fragmentation at the peak", "p99.99")
    assert 'id="made-up-memory"' in (tmp_path / "page/index.html").read_text()
    assert (tmp_path / "runs.csv").read_text().count("\n") == 1 + len(found.comparison.samples)


@pytest.mark.long
def test_ten_replays_under_stride_are_the_same_to_the_byte(tsmalloc, trace, tmp_path):
    tsmalloc(
        *("replay", trace, "--schedule", "stride", "--tickets", "3,2,1", "--quantum", "10"),
        *("-a", ",".join((*FITS, "tsmalloc")), "--reference", "lock-first", "-r", "10"),
    )
    (found,) = replays_of(kept(tmp_path, "replay"))
    for name in (*FITS, "tsmalloc"):
        finding = found.finding(name)
        assert (finding.runs >= 10, finding.same_addresses, finding.same_memory) == (True,) * 3
    assert {share.tickets for share in found.shares} == {1, 2, 3}
    assert sum(share.ticks for share in found.shares) == found.ticks
    assert sum(share.owed for share in found.shares) == pytest.approx(found.ticks or 0, abs=0.1)


def test_all_schedules_give_a_table_by_fit(tsmalloc, trace, tmp_path):
    done = tsmalloc("replay", trace, "--schedule", "all", "--quantum", "10", "--seed", "3")
    results = kept(tmp_path, "replay")
    assert [each.schedule for each in results.replay.parts] == ["round-robin", "lottery", "stride"]
    assert {info.name for info in results.comparison.allocators} == {"glibc", "tsmalloc", *FITS}
    rows = [row.split()[0] for row in done.stdout.splitlines() if row.count("%") == 6]
    assert set(rows) == {"glibc", "tsmalloc", *FITS}
    orders = {line["checksum"] for r in replays_of(results) for line in lines(r)[:1]}
    assert len(orders) == 3, "each schedule is another order"


def test_what_cannot_be_replayed_is_told_before_anything_runs(tsmalloc, trace, tmp_path):
    text = tmp_path / "text.tstrace"
    text.write_text("no trace")
    empty = tmp_path / "empty.tstrace"
    assert tsmalloc("record", "-o", empty, "--", "/bin/true").returncode == 0
    cut = tmp_path / "cut.tstrace"
    cut.write_bytes(trace.read_bytes()[:600])
    tickets = ",".join(map(str, range(701, 1400)))  # with a huge least common multiple
    for arguments, says in (
        ((text,), "text.tstrace"),
        ((tmp_path,), str(tmp_path)),
        ((empty,), "empty.tstrace contains no events"),
        ((cut,), "cut.tstrace' is truncated"),
        ((trace, "--image", "900"), "no image 900"),
        ((trace, "--tickets", "3,0", "--schedule", "stride"), "3,0"),
        ((trace, "--tickets", "3,,2", "--schedule", "lottery"), "3,,2"),
        ((trace, "--tickets", "3"), "asap"),
        ((trace, "--tickets", "3", "--schedule", "round-robin"), "--tickets"),
        ((trace, "--quantum", "5"), "--quantum"),
        ((trace, "--quantum", "5", "--schedule", "recorded"), "--quantum"),
        ((trace, "--tickets", tickets, "--schedule", "stride"), "least common multiple"),
    ):
        done = tsmalloc("replay", *arguments, "-a", "glibc", "-r", "1", status=1)
        assert says in done.stderr
        assert not list(tmp_path.glob("state/tsmalloc/results/*"))


def test_a_corpus_is_benched_with_the_time_that_replay_tells(monkeypatch, trace, tmp_path, capfd):
    monkeypatch.setattr(verb, "corpus", lambda: trace.parent)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    bench = in_process("bench", capfd)
    _, *rows = bench("--traces", "--list", "trace-*").out.splitlines()
    assert [row.split()[0] for row in rows] == ["trace-made-up"]
    bench("--traces", "trace-*", "-a", "glibc,tsmalloc", "-r", "3")
    results = kept(tmp_path, "bench")
    (found,) = results.suite.workloads
    assert (found.name, found.time, found.memory) == ("trace-made-up", "wall", True)
    assert found.threads > 1
    assert "recorded calls" in found.stresses
    assert len(results.comparison.samples) == 1 + 3 * 2
    for sample in results.comparison.samples:
        line = sample.measurement["replay"]
        assert line["matches"] is True
        assert sample.values["time_seconds"] == line["wall_ns"] / 1e9
        assert sample.values["peak_memory_bytes"] == line["peak_resident_bytes"]
