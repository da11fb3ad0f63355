"""`tsmalloc service`: which allocator is best for a server?"""

import re
import shlex
from typing import Any

import click

from tsmlab import allocators as known
from tsmlab import doctor
from tsmlab.commands import parameters
from tsmlab.commands.parameters import option
from tsmlab.commands.studies import Study, conduct, resume_option
from tsmlab.compare import NO_DOCTOR
from tsmlab.errors import UserError
from tsmlab.gate import status_of
from tsmlab.schedule import MAX_ROUNDS, MIN_ROUNDS, StopRule
from tsmlab.service import loads
from tsmlab.service.server import LINE, Phase, Service
from tsmlab.service.study import Options, study

LOAD_SECONDS = 5.0
IDLE_SECONDS = 5.0
SLICE_SECONDS = 60.0
BUDGET_SECONDS = 600.0
FIRST_BUDGET_SECONDS = 1800.0


def _limit(value: str) -> tuple[str, float | str]:
    name, _, text = value.rpartition("=")
    if not name:
        raise click.BadParameter(f"{value!r} is not a limit like p99=+5%")
    return name, parameters.limit(text)


@click.command("service", cls=Study)
@option("--server CMD", "The server command; {port} is a free port, {dir} a fresh directory.")
@option(
    "--load CMD",
    "The load generator, as a shell command; {seconds} and {rate} are also replaced. The output "
    "of wrk, wrk2, oha, hey, ab, h2load, vegeta, k6, redis-benchmark, memtier_benchmark, pgbench, "
    "sysbench and ghz is recognised.",
)
@option(
    "--ready CMD",
    "The server is ready when this shell command succeeds or, with line:REGEX, when a line of its "
    "output matches. [default: when it listens]",
)
@option(
    "--reset CMD", "A shell command to run before each start, for example to restore a database."
)
@option("--port N", "The port of a server that cannot choose one.", type=parameters.whole_number(1))
@option("--idle TIME", "Idle time after the load. [default: 5s]")
@option(
    "--phases LIST",
    "NAME=TIME[@RATE],...: phases to run in sequence. A name that begins with idle is a pause; the "
    "others run --load with their {seconds} and {rate}. Metrics of the second load phase and later "
    "ones are prefixed with the phase's name.",
)
@option("--warmups N", "Loads before the measured one, after each start.", default=1)
@option(
    "--metric NAME=REGEX",
    "A number that the load prints: the first group of REGEX. Append :higher if higher is "
    "better, and :UNIT (s, ms, us, B, KiB, count) if no unit is printed. If given "
    "several times, the first one determines the ranking.",
    "metrics",
    multiple=True,
)
@option(
    "--limit METRIC=PERCENT",
    "Fail if a metric of the table exceeds the reference's by more than this: p99=+5%.",
    "limits",
    type=_limit,
    multiple=True,
)
@parameters.allocators_option("Which to compare")
@parameters.extra_option
@parameters.reference_option
@parameters.rounds_option("Exactly N rounds. [default: until the verdicts are resolved]")
@parameters.time_budget_option(
    "Start no round that would end later than this. [default: 10m, after five rounds]"
)
@option(
    "--soak TIME",
    "Instead of rounds, load each server for this long, one after the other, to see whether its "
    "memory grows.",
    "soak_seconds",
)
@option(
    "--ready-within TIME",
    "How long to wait for the server to be ready.",
    "ready_seconds",
    default="60s",
)
@option("--grace TIME", "Time between SIGTERM and SIGKILL.", "grace_seconds", default="10s")
@parameters.timeout_option("20 times the first load, at least 60 s")
@option(
    "--server-cpus LIST",
    "Processors for the server. [default: half of them; all if they are fewer than four]",
    type=parameters.processors,
)
@option(
    "--load-cpus LIST",
    "Processors for the load. [default: the others, or all]",
    type=parameters.processors,
)
@parameters.seed_option
@parameters.margin_option
@parameters.ignore_failure_option
@option("--no-doctor", "Skip the check that an allocator can be preloaded into the server.")
@parameters.cluster_option
@parameters.output_options
@parameters.report_option
@resume_option
def command(**params: Any) -> int:
    """Run a server under every allocator, send it load, and show which allocator is best for it.

    Only the server gets the allocator and is measured: latency and throughput as reported by the
    load generator, CPU time per request, and memory over time, including after the load. Each round
    starts it once under each allocator, in random order, and under the reference twice.

    \b
    Examples:
      tsmalloc service --server 'redis-server --port {port} --save ""' \\
        --load 'redis-benchmark -p {port} -n 200000 -P 16 -d 300 -q --csv'
      tsmalloc service --server './server --port {port}' \\
        --load 'wrk2 -R {rate} -d {seconds}s --latency http://127.0.0.1:{port}/' \\
        --phases quiet=20s@500,burst=5s@5000,idle=20s
      tsmalloc service --server ... --load ... --soak 2h -a tsmalloc,glibc

    Exit status: 0 success; 1 usage or environment error; 2 the server or its load failed under an
    allocator; 3 a metric exceeds its --limit; 130 interrupted; what was measured
    until then is kept.
    """
    options, words = _options(params)
    if not params["no_doctor"]:
        diagnosis = doctor.diagnose(words)  # from the file only; the rest is seen in each run
        diagnosis.raise_if_fatal(NO_DOCTOR)
        for warning in diagnosis.warnings:
            click.echo(f"doctor     {warning.full_text}", err=True)
    return conduct(
        params | {"cpus": None},
        options.seed,
        options.allocators,
        parameters.files_of(words, params),
        lambda journal, reporter, fleet: study(options, reporter, journal, fleet),
        status_of,
        notes=known.advice(params["chosen"]),
    )


