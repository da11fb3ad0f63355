"""The Grafana dashboard queries the metrics of `stats --prometheus`."""

import json
import re
import shutil

import pytest
from prompt import ran

from tsmlab import paths

DASHBOARD = paths.repository_root() / "examples" / "grafana" / "tsmalloc.json"


def queries():
    """The queries as Grafana sends them, with all instances and processes chosen."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    chosen = {"$instance": ".*", "$pid": ".*", "$__rate_interval": "1m"}
    for name, value in chosen.items():
        found = [query.replace(name, value) for query in found]
    assert not any("$" in query for query in found)
    return found


@pytest.fixture
def output(start, program):
    """Metrics of two processes, one of which has an option that Prometheus sees."""
    limited = ("/usr/bin/env", "TSMALLOC_LIMIT=4G", "TSMALLOC_HARD_LIMIT=8G", program, "sparse")
    pids = [start(*limited).pid, start(program, "ended").pid]
    command = [paths.tool("tsmalloc"), "stats", "--prometheus", *map(str, pids)]
    return ran(*command, status=0).stdout


def test_the_dashboard_asks_for_what_there_is(output):
    metrics = {}
    parts = set(re.findall(r'part="(\w+)"', output))
    for name, labels in re.findall(r"^(tsmalloc_\w+)\{(.*)\} \d+$", output, re.MULTILINE):
        metrics.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    asked = {name for query in queries() for name in re.findall(r"tsmalloc_\w+", query)}
    assert asked == metrics.keys(), "each metric is drawn, and no other is asked for"
    for query in queries():
        for name, labels in re.findall(r"(tsmalloc_\w+)\{(.*?)\}", query):
            named = set(re.findall(r"(\w+)(?:=|!)", labels))
            assert named <= metrics[name] | {"instance"}, query
        for chosen in re.findall(r'part(?:=~|!=)"([\w|]+)"', query):
            assert set(chosen.split("|")) <= parts, query
    text = DASHBOARD.read_text(encoding="utf-8")
    assert {json.loads(text)["uid"], json.loads(text)["title"]} == {"tsmalloc"}


def test_each_query_is_valid(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool: apt-get install prometheus")
    rules = [{"record": f"query:{i}", "expr": query} for i, query in enumerate(queries())]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "all", "rules": rules}]}))  # also YAML
    ran(promtool, "check", "rules", file, status=0)
