"""The project's documents: links lead somewhere, charts show published numbers, and each command of
a shell block is run, or at least parsed, or the reason why not is given here. (docs/install.md runs
as a whole in tests/packaging/test_install_doc.py.)
"""

import re
import shlex
import subprocess
import sys

import click
import prompt
import pytest
from prompt import ran
from refusals import mentions

from tsmlab import cli, paths

ROOT = paths.repository_root()


standing = prompt.dev_script("standing.py")
check_links = prompt.dev_script("check_links.py")

FOLDER = "docs"  # split, since the check itself reads this file
TABLE = """
| workload | of | 1.00 is | tsmalloc [95% CI] | tsmalloc's goal | glibc 2.36 | rpmalloc |
| :-- | :-- | :-- | --: | :-- | --: | --: |
| hot | time | rpmalloc 1 ms | 1.06 [0.51, 2.18] | unresolved | 2.00 | 1.00 |
| geometric mean | time | all | 1.14 [1.01, 1.28] |  | 3.00 ±50% | 1.56 ±4% (31 of 32) |
|  | memory | all | 1.35 [1.33, 1.37] | 1.00 [0.99, 1.00] | 1.18 ±1% | 1.33 ±2% |
"""


def test_the_means_of_a_table_are_read_with_their_intervals():
    time, memory = standing.read(TABLE)
    assert [each.name for each in time] == ["tsmalloc", "rpmalloc", "glibc"]
    assert (time[0].ratio, time[0].low, time[0].high) == (1.14, 1.01, 1.28)
    assert (time[2].ratio, time[2].low, time[2].high) == (3.0, 2.0, 4.5)
    assert [each.ratio for each in memory] == [1.18, 1.33, 1.35]


def test_what_has_no_table_is_refused():
    for table in ("", "| a | b |\n", TABLE.replace("3.00 ±50%", "failed")):
        with pytest.raises(SystemExit, match="mean"):
            standing.read(table)
    done = prompt.ran(sys.executable, ROOT / "dev" / "standing.py", "nosuch.md", status=1)
    assert done.stderr == "standing.py: nosuch.md: No such file or directory\n"
    script = ROOT / "tests" / "misuse" / "table.py"
    done = prompt.ran(sys.executable, script, "bin/traps", "glibc=", status=1)
    mentions(done.stderr, "bin/traps", "docs/traps.md")


def test_the_chart_of_the_results_is_drawn_from_the_published_table():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    shown = re.search(r"!\[(.*?)\]\(\.\./(results/.*?/standing\.svg)\)", page)
    words, chart = shown[1], ROOT / shown[2]
    means = standing.read((chart.parent / "workloads.md").read_text(encoding="utf-8"))
    assert chart.read_text(encoding="utf-8") == standing.image(*means) + "\n"
    time, memory = (next(each.ratio for each in side if each.name == "tsmalloc") for side in means)
    assert f"tsmalloc {time:.2f} and {memory:.2f};" in words
    # Both tables of the means have the published numbers.
    for document in (page, (ROOT / "README.md").read_text(encoding="utf-8")):
        row = next(line for line in document.splitlines() if line.startswith("| tsmalloc |"))
        assert row.split("|")[2].split()[0] == f"{time:.2f}"
        assert row.split("|")[3].split()[0] == f"{memory:.2f}"


def test_links_that_lead_nowhere_are_found(tmp_path, monkeypatch):
    monkeypatch.setattr(check_links, "ROOT", tmp_path)
    (tmp_path / "other.md").write_text("# One, two\n")
    for text, *found in (
        ("[a](other.md) [b](other.md#one-two) [c](#here)\n# Here\n",),
        ("[a](https://example.org/none) `[b](none.md)`\n",),
        ("```\n[a](none.md)\n```\n",),
        ("[a](none.md)\n", "page.md: no such file: none.md"),
        ("[a](other.md#three)\n", "page.md: no such heading: other.md#three"),
        (f"see {FOLDER}/none.md\n", f"page.md: no such file: {FOLDER}/none.md"),
    ):
        (tmp_path / "page.md").write_text(text)
        assert check_links.complaints("page.md") == found


