"""The outputs of load generators. wrk, ab, hey, h2load, redis-benchmark and sysbench were run and
their output saved, without irrelevant lines; the other outputs are from documentation (wrk2, oha,
vegeta, k6, memtier_benchmark, pgbench, ghz).
"""

# ruff: noqa: E501 - lines of outputs

import re

import pytest
from refusals import refused

from tsmlab.service.loads import metrics_of, read

WRK = """\
Running 2s test @ http://127.0.0.1:21345/index.html
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency    19.35ms   35.07ms 198.11ms   88.60%
    Req/Sec     1.74k     2.48k    8.22k    82.35%
  Latency Distribution
     50%  429.00us
     75%   22.54ms
     90%   59.95ms
     99%  169.48ms
  3304 requests in 2.22s, 774.38KB read
  Socket errors: connect 0, read 3, write 0, timeout 1
  Non-2xx or 3xx responses: 5
Requests/sec:   1486.32
"""
WRK2 = """\
Running 30s test @ http://127.0.0.1:80/index.html
  Thread calibration: mean lat.: 9747 usec, rate sampling interval: 21 msec
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     6.46ms    1.93ms  12.34ms   67.66%
    Req/Sec     1.05k     1.12k    2.50k    64.84%
  Latency Distribution (HdrHistogram - Recorded Latency)
 50.000%    6.67ms
 75.000%    7.78ms
 90.000%    9.14ms
 99.000%   11.18ms
 99.900%   12.04ms
 99.990%   12.28ms
100.000%   12.34ms

  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       0.921     0.000000            1         1.00
  60018 requests in 30.00s, 19.81MB read
Requests/sec:   2000.28
"""
AB = """\
This is ApacheBench, Version 2.3 <$Revision$>
Time taken for tests:   2.799 seconds
Complete requests:      500
Failed requests:        7
   (Connect: 0, Receive: 0, Length: 5, Exceptions: 2)
Requests per second:    178.62 [#/sec] (mean)
Time per request:       22.394 [ms] (mean)
Time per request:       5.599 [ms] (mean, across all concurrent requests)

Percentage of the requests served within a certain time (ms)
  50%      7
  90%     61
  99%    204
 100%    321 (longest request)
"""
HEY = """\

Summary:
  Slowest:	0.2245 secs
  Average:	0.0080 secs
  Requests/sec:	492.1848

Latency distribution:
  50% in 0.0005 secs
  90% in 0.0243 secs
  99% in 0.2240 secs

Status code distribution:
  [200]	390 responses
  [503]	10 responses

Error distribution:
  [4]	Get "http://127.0.0.1:1": dial tcp 127.0.0.1:1: connect: connection refused
"""
OHA = """\
Summary:
  Success rate:	100.00%
  Slowest:	18.3103 ms
  Average:	0.5021 ms
  Requests/sec:	4999.8520

Response time distribution:
  50.00% in 0.4415 ms
  90.00% in 0.8220 ms
  99.00% in 1.5220 ms
  99.90% in 6.2180 ms
  99.99% in 12.0160 ms

Status code distribution:
  [200] 49999 responses
"""
GHZ = """\
Summary:
  Count:	2000
  Slowest:	15.41 ms
  Average:	6.83 ms
  Requests/sec:	5788.35

Latency distribution:
  10 % in 4.92 ms
  50 % in 6.70 ms
  95 % in 10.34 ms
  99 % in 12.93 ms

Status code distribution:
  [Unavailable]   3 responses
  [OK]            1997 responses
"""
H2LOAD = """\
starting benchmark...
finished in 570.83ms, 875.91 req/s, 205.29KB/s
requests: 500 total, 500 started, 500 done, 498 succeeded, 2 failed, 0 errored, 0 timeout
                     min         max         mean         sd        +/- sd
time for request:       79us     72.01ms      4.33ms     12.44ms    92.00%
"""
VEGETA = """\
Requests      [total, rate, throughput]         1200, 120.00, 65.87
Duration      [total, attack, wait]             10.094965987s, 9.949883921s, 145.082066ms
Latencies     [min, mean, 50, 95, 99, max]      90.438129ms, 113.172398ms, 108.272568ms, 140.18235ms, 247.771566ms, 1.2s
Success       [ratio]                           55.42%
"""
VEGETA_JSON = """{"latencies":{"total":237119463,"mean":2371194,"50th":2854306,"90th":3228223,
"95th":3478629,"99th":3530000,"max":3660505,"min":1949582},"requests":100,"rate":101.0,
"throughput":100.03,"success":1,"status_codes":{"200":100},"errors":[]}"""
K6 = """\
     http_req_duration..............: avg=117.55ms min=37.98ms med=112.94ms max=1.01s p(90)=171.87ms p(95)=204.41ms
       { expected_response:true }...: avg=117.55ms min=37.98ms med=112.94ms max=1.01s p(90)=171.87ms p(95)=204.41ms
     http_req_failed................: 2.00% ✓ 26  ✗ 1274
     http_reqs......................: 1300   43.28/s
"""
REDIS_CSV = """\
"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"SET","1500.00","29.626","0.160","19.295","83.647","122.303","145.407"
"GET","3000.00","26.252","0.256","18.687","73.535","85.631","112.447"
"""
REDIS_QUIET = """\
\rSET: rps=1022.4 (overall: 1843.2) avg_msec=31.920 (overall: 20.109)\rSET: 1769.91 requests per second, p50=9.159 msec
"""
REDIS = """\
====== SET ======
  5000 requests completed in 3.20 seconds

99.000% <= 141.183 milliseconds (cumulative count 4950)
100.000% <= 158.207 milliseconds (cumulative count 5000)
Summary:
  throughput summary: 1564.46 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
       25.805     0.280    10.927   105.663   141.183   158.207
"""
MEMTIER = """\
ALL STATS
Type         Ops/sec     Hits/sec   Misses/sec    Avg. Latency     p50 Latency     p99 Latency   p99.9 Latency       KB/sec
Sets        16434.34          ---          ---         1.10680         1.02300         2.49500         4.83100      1265.73
Gets       164312.08      6482.16    157829.92         1.10463         1.02300         2.47900         4.79900      6652.10
Totals     180746.42      6482.16    157829.92         1.10483         1.02300         2.47900         4.83100      7917.83
"""
PGBENCH = """\
pgbench (15.14 (Debian 15.14-0+deb12u1))
transaction type: <builtin: TPC-B (sort of)>
number of transactions actually processed: 8968
number of failed transactions: 2 (0.022%)
latency average = 11.013 ms
latency stddev = 7.351 ms
tps = 896.967014 (without initial connection time)
"""
SYSBENCH = """\
sysbench 1.0.20 (using system LuaJIT 2.1.0-beta3)

    events per second:   248.25

    total time:                          1.0664s
    total number of events:              265
Latency (ms):
         min:                                    0.29
         avg:                                    4.01
         max:                                  128.27
         95th percentile:                       12.75
"""

