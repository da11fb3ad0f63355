"""`tsmalloc service`: from the command line to the table; a simulated study; growth."""

import json
import os
import re
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import prompt
import pytest
from prompt import processes, stop_after, wait_until
from refusals import mentions, refused
from service_programs import LOAD, SERVER, SHIM

from tsmlab import stats, tables, texts
from tsmlab.allocators import Allocator, glibc
from tsmlab.errors import EXIT_OK, EXIT_REGRESSION
from tsmlab.gate import status_of
from tsmlab.journal import NullJournal
from tsmlab.metrics import PEAK_MEMORY
from tsmlab.progress import SilentReporter
from tsmlab.report import html, writing
from tsmlab.results import FLEET
from tsmlab.schedule import StopRule
from tsmlab.service import render
from tsmlab.service import study as studies
from tsmlab.service.growth import growth_of, slope
from tsmlab.service.loads import Load
from tsmlab.service.processes import TreeSnapshot
from tsmlab.service.results import CPU, END, IDLE, MEAN_MEMORY, P50, P99, READY
from tsmlab.service.server import Part, Phase, Server, Service
from tsmlab.service.study import Options, ServerRun, Trial
from tsmlab.stats import Verdict
from tsmlab.study import from_json

MIB = 1 << 20


@pytest.fixture(scope="session")
def words(build):
    server, load = build("server.c", SERVER), build("load.c", LOAD)
    return ["--server", f"{server} {{port}}", "--load", f"{load} {{port}} 60 {{seconds}}"]


@pytest.fixture(scope="session")
def shim(build):
    return build("shim.so.c", SHIM, "-shared", "-fPIC")


@pytest.fixture
def service(tsmalloc):
    return partial(tsmalloc, "service")


def measured(study):
    return [s for s in study.comparison.samples if s.phase == "measured"]


def no_server_is_left():
    """Of those that the tests built."""
    return not processes(lambda folder: re.match(r"\d+-server$", (folder / "exe").readlink().name))


# --- at the command line --------------------------------------------------------------------------


def test_a_service_is_compared_under_two_allocators(words, shim, service, tmp_path):
    kept = tmp_path / "all.json"
    options = ["--allocator", f"shim={shim}", "-a", "shim", "-r", "2", "--phases"]
    phases = "load=0.5s,burst=0.3s,idle=0.2s"
    done = service(*words, *options, phases, "--export-json", kept)
    assert re.search(r"p99 +\S+ .*\[", done.stdout)
    mentions(done.stdout, "memory after idle", "burst: p99", "wrk2, open loop")
    mentions(done.stderr, "first round", "tsmalloc report")
    study = from_json(kept.read_text())
    names = [sample.allocator for sample in measured(study)]
    assert (names.count("glibc"), names.count("shim")) == (4, 2)  # glibc twice in each round
    memory = (READY, END, IDLE, MEAN_MEMORY, PEAK_MEMORY)
    for sample in measured(study):
        for key in (P50, P99, "max_seconds", "throughput", *memory):
            assert sample.values[key] > 0.0, key
        assert sample.values[PEAK_MEMORY] >= sample.values[IDLE]
    found = study.comparison
    assert found.analysis.primary_metric == P99
    assert texts.report(study, 120) == done.stdout
    assert len(texts.to_csv(study).splitlines()) == 1 + len(found.samples)
    assert "| p99 |" in texts.markdown(study)


def test_rounds_on_a_cluster(words, shim, service, tmp_path):
    pytest.importorskip("distributed")
    kept = tmp_path / "all.json"
    options = ["--allocator", f"shim={shim}", "-a", "shim", "-r", "4", "--cluster", "local:2"]
    phases = ["--phases", "load=0.3s,idle=0.1s"]
    done = service(*words, *options, *phases, "--export-json", kept, "-v")
    mentions(done.stdout, "memory after idle", "on 2 workers of a cluster")
    samples = measured(from_json(kept.read_text()))
    assert len(samples) == 4 * 3
    made = {(s.round, s.measurement[FLEET]["worker"]) for s in samples}
    assert len(made) == 4, "rounds are not divided"
    assert all(sample.values[P99] > 0.0 for sample in samples)
    has_processors = len(os.sched_getaffinity(0)) >= 2 * 4  # two workers
    assert ("the load and the server share processors" in done.stderr) != has_processors


def test_workers_of_one_machine_cannot_share_a_port(service):
    pytest.importorskip("distributed")
    given = ["--server", "sleep 60", "--load", "x", "--port", "7000"]
    done = service(*given, "-a", "glibc", "--cluster", "local:2", status=1)
    mentions(done.stderr, "port 7000", "{port}")


