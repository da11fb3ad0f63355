"""The files of experiments: what is read from them, and how each mistake in one is named."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from tsmlab import paths, records
from tsmlab.errors import UserError
from tsmlab.experiments import catalogue
from tsmlab.experiments.catalogue import (
    arguments_at,
    default_folder,
    describe_point,
    points_of,
    program_path,
    read_file,
    read_files,
    read_folder,
    select,
)
from tsmlab.experiments.model import Definition

TOP = {
    "name": '"threads"',
    "title": '"Threads"',
    "question": '"Which is best?"',
    "program": '"bench-threads"',
    "arguments": '["--threads", "{threads}", "--{fit}", "{{fit}}", "{", "{allocator}"]',
}
PARTS = {
    "parameter": {"name": '"threads"', "values": "[1, 2, 4]"},
    "parameter ": {"name": '"fit"', "title": '"the fit"', "values": '["best", "worst"]'},
    "metric": {"name": '"seconds"', "unit": '"seconds"'},
    "metric ": {"name": '"merges"', "source": '"causes"', "unit": '"count"'},
    "analysis": {"kind": '"amdahl"', "parameter": '"threads"', "at": '{fit = "best"}'},
    "plot": {"kind": '"lines"', "title": '"T"', "x": '"threads"', "log_y": "true"},
    "reported": {
        "report": '"E"',
        "machine": '"one of 2012"',
        "columns": '["threads", "s"]',
        "rows": '[[1, 1.25], ["20", 1]]',
    },
}
Changes = dict[str, str | None]


def write(path: Path, **changed: Changes) -> Path:
    """The file above with some keys changed or, by None, left out; `top` are those of no table."""

    def keys(table: dict[str, str], changes: Changes) -> str:
        merged = {k: v for k, v in {**table, **changes}.items() if v is not None}
        return "".join(f"{key} = {value}\n" for key, value in merged.items())

    text = keys(TOP, changed.get("top", {}))
    for name, table in PARTS.items():
        text += f"\n[[{name.strip()}]]\n" + keys(table, changed.get(name, {}))
    path.write_text(text)
    return path


@pytest.fixture
def good(tmp_path: Path) -> Definition:
    return read_file(write(tmp_path / "good.toml"))


# --- what is read --------------------------------------------------------------------------------


def test_a_file_is_read_as_it_stands(tmp_path: Path, good: Definition) -> None:
    content = (tmp_path / "good.toml").read_bytes()
    assert (good.name, good.title, good.program) == ("threads", "Threads", "bench-threads")
    assert (good.file, good.sha256) == (
        str(tmp_path / "good.toml"),
        hashlib.sha256(content).hexdigest(),
    )
    assert [(p.name, p.title, p.values) for p in good.parameters] == [
        ("threads", "threads", [1, 2, 4]),
        ("fit", "the fit", ["best", "worst"]),
    ]
    assert [(m.name, m.unit, m.source, m.higher_is_better) for m in good.metrics] == [
        ("seconds", "seconds", "run", False),
        ("merges", "count", "causes", False),
    ]
    (analysis,) = good.analyses
    assert (analysis.kind, analysis.metric, analysis.parameter) == ("amdahl", "seconds", "threads")
    assert analysis.options == {"at": {"fit": "best"}}
    (plot,) = good.plots
    assert (plot.metric, plot.x, plot.panels, plot.log_x, plot.log_y) == (
        *("seconds", "threads", None),
        *(False, True),
    )
    assert good.reported[0].rows == [[1, 1.25], ["20", 1]]


def test_a_definition_survives_being_kept_and_has_the_documented_values(good: Definition) -> None:
    assert records.restore(Definition, json.loads(records.to_json(good))) == good
    assert (good.rounds, good.timeout_seconds, good.run_seconds) == (5, 60.0, 1.0)
    assert (good.causes, good.allocators) == ("all", ["tsmalloc", "system"])
    assert (good.source, good.answers) == ("", "")


def test_points_are_all_combinations_and_fill_placeholders(good: Definition) -> None:
    points = points_of(good)
    assert [tuple(point.values()) for point in points] == [
        *((1, "best"), (1, "worst"), (2, "best"), (2, "worst"), (4, "best"), (4, "worst"))
    ]
    assert describe_point(points[1]) == "threads=1, fit=worst"
    arguments = arguments_at(good, {"threads": 4, "fit": "best"}, "glibc")
    assert arguments == ("--threads", "4", "--best", "{fit}", "{", "glibc")


def test_without_parameters_there_is_one_point(tmp_path: Path) -> None:
    path = tmp_path / "least.toml"
    path.write_text('name = "a"\ntitle = "A"\nquestion = "?"\nprogram = "true"\n')
    definition = read_file(path)
    assert points_of(definition) == [{}]
    assert describe_point({}) == ""
    assert definition.main_metric.name == "wall_seconds"
    assert definition.metric("peak_bytes").unit == "bytes"


def test_the_shipped_experiments_can_be_read_and_their_files_bear_their_names() -> None:
    definitions = read_folder(default_folder())
    assert default_folder() == paths.repository_root() / "lab" / "experiments"
    for definition in definitions:
        assert Path(definition.file).stem == definition.name
        assert points_of(definition)


# --- mistakes ------------------------------------------------------------------------------------

MISTAKES: list[tuple[str, str, str | None, str, str]] = [
    ("top", "name", None, "name is missing", "a text"),
    ("top", "name", '"Big Name"', "name is 'Big Name'", "small letters"),
    ("top", "question", '" "', "question is ' '", "a text"),
    ("top", "programm", '"x"', "the key 'programm' is unknown", "Did you mean program?"),
    ("top", "parameters", "[]", "the key 'parameters' is unknown", "Did you mean parameter?"),
    ("top", "rounds", "0", "rounds is 0", "from 1 on"),
    ("top", "rounds", "true", "rounds is True", "from 1 on"),
    ("top", "rounds", "2.5", "rounds is 2.5", "from 1 on"),
    ("top", "timeout_seconds", "-1", "timeout_seconds is -1", "above 0"),
    ("top", "run_seconds", "inf", "run_seconds is inf", "above 0"),
    ("top", "causes", '"end"', "causes is 'end'", "all, ends, none"),
    ("top", "allocators", "[]", "allocators is []", "a list of names"),
    ("top", "arguments", "[4]", "arguments is [4]", "a list of texts"),
    ("top", "arguments", '["{thread}", "{fit}"]', "{thread}, which is", "Did you mean {threads}?"),
    ("top", "arguments", '["{threads}"]', "the parameter fit is nowhere", "Write {fit}"),
    ("parameter", "name", '"allocator"', "name is 'allocator'", "choose another"),
    ("parameter", "values", "[]", "values is []", "different numbers"),
    ("parameter", "values", '[1, "2"]', "values is [1, '2']", "different numbers"),
    ("parameter", "values", "[1, 1]", "values is [1, 1]", "different numbers"),
    ("parameter", "values", "[true]", "values is [True]", "different numbers"),
    ("parameter ", "name", '"threads"', "two parameters have the name threads", "Rename"),
    ("metric", "name", '"a b"', "name is 'a b'", "letters"),
    ("metric", "name", '"time_seconds"', "name is 'time_seconds'", "called wall_seconds"),
    ("metric", "unit", '"ms"', "unit is 'ms'", "seconds, bytes, count, number"),
    ("metric", "higher_is_better", '"yes"', "higher_is_better is 'yes'", "true or false"),
    ("metric", "source", '"cause"', "source is 'cause'", "run, causes"),
    ("metric ", "name", '"seconds"', "two metrics have the name seconds", "Rename"),
    ("analysis", "kind", '"amdal"', "kind is 'amdal'", "pair, winner"),
    ("analysis", "metric", '"secnds"', "metric is 'secnds'", "Did you mean seconds?"),
    ("analysis", "parameter", '"thread"', "parameter is 'thread'", "Did you mean threads?"),
    ("analysis", "when", "2020-01-01", "when is datetime.date", "Use texts"),
    ("analysis", "limit", "nan", "limit is nan", "Use texts"),
    ("analysis", "tolerence", "0.3", "the key 'tolerence' is unknown", "Options of amdahl"),
    ("analysis", "work", '"perthread"', "work is 'perthread'", "fixed, per-thread"),
    ("analysis", "margin", "0", "margin is 0", "above 0"),
    ("analysis", "allocators", '"glibc"', "allocators is 'glibc'", "a list of texts"),
    ("analysis", "at", "4", "at is 4", "{parameter = value}"),
    ("analysis", "at", "{thread = 4}", "at names 'thread'", "Parameters: threads, fit"),
    ("analysis", "at", "{threads = 3}", "threads is never 3", "Its values: 1, 2, 4"),
    ("analysis", "kind", '"pair"', "first is missing", "first and second"),
    ("parameter", "values", "[1, 1.0]", "values is [1, 1.0]", "different numbers"),
    ("plot", "metric", '"speed"', "metric is 'speed', which is no metric", "wall_seconds"),
    ("plot", "x", None, "x is missing", "as its x"),
    ("plot", "x", '"fits"', "x is 'fits', which is no parameter", "Did you mean fit?"),
    ("plot", "panels", '"threads"', "x and panels are both 'threads'", "another parameter"),
    ("plot", "colour", '"red"', "the key 'colour' is unknown", "kind, title"),
    ("reported", "rows", "[[1]]", "row 1 is [1]", "each of 2 columns"),
    ("reported", "rows", "[1]", "row 1 is 1", "each of 2 columns"),
]


@pytest.mark.parametrize(("table", "key", "value", "message", "remedy"), MISTAKES)
def test_each_mistake_is_named_with_its_file_and_remedy(
    tmp_path: Path, table: str, key: str, value: str | None, message: str, remedy: str
) -> None:
    changed: dict[str, Any] = {table: {key: value}}
    path = write(tmp_path / "bad.toml", **changed)
    with refused(message, remedy=remedy) as caught:
        read_file(path)
    assert caught.value.message.startswith(str(path))


def test_a_mistake_in_a_table_names_the_table(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"parameter ": {"value": "[1]"}}
    with refused("bad.toml: parameter 2 (fit): the key 'value'", remedy="Did you mean values?"):
        read_file(write(tmp_path / "bad.toml", **changes))


def test_what_is_no_experiment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    with pytest.raises(UserError, match="No such file"):
        read_file(path)
    path.write_text("name = \n")
    with pytest.raises(UserError, match="is not TOML"):
        read_file(path)
    path.write_text("[metric]\nname = 'a'\n")
    with refused("metric is", remedy="[[metric]] tables"):
        read_file(path)
    path.write_bytes(b"name = '\xff'\n")
    with pytest.raises(UserError, match="is not TOML"):
        read_file(path)


def test_two_experiments_of_one_name_are_refused(tmp_path: Path) -> None:
    one, two = write(tmp_path / "one.toml"), write(tmp_path / "two.toml")
    with pytest.raises(UserError, match=r"one\.toml and .*two\.toml both have the name threads"):
        read_files([one, two])


# --- choosing ------------------------------------------------------------------------------------


def test_names_and_globs_choose_in_the_catalogues_order(tmp_path: Path) -> None:
    definitions = [
        read_file(write(tmp_path / f"{name}.toml", top={"name": f'"{name}"'}))
        for name in ("x2-lock", "x3-pairs", "x4-ring")
    ]

    def chosen(*names: str) -> list[str]:
        return [definition.name for definition in select(names, definitions)]

    assert chosen("all") == ["x2-lock", "x3-pairs", "x4-ring"]
    assert chosen("x4-ring", "x[23]*") == ["x2-lock", "x3-pairs", "x4-ring"]
    assert chosen("x4-ring", "x2-lock") == ["x2-lock", "x4-ring"]
    with refused("'x3-pair'", remedy="Did you mean x3-pairs?") as caught:
        chosen("x3-pair")
    assert catalogue.SHOW_ALL in caught.value.remedy


def test_where_a_program_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolved(program: str) -> Path:
        return program_path(read_file(write(tmp_path / "e.toml", top={"program": program})))

    monkeypatch.setenv("TSMALLOC_BUILD_DIR", str(tmp_path / "build"))
    built = tmp_path / "build" / "bin" / "sh"
    assert resolved('"sh"').name == "sh"
    assert resolved('"sh"') != built
    built.parent.mkdir(parents=True)
    built.write_text("#!/bin/sh\n")
    built.chmod(0o755)
    assert resolved('"sh"') == built
    assert resolved('"./build/bin/sh"') == built
    with refused("neither built ", " nor in PATH", remedy="TSMALLOC_BUILD_DIR"):
        resolved('"bench-nothing"')
    built.chmod(0o644)
    with refused("not executable", remedy="chmod +x"):
        resolved('"./build/bin/sh"')
