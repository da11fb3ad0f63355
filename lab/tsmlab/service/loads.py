"""Parses the output of load generators: requests a second, latencies, requests and errors. A tool
is recognised by its output, so it may run inside a script.
"""

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np

from tsmlab.errors import UserError
from tsmlab.metrics import NAMED_UNITS, SECONDS, CustomMetric, parse_all

Loop = Literal["open", "closed"]

THROUGHPUT = "throughput"
MEAN = "mean_seconds"
PERCENTILES = {"50": "p50", "90": "p90", "95": "p95", "99": "p99", "99.9": "p99.9", "100": "max"}
NUMBER = r"([\d.]+(?:e[+-]?\d+)?)"
TIME = rf"{NUMBER}\s*(ns|us|µs|μs|msec|ms|secs|sec|s|m)\b"


@dataclass(frozen=True)
class Load:
    """The report of a load generator, in seconds and requests. open loop: requests are sent when
    they are due, so a stall of the server delays all that were due during it, and is visible."""

    tool: str
    loop: Loop
    throughput: float
    requests: float | None = None
    errors: float = 0.0
    mean: float | None = None
    percentiles: dict[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        found = {THROUGHPUT: self.throughput}
        if self.mean is not None:
            found[MEAN] = self.mean
        for percentile, name in PERCENTILES.items():
            if percentile in self.percentiles:
                found[key_of(name)] = self.percentiles[percentile]
        return found


def _named(times: dict[float, float]) -> dict[str, float]:
    return {f"{percentile:g}": time for percentile, time in sorted(times.items())}


def key_of(name: str) -> str:
    return f"{name.replace('.', '')}_seconds"


def read(text: str, command: str, folder: Path) -> Load | None:
    """None for an unknown tool, or one that printed no result."""
    for signature, reader in READERS.items():
        if re.search(signature, text, re.MULTILINE):
            found = reader(text, command, folder)
            # A tool that sent nothing prints zeros.
            return found if found and found.throughput > 0.0 else None
    return None


def _first(pattern: str, text: str) -> float | None:
    match = re.search(pattern, text, re.MULTILINE)
    return float(match[1].replace(",", "")) if match else None


def _time(pattern: str, text: str) -> float | None:
    match = re.search(pattern + TIME, text, re.MULTILINE)
    return float(match[1]) * SECONDS[match[2]] if match else None


def _go_time(text: str) -> float:
    """1m2.5s, 1.2ms."""
    parts = re.findall(rf"{NUMBER}(ns|us|µs|μs|ms|s|m|h)", text)
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def _percentiles(pattern: str, text: str) -> dict[float, float]:
    """Uses a pattern that is followed by the time."""
    found = re.findall(pattern + TIME, text, re.MULTILINE)
    return {float(p): float(number) * SECONDS[unit] for p, number, unit in found}


def _is_set(option: str, command: str) -> bool:
    return re.search(rf"(^|\s){option}(=|\s|\d)", command) is not None


def _wrk(text: str, _command: str, _folder: Path) -> Load | None:
    """wrk, and wrk2, whose percentiles have more digits."""
    recorded = "HdrHistogram" in text
    # With --u_latency, wrk2 prints a second table, with the latencies that a closed loop would see.
    table = text.partition("Latency Distribution")[2].partition("Uncorrected")[0]
    found = _percentiles(rf"^\s+{NUMBER}%\s+", table.partition("Detailed Percentile")[0])
    numbers = r"^\s+Latency\s+" + rf"{TIME}\s+{TIME}\s+"
    worst = re.search(numbers + TIME, text, re.MULTILINE)
    if worst:
        found.setdefault(100.0, float(worst[5]) * SECONDS[worst[6]])
    socket = re.search(
        r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text
    )
    errors = sum(map(float, socket.groups())) if socket else 0.0
    return Load(
        "wrk2" if recorded else "wrk",
        "open" if recorded else "closed",
        _first(rf"^Requests/sec:\s+{NUMBER}", text) or 0.0,
        _first(r"^\s+(\d+) requests in ", text),
        errors + (_first(r"Non-2xx or 3xx responses: (\d+)", text) or 0.0),
        _time(r"^\s+Latency\s+", text),
        _named(found),
    )


def _summary(text: str, command: str, _folder: Path) -> Load | None:
    """hey, oha and ghz, whose output is similar."""
    found = _percentiles(rf"^\s+{NUMBER}\s*%+ in ", text)
    if (worst := _time(r"^\s+Slowest:\s+", text)) is not None:
        found[100.0] = worst
    oha, ghz = "Success rate:" in text, re.search(r"^\s+Count:", text, re.MULTILINE)
    statuses = re.findall(r"^\s+\[(\w+)\]\s+(\d+) responses", text, re.MULTILINE)
    good = sum(float(n) for status, n in statuses if status == "OK" or status[0] in "123")
    total = sum(float(n) for _, n in statuses)
    errors = re.findall(r"^\s+\[(\d+)\]\s+(?!\d+ responses)\S", text, re.MULTILINE)
    failed = sum(map(float, errors))
    rated = _is_set("-q", command) if oha else _is_set("--rps", command)
    return Load(
        "oha" if oha else "ghz" if ghz else "hey",
        "open" if rated and (oha or ghz) else "closed",
        _first(rf"^\s+Requests/sec:\s+{NUMBER}", text) or 0.0,
        total + failed or None,
        total - good + failed,
        _time(r"^\s+Average:\s+", text),
        _named(found),
    )


def _ab(text: str, _command: str, _folder: Path) -> Load | None:
    table = re.findall(r"^\s+(\d+)%\s+(\d+)", text, re.MULTILINE)
    mean = _first(rf"^Time per request:\s+{NUMBER} \[ms\] \(mean\)$", text)
    failed = _first(r"^Failed requests:\s+(\d+)", text) or 0.0
    # Responses of another length than the first are not errors if the server's pages vary.
    failed -= _first(r"Length: (\d+)", text) or 0.0
    return Load(
        "ab",
        "closed",
        _first(rf"^Requests per second:\s+{NUMBER}", text) or 0.0,
        _first(r"^Complete requests:\s+(\d+)", text),
        max(0.0, failed) + (_first(r"^Non-2xx responses:\s+(\d+)", text) or 0.0),
        None if mean is None else mean / 1e3,
        _named({float(p): float(number) / 1e3 for p, number in table}),
    )


def _h2load(text: str, command: str, _folder: Path) -> Load | None:
    row = re.search(
        rf"^(?:time for request|request\s*):\s+{TIME}\s+{TIME}\s+{TIME}", text, re.MULTILINE
    )
    return Load(
        "h2load",
        "open" if _is_set("--rps", command) else "closed",
        _first(rf"^finished in .*?, {NUMBER} req/s", text) or 0.0,
        _first(r"^requests: .* (\d+) done", text),
        (_first(r"^requests: .* (\d+) failed", text) or 0.0),
        float(row[5]) * SECONDS[row[6]] if row else None,
        {"100": float(row[3]) * SECONDS[row[4]]} if row else {},
    )


def _vegeta(text: str, _command: str, _folder: Path) -> Load | None:
    row = re.search(r"^Latencies\s+\[(.*?)\]\s+(.*)$", text, re.MULTILINE)
    times = {}
    if row:
        times = dict(zip(row[1].split(", "), map(_go_time, row[2].split(", ")), strict=True))
    rates = re.search(r"^Requests\s+\[.*?\]\s+(\d+), ([\d.]+), ([\d.]+)", text, re.MULTILINE)
    good = _first(rf"^Success\s+\[ratio\]\s+{NUMBER}%", text)
    if not rates:
        return None
    requests = float(rates[1])
    return Load(
        "vegeta",
        "open",
        float(rates[3]),
        requests,
        0.0 if good is None else round(requests * (1.0 - good / 100.0)),
        times.get("mean"),
        {p.replace("max", "100"): t for p, t in times.items() if re.fullmatch(r"[\d.]+|max", p)},
    )


def _k6(text: str, _command: str, _folder: Path) -> Load | None:
    row = re.search(r"http_req_duration\.*: (.*)", text)
    times = dict(re.findall(r"(\S+)=(\S+)", row[1])) if row else {}
    named = {"med": 50.0, "max": 100.0}
    found = {
        named[name] if name in named else float(name[2:-1]): _go_time(time)
        for name, time in times.items()
        if name in named or name.startswith("p(")
    }
    requests = _first(r"http_reqs\.*: (\d+)", text)
    failed = _first(rf"http_req_failed\.*: {NUMBER}%", text) or 0.0
    return Load(
        "k6",
        "open" if re.search(r"arrival-rate|iterations/s", text) else "closed",
        _first(rf"http_reqs\.*: \d+\s+{NUMBER}/s", text) or 0.0,
        requests,
        round((requests or 0.0) * failed / 100.0),
        _go_time(times["avg"]) if "avg" in times else None,
        _named(found),
    )


def _redis(text: str, command: str, _folder: Path) -> Load | None:
    """Its tests run one after the other, with the same number of requests each: throughput is that
    of all together, and latencies are those of the worst test."""
    rates: list[float] = []
    tables: list[dict[float, float]] = []
    means: list[float] = []
    csv_rows = list(csv.DictReader(line for line in text.splitlines() if line.startswith('"')))
    if csv_rows and "rps" in csv_rows[0]:
        for row in csv_rows:
            rates.append(float(row["rps"]))
            means.append(float(row.get("avg_latency_ms") or 0.0) / 1e3)
            columns = {"p50_latency_ms": 50.0, "p95_latency_ms": 95.0, "p99_latency_ms": 99.0}
            columns["max_latency_ms"] = 100.0
            tables.append({p: float(row[c]) / 1e3 for c, p in columns.items() if row.get(c)})
    else:
        rates += map(float, re.findall(rf"{NUMBER} requests per second", text))
        medians = re.findall(rf"requests per second, p50={NUMBER} msec", text)
        tables += [{50.0: float(median) / 1e3} for median in medians]
        for line in re.findall(
            r"^\s+avg\s+min\s+p50\s+p95\s+p99\s+max\s*\n(.*)", text, re.MULTILINE
        ):
            mean, _, *times = (float(each) / 1e3 for each in line.split())
            means.append(mean)
            tables.append(dict(zip((50.0, 95.0, 99.0, 100.0), times, strict=True)))
    if not rates or min(rates) <= 0.0:
        return None
    each = re.search(r"-n\s*(\d+)", command)
    return Load(
        "redis-benchmark",
        "closed",
        len(rates) / sum(1.0 / rate for rate in rates),
        len(rates) * float(each[1] if each else 100_000),
        0.0,
        max(means) if means else None,
        _named({p: max(t[p] for t in tables if p in t) for p in {p for t in tables for p in t}}),
    )


def _memtier(text: str, command: str, _folder: Path) -> Load | None:
    head = re.search(r"^Type\s+.*$", text, re.MULTILINE)
    totals = re.search(r"^Totals\s+(.*)$", text, re.MULTILINE)
    if not head or not totals:
        return None
    names = re.split(r"\s{2,}", head[0].strip())[1:]
    row = dict(zip(names, totals[1].split(), strict=False))
    times = {
        float(name[1:].split()[0]): float(number) / 1e3
        for name, number in row.items()
        if re.match(r"p[\d.]+ Latency", name)
    }
    mean = row.get("Avg. Latency", row.get("Latency"))
    return Load(
        "memtier_benchmark",
        "open" if _is_set("--rate-limiting", command) else "closed",
        float(row["Ops/sec"]),
        None,
        0.0,
        None if mean is None else float(mean) / 1e3,
        _named(times),
    )


def _pgbench(text: str, command: str, folder: Path) -> Load | None:
    """It prints no percentiles. With --log they are computed, if the log is in {dir}."""
    times: list[float] = []
    for log in folder.glob("pgbench_log*"):
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            fields = line.split()
            if len(fields) >= 6 and fields[2].isdigit():
                times.append(float(fields[2]) / 1e6)
        log.unlink()  # of this load only
    mean = _first(rf"^latency average = {NUMBER} ms", text)
    return Load(
        "pgbench",
        "open" if re.search(r"(^|\s)(-R|--rate)", command) else "closed",
        _first(rf"^tps = {NUMBER}(?! \(including)", text) or 0.0,
        _first(r"^number of transactions actually processed: (\d+)", text),
        _first(r"^number of failed transactions: (\d+)", text) or 0.0,
        None if mean is None else mean / 1e3,
        {p: float(np.percentile(times, float(p))) for p in PERCENTILES} if times else {},
    )


def _sysbench(text: str, command: str, _folder: Path) -> Load | None:
    rate = _first(rf"transactions:\s+\d+\s+\({NUMBER} per sec", text)
    rate = rate or _first(rf"events per second:\s+{NUMBER}", text)
    events = _first(r"total number of events:\s+(\d+)", text)
    seconds = _first(rf"total time:\s+{NUMBER}s", text)
    if rate is None and events and seconds:
        rate = events / seconds
    times = {name: _first(rf"^\s+{name}:\s+{NUMBER}$", text) for name in ("avg", "max")}
    found = {100.0: times["max"] / 1e3} if times["max"] is not None else {}
    if ranked := re.search(rf"^\s+(\d+)th percentile:\s+{NUMBER}$", text, re.MULTILINE):
        found[float(ranked[1])] = float(ranked[2]) / 1e3
    errors = _first(r"ignored errors:\s+(\d+)", text) or 0.0
    mean = None if times["avg"] is None else times["avg"] / 1e3
    loop: Loop = "open" if re.search(r"--rate=[1-9]", command) else "closed"
    return Load("sysbench", loop, rate or 0.0, events, errors, mean, _named(found))


def _json_vegeta(text: str, _command: str, _folder: Path) -> Load | None:
    """vegeta report -type=json, in nanoseconds."""
    try:
        data = json.loads(text[text.index("{") :])
        times = data["latencies"]
        named = {"50th": 50.0, "90th": 90.0, "95th": 95.0, "99th": 99.0, "max": 100.0}
        return Load(
            "vegeta",
            "open",
            float(data["throughput"]),
            float(data["requests"]),
            round(data["requests"] * (1.0 - data["success"])),
            times["mean"] / 1e9,
            _named({p: times[name] / 1e9 for name, p in named.items() if name in times}),
        )
    except (ValueError, KeyError, TypeError):
        return None


Reader = Callable[[str, str, Path], Load | None]

READERS: dict[str, Reader] = {
    r"^Running .* test @ ": _wrk,
    r"^Requests\s+\[total, rate": _vegeta,
    r'"latencies":\s*\{': _json_vegeta,
    r"http_req_duration": _k6,
    r"This is ApacheBench|^Server Software:": _ab,
    r"^finished in .* req/s": _h2load,
    r'^"test","rps"|requests per second(?: *$|, p50=)|throughput summary:': _redis,
    r"^Type\s+Ops/sec": _memtier,
    r"^transaction type: ": _pgbench,
    r"^General statistics:|^Throughput:|sysbench \d": _sysbench,
    r"^\s+Requests/sec:": _summary,
}


def metrics_of(texts: Sequence[str]) -> tuple[CustomMetric, ...]:
    """Parses --metric NAME=REGEX[:higher][:UNIT]; raises UserError."""
    bodies, units = [], []
    for text in texts:
        body, _, unit = text.rpartition(":")
        known = bool(body and unit) and unit in NAMED_UNITS
        bodies.append(body if known else text)
        units.append(unit if known else "")
        if not re.match(r"[A-Za-z][A-Za-z0-9 _./-]*=", text):
            raise UserError(
                f"--metric {text!r} has no name.",
                "For example: --metric 'hits=hit rate ([0-9.]+):higher'",
            )
    metrics = zip(parse_all(bodies), units, strict=True)
    return tuple(replace(metric, default_unit=unit) for metric, unit in metrics)
