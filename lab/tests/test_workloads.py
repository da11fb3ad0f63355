"""The suite's file: reading it, and the error for each mistake."""

from pathlib import Path

import pytest
from refusals import refused

from tsmlab import paths
from tsmlab.workloads import Workload, read_suite, select
from tsmlab.workloads import suite as own_suite

GOOD = {
    "name": '"hot-pair"',
    "stresses": '"one line"',
    "program": '"bench-hot-pair"',
    "arguments": '["--pairs", "20"]',
    "threads": "1",
    "time": '"seconds"',
    "memory": "true",
}


def suite(folder, *entries):
    path = folder / "suite.toml"
    tables = ("".join(f"{key} = {value}\n" for key, value in e.items()) for e in entries)
    path.write_text("".join(f"[[workload]]\n{table}" for table in tables))
    return path


def test_an_entry_is_read_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("TSMALLOC_BUILD_DIR", "/some/build")
    (workload,) = read_suite(suite(tmp_path, GOOD))
    command = ("/some/build/bin/bench-hot-pair", "--pairs", "20")
    assert workload == Workload("hot-pair", "one line", command, 1, "seconds", True)
    (beside,) = read_suite(suite(tmp_path, GOOD | {"program": '"./work"', "time": '"wall"'}))
    assert (beside.time, beside.command[0]) == ("wall", str(tmp_path / "work"))


def test_an_entry_comes_once_for_each_number_of_threads(tmp_path):
    several = {"arguments": '["-p", "{half}", "--all={threads}"]', "threads": "[2, 16]"}
    workloads = read_suite(suite(tmp_path, GOOD | several))
    assert [(each.name, each.threads, each.command[1:]) for each in workloads] == [
        ("hot-pair-2", 2, ("-p", "1", "--all=2")),
        ("hot-pair-16", 16, ("-p", "8", "--all=16")),
    ]
    (one,) = read_suite(suite(tmp_path, GOOD | several | {"threads": "4"}))
    assert (one.name, one.command[1:]) == ("hot-pair", ("-p", "2", "--all=4"))


@pytest.mark.parametrize("name", ["workloads", "scaling"])
def test_the_projects_own_suites_can_be_read(name):
    workloads = read_suite(own_suite(name))
    assert len(workloads) > 10
    assert own_suite(name) == paths.repository_root() / "bench" / f"{name}.toml"
    assert own_suite(f"./{name}") == Path(name)
    assert own_suite("mine.toml") == Path("mine.toml")


@pytest.mark.parametrize(
    ("key", "value", "message", "remedy"),
    [
        ("name", None, "name is missing", "a string"),
        ("name", '"Hot Pair"', "name is 'Hot Pair'", "lowercase letters"),
        ("name", "7", "name is 7", "a string"),
        ("stresses", '""', "stresses is ''", "a string"),
        ("stresses", '"a\\nb"', "several lines", "a single line"),
        ("program", None, "program is missing", "a string"),
        ("arguments", "[20]", "arguments is [20]", "a list of strings"),
        ("threads", "0", "threads is 0", "at least 1"),
        ("threads", "[2, 0]", "threads is [2, 0]", "a list of them"),
        ("threads", "[]", "threads is []", "a list of them"),
        ("threads", "[2, 4]", "no argument uses it", "Write {threads} there"),
        ("arguments", '["{half}"]', "needs an even number", "even numbers"),
        ("threads", "true", "threads is True", "at least 1"),
        ("threads", "1.5", "threads is 1.5", "at least 1"),
        ("time", '"cpu"', "time is 'cpu'", "seconds, wall"),
        ("memory", '"yes"', "memory is 'yes'", "true or false"),
        ("stresses", None, "stresses is missing", "a string"),
        ("argument", "[]", "unknown key 'argument'", "Did you mean arguments?"),
    ],
)
def test_each_mistake_is_named_with_its_place_and_remedy(tmp_path, key, value, message, remedy):
    second = GOOD | {"name": '"second"', key: value}
    path = suite(tmp_path, GOOD, {k: v for k, v in second.items() if v is not None})
    with refused(f"{path}: workload 2", message, remedy=remedy) as caught:
        read_suite(path)
    assert ("(second)" in caught.value.message) is (key != "name")


def test_what_is_no_suite_is_refused(tmp_path):
    path = tmp_path / "suite.toml"
    for text, message in (
        ("workload = 1\n", "workload is 1"),
        ("", "no workload"),
        ("workload = [1]\n", "workload 1"),
        ("[[workloads]]\n", "workloads"),
        ("[[workload]\n", "valid TOML"),
    ):
        path.write_text(text)
        with refused(message, str(path)):
            read_suite(path)
    with refused("two workloads", "hot-pair"):
        read_suite(suite(tmp_path, GOOD, GOOD))


def test_names_and_globs_choose_in_the_suites_order(tmp_path):
    names = ("remote-1-1", "batch", "remote-2-2")
    workloads = read_suite(suite(tmp_path, *(GOOD | {"name": f'"{name}"'} for name in names)))

    def chosen(*asked):
        return [workload.name for workload in select(asked, workloads)]

    assert chosen() == list(names)
    assert chosen("batch", "remote-*") == list(names)
    assert chosen("remote-2-2", "batch") == ["batch", "remote-2-2"]
    with refused("'bach'", remedy="Did you mean batch?"):
        chosen("batch", "bach")
