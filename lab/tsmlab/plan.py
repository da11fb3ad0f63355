"""What `tsmalloc compare --dry-run` prints: the experiment before it happens.

Why: a comparison takes minutes and loads the machine; one should be able to read first what it
does.
Refuses to: run anything.
"""

import shlex

from tsmlab.compare import MIN_TIMEOUT_SECONDS, TIMEOUT_FACTOR, Options
from tsmlab.render import full_name
from tsmlab.results import AllocatorInfo
from tsmlab.schedule import entries_for, round_order
from tsmlab.wording import rounds, share


def describe_plan(options: Options) -> str:
    """The plan as text, a line for each decision."""
    program = options.program
    lines = [
        ("command", shlex.join(program.command)),
        ("input", str(program.stdin)),
        ("success", f"exit status {program.expected_exit}{_output_rule(options)}"),
        ("reference", f"{options.reference.name}, run twice in each round"),
        ("warm-up", f"{rounds(options.warmup_rounds)}, not measured"),
        ("rounds", _stop_rule(options)),
        ("hang", _hang_rule(options)),
        ("margin", share(options.margin)),
        ("seed", str(options.seed)),
    ]
    if program.metric:
        direction = "higher" if program.metric.higher_is_better else "lower"
        lines.append(("metric", f"{program.metric.name}: {program.metric.pattern} ({direction})"))
    for label, hook in (("setup", program.setup), ("cleanup", program.cleanup)):
        if hook:
            lines.append((label, hook))
    if options.cpus:
        lines.append(("processors", ",".join(map(str, options.cpus))))
    for allocator in options.allocators:
        info = AllocatorInfo.of(allocator)
        lines.append(("allocator", f"{full_name(info)}  {info.path or '(nothing preloaded)'}"))
    entries = entries_for(options.allocators, options.reference)
    order = round_order(entries, options.seed, "measured", 1)
    lines.append(("round 1", " ".join(entry.allocator.name for entry in order)))
    return "\n".join(f"{label:<11}{text}" for label, text in lines)


def _output_rule(options: Options) -> str:
    if not options.check_output:
        return ""
    return ", and the reference's output, if that is always the same"


def _stop_rule(options: Options) -> str:
    rule = options.rule
    if rule.runs is not None:
        return f"exactly {rule.runs}"
    fit = f"if they fit into {rule.patience_seconds:g} s"
    firm = "whatever the time" if rule.min_is_firm else fit
    return (
        f"at least {rule.min_rounds} ({firm}), then until every verdict is resolved, "
        f"{rule.time_budget_seconds:g} s have passed, or {rule.max_rounds} are done"
    )


def _hang_rule(options: Options) -> str:
    if options.timeout_seconds is not None:
        return f"after {options.timeout_seconds:g} s"
    return (
        f"after {TIMEOUT_FACTOR:g} times the reference's first run, "
        f"at least {MIN_TIMEOUT_SECONDS:g} s"
    )
