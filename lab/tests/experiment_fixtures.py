"""Simulated experiments: programs that take no time, and samples with known results."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

from conftest import Behaviour, SimulatedExecutor, World
from prompt import script, write_files

from tsmlab import experiments, records
from tsmlab.analysis import Question, analyse, at_points
from tsmlab.definition import AnalysisRequest, Definition
from tsmlab.experiments import Options, Plan
from tsmlab.journal import NullJournal
from tsmlab.metrics import MetricSpec
from tsmlab.progress import SilentReporter
from tsmlab.records import CHECKSUM
from tsmlab.results import Failure, Sample, SweepPoint
from tsmlab.sweep import Parameter, points_of

HERE = Path(__file__).resolve()
MIB = 1 << 20
NAMES = ("tsmalloc", "glibc", "other")
SECONDS = MetricSpec("seconds", "time", "seconds", judged=True)
THREADS = Parameter("threads", "number of threads", [1, 2, 4, 8])
CRASH = Failure("signal", "SIGSEGV")


def asked(kind, metric="seconds", parameter=None, at=None, allocators=(), **options):
    return AnalysisRequest(kind, metric, parameter, at or {}, list(allocators), options)


def definition(name="sweep", **changes):
    """Its program and its file are this one: files that can be hashed, but are never used."""
    values = {
        "name": name,
        "title": f"{name} and more",
        "question": "Which is best?",
        **dict.fromkeys(("source", "answers"), ""),
        "program": str(HERE),
        "arguments": ["--threads", "{threads}", "--under", "{allocator}"],
        "parameters": [Parameter("threads", "threads", [1, 2, 4])],
        "metrics": [SECONDS],
        **{key: [] for key in ("optional", "analyses", "reported")},
        "allocators": list(NAMES),
        "rounds": 3,
        "timeout_seconds": 9.0,
        "run_seconds": 1.0,
        "causes": "all",
        "file": str(HERE),
        "sha256": "0" * 64,
    }
    return Definition(**(values | changes))


def single(name="single", **changes):
    return definition(name, **({"parameters": [], "arguments": []} | changes))


def programs(pick=lambda *_: prints(1.0), **more):
    """An executor: `pick` determines the program's behaviour from allocator and arguments."""
    return SimulatedExecutor(lambda r: pick(r.allocator.name, r.command[1:]), **more)


def prints(seconds, **others):
    """A program that takes half a second more than it prints."""
    text = others.pop("more", "")
    return Behaviour(seconds=seconds + 0.5, stdout=f"seconds: {seconds}\n{text}", **others)


class Counting:
    def __init__(self, executor, **counts):
        self._executor, self._counts, self.requests = executor, counts, []

    def __call__(self, request, folder):
        assert not list(folder.iterdir())
        (folder / "left behind").write_text("")
        self.requests.append(request)
        self._executor.now += 1.0
        return dict(self._counts), []


class Notes(SilentReporter):
    """A reporter that records its notes, and how many rounds it should expect."""

    def __init__(self):
        self.texts, self.expected = [], None

    def expect(self, rounds):
        self.expected = rounds

    def note(self, text):
        self.texts.append(text)


def plan_of(definition, with_causes=True):
    allocators = {name: World.allocator(name) for name in NAMES}
    every, reference = tuple(allocators.values()), allocators["glibc"]
    return Plan(definition, HERE, every, reference, definition.rounds, with_causes)


def go_on(definitions, executor, observers=(), memo=None, time_budget_seconds=None, **changes):
    """Runs the experiments, or the parts that the memo lacks."""
    plans = tuple(plan_of(each, **changes) for each in definitions)
    return experiments.run(
        Options(plans, 7, None, time_budget_seconds),
        executor,
        SilentReporter(),
        memo or NullJournal(executor.clock),
        observers=observers,
        warm=lambda size: size,
    )


def timeless(results):
    """Without the time of day, and the load of the machine; clocks of two sessions differ in their
    last digits."""
    dropped = {"created", "started_seconds", "time_budget_seconds", "load_at_start", "warnings"}

    def strip(value):
        if isinstance(value, dict):
            return {k: strip(v) for k, v in value.items() if k not in {*dropped, CHECKSUM}}
        return [strip(v) for v in value] if isinstance(value, list) else value

    return strip(json.loads(records.to_json(results)))


def made_up(parameters, names, truth, metrics=(SECONDS,), rounds=8, noise=0.01, seed=1, causes=()):
    """truth(allocator, point) returns a cell's values, or None if the runs fail. Every value varies
    by a factor of its own and by one for the round, both log-normal. The first name is the
    reference, which runs twice."""
    generator = random.Random(seed)
    points = points_of(parameters)
    template = World.comparison({name: Behaviour() for name in ("glibc", *names)})
    samples = []
    for number in range(1, rounds + 1):
        slow = generator.lognormvariate(0.0, 3.0 * noise)
        for index, point in enumerate(points):
            for name, replicate in (*((n, 0) for n in names), (names[0], 1)):
                values = truth(name, point)
                found = {
                    key: value * slow * generator.lognormvariate(0.0, noise)
                    for key, value in (values or {}).items()
                }
                failure = CRASH if values is None else None
                samples.append(sample(name, number, index, found, failure, replicate))
    question = Question(tuple(names), names[0], (*metrics, *template.metrics), 0.01, 7)
    analyses = at_points(samples, len(points), question)
    return replace(
        template,
        reference=names[0],
        metrics=list(question.metrics),
        allocators=[template.allocator(name) for name in names],
        analysis=analyse(samples, question),
        samples=samples,
        parameters=list(parameters),
        points=list(map(SweepPoint, points, analyses)) if parameters else [],
        causes=list(causes),
    )


def sample(name, number, point, values, failure=None, replicate=0):
    return Sample(
        "measured", number, 1, name, replicate, 0.0, 0, values, None, None, failure, {}, point
    )


def noisy_logs(truth, rounds, noise, seed):
    """Rows of logarithms; each whole row is shifted, too."""
    generator = random.Random(seed)
    rows = []
    for _ in range(rounds):
        shift = generator.gauss(0.0, 3.0 * noise)
        rows.append([math.log(value) + shift + generator.gauss(0.0, noise) for value in truth])
    return rows


def amdahl_seconds(serial, processors):
    return lambda threads: serial + (1.0 - serial) / min(threads, processors)


# --- files of experiments that run ----------------------------------------------------------------


PROGRAM = """#!/bin/sh
# Prints what it was told; "fail" fails under preloaded allocators.
if [ $1 = fail ] && [ -n "$LD_PRELOAD" ]; then echo "FAILED: not today" >&2; exit 3; fi
echo "seconds: 0.$2"
echo "under: $3"
"""
EXPERIMENT = """
name = "{name}"
title = "What {name} costs"
question = "Is it the same under all allocators?"
program = "./program"
arguments = ["{name}", "{{digits}}", "7"]
allocators = ["tsmalloc", "glibc"]
rounds = 3
run_seconds = 0.01

[[parameter]]
name = "digits"
values = [25, 5]

[[metric]]
name = "seconds"
unit = "seconds"

[[metric]]
name = "under"
"""


def write_experiments(folder, *names):
    """Writes experiments and their program into a folder, which it returns."""
    script(folder / "program", PROGRAM)
    return write_files(folder, {f"{name}.toml": EXPERIMENT.format(name=name) for name in names})