# A tool's output, its command, and what is in them: loop, requests a second, requests, errors, mean,
# percentiles.
KNOWN = [
    (WRK, "wrk -t1", "closed", 1486.32, 3304, 9, 0.01935,
     "50: 429e-6, 75: 0.02254, 90: 0.05995, 99: 0.16948, 100: 0.19811"),
    (WRK2, "wrk -R 2000", "open", 2000.28, 60018, 0, 0.00646,
     "50: 6.67e-3, 75: 7.78e-3, 90: 9.14e-3, 99: .01118, 99.9: .01204, 99.99: .01228, 100: .01234"),
    (AB, "ab -n 500", "closed", 178.62, 500, 2, 0.022394,
     "50: 0.007, 90: 0.061, 99: 0.204, 100: 0.321"),
    (HEY, "hey -q 100", "closed", 492.1848, 404, 14, 0.008,
     "50: 0.0005, 90: 0.0243, 99: 0.224, 100: 0.2245"),
    (OHA, "oha -q 5000", "open", 4999.852, 49999, 0, 0.0005021,
     "50: 441.5e-6, 90: 822e-6, 99: 1.522e-3, 99.9: 6.218e-3, 99.99: 0.012016, 100: 0.0183103"),
    (GHZ, "ghz --insecure", "closed", 5788.35, 2000, 3, 0.00683,
     "10: 0.00492, 50: 0.0067, 95: 0.01034, 99: 0.01293, 100: 0.01541"),
    (H2LOAD, "h2load -n 500", "closed", 875.91, 500, 2, 0.00433, "100: 0.07201"),
    (VEGETA, "vegeta attack", "open", 65.87, 1200, 535, 0.113172398,
     "50: 0.108272568, 95: 0.14018235, 99: 0.247771566, 100: 1.2"),
    (VEGETA_JSON, "vegeta attack", "open", 100.03, 100, 0, 0.002371194,
     "50: 0.002854306, 90: 0.003228223, 95: 0.003478629, 99: 0.00353, 100: 0.003660505"),
    (K6, "k6 run s.js", "closed", 43.28, 1300, 26, 0.11755,
     "50: 0.11294, 90: 0.17187, 95: 0.20441, 100: 1.01"),
    (REDIS_CSV, "redis-benchmark -n 5000 --csv", "closed", 2000.0, 10000, 0, 0.029626,
     "50: 0.019295, 95: 0.083647, 99: 0.122303, 100: 0.145407"),
    (REDIS_QUIET, "redis-benchmark -q", "closed", 1769.91, 100000, 0, None, "50: 0.009159"),
    (REDIS, "redis-benchmark -n5000", "closed", 1564.46, 5000, 0, 0.025805,
     "50: 0.010927, 95: 0.105663, 99: 0.141183, 100: 0.158207"),
    (MEMTIER, "memtier_benchmark --rate-limiting=9", "open", 180746.42, None, 0, 0.00110483,
     "50: 0.001023, 99: 0.002479, 99.9: 0.004831"),
    (PGBENCH, "pgbench -R 900", "open", 896.967014, 8968, 2, 0.011013, ""),
    (SYSBENCH, "sysbench cpu run", "closed", 248.25, 265, 0, 0.00401, "95: 0.01275, 100: 0.12827"),
]  # fmt: skip


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known[1])
def test_each_tool_is_recognised_with_its_units(known, tmp_path):
    text, command, loop, *numbers, percentiles = known
    tool = "wrk2" if text is WRK2 else command.split()[0]
    found_tool, found_loop, *found = vars(read(text, command, tmp_path)).values()
    assert (found_tool, found_loop) == (tool, loop)
    numbers.append(dict(re.findall(r"([\d.]+): ([\d.e-]+)", percentiles)))
    numbers[-1] = {share: float(seconds) for share, seconds in numbers[-1].items()}
    assert found == [number and pytest.approx(number) for number in numbers]


