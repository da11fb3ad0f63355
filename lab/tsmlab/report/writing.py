"""Makes the files of a report from results.

A page has the same blocks as a terminal's report, plus the verb's figures, the machine, and the
results themselves. A verb only adds a head.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from shlex import join
from typing import Any

from tsmlab import export, records, texts
from tsmlab.report import Results, figures, folder, html
from tsmlab.report.page import Figure, Page, Section, table_of
from tsmlab.results import AllocatorInfo, Comparison
from tsmlab.study import Study
from tsmlab.tables import COMMANDS, Block, Cell
from tsmlab.text import capital, shortened, slug
from tsmlab.traces import analysis_text
from tsmlab.traces.analysis import CurvePoint, TraceAnalysis, to_json
from tsmlab.traces.replay_results import by_trace
from tsmlab.wording import counted, names, quantity_or


def write(results: Sequence[Results], directory: Path, force: bool) -> Path:
    pages = [page for each in results for page in pages_of(each)]
    files = _files(pages[0]) if len(pages) == 1 else _all_files(pages)
    return folder.write(directory, files, force)


def of(results: Results) -> Page:
    [page] = pages_of(results)
    return page


def pages_of(results: Results) -> list[Page]:
    """The pages of one result: each experiment of a run has its own."""
    if isinstance(results, TraceAnalysis):
        return [_trace_page(results)]
    study = Study.of("compare", [results]) if isinstance(results, Comparison) else results
    several = study.verb == "experiment"
    parts = [replace(study, parts=[part]) for part in study.parts] if several else [study]
    return [_study_page(each) for each in parts]


def _study_page(study: Study) -> Page:
    asked, (drawn, command, head) = study.comparison.experiment, _head(study)
    subject = f"compare-{study.subject}" if study.verb == "compare" else study.subject
    allocators = {info.name: info for part in study.parts for info in part.allocators}
    circumstances = [
        Section("Environment", [_machine(study), _versions(allocators.values())], folded=True),
        Section(
            "Settings",
            [Block("The command", lines=[command], style="code"), _settings(study)],
            folded=True,
        ),
        _reading(_TERMS + _OWN_TERMS.get(study.verb, "")),
    ]
    return _laid_out(
        texts.blocks(study),
        drawn,
        circumstances,
        **head,
        name=slug(asked.name if asked else subject),
        warnings=study.warnings,
        footer=f"Measured {study.created}; written by tsmalloc {study.tsmalloc_version}. "
        "This file is self-contained.",
        files={
            "results.json": records.to_json(study),
            "results.md": texts.markdown(study),
            "runs.csv": texts.to_csv(study),
        },
    )


def _trace_page(analysis: TraceAnalysis) -> Page:
    program = shortened(analysis.image["program"] or "a program", 60)
    return _laid_out(
        analysis_text.blocks(analysis),
        list(figures.trace_figures(analysis)),
        [_reading(_OF_TRACES)],
        kind="trace",
        title=analysis.trace,
        question=f"What does {program} do with its memory?",
        is_command=True,
        name=slug(f"trace-{analysis.trace}"),
        files={
            "results.json": to_json(analysis),
            "results.md": analysis_text.markdown(analysis),
            "runs.csv": export.csv_lines(CurvePoint._fields, analysis.curve),
        },
    )


# --- the heads of verbs ---------------------------------------------------------------------------


QUESTIONS = {
    "gate": "Does this program stay within its limits?",
    "tune": "Which options suit this program best?",
}


def _head(study: Study) -> tuple[list[Figure], str, dict[str, Any]]:
    """The figures, the command, and fields of the page."""
    found, replays = study.comparison, by_trace(study) if study.replay else []
    count, asked, command = len(found.allocators), found.experiment, join(found.command)
    kind: str = study.verb
    is_command = False
    if study.service:
        setup = study.service.setup
        title, question = setup.server, f"Which of {count} allocators is best for this server?"
        command, is_command = f"{setup.server}\n{setup.load}", True
        drawn = list(figures.service_figures(study))
    elif study.suite:
        suite = study.suite
        title = f"Where {suite.candidate or 'every peer'} stands among {len(suite.peers)} peers"
        question = f"{counted(len(suite.workloads), 'workload')} of {Path(suite.file).name}"
        drawn = list(figures.bench_figures(study))
    elif study.replay:
        title = f"Replay of {', '.join(own[0].trace.name for own in replays)}"
        schedules = names(list(dict.fromkeys(each.schedule for each in study.replay.parts)))
        question = f"The same calls on {count} allocators, under {schedules}"
        drawn = [figure for own in replays for figure in figures.replay_figures(own)]
    elif asked:
        kind, title, question = "experiment", asked.title, asked.question
        drawn = [*figures.sweep_figures(found), *figures.figures(found)]
    else:
        if answer := study.tune or study.gate:
            command = join(answer.command)
        title, is_command = command, True
        question = QUESTIONS.get(kind, f"Which of {count} allocators is best here?")
        drawn = [*figures.sweep_figures(found), *figures.figures(found, front=not study.gate)]
        drawn = [] if study.tune else drawn
    page = {"kind": kind, "title": title, "question": question, "is_command": is_command}
    return drawn, command, page


# Definitions of terms: `Word: meaning`, one per line; indented lines continue the one before.
_TERMS = """\
Round: Each round ran every allocator once, in random order, so whatever slows a whole round slows
  all alike; the reference ran twice.