@pytest.mark.parametrize(
    ("usable", "chosen", "expected"),
    [
        ([0], {}, ((0,), (0,))),
        ([4, 5, 6], {}, ((4, 5, 6), (4, 5, 6))),
        ([4, 5, 6, 7], {}, ((4, 5), (6, 7))),
        ([4, 5, 6, 7, 8], {}, ((4, 5, 6), (7, 8))),
        ([0, 1, 2, 3], {"server_cpus": (1,)}, ((1,), (0, 2, 3))),
        ([0, 1, 2, 3], {"load_cpus": (2, 3)}, ((0, 1), (2, 3))),
        ([0, 1], {"load_cpus": (0, 1)}, ((0, 1), (0, 1))),
        ([0, 1, 2, 3], {"server_cpus": (0,), "load_cpus": (3,)}, ((0,), (3,))),
    ],
)
def test_processors_are_divided_between_server_and_load(usable, chosen, expected):
    found = Service("s", "l", (Phase("load"),), **chosen).on(usable)
    assert (found.server_cpus, found.load_cpus) == expected


def test_a_failing_allocator_is_a_row(words, misbehaving, service, tmp_path):
    library = misbehaving('fputs("heap is broken\\n", stderr); abort()')
    kept = tmp_path / "all.json"
    options = ["--allocator", f"crash={library}", "-a", "crash", "-r", "2", "--idle", "0.1s"]
    given = [*words, *options, "--phases", "load=0.3s", "--export-json", kept]
    done = service(*given, status=2)
    mentions(done.stdout, "FAILED crash", "SIGABRT", "heap is broken")
    assert json.loads(kept.read_text())["parts"][0]["analysis"]["rows"][-1]["gave_up"]
    assert service(*given, "-i", "-f").returncode == 0


SLEEPS = ("--server", "sleep 60", "--load", "x")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--server", "x {port}"], "missing --load"),
        (["--server", "true", "--load", "x {port}"], "but --server does not"),
        (["--server", "x '{port}", "--load", "x"], "cannot parse"),
        (["--server", "nosuchserver {port}", "--load", "x"], "nosuchserver"),
        (["--server", "sleep {port}", "--load", "x", "--phases", "a"], "cannot parse"),
        (["--server", "sleep {port}", "--load", "x", "--phases", "a=1s"], "Put {seconds}"),
        (["--server", "sleep {port}", "--load", "x", "--phases", "idle=1s"], "no load"),
        (["--server", "sleep {port}", "--load", "x {rate}"], "no rate"),
        (["--server", "sleep {port}", "--load", "x", "--ready", "line:("], "regular expression"),
        (["--server", "sleep 60", "--load", "x", "--ready-within", "0.3s"], "not ready after 0.3"),
        (["--server", "sleep 60", "--load", "no", "--ready", "true"], "the load failed: exit 127"),
        (
            [*SLEEPS, "--ready", "true", "--reset", "echo no; exit 3"],
            "reset command failed (exit 3",
        ),
        (["--server", "x", "--load", "x", "--limit", "p99"], "p99=+5%"),
        ([*SLEEPS, "--limit", "p99=5", "--soak", "1h"], "--limit and --soak"),
        ([*SLEEPS, "--cluster", "local", "--soak", "1h"], "--soak and --cluster"),
    ],
)
def test_bad_input_has_one_clear_line(service, given, text):
    done = service(*given, "-a", "glibc", status=None)
    assert done.returncode in (1, 127)
    assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_soak_goes_on_where_it_was_interrupted(words, shim, environment, service, tmp_path):
    options = ["--allocator", f"leak={shim}:LEAK=8000000", "-a", "leak,glibc", "--soak", "1.2s"]
    options += ["--phases", "load=0.4s,idle=0.2s", "--seed", "1"]
    process = prompt.start("service", *words, *options, env=environment)
    said, told = stop_after(process, tmp_path, "soak of", 2)
    assert process.returncode == 130, told
    assert "tsmalloc service --resume" in told
    assert "memory under load" in said  # about what was measured
    wait_until(no_server_is_left)
    kept = tmp_path / "all.json"
    done = service("--resume", "--export-json", kept)
    found = from_json(kept.read_text())
    assert found.comparison.stop.reason == "runs"
    sessions = {s.allocator: len(s.measurement["lives"]) for s in measured(found)}
    assert sessions.keys() == {"leak", "glibc"}
    assert sorted(sessions.values()) == [1, 2]  # the interrupted one has two servers
    assert "an hour" in done.stdout


# --- a leak is found ------------------------------------------------------------------------------


