"""Studies on a cluster: the same verdicts as on one machine, whatever happens to its workers."""

import json
import math
import os
import random
import signal
import subprocess
import threading
import types
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import prompt
import pytest
import scipy.stats
from conftest import Behaviour, SimulatedExecutor, World
from experiment_fixtures import write_experiments
from refusals import mentions, refused

from tsmlab import allocators, analysis, fleet, paths, records, render, stats, tables
from tsmlab.commands import worker
from tsmlab.compare import Options as CompareOptions
from tsmlab.compare import compare
from tsmlab.fleet import Expected, FinishedRound, Fleet, WorkerPool, joined, machine_of
from tsmlab.journal import Header, Journal, NullJournal
from tsmlab.machine import describe
from tsmlab.measuring import MeasureExecutor
from tsmlab.metrics import TIME
from tsmlab.progress import SilentReporter
from tsmlab.results import FLEET, Comparison, Failure
from tsmlab.schedule import Entry, Scheduler, StopRule
from tsmlab.traces.replay_results import line_of, replays_of
from tsmlab.traces.replaying import FAIR, Options, replay
from tsmlab.trial import Program, Trial

distributed = pytest.importorskip("distributed")
# dask's messages about its own sockets and files when workers are killed are not our concern.
pytestmark = pytest.mark.filterwarnings("ignore")

TRACES = Path(__file__).resolve().parents[1] / "traces"


# --- statistics -----------------------------------------------------------------------------------