Ratio: The geometric mean, over the rounds, of an allocator's value divided by the reference's in
  the same round. -10% is a tenth less; ratios of 2 and above are written as 2.00x.
Interval: 95% confidence: if the experiment were repeated many times, about 95 of 100 such intervals
  would contain the true ratio.
Verdict: Better or worse: the whole interval lies beyond the margin and the noise floor, after a
  correction for comparing many (Holm). Equal: it lies within the margin. Unresolved, or ?: neither,
  so far.
Noise floor: How much the reference differs from itself when it is measured twice in each round.
Rank: Equal ranks are statistical ties.
Peak memory: The largest resident size of any one process of the program, by the kernel's count.
Front: The allocators that no other beats in both time and memory by more than the margin.
Points: Each point of a sweep is judged by itself, with a correction for their number; results over
  all points are geometric means.
"""
_OWN_TERMS: Mapping[str, str] = {
    "service": """\
p50, p99, max: The time within which half, 99 of 100, and all requests were answered.
Open loop: Requests are sent on schedule, so a stall of the server delays all that were due
  meanwhile. A closed loop waits for answers, so its percentiles look too good.
CPU per request: CPU time of all processes of the server, divided by the requests.
Memory: The sum over the server's processes, where pages that they share count once (PSS): when it
  is ready, under load, after the load, and after idle time.
""",
    "bench": """\
Peer: An allocator that is not ours. The best peer is a different one for each workload and each
  quantity, so 1.00 means as good as the best peer on every single workload.
Quick: The smallest of the peers whose time is near the best: memory saved at any price in time is
  no merit.
Failed: An allocator that failed a run of a workload has no ratio there, and its mean says so.
""",
    "replay": """\
Replay: The calls of a recorded program, repeated with the same sizes, by as many threads, in an
  order that respects the recorded dependencies. The program itself is not run.
Time: From the first call to the last, without reading the trace and sampling memory.
Peak, end, settled: Resident memory of the allocator: the highest sample; after the last call; after
  everything was freed and some idle time.
Fragmentation: Peak resident memory over peak requested memory, less one. Over time:
  mean resident memory over mean requested memory, less one.
Schedule: asap and paced run real threads. Under all others exactly one thread runs at any time, and
  the trace or the schedule determines which, so runs are repeatable.
Tick, owed: A tick is a thread's turn. A thread is owed its share of the tickets that can run in it.
""",
}
_OF_TRACES = """\
Event: One call of the program, in the order in which its threads made them.
Live bytes: The requested sizes of all objects that are allocated and not yet freed. The peak is the
  first moment at which they are highest.
Lifetime: From an object's allocation to its free: in time, in events, or in bytes allocated by all
  threads meanwhile.