def test_the_slope_of_a_leak_is_in_its_interval(words, shim):
    """A shim leaks by the clock, so the truth is known even on a busy machine."""
    rate = 4_000_000
    leaking = Allocator("leak", shim, "user", "1", env={"LEAK": str(rate)})
    service = Service(words[1], words[3], (Phase("load", 4.0),), warmups=0)
    with Server(service, leaking, {}) as server:
        server.wait_until_ready()
        server.load(Phase("load", 4.0))
        series = [(at, float(size)) for at, size, _ in server.watcher.series]
        found = growth_of("leak", [series], 0.01)
    assert found.standing == "growing"
    assert found.low * 0.98 <= rate * 3600 <= found.high * 1.02


# --- a simulated study ----------------------------------------------------------------------------


def a_look(at, pss=50 * MIB, cpu=0.0, **more):
    given = {"faults": 0, "switches": 0, "threads": 4, "processes": 1, "rss_bytes": pss}
    return TreeSnapshot(at, cpu, 0.0, **(given | {"pss_bytes": pss} | more))


def a_server_run(rng, p99=1.0, memory=1.0, cpu=1.0):
    """Two seconds of load with some noise, then idle time; factors change the measurements."""
    noise = lambda: float(rng.lognormal(0.0, 0.01))  # noqa: E731
    size = int(80 * MIB * memory * noise())
    load = Load(
        *("wrk2", "open", 1000.0 * noise(), 2000.0, 0.0, 0.001),
        {"50": 0.001 * noise(), "99": 0.005 * p99 * noise(), "100": 0.05 * noise() ** 20},
    )
    middle = a_look(3.0, size, 1.0 * cpu * noise())
    loaded = Part(Phase("load", 2.0), a_look(1.0, size), middle, load)
    idle = Part(Phase("idle", 1.0), middle, a_look(4.0, int(size * 0.9), middle.user_seconds))
    series = [[t / 10, float(size), 1.0] for t in range(10, 40)]
    return ServerRun(
        0.5, a_look(0.5, 40 * MIB), [loaded, idle], series, size, 0.001, "/lib/libc.so.6", 0
    )


@pytest.fixture
def simulated(monkeypatch):
    """A study with made-up server runs; `kinds` has the factors of each allocator."""

    def make(kinds, seed=1, rounds=8, limits=()):
        rng = np.random.default_rng(seed)

        def run(_, slot):
            server_run = a_server_run(rng, **kinds.get(slot.entry.allocator.name, {}))
            return studies._sample(slot, 0.0, [server_run], None)  # noqa: SLF001

        monkeypatch.setattr(Trial, "run", run)
        others = tuple(Allocator(name, None, "user", "?") for name in kinds)
        phases = (Phase("load", 2.0), Phase("idle", 1.0))
        options = Options(
            Service("./server {port}", "wrk2 {seconds}", phases),
            (glibc(), *others),
            glibc(),
            seed,
            StopRule(runs=rounds),
            limits=dict(limits),
        )
        return studies.study(options, SilentReporter(), NullJournal()).results

    return make


def test_a_difference_is_named_in_the_first_sentence(simulated):
    found = simulated({"fast": {"p99": 0.8}, "small": {"memory": 0.7, "cpu": 1.2}})
    answer = render.answer(found)
    fast, small = sorted(answer.split("; ")[:2], key=lambda text: "small" in text)
    assert re.search(r"fast: p99 -(19|20|21)\.\d%", fast)
    assert "memory" not in fast
    assert re.search(r"small: CPU per request \+\S+% .*memory after idle -(29|30|31)", small)
    assert answer.endswith("neither fails.")
    rows = {row.allocator: row.metrics for row in found.comparison.analysis.rows}
    assert rows["fast"][P99].verdict is Verdict.BETTER
    assert rows["small"][CPU].verdict is Verdict.WORSE
    assert rows["fast"][P50].verdict in (Verdict.EQUAL, Verdict.UNRESOLVED)


def test_the_same_library_is_not_found_to_differ(simulated):
    """Thirty studies of one library under two names: hardly any false verdict in any metric."""
    false = 0
    for seed in range(30):
        found = simulated({"same": {}}, seed)
        (row,) = [r for r in found.comparison.analysis.rows if r.allocator == "same"]
        verdicts = [summary.verdict for summary in row.metrics.values()]
        false += sum(v in (Verdict.BETTER, Verdict.WORSE) for v in verdicts)
    assert false <= 1


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_table_keeps_to_the_width(simulated, width):
    found = simulated({name: {} for name in ("one", "two", "three", "four")}, rounds=2)
    text = texts.report(found, width)
    table = [line for line in text.splitlines() if line.startswith(("p99 ", "memory "))]
    assert max(map(len, table)) <= max(width, 80)
    mentions(text, "one", "two", "three", "four")