def test_each_kind_weighs_the_same_and_has_its_own_spread():
    logs = [0.1, 0.12, 0.09, 0.11]
    assert stats.stratified_ratio([logs, []]) == stats.stratified_ratio([logs])
    assert stats.stratified_ratio([logs]) == stats.estimate_ratio(logs)
    assert stats.stratified_ratio([[0.1], [0.1, 0.2]]).low is None
    same = stats.stratified_ratio([[0.1, 0.1], [0.1, 0.1]])
    assert (same.low, same.high, same.p_value) == (same.ratio, same.ratio, 0.0)
    generator = random.Random(3)
    quick = [generator.gauss(0.3, 0.05) for _ in range(40)]
    slow = [generator.gauss(0.1, 0.01) for _ in range(5)]
    found = stats.stratified_ratio([quick, slow])
    assert math.log(found.ratio) == pytest.approx((sum(quick) / 40 + sum(slow) / 5) / 2.0)
    # Half of a difference of means, one of them negated: Welch's interval.
    expected = scipy.stats.ttest_ind(quick, [-x for x in slow], equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert math.log(found.low) == pytest.approx(interval.low / 2.0, rel=0.01)
    assert math.log(found.high) == pytest.approx(interval.high / 2.0, rel=0.01)
    assert found.pairs == 45


def test_rounds_of_unlike_machines_are_compared_within_their_kind():
    """One is worse by 40% on one kind and better by 40% on the other."""
    made = World.comparison({"glibc": Behaviour(noise=0.002), "mine": Behaviour(noise=0.002)})
    samples = []
    for s in made.samples:
        kind, factor = [("big", 1 / 1.4), ("small", 1.4)][s.round % 2]
        where = {**s.measurement, FLEET: {"kind": kind, "worker": "w"}}
        time = s.values[TIME] * (factor if s.allocator == "mine" else 1.0)
        samples.append(replace(s, measurement=where, values=s.values | {TIME: time}))
    question = World.options(["glibc", "mine"]).question
    rows = analysis.analyse(samples, question).rows
    ratio = next(row for row in rows if row.allocator == "mine").metrics[TIME].ratio
    assert ratio.ratio == pytest.approx(1.0, abs=0.01)
    assert ratio.high < 1.05  # within a kind there is hardly any spread
    comparison = replace(made, samples=samples, kinds=fleet.kinds_of(samples, question))
    assert sorted(kind.name for kind in comparison.kinds) == ["big", "small"]
    text = tables.text_of(render.blocks(comparison), 120)
    assert "THE MACHINES DISAGREE about mine" in text
    assert text.count("mine  +40.") == text.count("mine  -28.") == 1
    one = replace(comparison, kinds=comparison.kinds[:1])
    assert "THE MACHINES" not in tables.text_of(render.blocks(one), 120)
    # Results from before clusters have no kinds.
    document = json.loads(records.to_json(made))
    del document["kinds"]
    assert records.restore(Comparison, document) == made


# --- rounds made elsewhere, without a cluster -----------------------------------------------------


class FakeFleet:
    """Makes jobs here, the most recent one first."""

    size = 3
    expected = Expected("1", "lab", "/", {})
    cpus = environment = types.MappingProxyType({})

    def __init__(self, folder):
        self.folder = folder
        self.rounds: list[int] = []

    def submit(self, job):
        self.rounds.append(job.slots[0].round)
        return job

    def ready(self, futures):
        return [list(futures)[-1]]

    def result(self, job):
        samples = [job.trial.unpacked(self.folder).run(slot) for slot in job.slots]
        return FinishedRound("w", fleet.kind_of(describe()), samples)


@pytest.fixture(autouse=True, scope="module")
def _no_hidden_variables():
    """pytest loads readline, which sets these without os.environ: a process that inherits them,
    unlike the workers, has its stack, and so a heap's addresses, elsewhere."""
    for name in ("COLUMNS", "LINES"):
        if name not in os.environ:
            os.unsetenv(name)


def a_trial(folder):
    names = ("glibc", "mine")
    return Trial(
        Program(("./program",), Path("/dev/null")),
        [World.allocator(name) for name in names],
        SimulatedExecutor({name: Behaviour() for name in names}),
        folder,
        NullJournal(),
    )


def rounds_of(folder, fake=None, memo=None, judge=list):
    memo, trial = memo or NullJournal(), a_trial(folder)
    return Scheduler(
        entries=[Entry(World.allocator(name)) for name in ("glibc", "mine")],
        reference=None,
        seed=7,
        run_one=trial.run,
        unresolved=len,
        memo=NullJournal(),
        observer=SilentReporter(),
        judge=judge,
        worker_pool=WorkerPool(fake, trial, memo) if fake else None,
    )


def essence(samples):
    return [(s.round, s.position, s.allocator, s.padding_bytes, s.values) for s in samples]


def test_who_gives_up_is_ignored_in_rounds_that_were_begun_and_may_come_back(tmp_path):
    def judge(samples):
        """`mine` has failed until round 3, when that is withdrawn."""
        failure = Failure("signal", "SIGSEGV") if max(s.round for s in samples) < 3 else None
        return [replace(s, failure=failure if s.allocator == "mine" else None) for s in samples]

    fake = FakeFleet(tmp_path)
    made = rounds_of(tmp_path, fake, judge=judge)
    for number in range(1, 7):
        made.run("measured", number, last=6)
    by_round = {n: sorted(s.allocator for s in made.samples if s.round == n) for n in range(3, 7)}
    assert by_round.pop(3) == ["glibc"]
    # Round 5 had begun without it.
    assert list(by_round.values()) == [["glibc", "mine"]] * 3
    assert sorted(fake.rounds) == [1, 2, 3, 4, 5, 5, 6]


def test_rounds_are_kept_as_they_are_done_and_not_made_again(tmp_path):
    def made(fake, journal, rounds):
        with journal:
            found = rounds_of(tmp_path, fake, journal)
            for number in range(1, rounds + 1):
                found.run("measured", number, last=9 if rounds == 2 else 3)
        return essence(found.samples)

    journal = Journal.begin(Header.of("compare", [], 7, []), [tmp_path])
    expected = made(FakeFleet(tmp_path), journal, 2)
    # Three rounds had begun before the first was done, and the last of them was done first.
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()[1:]]
    kept = [line["value"]["samples"][0]["round"] for line in lines]
    assert kept[:3] == [3, 2, 1]
    again = FakeFleet(tmp_path)
    resumed = made(again, Journal.resume(journal.path), 3)
    assert resumed[: len(expected)] == expected
    assert again.rounds == []


