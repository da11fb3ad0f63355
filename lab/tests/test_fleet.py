"""Studies on a cluster: the same verdicts as on one machine, whatever happens to its workers."""

import json
import math
import os
import random
import signal
import subprocess
import threading
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from pathlib import Path

import prompt
import pytest
import scipy.stats
from conftest import Behaviour, SimulatedExecutor, World
from refusals import mentions, refused

from tsmlab import allocators, analysis, fleet, paths, records, render, stats, tables
from tsmlab.commands import worker
from tsmlab.compare import Options as CompareOptions
from tsmlab.compare import compare
from tsmlab.fleet import Expected, FinishedRound, Fleet, Job, WorkerPool, joined, machine_of
from tsmlab.journal import Header, Journal, NullJournal
from tsmlab.machine import describe
from tsmlab.measuring import MeasureExecutor
from tsmlab.metrics import TIME
from tsmlab.progress import SilentReporter
from tsmlab.results import FLEET, Comparison
from tsmlab.schedule import Entry, Scheduler, StopRule
from tsmlab.traces.replay_results import line_of, replays_of
from tsmlab.traces.replaying import FAIR, Options, replay
from tsmlab.trial import Program, Trial

distributed = pytest.importorskip("distributed")
# dask's messages about its own sockets and files when workers are killed are not our concern.
pytestmark = pytest.mark.filterwarnings("ignore")

TRACES = Path(__file__).resolve().parents[1] / "traces"


# --- statistics -----------------------------------------------------------------------------------


def test_kinds_are_judged_one_by_one_and_weigh_the_same():
    logs = [0.1, 0.12, 0.09, 0.11]
    assert stats.stratified_ratio([logs]) == stats.estimate_ratio(logs)
    assert stats.stratified_ratio([logs, []]) == stats.estimate_ratio(logs)
    assert stats.stratified_ratio([[0.1], [0.1, 0.2]]).low is None
    same = stats.stratified_ratio([[0.1, 0.1], [0.1, 0.1]])
    assert (same.low, same.high, same.p_value) == (same.ratio, same.ratio, 0.0)


def test_each_kind_weighs_the_same_and_has_its_own_spread():
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


def on_kinds(comparison, kinds):
    """As if rounds had been made on machines of these kinds in turn."""
    return [
        replace(s, measurement={**s.measurement, FLEET: {"kind": kinds[s.round % len(kinds)],
                                                         "worker": "w"}})
        for s in comparison.samples
    ]  # fmt: skip


def test_rounds_of_unlike_machines_are_compared_within_their_kind():
    """One is worse by 40% on one kind and better by 40% on the other."""
    made = World.comparison({"glibc": Behaviour(noise=0.002), "mine": Behaviour(noise=0.002)})
    samples = [
        replace(s, values=s.values | {TIME: s.values[TIME] * (1.4 if s.round % 2 else 1 / 1.4)})
        if s.allocator == "mine"
        else s
        for s in on_kinds(made, ["big", "small"])
    ]
    question = World.options(["glibc", "mine"]).question
    whole = analysis.analyse(samples, question)
    assert whole.rows[0].metrics or whole.rows[1].metrics
    ratio = next(row for row in whole.rows if row.allocator == "mine").metrics[TIME].ratio
    assert ratio.ratio == pytest.approx(1.0, abs=0.01)
    assert ratio.high < 1.05  # within a kind there is hardly any spread
    comparison = replace(made, samples=samples, kinds=fleet.kinds_of(samples, question))
    assert sorted(kind.name for kind in comparison.kinds) == ["big", "small"]
    text = tables.text_of(render.blocks(comparison), 120)
    assert "THE MACHINES DISAGREE about mine" in text
    assert text.count("mine  +40.") == 1
    assert text.count("mine  -28.") == 1
    assert records.to_json(comparison).count('"kinds"') == 1
    one = replace(comparison, kinds=comparison.kinds[:1])
    assert "THE MACHINES" not in tables.text_of(render.blocks(one), 120)


def test_results_of_one_machine_from_before_are_read():
    comparison = World.comparison({"glibc": Behaviour(), "mine": Behaviour()})
    document = json.loads(records.to_json(comparison))
    del document["kinds"]
    found = records.restore(Comparison, document)
    assert found == comparison


# --- rounds made elsewhere, without a cluster -----------------------------------------------------


class FakeFleet:
    """Makes jobs here, the most recent one first."""

    size = 3
    expected = Expected("1", "lab", "/", {})
    cpus: dict[str, tuple[int, ...]] = {}  # noqa: RUF012 - never changed
    environment: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, folder):
        self.folder = folder
        self.jobs: list[Job] = []

    def submit(self, job):
        self.jobs.append(job)
        return job

    def ready(self, futures):
        return [list(futures)[-1]]

    def result(self, job):
        samples = []
        for slot in job.slots:
            trial = job.trial.unpacked(self.folder)
            samples.append(trial.run(slot))
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


