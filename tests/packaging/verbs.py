"""A small real use of each verb, as a script for a shell with an installed `tsmalloc` on its PATH.

A verb may work from a checkout and not from a wheel, so each installation method runs all of them.
"""

import re
from typing import NamedTuple

from tsmlab.cli import VERBS


class Use(NamedTuple):
    """What to run, in an empty directory, and what its output must match."""

    script: str
    told: str
    is_quick: bool = True


EXPERIMENT = """\
cat >tiny.toml <<'END'
name = "tiny"
title = "A tiny experiment"
question = "Does an experiment run?"
program = "bench-search-cost"
arguments = ["pair", "--free", "{free}", "--operations", "2000"]
allocators = ["tsmalloc", "glibc"]
rounds = 3

[[parameter]]
name = "free"
values = [100, 500]

[[metric]]
name = "seconds_each"
unit = "seconds"
END
"""
# A process with the engine, after start-up.
PROCESS = """\
tsmalloc run -- sleep 60 & pid=$!
trap 'kill $pid' EXIT
tries=100
until tsmalloc stats $pid >/dev/null 2>&1; do
  tries=$((tries - 1))
  test $tries -gt 0
  sleep 0.1
done
"""
RECORDED = "tsmalloc record -o p.tstrace -- perl -e 'my %h = map { $_ => 1 } 1..1000'; "
TWO = "-a glibc,tsmalloc --rounds 3"
COMPARED = f"tsmalloc compare {TWO} --export-json c.json -- perl -e 1; "
USES = {
    "compare": Use(COMPARED, r"(?m)^ *\d+ +tsmalloc ", is_quick=False),
    "service": Use(
        "tsmalloc service --server 'sleep 60' --ready true --load 'sleep 0.1; echo n 5' "
        "--metric 'n=n ([0-9]+)' --idle 0.1s --rounds 2 -a glibc,tsmalloc",
        "memory after idle",
        is_quick=False,
    ),
    "gate": Use(
        "tsmalloc gate --rounds 3 --max-peak none --max-time 900% -a tsmalloc "
        "--against 'perl -e 1' -- perl -e 1",
        "time",
        is_quick=False,
    ),
    "tune": Use("tsmalloc tune tsmalloc --time-budget 4s -- perl -e 1", "tsmalloc", is_quick=False),
    "bench": Use(f"tsmalloc bench hot-pair {TWO} --export-json b.json", "hot-pair", is_quick=False),
    "experiment": Use(
        f"{EXPERIMENT}tsmalloc experiment run --file tiny.toml", "seconds_each", is_quick=False
    ),
    "record": Use(f"{RECORDED}test -s p.tstrace", ""),
    "replay": Use(f"{RECORDED}tsmalloc replay {TWO} p.tstrace", "tsmalloc", is_quick=False),
    "analyze": Use(f"{RECORDED}tsmalloc analyze p.tstrace", "bytes"),
    "report": Use(
        f"{COMPARED}tsmalloc report c.json -o page; cat page/*.html", "<svg", is_quick=False
    ),
    "list": Use("tsmalloc list", "lock-best"),
    "fetch": Use("tsmalloc fetch", "mimalloc"),
    "run": Use("tsmalloc run lock-best -- cat /proc/self/maps", "libtsmalloc-lock-best"),
    "doctor": Use("tsmalloc doctor --allocator tsmalloc perl -e 1", "perl"),
    "worker": Use("tsmalloc worker here || test $? = 1", "is not an address"),
    "explain": Use(f"{PROCESS}tsmalloc explain $pid", "the allocator's tables"),
    "stats": Use(f"{PROCESS}tsmalloc stats $pid", "bytes in the program's blocks"),
    "top": Use("tsmalloc top --count 1 -- sleep 2", "resident"),
    "profile": Use("tsmalloc profile --interval 1 -- perl -e 1", "live"),
    "purge": Use(f"{PROCESS}tsmalloc purge $pid", r"Process \d+ \(sleep\)"),
    "set": Use(f"{PROCESS}tsmalloc set $pid", "TSMALLOC_PROFILE=off"),
    "lib": Use('test -f "$(tsmalloc lib)"; tsmalloc lib', "libtsmalloc"),
}
assert set(USES) == {verb.name for verb in VERBS}


def check_use(verb, run):
    """`run` returns the output of a script, which must succeed."""
    use = USES[verb]
    said = run(use.script)
    assert re.search(use.told, said), f"{verb}: {said}"