# --- a cluster of local processes -----------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    """Two workers, for all tests that do not harm them."""
    with joined_to("local:2") as found:
        yield found


def joined_to(where):
    return joined(where, [], lambda _: None)


def cluster_of(workers, **more):
    """A cluster that logs nothing, and whose dashboard does not conflict with others."""
    quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    return distributed.LocalCluster(n_workers=workers, **quiet, **more)


def like(crowd, expected, *machines):
    """The same workers with different expected or known facts."""
    client = distributed.default_client()
    return Fleet(client, expected, {}, crowd.size, dict(os.environ), list(machines))


def replay_options(traces, names, schedules):
    available = allocators.discover(versions=False)
    chosen = [allocators.find(name, available) for name in names]
    return Options(
        traces=tuple(TRACES / f"{name}.tstrace" for name in traces),
        allocators=tuple(chosen),
        reference=chosen[0],
        schedules=tuple(schedules),
        seed=11,
        settle_seconds=0.001,
    )


def only_results(outcome):
    if outcome.error is not None:
        raise outcome.error
    return outcome.results


def replayed(options, memo=None, crowd=None):
    given = (paths.tool("replay"), memo or NullJournal())
    return only_results(replay(options, MeasureExecutor(), SilentReporter(), *given, fleet=crowd))


def what_repeats(results):
    """All that replays report about memory, addresses and schedules, by their names, as text."""

    def steady(value):
        """Without fields that vary, also in a replay's children."""
        if isinstance(value, dict):
            return {key: steady(inner) for key, inner in value.items() if key not in VARYING}
        return [steady(inner) for inner in value] if isinstance(value, list) else value

    found = {}
    for each in replays_of(results):
        document = [each.ticks, repr(each.shares)]
        for sample in each.comparison.samples:
            run = [sample.phase, sample.round, sample.position, sample.allocator, sample.replicate]
            document.append([run, steady(line_of(sample).raw)])
        document += [repr(replace(finding, latencies=[])) for finding in each.findings]
        found[each.trace.name, each.schedule] = json.dumps(document, sort_keys=True)
    return found


def assert_repeats(one, other):
    # Not with a single ==: pytest would take hours to find the difference between such texts.
    here, there = what_repeats(one), what_repeats(other)
    assert here.keys() == there.keys()
    assert [name for name in here if here[name] != there[name]] == []


# Fields that differ even between two replays in one process: times, the processor, and the kernel's
# counts for the whole process, including pages of its files.
VARYING = frozenset({"wall_ns", "sampling_ns", "cpu", "peak_rss_bytes"})


SMALL = (("sqlite3", "streams"), ("glibc", "lock-best"), ("recorded", "stride"))
KINDS = ("cc1plus", "forks", "git", "perl", "python3", "redis", "sqlite3", "streams")
MANY = (
    (*KINDS, "sqlite3", "perl"),
    ("glibc", "tsmalloc", "lock-first", "lock-best", "lock-worst"),
    ("recorded", *FAIR),
)


@pytest.mark.parametrize(
    ("asked", "workers", "lines"),
    [(SMALL, 2, 1), pytest.param(MANY, 4, 40, marks=pytest.mark.long)],
)
def test_replays_are_the_same_to_the_byte_though_a_worker_dies(
    tmp_path, monkeypatch, asked, workers, lines
):
    monkeypatch.setenv("TSMALLOC_BACKGROUND", "off")  # it touches a page when it begins
    options = replay_options(*asked)
    expected = replayed(options)
    with (
        joined_to(f"local:{workers}") as crowd,
        Journal.begin(Header.of("replay", [], 11, []), [tmp_path]) as journal,
    ):
        killer = threading.Thread(target=kill_one_worker, args=(journal.path, lines))
        killer.start()
        together = replayed(options, journal, crowd)
        killer.join()
    traces, names, schedules = map(len, asked)
    all_replays = replays_of(together)
    assert sum(len(each.findings) for each in all_replays) == traces * names * schedules
    assert_repeats(together, expected)
    keys = [json.loads(line)["key"] for line in journal.path.read_text().splitlines()[1:]]
    rounds = [key for key in keys if "in one piece" in key]
    assert len(rounds) == len(set(rounds))
    if asked is SMALL:  # the probe, and two rounds each
        assert len(rounds) == (1 + 2) * traces * schedules


