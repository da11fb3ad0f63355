"""The shipped experiments: each file can run, and its parts fit together."""

import re

import pytest
from refusals import refused

from tsmlab import experiments, paths
from tsmlab.allocators import GROUPS, own_names
from tsmlab.metrics import PEAK_OVER_LIVE
from tsmlab.sweep import filled, points_of

ROOT = paths.repository_root()
SHIPPED = experiments.read_files(sorted(experiments.default_folder().glob("*.toml")))
NAMES = [definition.name for definition in SHIPPED]
BUILT_IN_NAMES = {*experiments.ALIASES, *(spec.key for spec in experiments.OURS)} - {
    *experiments.ALIASES.values()
}
REPORTED_EXPERIMENTS = {
    *("x2-lock", "x3-churn-pairs", "x4-producer-consumer"),
    *("x5-threads", "x6-iterations", "x7-fragmentation"),
}
each = pytest.mark.parametrize("definition", SHIPPED, ids=NAMES)


def reference():
    return (ROOT / "docs" / "formats" / "experiment.md").read_text(encoding="utf-8")


def documented(heading):
    """The names in the first columns of the tables under a heading of the reference."""
    part = re.split(r"^#+ ", reference().split(f"## {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    rows = re.findall(r"(?m)^\| (`.*?) \|", part)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_the_reports_experiments_and_three_more_are_shipped():
    assert set(NAMES) == REPORTED_EXPERIMENTS | {"search-cost", "blow-up", "thread-churn"}
    assert experiments.select(["all"], SHIPPED) == SHIPPED
    with refused("'x3-churn-pair'", remedy=experiments.SHOW_ALL):
        experiments.select(["x3-churn-pair"], SHIPPED)


@each
def test_what_a_reader_needs_is_there_and_its_parts_fit_together(definition):
    assert definition.question.endswith("?")
    assert definition.source
    assert definition.answers
    assert definition.analyses
    assert bool(definition.reported) == (definition.name in REPORTED_EXPERIMENTS)
    assert all(table.rows for table in definition.reported)
    parameters = {parameter.name for parameter in definition.parameters}
    for analysis in definition.analyses:
        if analysis.kind == "fit":
            assert analysis.parameter in parameters
        if analysis.kind == "pair":
            pair = {analysis.options["first"], analysis.options["second"]}
            assert pair <= {*own_names(), "glibc", "tcmalloc"}


@each
def test_the_program_is_built_and_all_take_part(definition):
    lists = (ROOT / "bench" / "CMakeLists.txt").read_text(encoding="utf-8")
    programs = re.search(r"set\(experiment_programs ([^)]*)\)", lists)
    built = {
        "bench-" + source.split("/")[-1].replace("_", "-") for source in programs[1].split()
    } | {"thread_test_measurement"}
    assert definition.program in built
    assert {"tsmalloc", "system"} <= set(definition.allocators)
    for selector in definition.allocators:
        pattern = re.compile(selector.replace("*", ".*"))
        assert selector in GROUPS or any(pattern.fullmatch(name) for name in own_names())


@each
def test_metrics_are_printed_or_counted(definition):
    # Reading the file checks that a metric is defined; this test, that every defined one is
    # measured.
    counts = documented("Counts")
    for analysis in definition.analyses:
        assert set(analysis.options.get("show", [])) <= counts
    sources = [
        *(ROOT / "bench" / "experiments").glob("*.cpp"),
        *(ROOT / "bench" / "workloads").glob("*.*"),
        ROOT / "tests" / "programs" / "measurement.h",
    ]
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    for metric in definition.metrics:
        if metric.key != PEAK_OVER_LIVE:
            assert re.search(rf'["\\n]{metric.key}[":]', text), metric.key


def test_what_files_and_analyses_may_say_is_documented():
    part = reference().split("## Analyses\n", 1)[1].split("\n## ", 1)[0]
    for kind, options in experiments.OPTIONS.items():
        row = re.search(rf"^\| `{kind}` .*$", part, flags=re.MULTILINE)
        assert {name for name in options if f"`{name}`" not in row[0]} == set()
    assert documented("Metrics") == BUILT_IN_NAMES
    table = (ROOT / "src" / "libc" / "counters.cpp").read_text(encoding="utf-8")
    counted = set(re.findall(r'\{"(\w+)", [^}]*Event::', table))
    assert len(counted) > 20
    assert counted <= documented("Counts")
    tables = ("parameter", "metric", "analysis", "reported")
    keys = {f"[[{key}]]" if key in tables else key for key in experiments.KEYS}
    part = reference().split("## The file\n", 1)[1].split("\n## ", 1)[0]
    assert {key for key in keys if f"`{key}`" not in part} == set()


def test_figures_of_the_reports_are_as_they_were_printed():
    """One figure of each report, to catch typing errors."""
    figures = {
        (definition.name, table.report): [value for row in table.rows for value in row]
        for definition in SHIPPED
        for table in definition.reported
    }
    assert 0.7064 in figures["x2-lock", "A"]
    assert 48729536 in figures["x2-lock", "B"]
    assert 41942160 in figures["x2-lock", "C"]
    assert 20.501 in figures["x3-churn-pairs", "D, 2014"]
    assert 53653 in figures["x4-producer-consumer", "D, 2014"]
    assert 0.83 in figures["x5-threads", "E"]
    assert 23.7 in figures["x6-iterations", "E"]
    assert 71849 in figures["x7-fragmentation", "E"]


def test_the_example_of_the_guide_is_an_experiment(tmp_path):
    guide = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    example = re.search(r"^```toml\n(.*?)^```$", guide, flags=re.MULTILINE | re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(example[1], encoding="utf-8")
    definition = experiments.read_file(file)
    assert len(points_of(definition.parameters)) == 3
    assert '"x" x 10 for' in filled(definition.arguments[1], {"length": 10})