ELSEWHERE = {"install.md"}  # tests/packaging/test_install_doc.py
DOCUMENTS = [
    ROOT / "README.md",
    *sorted(path for path in ROOT.glob("docs/*.md") if path.name not in ELSEWHERE),
    *sorted(ROOT.glob("docs/formats/*.md")),
    *sorted(ROOT.glob("docs/services/*.md")),
    *sorted(ROOT.glob("docs/design/*.md")),
]
BLOCK = re.compile(r"^```(?:sh|bash|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE_DOCUMENT = re.compile(r"^.*<<'(\w+)'\n.*?^\1\n", re.MULTILINE | re.DOTALL)
INNER = re.compile(r"\$\(([^()]*)\)")
NO_SUCH_PID = "4194304"  # above every kernel.pid_max
NO_SUCH_PROGRAM = "./no-such-program"

# Commands that only run on another machine, for long, or with programs that are placeholders, by
# their first word.
NOT_RUN = {
    **dict.fromkeys(("./server", "program"), "a program of the reader's"),
    **dict.fromkeys(("cmake", "make"), "builds this checkout, as every job of CI does"),
    **dict.fromkeys(("ls", "mkdir"), "test_the_counts_are_where_the_document_says runs it"),
    **dict.fromkeys(
        ("cargo", "g++", "initdb", "javac", "pg_ctl", "pgbench"), "docs/services, tried by hand"
    ),
    "apt": "installs packages",
    "build/fixed_share": "an example; the build makes it as example-fixed_share",
    "build/heap_map": "an example; the build makes it as example-heap_map",
    "cc": "tests/link links the same libraries in the same ways",
    "cd": "for the commands that follow",
    "dask": "waits for workers; test_fleet has a scheduler of its own",
    "dev/conformance": "takes minutes; dev/test.py runs it",
    "kubectl": "needs a cluster",
    "pgrep": "of a server that does not run here",
    "pip": "docs/install.md has the same, which runs",
    "python3": "docs/install.md has the same, which runs; table.py needs the test programs",
    "sleep": "ten minutes",
}


def commands(block):
    """The simple commands of a block, as lists of words; those in $(...) separately as well."""
    found = []
    for line in HERE_DOCUMENT.sub("", block).replace("\\\n", " ").splitlines():
        found += [shlex.split(inner, comments=True) for inner in INNER.findall(line)]
        words = shlex.split(INNER.sub(NO_SUCH_PID, line), comments=True)
        ends = [i for i, word in enumerate(words) if word in ("&&", "|", ";")]
        found += [
            words[begin + 1 : end]
            for begin, end in zip([-1, *ends], [*ends, len(words)], strict=True)
        ]
    return [stripped for words in found if (stripped := without_prefix(words))]


def without_prefix(words):
    while words and (words[0] in ("sudo", ".") or re.match(r"[A-Z_]+=", words[0])):
        words = words[2:] if words[0] == "." else words[1:]
    return words


def parse(command, words):
    """Raises click's error for an option that does not exist, lacks its value or does not take it,
    or an unknown verb. Files need not exist."""
    context = click.Context(command, **command.context_settings)
    values, rest, _ = command.make_parser(context).parse_args(list(words))
    for option in command.params:
        value = values.get(option.name)
        is_file = isinstance(option.type, (click.Path, click.File))
        if isinstance(option, click.Option) and value is not None and not is_file:
            option.type_cast_value(context, value)
    if isinstance(command, click.Group) and rest:
        _, verb, rest = command.resolve_command(context, rest)
        assert verb is not None
        parse(verb, rest)


def try_natively(words):
    """The exit status of the native command, for a process and a program that do not exist."""
    at = words.index("--") if "--" in words else len(words)
    pids = [NO_SUCH_PID if word in ("PID", "1") else word for word in words[:at]]
    program = ["--", NO_SUCH_PROGRAM] if at < len(words) else []
    return ran(paths.tool("tsmalloc"), *pids, *program).returncode


def is_native(words):
    """Whether the native command handles it: the lab handles `profile` with files."""
    of_files = ("show", "diff", "leaks", "flame", "folded", "symbolize")
    return words[0] in cli.NATIVE or (words[0] == "profile" and words[1] not in of_files)


def commands_of(document):
    for block in BLOCK.findall(document.read_text(encoding="utf-8")):
        yield from commands(block)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_the_commands_of_a_document_are_understood(document):
    for words in commands_of(document):
        name = words[0].removeprefix("./")
        if name == "tsmalloc" and is_native(words[1:]):
            assert try_natively(words[1:]) in (2, 127), words
        elif name == "tsmalloc":
            parse(cli.tsmalloc, words[1:])
        else:
            assert words[0] in NOT_RUN, f"{document.name}: say in NOT_RUN why: {words}"
            assert not name.startswith("dev/") or (ROOT / name).is_file(), words


def test_no_reason_is_left_over():
    assert set(NOT_RUN) <= {words[0] for each in DOCUMENTS for words in commands_of(each)}


def test_the_counts_are_where_the_document_says(tmp_path):
    document = (ROOT / "docs/formats/counters.md").read_text(encoding="utf-8")
    [block] = BLOCK.findall(document)
    moved = block.replace("/tmp/counts", shlex.quote(str(tmp_path / "counts")))
    moved = moved.replace("build/release", shlex.quote(str(paths.build_dir())))
    subprocess.run(["sh", "-euc", moved], check=True, cwd=tmp_path)
    assert len([*(tmp_path / "counts").glob("*.json")]) == 1


def test_mistakes_would_be_found():
    for words in (
        "compare --no-such -- x",
        "compare --rounds many -- x",
        "bench --time-budget 3parsecs",
        "no-such",
        "experiment no-such",
        "profile show --no-such x",
    ):
        with pytest.raises((click.UsageError, cli.UserError)):
            parse(cli.tsmalloc, words.split())
    assert try_natively(["explain", "--no-such", "PID"]) == 1