def kill_one_worker(journal, lines):
    """Once this many lines are in the journal."""
    victim, *_ = distributed.default_client().run(os.getpid).values()
    prompt.wait_until(lambda: journal.read_text().count("\n") > lines)
    os.kill(victim, signal.SIGKILL)


# --- verdicts -------------------------------------------------------------------------------------


def test_two_workers_give_the_verdicts_of_none(tsmalloc, waste):
    words = ("-a", "glibc,waste", "--allocator", f"waste={waste}", "-r", "8", "--no-doctor")
    for where in ((), ("--cluster", "local:2")):
        done = tsmalloc("compare", *words, "--json", *where, "--", "/bin/echo", "x")
        (document,) = json.loads(done.stdout)["parts"]
        rows = {row["allocator"]: row["metrics"] for row in document["analysis"]["rows"]}
        assert rows["waste"]["peak_memory_bytes"]["verdict"] == "worse"
        assert len(document["kinds"]) == (1 if where else 0)
        measured = [s for s in document["samples"] if where and s["phase"] == "measured"]
        made = {(s["round"], s["measurement"]["fleet"]["worker"]) for s in measured}
        assert len(made) == (8 if where else 0), "pairs never cross machines"
        assert len({worker for _, worker in made}) == (2 if where else 0)


def test_machines_of_two_kinds_are_refused_also_if_one_joins_later(crowd, tmp_path):
    quick = describe()
    slow = replace(quick, cpu="another")
    with refused("one kind", "another, "):
        like(crowd, crowd.expected, quick, slow).only_kind()
    joined_by = like(crowd, crowd.expected, quick)
    late: Future[FinishedRound] = Future()
    late.set_result(FinishedRound("late", fleet.kind_of(slow), []))
    assert joined_by.result(late).worker == "late"  # kinds are judged separately
    assert joined_by.only_kind() == quick
    with refused("late ", ": another, ", remedy="--resume"):
        joined_by.result(late)
    # A study goes on with its kind of machine.
    with Journal.begin(Header.of("bench", [], 1, [], []), [tmp_path]) as journal:
        assert machine_of(like(crowd, crowd.expected, quick), journal) == quick
    with Journal.resume(journal.path) as journal:
        assert machine_of(like(crowd, crowd.expected, quick), journal) == quick
        with refused(quick.cpu, "another, "):
            machine_of(like(crowd, crowd.expected, slow), journal)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("bench --traces trace-sqlite3 -a glibc,tsmalloc -r 3", 3 * 2),
        ("experiment run --file {folder}/plain.toml", 3 * 2 * 3),
    ],
)
def test_traces_and_experiments_run_on_a_cluster(tsmalloc, tmp_path, words, runs):
    write_experiments(tmp_path, "plain")
    done = tsmalloc(*words.format(folder=tmp_path).split(), "--json", "--cluster", "local:2")
    (part,) = json.loads(done.stdout)["parts"]
    measured = [each for each in part["samples"] if each["phase"] == "measured"]
    assert len(measured) == runs
    assert all("fleet" in each["measurement"] for each in measured)
    assert len(part["causes"]) == (2 * 2 if "experiment" in words else 0)
    for sample in measured if "--traces" in words else ():
        told = sample["measurement"]["replay"]
        assert told["matches"] is True
        assert sample["values"]["time_seconds"] == told["wall_ns"] / 1e9