def _options(params: dict[str, Any]) -> tuple[Options, list[str]]:
    for name in ("server", "load"):
        if not params[name]:
            raise UserError(f"missing --{name}.", "Give both: --server 'CMD' --load 'CMD'.")
    try:
        words = shlex.split(params["server"])
    except ValueError as error:
        raise UserError(f"cannot parse --server: {error}.", "Quote it as in a shell.") from error
    if not words:
        raise UserError("--server needs a program.", "For example: --server './server {port}'")
    if not params["port"] and "{port}" not in params["server"] and "{port}" in params["load"]:
        raise UserError(
            "--load has {port}, but --server does not.",
            "Put {port} into --server, or give the server's own port: --port N",
        )
    if params["limits"] and params["soak_seconds"]:
        raise UserError("--limit and --soak cannot be combined.", "Leave one of them out.")
    if params["cluster"] and params["soak_seconds"]:
        raise UserError(
            "--soak and --cluster cannot be combined: each soak would be on another machine.",
            "Run the soak on one of the machines.",
        )
    available = known.discover(params["extra"])
    compared = known.select_or_default(params["chosen"], available)
    reference, compared = known.with_reference(params["reference"], compared, available)
    if (ready := params["ready"]) and ready.startswith(LINE):
        try:
            re.compile(ready.removeprefix(LINE))
        except re.error as error:
            raise UserError(f"--ready: {ready!r} is not a regular expression: {error}.") from error
    service = parameters.options_of(
        Service,
        params,
        phases=_phases(params),
        metrics=loads.metrics_of(params["metrics"]),
        load_seconds=params["timeout_seconds"],
        server_cpus=params["server_cpus"] or (),
        load_cpus=params["load_cpus"] or (),
    )
    budget = params["time_budget_seconds"]
    rule = StopRule(
        time_budget_seconds=budget or BUDGET_SECONDS,
        min_rounds=MIN_ROUNDS,
        max_rounds=MAX_ROUNDS,
        min_rounds_budget_seconds=0.0 if budget else FIRST_BUDGET_SECONDS,
    )
    options = parameters.options_of(
        Options,
        params,
        service=service,
        allocators=tuple(compared),
        reference=reference,
        limits={name: each for name, each in params["limits"] if each != parameters.NO_LIMIT},
        rule=StopRule.fixed_rounds(params["rounds"], budget) if params["rounds"] else rule,
    )
    return options, words


def _phases(params: dict[str, Any]) -> tuple[Phase, ...]:
    """The phases of --phases; by default a load, then idle time."""
    timed = "{seconds}" in params["load"]
    found: list[Phase] = []
    if not params["phases"]:
        seconds = None
        if timed:
            soak = params["soak_seconds"]
            seconds = min(soak, SLICE_SECONDS) if soak else LOAD_SECONDS
        if "{rate}" in params["load"]:
            raise UserError("--load has {rate}, but no rate is given.", "--phases load=20s@1000")
        found.append(Phase("load", seconds))
    for text in params["phases"].split(",") if params["phases"] else ():
        match = re.fullmatch(r"\s*([A-Za-z][\w -]*)=([\d.]+[smh]?)(?:@([\w.]+))?\s*", text)
        if not match:
            raise UserError(
                f"cannot parse --phases {text!r}.", "For example: load=20s@1000,idle=20s"
            )
        name = match[1]
        twice = sum(phase.name.split(" ")[0] == name for phase in found)
        phase = Phase(
            f"{name} {twice + 1}" if twice else name, parameters.duration(match[2]), match[3] or ""
        )
        for what, missing in (("seconds", timed), ("rate", "{rate}" in params["load"])):
            if phase.is_load and (what == "seconds" or phase.rate) and not missing:
                raise UserError(
                    f"--phases gives a {what}, but --load does not use it.",
                    f"Put {{{what}}} into --load.",
                )
        if phase.is_load and not phase.rate and "{rate}" in params["load"]:
            raise UserError(
                f"--phases: {text!r} has no rate, but --load needs {{rate}}.",
                f"{text.strip()}@1000",
            )
        found.append(phase)
    if not any(phase.is_load for phase in found):
        raise UserError("--phases contains no load.", "For example: load=20s,idle=20s")
    if found[-1].is_load and (params["idle"] or not params["phases"]):
        found.append(Phase("idle", params["idle"] or IDLE_SECONDS))
    return tuple(found)