def rounds_of(worker_pool, trial, judge=list):
    entries = [Entry(World.allocator("glibc")), Entry(World.allocator("mine"))]
    return Scheduler(
        entries=entries,
        reference=None,
        seed=7,
        run_one=trial.run,
        unresolved=len,
        memo=NullJournal(),
        observer=SilentReporter(),
        judge=judge,
        worker_pool=worker_pool,
    )


def essence(samples):
    return [(s.round, s.position, s.allocator, s.padding_bytes, s.values) for s in samples]


def test_a_worker_pool_makes_the_same_rounds_and_begins_later_ones_meanwhile(tmp_path):
    trial, fake = a_trial(tmp_path), FakeFleet(tmp_path)
    worker_pool = WorkerPool(fake, trial, NullJournal())
    there, here = rounds_of(worker_pool, trial), rounds_of(None, a_trial(tmp_path))
    there.run("measured", 1, last=4)
    assert [job.slots[0].round for job in fake.jobs] == [1, 2, 3]
    for number in (2, 3, 4):
        there.run("measured", number, last=4)
    for number in (1, 2, 3, 4):
        here.run("measured", number)
    assert [job.slots[0].round for job in fake.jobs] == [1, 2, 3, 4]
    assert essence(there.samples) == essence(here.samples)


def test_who_gives_up_is_ignored_in_rounds_that_were_begun_and_may_come_back(tmp_path):
    def judge(samples):
        """`mine` has failed until round 3, when that is withdrawn."""
        failure = World.comparison({"glibc": Behaviour(), "x": Behaviour(signal=11)}).samples[-1]
        failed = max(s.round for s in samples) < 3
        return [
            replace(s, failure=failure.failure if failed and s.allocator == "mine" else None)
            for s in samples
        ]

    trial, fake = a_trial(tmp_path), FakeFleet(tmp_path)
    worker_pool = WorkerPool(fake, trial, NullJournal())
    made = rounds_of(worker_pool, trial, judge)
    for number in range(1, 7):
        made.run("measured", number, last=6)
    by_round: dict[int, list[str]] = {}
    for sample in made.samples:
        by_round.setdefault(sample.round, []).append(sample.allocator)
    assert sorted(by_round[3]) == ["glibc"]
    # Round 5 had begun without it.
    assert [sorted(by_round[number]) for number in (4, 5, 6)] == [["glibc", "mine"]] * 3
    made_twice = [job.slots[0].round for job in fake.jobs]
    assert [number for number in range(1, 7) if made_twice.count(number) > 1] == [5]


def test_rounds_are_kept_as_they_are_done_and_not_made_again(tmp_path):
    trial, fake = a_trial(tmp_path), FakeFleet(tmp_path)
    header = Header.of("compare", [], 7, [])
    with Journal.begin(header, [tmp_path]) as journal:
        worker_pool = WorkerPool(fake, trial, journal)
        made = rounds_of(worker_pool, trial)
        made.run("measured", 1, last=9)
        made.run("measured", 2, last=9)
        expected = essence(made.samples)
        path = journal.path
    # Three rounds had begun before the first was done, and the last of them was done first.
    lines = [json.loads(line) for line in path.read_text().splitlines()[1:]]
    kept = [line["value"]["samples"][0]["round"] for line in lines]
    assert kept[:3] == [3, 2, 1]
    again = FakeFleet(tmp_path)
    with Journal.resume(path) as journal:
        worker_pool = WorkerPool(again, trial, journal)
        made = rounds_of(worker_pool, trial)
        made.run("measured", 1, last=3)
        made.run("measured", 2, last=3)
        assert essence(made.samples) == expected
        made.run("measured", 3, last=3)
    assert again.jobs == []


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


def replayed(options, memo=None, crowd=None):
    program = paths.tool("replay")
    outcome = replay(
        options, MeasureExecutor(), SilentReporter(), program, memo or NullJournal(), fleet=crowd
    )
    assert outcome.error is None
    return outcome.results


def steady(value):
    """Without fields that vary, also in a replay's children."""
    if isinstance(value, dict):
        return {key: steady(inner) for key, inner in value.items() if key not in VARYING}
    return [steady(inner) for inner in value] if isinstance(value, list) else value


def what_repeats(results):
    """All that replays report about memory, addresses and schedules, as bytes for each."""
    found = []
    for each in replays_of(results):
        document = [each.trace.name, each.schedule, each.ticks, repr(each.shares)]
        for sample in each.comparison.samples:
            run = [sample.phase, sample.round, sample.position, sample.allocator, sample.replicate]
            document.append([run, steady(line_of(sample).raw)])
        document += [repr(replace(finding, latencies=[])) for finding in each.findings]
        found.append(json.dumps(document, sort_keys=True).encode())
    return found