Temporary: An object that its own thread frees before that thread allocates another.
Cross-thread: A free by a different thread than the one that allocated the object.
Left: Live at the end of the program image; objects inherited in a fork are counted separately.
"""


# --- common to all verbs --------------------------------------------------------------------------


def _laid_out(
    blocks: Iterable[Block], drawn: Sequence[Figure], circumstances: Sequence[Section], **page: Any
) -> Page:
    """Answers, labelled sentences and failures come first, with the lines before the first table;
    then tables and figures; then, folded, what terminals do not show."""
    answers: list[str] = []
    extent: list[str] = []
    labelled: list[tuple[str, str]] = []
    failures: list[str] = []
    results: list[Block] = []
    more: list[Section] = []
    for block in blocks:
        failures += block.fails
        labelled += block.labelled
        rest = replace(block, labelled=())
        if block.where in ("text", "markdown"):
            continue
        if block.style == "bold":
            answers += block.lines
        elif block.where == "document":
            more.append(Section(block.title, [rest], folded=True))
        elif block.table or results:
            results.append(rest)
        else:
            extent += block.lines
    answer, *also = answers
    commands = [text for label, text in labelled if label in COMMANDS]
    shown = [Section(each.title, [each], anchor=f"s-{each.name}") for each in drawn]
    whole = [Section("Results", results)] if results else []
    return Page(
        **page | {"title": shortened(page["title"], 140)},
        answer=answer,
        also=also,
        facts=[(capital(label), text) for label, text in labelled if label not in COMMANDS],
        use="".join(commands[-1:]),
        failures=failures,
        extent=" · ".join(extent),
        sections=[*whole, *shown, *more, *circumstances],
    )


def _machine(study: Study) -> Block:
    """The facts that numbers may depend on; unknown ones are left out."""
    machine = study.machine
    limit = machine.cgroup_cpu_limit
    aslr = machine.address_randomisation
    facts: list[tuple[str, str | None]] = [
        ("measured", study.created),
        ("processor", machine.cpu),
        ("cores", f"{machine.usable_cores} usable of {machine.cores}"),
        ("architecture", machine.architecture),
        ("memory", quantity_or(machine.memory_bytes, "bytes")),
        ("swap", quantity_or(machine.swap_bytes, "bytes")),
        ("system", machine.system),
        ("kernel", machine.kernel),
        ("C library", machine.libc),
        ("transparent huge pages", machine.transparent_hugepages),
        ("frequency governor", machine.governor),
        ("address randomisation", None if aslr is None else str(aslr)),
        ("memory limit (cgroup)", quantity_or(machine.cgroup_memory_limit_bytes, "bytes")),
        ("processor limit (cgroup)", None if limit is None else f"{limit:g} cores' time"),
        ("load at the start", f"{machine.load_at_start:.2f}"),
        ("Python", machine.python),
    ]
    return Block(labelled=[(name, value) for name, value in facts if value])


def _versions(allocators: Iterable[AllocatorInfo]) -> Block:
    headers = ("allocator", "version", "package", "settings", "SHA-256", "library")
    rows: list[list[str | Cell]] = []
    for info in allocators:
        settings = " ".join(f"{key}={value}" for key, value in info.env.items())
        sha256 = Cell((info.sha256 or "")[:16], hint=info.sha256 or "")
        path = Cell(info.path or "(not preloaded)", "wrap")
        rows.append([info.name, info.version, info.package or "", settings, sha256, path])
    return table_of("Allocators, versions and checksums", headers, rows, left=len(headers))


def _settings(study: Study) -> Block:
    found = study.comparison
    own = study.replay.settings if study.replay else study.service.setup if study.service else None
    settings = {
        **asdict(found.settings),
        **{parameter.name: parameter.values for parameter in found.parameters},
        **(asdict(own) if own else {}),
    }
    return Block(
        labelled=[(key.replace("_", " "), _setting(value)) for key, value in settings.items()]
    )


def _setting(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _reading(terms: str) -> Section:
    lines = terms.strip().replace("\n  ", " ").splitlines()
    words = [(word, meaning) for word, _, meaning in (line.partition(": ") for line in lines)]
    return Section("How to read this", [Block(labelled=words)], folded=True, anchor="reading")


# --- files ----------------------------------------------------------------------------------------


def _files(page: Page, prefix: str = "") -> dict[str, bytes]:
    """By their paths in the folder. Bytes in names that are not text stay recognisable."""
    files = {f"{prefix}{name}": text.encode(errors="backslashreplace")
             for name, text in page.files.items()}  # fmt: skip
    return {**files, f"{prefix}{folder.PAGE}": html.render(page).encode()}


def _all_files(pages: Sequence[Page]) -> dict[str, bytes]:
    """A folder for each, by its name (numbered if names collide), and the page that links to them.
    It compares nothing: results may come from different machines and programs."""
    files: dict[str, bytes] = {}
    entries = []
    for page in pages:
        number, place = 1, page.name
        while f"{place}/{folder.PAGE}" in files:
            number += 1
            place = f"{page.name}-{number}"
        files |= _files(page, f"{place}/")
        entries.append((f"{place}/{folder.PAGE}", page))
    files[folder.PAGE] = html.overview(counted(len(pages), "report"), entries).encode()
    return files
