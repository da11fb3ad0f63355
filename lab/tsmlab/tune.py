"""`tsmalloc tune`: searches for options of an allocator that are better for a program.

Each step races all single changes by successive halving, and tests the best one in fresh rounds:
even among changes without effect, the best one looks good in the rounds that selected it. A change
is kept only if fresh rounds show that it is better, and the next step continues from it.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tsmlab import compare, stats
from tsmlab.allocators import Allocator
from tsmlab.analysis import log_ratios, logs_by_round
from tsmlab.counting import INSTRUCTIONS, NOT_OF_COUNTS, ROUNDS, Counters
from tsmlab.errors import EXIT_PROGRAM_FAILED, UserError
from tsmlab.fleet import Fleet
from tsmlab.journal import Memo, Part
from tsmlab.measuring import Executor
from tsmlab.metrics import BUILT_IN, COST, PEAK_MEMORY, TIME, MetricSpec
from tsmlab.progress import Reporter
from tsmlab.results import EARLY, AllocatorInfo, Analysis, Comparison, Outcome, Stop, ended
from tsmlab.schedule import MIN_ROUNDS, StopRule
from tsmlab.stats import RatioEstimate, Verdict
from tsmlab.study import Objective, RaceEntry, Step, Study, Tune, TuneRow
from tsmlab.trial import Program
from tsmlab.tune_options import Option, Setting, configured, environment
from tsmlab.wording import counted, rounds

# The name of the changed configuration in fresh rounds; the other one keeps its own name.
TUNED = "tuned version"
FIRST_ROUNDS = 3
TIME_BUDGET_SECONDS = 600.0
# The share of the time budget that races may take; the rest is for fresh rounds.
RACE_SHARE = 2.0 / 3.0
# The share of the remaining time for the fresh rounds of a further step, so that there is time left
# to compare a winner of several changes with the default.
FRESH_SHARE = 0.5
MAX_FRESH_ROUNDS = 60


@dataclass(frozen=True)
class Options:
    """The options of a search. options: those to try; unknown: those that this library does not
    have. first_rounds: of the first rung; each later one doubles them."""

    program: Program
    allocator: Allocator
    options: tuple[Option, ...]
    unknown: tuple[str, ...]
    objective: Objective
    seed: int
    first_rounds: int = FIRST_ROUNDS
    time_budget_seconds: float = TIME_BUDGET_SECONDS
    timeout_seconds: float | None = None
    margin: float = stats.DEFAULT_MARGIN
    check_output: bool = True
    consult_doctor: bool = True
    cpus: tuple[int, ...] | None = None
    counters: Counters | None = None

    @property
    def metrics(self) -> tuple[MetricSpec, ...]:
        """The objective comes first, unless the program prints it."""
        if self.objective == "both":
            return (MetricSpec(COST, f"{self.effort.name} x memory", "number", True), *self._known)
        first = PEAK_MEMORY if self.objective == "memory" else self.effort.key
        return tuple(sorted(self._known, key=lambda spec: spec.key != first))

    @property
    def judged(self) -> list[MetricSpec]:
        printed = (metric.spec for metric in self.program.metrics[:1])
        return [*printed, *(spec for spec in self.metrics if spec.judged)]

    @property
    def goal(self) -> MetricSpec:
        return self.judged[0]

    @property
    def vetoes(self) -> tuple[str, ...]:
        """The quantities that must not get worse."""
        return (self.effort.key, PEAK_MEMORY) if self.objective == "both" else ()

    @property
    def effort(self) -> MetricSpec:
        """The time, or its substitute if counts are judged."""
        key = TIME if self.counters is None else INSTRUCTIONS
        found = next((spec for spec in self._known if spec.key == key), None)
        if found is None:
            raise UserError(
                "cannot count instructions here.",
                "sudo apt install valgrind, or use --for memory",
            )
        return found

    @property
    def _known(self) -> tuple[MetricSpec, ...]:
        return BUILT_IN if self.counters is None else self.counters.metrics


def tune(
    options: Options, executor: Executor, reporter: Reporter, memo: Memo, fleet: Fleet | None = None
) -> Outcome[Study]:
    """Raises UserError and KeyboardInterrupt only if nothing has been measured."""
    return _Search(options, executor, reporter, memo, fleet).run()


@dataclass
class _Search:
    options: Options
    executor: Executor
    reporter: Reporter
    memo: Memo
    fleet: Fleet | None

    def __post_init__(self) -> None:
        self._stages: list[Comparison] = []
        self._steps: list[Step] = []
        self._failed: set[Setting] = set()
        self._winner: tuple[Setting, ...] = ()
        self._rows: list[TuneRow] = []

    def run(self) -> Outcome[Study]:
        try:
            stop = self._search()
        except EARLY as problem:
            if not self._stages:
                raise
            return ended(problem, self._study)
        return Outcome(self._study(stop))

    def _search(self) -> Stop:
        """Continues while steps find something. A winner of several changes is compared with the
        default once more: the rounds of each step only showed the effect of its own change."""
        found: tuple[Setting, ...] = ()
        rows: list[TuneRow] = []
        while True:
            best = self._race(found)
            if best is None:
                stop = Stop("resolved", "no further change is better")
                break
            label = f"step {len(self._steps)}, fresh rounds"
            fresh = self._fresh(found, (*found, best), label)
            confirmed = improves(fresh, self.options)
            self._steps[-1] = replace(
                self._steps[-1], change=best.text, rows=fresh, confirmed=confirmed
            )
            if not confirmed:
                stop = Stop("resolved", "the best further change is not reliably better")
                break
            found, rows = (*found, best), fresh
            if not self._changes(found):
                stop = Stop("none-left", "every option has been set")
                break
            if not self._fits(f"step {len(self._steps) + 1}", 1):
                stop = Stop("budget", "the time for races is used up")
                break
        if len(found) > 1:
            rows = self._fresh((), found, "the winner against the default")
        if found and improves(rows, self.options):
            self._winner = found
        self._rows = rows or (self._steps[0].rows or [])
        return stop

    def _changes(self, base: Sequence[Setting]) -> list[Setting]:
        taken = {setting.option.name for setting in base}
        every = (Setting(o, value) for o in self.options.options for value in o.values)
        return [s for s in every if s.option.name not in taken and s not in self._failed]

    def _race(self, base: tuple[Setting, ...]) -> Setting | None:
        """The best single change, if any may be better; a step records how all of them did."""
        alive = {setting.text: setting for setting in self._changes(base)}
        out: list[RaceEntry] = []
        rungs: list[Comparison] = []
        step = len(self._steps) + 1
        while alive:
            more = self.options.first_rounds * 2 ** max(0, len(rungs) - 1)
            label = f"step {step}, rung {len(rungs) + 1}"
            if rungs and not self._fits(label, more * (len(alive) + 2)):
                break
            self.reporter.note(f"{label}: {counted(len(alive), 'change')}, {rounds(more)}")
            changed = {name: (*base, setting) for name, setting in alive.items()}
            left = self._left(label, RACE_SHARE)
            rungs.append(self._compare(label, base, changed, StopRule.fixed_rounds(more, left)))
            known = {name: self._race_entry(name, rungs) for name in alive}
            ranked = sorted(known, key=lambda name: self._score(known[name]))
            self._failed |= {alive[name] for name in ranked if known[name].fate == "failed"}
            good = [name for name in ranked if known[name].fate == "best"]
            kept = good[: (len(alive) + 1) // 2]
            fallen = [known[name] for name in ranked if name not in kept]
            out = [replace(r, fate="worse half") if r.fate == "best" else r for r in fallen] + out
            alive = {name: alive[name] for name in kept}
            if len(kept) <= 1:
                break
        last = [self._race_entry(name, rungs) for name in alive]
        last = [*last[:1], *(replace(raced, fate="out of time") for raced in last[1:])]
        self._steps.append(Step([each.text for each in base], [*last, *out]))
        return next(iter(alive.values()), None)

    def _race_entry(self, change: str, rungs: Sequence[Comparison]) -> RaceEntry:
        """Over all rounds so far; `best` if it may still be better than the base."""
        ratios, base_name = {}, self.options.allocator.name
        for spec in self.options.judged:
            logs: list[float] = []
            for each in rungs:
                own, base = (logs_by_round(each.samples, n, spec.key) for n in (change, base_name))
                logs += log_ratios(own, base).values()
            if logs:
                ratios[spec.key] = stats.estimate_ratio(logs, seed=self.options.seed)
        goal = self.options.goal
        count = max((ratio.pairs for ratio in ratios.values()), default=0)
        rows = [row for each in rungs for row in each.analysis.rows if row.allocator == change]
        failure = next((row.failure.text for row in rows if row.failure), None)
        if failure is not None or goal.key not in ratios:
            return RaceEntry(change, count, ratios, "failed", failure or f"no {goal.name}")
        margin = self.options.margin
        may_win = _may_be_better(ratios[goal.key], margin, goal.higher_is_better) and not any(
            _is_worse(ratios.get(key), margin) for key in self.options.vetoes
        )
        return RaceEntry(change, count, ratios, "best" if may_win else "no better")

    def _score(self, raced: RaceEntry) -> float:
        """Smaller is better."""
        ratio = raced.ratios.get(self.options.goal.key)
        if raced.fate == "failed" or ratio is None:
            return float("inf")
        return 1.0 / ratio.ratio if self.options.goal.higher_is_better else ratio.ratio

    def _fresh(
        self, base: tuple[Setting, ...], tuned: tuple[Setting, ...], label: str
    ) -> list[TuneRow]:
        """Runs both in rounds of their own, until the objective is decided."""
        options = self.options
        left = self._left(label, 1.0) * (FRESH_SHARE if base else 1.0)
        self.reporter.note(f"{label}: {' '.join(setting.text for setting in tuned)}")
        rule = StopRule(
            min_rounds=MIN_ROUNDS if options.counters is None else ROUNDS,
            max_rounds=MAX_FRESH_ROUNDS,
            time_budget_seconds=left,
        )
        comparison = self._compare(label, base, {TUNED: tuned}, rule)
        return fresh_rows(comparison.analysis, options)

    def _compare(
        self,
        label: str,
        base: tuple[Setting, ...],
        changed: Mapping[str, tuple[Setting, ...]],
        rule: StopRule,
    ) -> Comparison:
        options, first = self.options, not self._stages
        every = {options.allocator.name: base, **changed}
        allocators = tuple(configured(options.allocator, s, name) for name, s in every.items())
        warm_up = first and options.counters is None
        effort = options.effort.key if options.objective == "both" else ""

        outcome = compare.compare(
            compare.Options(
                program=replace(options.program, effort=effort),
                allocators=allocators,
                reference=allocators[0],
                seed=options.seed + len(self._stages),
                rule=rule,
                warmup_rounds=compare.WARMUP_ROUNDS if warm_up else 0,
                timeout_seconds=options.timeout_seconds,
                margin=options.margin,
                check_output=options.check_output,
                consult_doctor=options.consult_doctor and first,
                cpus=options.cpus,
                base_metrics=options.metrics,
                vary_layout=options.counters is None,
                unresolved=lambda found: _undecided(found, options) if TUNED in changed else 1,
                unfit_warnings=NOT_OF_COUNTS if options.counters else frozenset({"few-rounds"}),
                print_preflight=first,
            ),
            self.executor,
            self.reporter,
            Part(self.memo, label),
            self.fleet,
        )
        comparison = outcome.results
        self._stages.append(replace(comparison, name=label))
        if outcome.error is not None:
            raise outcome.error
        if comparison.interrupted:
            raise KeyboardInterrupt
        if comparison.stop.reason == "reference-failed":
            raise UserError(
                f"the program kept failing under {options.allocator.name} ({label}).",
                "Run it on its own first: it must work every time.",
                EXIT_PROGRAM_FAILED,
            )
        return comparison

    def _left(self, label: str, share: float) -> float:
        """The seconds left in this share of the time budget."""
        end = share * self.options.time_budget_seconds
        return self.memo.once(f"{label}: time", float, lambda: max(end - self.memo.clock(), 0.0))

    def _fits(self, label: str, runs: int) -> bool:
        """Whether this many more runs fit into the time for races."""
        made = sum(len(stage.samples) for stage in self._stages)
        limit = RACE_SHARE * self.options.time_budget_seconds
        return self.memo.once(
            f"{label}: fits", bool, lambda: self.memo.clock() * (1.0 + runs / made) <= limit
        )

    def _study(self, stop: Stop) -> Study:
        options = self.options
        given = {**os.environ, **options.allocator.env}
        answer = Tune(
            command=list(options.program.command),
            allocator=AllocatorInfo.of(options.allocator),
            objective=options.objective,
            goal=options.goal,
            seed=options.seed,
            margin=options.margin,
            deterministic=options.counters is not None,
            options=list(options.options),
            unknown=list(options.unknown),
            steps=self._steps,
            settings=[setting.text for setting in self._winner],
            variables=environment(self._winner, given),
            rows=self._rows,
        )
        return Study.of("tune", self._stages, stop=stop, tune=answer)


def fresh_rows(analysis: Analysis, options: Options) -> list[TuneRow]:
    """From a comparison of a base configuration with a changed one."""
    rows = {row.allocator: row for row in analysis.rows}
    found = []
    for spec in options.judged:
        before, after = (
            rows[name].metrics.get(spec.key) for name in (options.allocator.name, TUNED)
        )
        found.append(
            TuneRow(
                spec.key,
                spec.name,
                spec.unit,
                before=before.median if before else None,
                after=after.median if after else None,
                ratio=after.ratio if after else None,
                verdict=(after.verdict if after else None) or Verdict.UNRESOLVED,
                rounds_more=after.rounds_more if after else None,
            )
        )
    return found


def improves(rows: Sequence[TuneRow], options: Options) -> bool:
    """Whether the objective is shown to be better; if it is both time and memory, neither may be
    worse."""
    verdicts = {row.metric: row.verdict for row in rows}
    if any(verdicts.get(key) is Verdict.WORSE for key in options.vetoes):
        return False
    return verdicts.get(options.goal.key) is Verdict.BETTER


def _undecided(analysis: Analysis, options: Options) -> int:
    rows = fresh_rows(analysis, options)
    return sum(r.metric == options.goal.key and r.verdict is Verdict.UNRESOLVED for r in rows)


def _may_be_better(ratio: RatioEstimate, margin: float, higher_is_better: bool) -> bool:
    """Whether the interval reaches beyond the margin; a single pair is not enough."""
    if ratio.low is None or ratio.high is None:
        return True
    return ratio.high > 1.0 + margin if higher_is_better else ratio.low < 1.0 / (1.0 + margin)


def _is_worse(ratio: RatioEstimate | None, margin: float) -> bool:
    return ratio is not None and ratio.low is not None and ratio.low > 1.0 + margin