@pytest.mark.parametrize(
    ("p99", "limits", "status"),
    [
        (1.2, {"p99": 0.05}, EXIT_REGRESSION),
        (1.2, {"p99": 0.4, "memory at peak": 0.05}, EXIT_OK),
        (0.7, {"p99": 0.05}, EXIT_OK),
        (1.0, {"requests/s": 0.05}, EXIT_OK),
        (1.2, {}, EXIT_OK),
    ],
)
def test_limits_make_a_gate_of_it(simulated, p99, limits, status):
    found = simulated({"one": {"p99": p99}, "two": {}}, limits=limits)
    assert status_of(found) == status
    rows = found.gate.rows if found.gate else []
    assert len(rows) == 2 * len(limits)
    told = {row.name: (row.verdict, row.limit) for row in rows}
    if status == EXIT_REGRESSION:
        assert told == {"one: p99": ("regression", 0.05), "two: p99": ("pass", 0.05)}
        assert re.search(r"(?m)^REGRESSION one: p99: \+.* limit \+5\.0%$", texts.report(found, 120))
    if "requests/s" in limits:  # higher is better
        assert told["one: requests/s"][1] == -0.05


def test_a_limit_on_what_is_not_measured(simulated):
    with refused("unknown metric p98", remedy="p99, "):
        simulated({"one": {}}, limits={"p98": 0.05})


def test_the_page_has_the_figures_of_a_service(simulated):
    study = simulated({"fast": {"p99": 0.8}})
    page = writing.of(study)
    assert page.answer == render.answer(study)
    found = {figure.name: figure for figure in page.figures}
    assert list(found) == ["tradeoff", "memory", "percentiles", "distribution", "ratios"]
    drawn = tables.rows_of(found["percentiles"].table.table)
    rows = {row[0].text: [cell.text for cell in row] for row in drawn}
    assert rows["fast"][2] < rows["glibc"][2]
    (panel,) = found["memory"].panels
    band = panel["layer"][0]
    assert band["data"]["values"] == [{"x": 1.0, "to": 3.0}]  # the load
    assert {row["series"] for row in panel["data"]["values"]} == {"glibc", "fast"}
    assert "runs.csv" in page.files
    assert study.comparison.command[0] in html.render(page)


@pytest.mark.parametrize(
    ("code", "of", "change"),
    [
        ("load-saturated", "part", {"load_share": 0.97}),
        ("failed-requests", "load", {"errors": 20.0}),
        ("killed", "server_run", {"killed": 2}),
        ("watching-cost", "server_run", {"watching_seconds": 0.2}),
        ("closed-loop", "served", {"loop": "closed"}),
        ("own-malloc", "served", {"malloc_of_reference": "/usr/lib/libjemalloc.so.2"}),
    ],
)
def test_what_spoils_a_measurement_is_told(simulated, code, of, change):
    study = simulated({"same": {}}, rounds=1)

    def codes(**changes):
        samples = []
        for sample in study.comparison.samples:
            (server_run,) = studies.server_runs_of(sample)
            loaded, *others = server_run.parts
            load = replace(loaded.load, **changes.get("load", {}))
            loaded = replace(loaded, load=load, **changes.get("part", {}))
            parts = [loaded, *others]
            server_run = replace(server_run, parts=parts, **changes.get("server_run", {}))
            samples.append(replace(sample, measurement={"lives": [asdict(server_run)]}))
        served = replace(study.service, **changes.get("served", {}))
        found = replace(study.comparison, samples=samples)
        return {t.code for t in studies.warnings_of(found, served)}

    assert code not in codes()
    assert code in codes(**{of: change})


# --- numbers --------------------------------------------------------------------------------------


def test_numbers_of_a_life():
    server_run = a_server_run(np.random.default_rng(1))
    values = studies.values_of([server_run])
    assert values[CPU] == pytest.approx(server_run.parts[0].cpu_seconds / 2000)
    assert values[IDLE] == server_run.parts[1].after.pss_bytes
    assert values[END] == server_run.parts[0].after.pss_bytes
    assert values[READY] == 40 * MIB
    assert values["threads"] == 4


def sharing(server_run, shared, count):
    """The same, but the server has `count` processes that share so many bytes at its borders."""

    def look(snapshot):
        return replace(snapshot, rss_bytes=snapshot.pss_bytes + shared, processes=count)

    parts = [
        replace(part, before=look(part.before), after=look(part.after)) for part in server_run.parts
    ]
    return replace(server_run, ready=look(server_run.ready), parts=parts)