def assert_repeats(one, other):
    """The replays are equal in everything that repeats."""
    # Not with a single ==: pytest would take hours to find the difference between such texts.
    pairs = zip(what_repeats(one), what_repeats(other), strict=True)
    names = [f"{each.trace.name}, {each.schedule}" for each in replays_of(one)]
    assert [name for name, (here, there) in zip(names, pairs, strict=True) if here != there] == []


# Fields that differ even between two replays in one process: times, the processor, and the kernel's
# counts for the whole process, including pages of its files.
VARYING = frozenset({"wall_ns", "sampling_ns", "cpu", "peak_rss_bytes"})
SMALL = (("sqlite3", "streams"), ("glibc", "lock-best"), ("recorded", "stride"))


def test_replays_are_the_same_to_the_byte_whoever_makes_them(crowd):
    options = replay_options(*SMALL)
    # PYTEST_CURRENT_TEST had another length when the crowd was joined: programs' stacks, and so
    # heaps' addresses, may be elsewhere.
    same = replace(crowd, environment=dict(os.environ))
    alone, together = replayed(options), replayed(options, crowd=same)
    assert_repeats(together, alone)
    used = {
        s.measurement[FLEET]["worker"] for r in replays_of(together) for s in r.comparison.samples
    }
    assert len(used) > 1


KINDS = ("cc1plus", "forks", "git", "perl", "python3", "redis", "sqlite3", "streams")
MANY = (
    (*KINDS, "sqlite3", "perl"),
    ("glibc", "tsmalloc", "lock-first", "lock-best", "lock-worst"),
    ("recorded", *FAIR),
)


ONE = (("sqlite3",), ("glibc", "lock-best"), ("recorded",))


@pytest.mark.parametrize(
    ("asked", "workers", "lines"), [(ONE, 2, 1), pytest.param(MANY, 4, 40, marks=pytest.mark.long)]
)
def test_a_worker_that_dies_costs_its_round_only(tmp_path, monkeypatch, asked, workers, lines):
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
    assert sum(len(each.findings) for each in replays_of(together)) == traces * names * schedules
    assert_repeats(together, expected)
    keys = [json.loads(line)["key"] for line in journal.path.read_text().splitlines()[1:]]
    rounds = [key for key in keys if "in one piece" in key]
    assert len(rounds) == len(set(rounds))
    if asked is ONE:  # the probe, and two rounds each
        assert len(rounds) == (1 + 2) * traces * schedules


def kill_one_worker(journal, lines):
    """Once this many lines are in the journal."""
    victim, *_ = distributed.default_client().run(os.getpid).values()
    prompt.wait_until(lambda: journal.read_text().count("\n") > lines)
    os.kill(victim, signal.SIGKILL)


# --- verdicts -------------------------------------------------------------------------------------


@pytest.fixture
def tsmalloc(environment):
    """Workers are started from a separate interpreter."""

    def run(*words, status=0, **more):
        return prompt.run_alone(*words, status=status, env=environment | more)

    return run


def test_two_workers_give_the_verdicts_of_none(tsmalloc, waste):
    words = ("compare", "--allocator", f"waste={waste}", "-a", "glibc,waste", "-r", "8")
    words = (*words, "--no-doctor", "--json")
    found = {}
    for where in ((), ("--cluster", "local:2")):
        done = tsmalloc(*words, *where, "--", "/bin/echo", "x")
        (document,) = json.loads(done.stdout)["parts"]
        rows = {row["allocator"]: row["metrics"] for row in document["analysis"]["rows"]}
        found[where] = rows["waste"]["peak_memory_bytes"]["verdict"]
        rounds: dict[int, set[str]] = {}
        for sample in document["samples"]:
            if where and sample["phase"] == "measured":
                worker = sample["measurement"]["fleet"]["worker"]
                rounds.setdefault(sample["round"], set()).add(worker)
        assert all(len(workers) == 1 for workers in rounds.values())  # pairs never cross machines
        assert len(document["kinds"]) == (1 if where else 0)
    assert set(found.values()) == {"worse"}


SUITE = """
[[workload]]
name = "echo"
stresses = "the start of a program"
program = "/bin/echo"
arguments = ["seconds: 1"]
threads = 1
time = "seconds"
memory = true
"""


EXPERIMENT = """
name = "echo"
title = "The start of a program"
question = "How much memory does a program take that does nothing?"
program = "/bin/echo"
arguments = ["{word}"]
allocators = ["glibc"]
rounds = 3
run_seconds = 0.1

[[parameter]]
name = "word"
title = "what it says"
values = [10, 100]

[[analysis]]
kind = "order"
metric = "peak_bytes"
parameter = "word"
"""