@pytest.mark.long
def test_gate_and_tune_run_on_a_cluster(tsmalloc, waste):
    own = ("-a", "waste", "--against-allocator", "glibc", "--allocator", f"waste={waste}")
    words = (*own, "-r", "5", "--max-time", "none", "--cluster", "local:2")
    assert "REGRESSION peak memory" in tsmalloc("gate", *words, "--", "/bin/echo", status=3).stdout
    words = ("glibc", "--json", "--only", "--option", "NOTHING=1", "--for", "memory")
    words = (*words, "--time-budget", "5", "--cluster", "local:2", "--no-doctor")
    tune = tsmalloc("tune", *words, "--", "/bin/echo")
    assert json.loads(tune.stdout)["tune"]["settings"] == []


@pytest.mark.long
def test_an_interrupted_study_goes_on_with_what_is_missing(tsmalloc, waste, environment, tmp_path):
    words = ("compare", "--allocator", f"waste={waste}", "-a", "glibc,waste", "-r", "12",
             "-w", "0", "--no-doctor", "--cluster", "local:2",
             "--", "/bin/sleep", "0.1")  # fmt: skip
    process = prompt.start(*words, env=environment, start_new_session=True)
    process.send_signal = partial(os.killpg, process.pid)  # as a terminal does, also to workers
    out, err = prompt.stop_after(process, tmp_path, "\n", 8)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "rounds" in out
    (journal,) = (tmp_path / "state").rglob("*.jsonl")
    kept = [json.loads(line)["key"] for line in journal.read_text().splitlines()[1:]]
    assert 1 < sum("measured" in key for key in kept) < 12
    done = tsmalloc("compare", "--resume", "--json")
    (part,) = json.loads(done.stdout)["parts"]
    samples = [s for s in part["samples"] if s["phase"] == "measured"]
    assert len(samples) == 12 * 3

    def is_left(folder):
        state, _, _, session, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
        return session == str(process.pid) and state != "Z"

    assert prompt.processes(is_left) == []


# --- mismatches -----------------------------------------------------------------------------------


def small_comparison(crowd, executor=None, command="/bin/true"):
    glibc = allocators.glibc()
    program, rule = Program((command,), Path("/dev/null")), StopRule(runs=2)
    options = CompareOptions(program, (glibc,), glibc, 1, rule, consult_doctor=False)
    given = (executor or MeasureExecutor(), SilentReporter(), NullJournal(), crowd)
    return only_results(compare(options, *given))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("__version__", "9.9.9", "does not match: it has"),
        ("lab_digest", lambda: "other", "does not match: its"),
    ],
)
def test_two_versions_in_a_cluster_are_refused(crowd, monkeypatch, name, value, message):
    assert crowd.size == 2
    address = distributed.default_client().scheduler.address
    monkeypatch.setattr(fleet, name, value)
    with refused(message, remedy="same tsmalloc"), joined_to(address):
        pass


def test_a_worker_that_joins_and_does_not_fit_is_refused(crowd, tmp_path):
    for change, words in (
        ({"lab": "other"}, "does not match: its"),
        ({"files": {str(tmp_path / "gone"): "0" * 64}}, f"{tmp_path}/gone"),
        ({"folder": str(tmp_path / "none")}, f"{tmp_path}/none"),
    ):
        with refused(words):
            small_comparison(like(crowd, replace(crowd.expected, **change)))


def test_a_cluster_without_workers_or_with_busy_ones_is_refused():
    with cluster_of(0) as empty:
        address = empty.scheduler_address
        with refused(address, remedy=f"tsmalloc worker {address}"), joined_to(address):
            pass
    busy = cluster_of(1, threads_per_worker=2)
    with busy, refused("runs 2 tasks"), joined_to(busy.scheduler_address):
        pass