def test_percentiles_of_pgbench_come_from_its_log(tmp_path):
    log = tmp_path / "pgbench_log.123"
    log.write_text("".join(f"0 {n} {n * 1000} 0 1700000000 {n}\n" for n in range(1, 102)))
    found = read(PGBENCH, "pgbench", tmp_path)
    assert found.percentiles["50"] == pytest.approx(0.051)
    assert found.percentiles["100"] == pytest.approx(0.101)
    assert not log.exists()  # the next load writes another one


def test_what_is_no_result_is_none(tmp_path):
    for text in ("", "connect: Connection refused\n", "all is well, 100 requests\n"):
        assert read(text, "x", tmp_path) is None
    assert read(WRK.replace("1486.32", "0.00"), "x", tmp_path) is None


@pytest.mark.parametrize(
    ("asked", "higher", "unit", "found"),
    [
        ("x=hits ([0-9.]+):higher", True, "number", (97.0, "number")),
        ("x=wait ([0-9.]+):ms", False, "seconds", (0.0025, "seconds")),
        ("x=hits ([0-9.]+):higher:count", True, "count", (97.0, "count")),
        ("x=size ([0-9.]+)", False, "number", (3 * 1024.0**2, "bytes")),
        ("x=none ([0-9.]+)", False, "number", None),
    ],
)
def test_ones_own_numbers_have_a_direction_and_a_unit(asked, higher, unit, found):
    (metric,) = metrics_of([asked])
    assert (metric.spec.higher_is_better, metric.spec.unit) == (higher, unit)
    assert metric.find("hits 97\nwait 2.5\nsize 3 MiB\n") == found


def test_a_metric_that_cannot_be_read_is_refused():
    for text in ("hits ([0-9]+)", "hits=nothing", "hits=(["):
        with refused():
            metrics_of([text])


def test_values_have_the_names_of_the_table(tmp_path):
    values = read(WRK2, "wrk", tmp_path).values()
    assert values["p999_seconds"] == pytest.approx(0.01204)
    assert values["max_seconds"] == pytest.approx(0.01234)
    assert values["throughput"] == pytest.approx(2000.28)