def test_machines_of_two_kinds_are_refused_also_if_one_joins_later(crowd):
    quick = describe()
    slow = replace(quick, cpu="another")
    mixed = like(crowd, crowd.expected, quick, slow)
    with refused("one kind", "another, "):
        mixed.only_kind()
    joined_by = like(crowd, crowd.expected, quick)
    late: Future[FinishedRound] = Future()
    late.set_result(FinishedRound("late", fleet.kind_of(slow), []))
    assert joined_by.result(late).worker == "late"  # kinds are judged separately
    assert joined_by.only_kind() == quick
    with refused("late ", ": another, ", remedy="--resume"):
        joined_by.result(late)


def test_a_study_goes_on_with_its_kind_of_machine(crowd, tmp_path):
    quick = describe()
    slow = replace(quick, cpu="another")
    header = Header.of("bench", [], 1, [], [])

    with Journal.begin(header, [tmp_path]) as journal:
        assert machine_of(like(crowd, crowd.expected, quick), journal) == quick
    with Journal.resume(journal.path) as journal:
        assert machine_of(like(crowd, crowd.expected, quick), journal) == quick
        with refused(quick.cpu, "another, "):
            machine_of(like(crowd, crowd.expected, slow), journal)


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("bench --suite {folder}/suite.toml --allocator waste={waste} -a glibc,waste -r 4", 4 * 2),
        ("bench --traces trace-sqlite3 -a glibc,tsmalloc -r 3", 3 * 2),
        ("experiment run --file {folder}/echo.toml --allocator waste={waste}", 3 * 2 * 3),
    ],
)
def test_suites_traces_and_experiments_run_on_a_cluster(tsmalloc, waste, tmp_path, words, runs):
    (tmp_path / "suite.toml").write_text(SUITE)
    (tmp_path / "echo.toml").write_text(EXPERIMENT)
    line = words.format(waste=waste, folder=tmp_path).split()
    done = tsmalloc(*line, "--json", "--cluster", "local:2")
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
    own = ("--allocator", f"waste={waste}")
    words = ("gate", "-a", "waste", "--against-allocator", "glibc", *own, "-r", "5")
    words = (*words, "--max-time", "none", "--cluster", "local:2")
    gate = tsmalloc(*words, "--", "/bin/echo", status=3)
    assert "REGRESSION peak memory" in gate.stdout
    tune = tsmalloc("tune", "glibc", "--json", "--only", "--option", "NOTHING=1", "--for", "memory",
                    "--time-budget", "5", "--cluster", "local:2", "--no-doctor",
                    "--", "/bin/echo")  # fmt: skip
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
    options = CompareOptions(
        program=Program((command,), Path("/dev/null")),
        allocators=(glibc,),
        reference=glibc,
        seed=1,
        rule=StopRule(runs=2),
        consult_doctor=False,
    )
    outcome = compare(
        options, executor or MeasureExecutor(), SilentReporter(), NullJournal(), crowd
    )
    if outcome.error is not None:
        raise outcome.error
    return outcome.results


def test_two_versions_in_a_cluster_are_refused(crowd, monkeypatch):
    assert crowd.size == 2
    address = distributed.default_client().scheduler.address
    monkeypatch.setattr(fleet, "__version__", "9.9.9")
    with refused("does not match: it has", remedy="same tsmalloc"), joined_to(address):
        pass
    monkeypatch.undo()
    monkeypatch.setattr(fleet, "lab_digest", lambda: "other")
    with refused("does not match: its"), joined_to(address):
        pass


def test_a_worker_that_joins_and_does_not_fit_is_refused(crowd, tmp_path):
    for change, words in (
        ({"lab": "other"}, "does not match: its"),
        ({"files": {str(tmp_path / "gone"): "0" * 64}}, f"{tmp_path}/gone"),
        ({"folder": str(tmp_path / "none")}, f"{tmp_path}/none"),
    ):
        with refused(words):
            small_comparison(like(crowd, replace(crowd.expected, **change)))


def test_a_cluster_without_workers_is_named():
    with cluster_of(0) as empty:
        address = empty.scheduler_address
        with refused(address, remedy=f"tsmalloc worker {address}"), joined_to(address):
            pass


def test_a_worker_that_makes_two_things_at_once_is_refused():
    with (
        cluster_of(1, threads_per_worker=2) as busy,
        refused("runs 2 tasks"),
        joined_to(busy.scheduler_address),
    ):
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
        worker = prompt.start(
            "worker", address, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            with distributed.Client(address) as client:
                client.wait_for_workers(1, timeout=60)
            done = tsmalloc("compare", "-a", "glibc", "-r", "2", "--no-doctor", "--json",
                            "--cluster", address, "--", "/bin/true")  # fmt: skip
        finally:
            worker.terminate()
            worker.wait(timeout=30)
    assert done.returncode == 0, done.stderr
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
