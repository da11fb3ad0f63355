"""Real programs that allocate: interpreters, databases, a solver, compilers, each with its input.

dev/compare-programs runs them whole, dev/profile-truth with less to do.
"""

# ruff: noqa: E501 - the programs in other languages have longer lines

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Program:
    """A number between two @ in the input is the amount of work."""

    name: str
    tool: str
    command: tuple[str, ...]
    file: str
    text: str

    def is_installed(self) -> bool:
        return shutil.which(self.tool) is not None

    def write(self, folder: Path, part: float = 1.0) -> list[str]:
        """Writes its input, scaled to that part of its work, and returns the command to run
        there."""
        text = re.sub(r"@(\d+)@", lambda match: str(int(int(match[1]) * part)), self.text)
        (folder / self.file).write_text(text)
        return list(self.command)


def pigeonhole_formula(holes: int = 8) -> str:
    """One pigeon too many: a formula that cannot be satisfied."""
    pigeons = range(holes + 1)
    lines = [f"(declare-const p{i}_{j} Bool)" for i in pigeons for j in range(holes)]
    lines += [f"(assert (or {' '.join(f'p{i}_{j}' for j in range(holes))}))" for i in pigeons]
    lines += [
        f"(assert (or (not p{i}_{j}) (not p{k}_{j})))"
        for j in range(holes)
        for i in pigeons
        for k in pigeons[i + 1 :]
    ]
    return "\n".join([*lines, "(check-sat)\n"])


PERL = r"""my (%count, @lines);
for my $i (1 .. @250000@) { my $w = "w" . ($i * 7919 % 60013); $count{$w} .= substr($w, 1, 3); push @lines, "$w:$i" }
my $n = 0; $n += length for map { join ",", split /:/ } sort @lines; $n += length $count{$_} for sort keys %count; print "$n\n";
"""
PYTHON = """import json
rows = [{"id": i, "name": f"row {i}", "tags": [str(i * j) for j in range(8)]} for i in range(@40000@)]
text = json.dumps(rows)
back = json.loads(text)
index = {row["name"]: row for row in back}
print(len(text), sum(len(index[f"row {i}"]["tags"]) for i in range(0, @40000@, 3)))
"""
LUA = """local all, n = {}, 0
for i = 1, @400000@ do all[i % @50000@ + 1] = {i, "s" .. i, {x = i, y = tostring(i * 3)}} end
for _, t in pairs(all) do n = n + #t[2] + #t[3].y end
print(n)
"""
RUBY = """Point = Struct.new(:x, :name)
all = Array.new(@60000@)
@600000@.times { |i| all[i * 7919 % @60000@] = Point.new(i, "p#{i}" * 3) }
puts all.compact.sum { |p| p.name.size }
"""
SQL = """CREATE TABLE t(id INTEGER PRIMARY KEY, k TEXT, v TEXT);
WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < @150000@)
INSERT INTO t SELECT i, 'k' || (i * 7919 % 50021), printf('%0*d', 20 + i % 90, i) FROM c;
CREATE INDEX by_k ON t(k);
SELECT count(*), sum(length(a.v)) FROM t a JOIN t b ON a.k = b.k WHERE a.id < b.id;
SELECT count(*) FROM (SELECT k, group_concat(v) g FROM t GROUP BY k HAVING length(g) > 100);
"""
TEMPLATES = """#include <algorithm>
#include <functional>
#include <map>
#include <regex>
#include <string>
#include <variant>
#include <vector>
template <int N> struct Node { std::map<int, std::variant<std::string, std::vector<Node<N - 1>>>> all; int go() { return (int)all.size() + Node<N - 1>{}.go(); } };
template <> struct Node<0> { int go() { return 0; } };
int main(int argc, char** argv) { std::regex r("a+b"); std::function<int()> f = [] { return Node<@40@>{}.go(); };
  std::vector<std::string> v(argv, argv + argc); std::sort(v.begin(), v.end()); return f() + (int)std::regex_match(v[0], r); }
"""
REDIS = """redis-server --port 0 --unixsocket ./socket --save '' --appendonly no --daemonize no >/dev/null &
until redis-cli -s ./socket ping >/dev/null 2>&1; do sleep 0.01; done
redis-benchmark -s ./socket -q -n @60000@ -r @20000@ -d 300 -P 8 -t set,lpush,hset,get >/dev/null
redis-cli -s ./socket dbsize
redis-cli -s ./socket shutdown nosave
wait
"""
COMPILE = ("-std=c++20", "-O1", "-S", "-o", "out.s", "templates.cpp")
SAME_HASHES = ("env", "PERL_HASH_SEED=0", "PERL_PERTURB_KEYS=0", "PYTHONHASHSEED=0")

PROGRAMS = (
    Program("perl", "perl", (*SAME_HASHES, "perl", "words.pl"), "words.pl", PERL),
    Program(
        "python3",
        "python3",
        (*SAME_HASHES, "PYTHONMALLOC=malloc", sys.executable, "-S", "tree.py"),
        "tree.py",
        PYTHON,
    ),
    Program("lua", "lua5.4", ("lua5.4", "tables.lua"), "tables.lua", LUA),
    Program("ruby", "ruby", ("ruby", "objects.rb"), "objects.rb", RUBY),
    Program(
        "sqlite3",
        "sqlite3",
        ("sqlite3", "-batch", "-init", "/dev/null", ":memory:", ".read rows.sql"),
        "rows.sql",
        SQL,
    ),
    Program("z3", "z3", ("z3", "pigeons.smt2"), "pigeons.smt2", pigeonhole_formula()),
    Program("gcc", "g++", ("g++", *COMPILE), "templates.cpp", TEMPLATES),
    Program("clang", "clang++-16", ("clang++-16", *COMPILE), "templates.cpp", TEMPLATES),
    Program("redis", "redis-benchmark", ("sh", "serve.sh"), "serve.sh", REDIS),
)