@pytest.mark.long
def test_a_cluster_that_goes_away_ends_the_study():
    with (
        cluster_of(1, threads_per_worker=1) as cluster,
        joined_to(cluster.scheduler_address) as crowd,
    ):
        assert small_comparison(crowd).analysis.rounds == 2
        cluster.close()
        with refused("cluster", remedy="--resume"):
            small_comparison(crowd)


@pytest.mark.long
def test_a_round_that_ends_its_workers_ends_the_study(tmp_path):
    deadly = prompt.script(tmp_path / "measure", "#!/bin/sh\nkill -9 $PPID\n")
    with joined_to("local:2") as crowd, refused("at least 3 workers"):
        small_comparison(crowd, MeasureExecutor(deadly))


def test_a_worker_elsewhere_runs_where_the_study_was_begun(crowd, tmp_path, monkeypatch):
    """In the same folder, with the same variables."""
    prompt.script(tmp_path / "here", '#!/bin/sh\n[ "$ASKED" = 1 ]\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASKED", "1")
    moved = replace(crowd.expected, folder=str(tmp_path))
    here = like(crowd, moved)
    assert small_comparison(here, command="./here").analysis.rounds == 2


@pytest.mark.parametrize(
    ("where", "remedy"),
    [
        ("tcp://127.0.0.1:1", "dask scheduler"),
        ("somewhere", "tcp://HOST:8786"),
        ("local:0", "local:4"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(tsmalloc, tmp_path, where, remedy):
    words = ("compare", "-a", "glibc", "--no-doctor", "--cluster", where)
    done = tsmalloc(*words, "--", "/bin/true", status=1)
    mentions(done.stderr, where, remedy)
    assert len(done.stderr.splitlines()) == 2
    assert not list((tmp_path / "state").rglob("*.jsonl"))


def test_without_dask_a_line_says_how_to_have_it(tsmalloc, tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "distributed.py").write_text("raise ImportError('no')\n")
    lacking = {"PYTHONPATH": str(tmp_path / "lib")}
    words = ("compare", "-a", "glibc", "--no-doctor")
    done = tsmalloc(*words, "--cluster", "local:2", "--", "/bin/true", **lacking, status=1)
    assert f"-m pip install '{fleet.REQUIREMENT}'" in done.stderr
    tsmalloc("worker", "tcp://127.0.0.1:1", **lacking, status=1)
    # It is not needed here.
    tsmalloc(*words, "-r", "2", "--", "/bin/true", **lacking)


def test_a_worker_at_the_prompt_serves(tsmalloc, environment):
    with cluster_of(0, protocol="tcp://") as empty:
        address = empty.scheduler_address
        nowhere = dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
        worker = prompt.start("worker", address, env=environment, **nowhere)
        try:
            with distributed.Client(address) as client:
                client.wait_for_workers(1, timeout=60)
            words = ("-a", "glibc", "-r", "2", "--no-doctor", "--json", "--cluster", address)
            done = tsmalloc("compare", *words, "--", "/bin/true")
        finally:
            worker.terminate()
            worker.wait(timeout=30)
    assert "1 worker " in done.stderr
    assert all("fleet" in s["measurement"] for s in json.loads(done.stdout)["parts"][0]["samples"])


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://[::1]:1", "tls://localhost:99999"])
def test_a_worker_without_a_scheduler_says_so(address):
    with refused(address):
        worker.wait_for_scheduler(address, 0)


def test_workers_of_one_machine_keep_to_their_own_processors(crowd):
    cores = sorted(os.sched_getaffinity(0))
    taken = [cpu for share in crowd.cpus.values() for cpu in share]
    assert set(taken) == set(cores)
    hosts = {"one": ["a", "b"], "two": ["c"]}
    workers = {name: {"name": name} for name in "abc"}
    usable = {"a": [0, 1, 2], "b": [0, 1, 2], "c": [5]}
    assert fleet.shares(hosts, workers, usable) == {"a": (0, 2), "b": (1,), "c": (5,)}