def test_memory_that_processes_share_counts_once_between_the_borders_too():
    server_run = a_server_run(np.random.default_rng(1))
    own = server_run.series[0][1]
    prefork = replace(
        sharing(server_run, 20 * MIB, 4),
        series=[[1.0, own + 20 * MIB, 4.0], [2.0, own + 25 * MIB, 5.0], [2.5, 1 * MIB, 4.0]],
    )
    assert [size for _, size in studies.memory_of(prefork)] == [own, own, 0.0]
    earlier = replace(prefork, series=[point[:2] for point in prefork.series])
    assert [size for _, size in studies.memory_of(earlier)] == [own, own + 5 * MIB, 0.0]
    assert all(1.0 <= at <= 3.0 for at, _ in studies.memory_under_load(server_run))
    peak = studies.values_of([replace(prefork, peak_bytes=None)])[PEAK_MEMORY]
    assert peak == max(own, *(part.before.pss_bytes for part in prefork.parts))


def test_a_small_server_grows_as_fast_as_its_own_memory():
    """It shares 1.4 MiB with other programs, most of its memory at first, little at the end."""
    server_run = a_server_run(np.random.default_rng(1))
    rate, shared = 1 * MIB, 1.4 * MIB
    sizes = {at: 0.2 * MIB + rate * (at - 1.0) for at in np.linspace(1.0, 3.0, 100)}
    before, after = (a_look(at, 0.2 * MIB + rate * (at - 1.0)) for at in (1.0, 3.0))
    part = replace(server_run.parts[0], before=before, after=after)
    small = replace(server_run, ready=a_look(0.5, 0.2 * MIB), parts=[part], peak_bytes=None)
    small = replace(
        sharing(small, shared, 1), series=[[at, size + shared, 1.0] for at, size in sizes.items()]
    )
    grown = growth_of("small", [studies.memory_of(small)], 0.01)
    assert grown.bytes_per_hour == pytest.approx(rate * 3600)
    peak = studies.values_of([replace(small, peak_bytes=int(3.4 * MIB + shared))])[PEAK_MEMORY]
    assert peak == pytest.approx(3.4 * MIB, abs=1)


def test_a_thinned_series_keeps_its_peak():
    series = [(t / 10, 100.0 + (900.0 if t == 777 else t % 3)) for t in range(5000)]
    kept = studies.thinned(series, 100)
    assert len(kept) <= 100
    assert max(size for _, size in kept) == 1000.0
    assert [at for at, _ in kept] == sorted(at for at, _ in kept)


def series(slope_per_second, noise, seed, alike=0.0):
    rng = np.random.default_rng(seed)
    rest, points = 0.0, []
    for n in range(3000):
        rest = alike * rest + float(rng.normal(0.0, noise))
        points.append((n / 10, 100e6 + slope_per_second * n / 10 + rest))
    return points


@pytest.mark.parametrize("alike", [0.0, 0.99])
def test_the_interval_of_a_slope_holds_the_truth(alike):
    """A megabyte a minute, with independent noise, and with noise that drifts."""
    truth = 1e6 / 60
    held = 0
    for seed in range(40):
        found = slope(series(truth, 2e5 * (1.0 - alike) ** 0.5, seed, alike))
        held += found.low <= truth * 3600 <= found.high
    assert held >= 34


def test_a_slope_does_not_depend_on_when_memory_was_looked_at():
    """As the watcher does: often at first, then seldom."""
    times = [*np.arange(0.0, 1.0, 0.1), *np.arange(1.4, 8.0, 1.0)]
    found = slope([(t, 5e6 + 4e6 * t) for t in times])
    assert found.slope == pytest.approx(4e6 * 3600)


@pytest.mark.parametrize(
    ("slope_per_second", "noise", "standing"),
    [(1e6 / 60, 1e5, "growing"), (0.0, 1e4, "level"), (0.0, 5e6, "not clear")],
)
def test_level_is_not_growing(slope_per_second, noise, standing):
    assert growth_of("x", [series(slope_per_second, noise, 1)], 0.01).standing == standing
    assert growth_of("x", [[]], 0.01) is None
    # Filling up at first is no growth.
    points = [(t, 50e6 + min(t, 20.0) * 1e6) for t in np.arange(0.0, 100.0, 0.1)]
    assert growth_of("x", [points], 0.01).standing == "level"


def test_alike_neighbours_widen_the_interval():
    values = [float(n % 7) for n in range(40)]
    plain, wide = stats.theil_sen(values), stats.theil_sen(values, inflation=4.0)
    assert wide.slope == plain.slope
    assert wide.high - wide.low > plain.high - plain.low
