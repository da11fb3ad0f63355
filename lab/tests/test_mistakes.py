"""What is typed wrongly at the prompt is named in a few lines, before anything is run or kept."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from prompt import Tsmalloc

WITH_PROGRAM = ("compare", "gate", "tune", "record", "run", "doctor", "profile")
MISTAKES = [
    ("lisst", "Did you mean `tsmalloc list`?"),
    ("./prog", "tsmalloc compare -- ./prog"),
    ("list --bogus", "`tsmalloc list --help`"),
    ("list --allocator x", "NAME=PATH.so"),
    ("lib jemaloc", "there is no allocator 'jemaloc'"),
    ("lib glibc", "nothing to preload"),
    ("run glibc", "no program is named"),
    ("run nope true", "there is no allocator 'nope'"),
    ("run --typo tsmalloc -- true", "No such option"),
    ("run true x", "tsmalloc run -- true"),
    ("run true", "tsmalloc run -- true"),
    ("run ./prog", "there is no allocator './prog'"),
    ("doctor --timeout nan true", "not a time above zero"),
    ("top --count 0 -- true", "--count: 0 is no number from 1 on"),
    ("profile --seconds 60 --peak", "no process is named"),
    ("profile 1 --bogus", "--bogus"),
    ("compare -- ./no-such-program", "no-such-program"),
    ("compare -a jemaloc -- true", "Did you mean jemalloc?"),
    ("compare -r 0 -- true", "not a whole number from 1 on"),
    ("compare -r 2 -m 2 -- true", "contradict"),
    ("compare --margin 0 -- true", "not a percentage"),
    ("compare --time-budget soon -- true", "not a time above zero"),
    ("compare --cpus 900 -- true", "processors that may be used here"),
    ("compare --cpus x -- true", "not a list of processors"),
    ("compare --cpus 0-999999999 -- true", "processors that may be used here"),
    ("compare --cpus 1-0 -- true", "begins with the lower number"),
    ("compare --timeout 99999999999999999999h -- true", "below three years"),
    ("compare -r 9999999999 -- true", "of nine digits at most"),
    ("compare --allocator x=/lib/x86_64-linux-gnu/libm.so.6 -a x -- true", "defines no malloc"),
    ("compare --input /dev/zero -- true", "each run reads its input anew"),
    (r"compare --metric '\d+' -- true", "does not say where the number is"),
    ("compare --input /no/such/file -- true", "does not exist"),
    ("compare --export-csv /no/such/folder/file -- true", "there is no folder"),
    *((f"{verb} --typo -- true", "No such option") for verb in WITH_PROGRAM),
    ("compare --allocator x -- true", "cannot be read"),
    ("compare --resume", "there is no journal of `tsmalloc compare`"),
    ("profile flame p.pb -o /no/such/folder/f.html", "mkdir -p /no/such/folder"),
    ("bench hot-pear", "Did you mean hot-pair?"),
    ("bench hot-pair -r 2", "a whole number from 3 on"),
    ("bench hot-pair -a tsmalloc,lock-first", "-a tsmalloc,glibc"),
    ("bench hot-pair -a tsmaloc", "Did you mean tsmalloc?"),
    ("bench hot-pair --allocator null=/lib/x86_64-linux-gnu/libm.so.6", "name of a floor"),
    ("bench hot-pair --export-csv /no/such/folder/file", "mkdir -p"),
    ("bench hot-pair --suite /no/such/suite", "No such file"),
    ("gate --max-peak much -- true", "'much' is no limit, like +3%"),
    ("gate --max-peak 1000000000000000 -- true", "is above +10000%: use none"),
    ('gate --against "\'" -- true', "cannot be read"),
    ("gate --against ' ' -- true", "names no program"),
    ("gate --against '' -- true", "names no program"),
    ("gate --against-allocator '' -- true", "there is no allocator ''"),
    ("gate --baseline '' -- true", "no file is named"),
    ("gate --baseline none.json -- true", "there is no baseline none.json"),
    ("gate --baseline x --against true -- true", "two baselines"),
    ("gate --max-instructions 1 -- true", "Add --deterministic"),
    ("gate --deterministic --max-time 1 -- true", "Use --max-instructions"),
    ("gate --against-allocator glibk -- true", "Did you mean glibc?"),
    ("gate --export-sarif /no/such/folder/x -- true", "mkdir -p"),
    ("gate -- ./not-there", "not-there"),
    ("gate", "Missing argument"),
    ("gate --resume", "there is no journal of `tsmalloc gate`"),
    ("tune nosuch -- /bin/true", "there is no allocator 'nosuch'"),
    ("tune glibc", "Missing argument"),
    ("tune", "Missing argument 'ALLOCATOR'"),
    ("tune -- /bin/true", "tsmalloc tune jemalloc -- /bin/true"),
    ("gate --against", "`tsmalloc gate --help`"),
    ("record -o new/ -- true", "new/ is the name of a folder"),
    ("compare --export-csv new/ -- true", "new/ is the name of a folder"),
    ("compare --report /etc/passwd -- true", "is not a folder.\n  Name another."),
    ("tune glibc --only -- /bin/true", "--only leaves nothing to try"),
    ("tune glibc --option x=1 --only -- /no/such", "/no/such"),
    ("tune glibc --for speed -- /bin/true", "speed"),
    ("tune glibc --metric 'a(b)' --for time -- /bin/true", "two objectives"),
    ("tune glibc -r 1 -- /bin/true", "from 2 on"),
    ("tune tsmalloc-secure -- /bin/true", "the lab knows no option of tsmalloc-secure"),
    ("tune --resume", "there is no journal of `tsmalloc tune`"),
    ("experiment run", "no experiment is named"),
    ("experiment run x99", "there is no experiment 'x99'"),
    ("experiment run all -r 0", "a whole number from 1 on"),
    ("experiment run 'x2*' -a tsmaloc", "Did you mean tsmalloc?"),
    ("experiment run 'x2*' --export-csv /no/such/folder/file", "mkdir -p"),
    ("experiment run --file /no/such/file", "No such file"),
    ("experiment run --resume", "there is no journal of `tsmalloc experiment` in"),
    ("experiment run --resume /no/such/file", "No such file"),
    ("experiment show /no/such/file", "No such file"),
    ("experiment shw /no/such/file", "tsmalloc experiment --help"),
    ("replay none.tstrace", "there is no trace"),
    ("analyze /dev/null", "is no regular file"),
    ("record --ring-mib 0 -- true", "from 1 on"),
    ("replay none.tstrace --schedule fifo", "'fifo' is not one of"),
    ("worker here", "'here' is no address"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_mistakes_are_named(tsmalloc: Tsmalloc, tmp_path: Path, line: str, message: str) -> None:
    done = tsmalloc(*shlex.split(line), status=1)
    assert done.stdout == ""
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert not [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
