"""The Grafana dashboard queries the metrics of `stats --prometheus`, and Prometheus answers."""

import functools
import http.server
import json
import re
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

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


@pytest.fixture
def prometheus(output, tmp_path):
    """A Prometheus that scrapes this output."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs Prometheus: apt-get install prometheus")
    served = tmp_path / "served"
    served.mkdir()
    (served / "metrics").write_text(output)
    handler = functools.partial(Quiet, directory=str(served))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    settings = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "tsmalloc",
                "static_configs": [{"targets": [f"127.0.0.1:{server.server_port}"]}],
            }
        ],
    }
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps(settings))  # which is also YAML
    options = [f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'data'}"]

    def ask(query):
        escaped = urllib.parse.quote(query)
        with urllib.request.urlopen(f"http://{address}/api/v1/query?query={escaped}") as answer:
            return json.load(answer)["data"]["result"]

    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [program, *options, f"--web.listen-address={address}"], stdout=log, stderr=log
        ) as running,
    ):
        deadline = time.monotonic() + 60
        while True:
            try:
                # A rate needs two samples.
                if ask("count_over_time(tsmalloc_heaps[1m]) >= 2"):
                    break
            except urllib.error.HTTPError as not_ready:
                not_ready.close()
            except (urllib.error.URLError, ConnectionError):
                pass
            assert running.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, (tmp_path / "log").read_text()
            time.sleep(0.2)
        yield ask
        running.kill()
    server.shutdown()
    server.server_close()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def guess_type(self, _):
        return "text/plain; version=0.0.4"


def test_each_query_has_an_answer(prometheus):
    for query in queries():
        assert prometheus(query), query
    [share] = prometheus(queries()[1])
    assert 0.5 < float(share["value"][1]) < 1  # most memory of both is free
