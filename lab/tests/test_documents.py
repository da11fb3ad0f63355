"""The project's documents: links lead somewhere, and their charts show published numbers."""

import re
import sys

import prompt
import pytest
from refusals import mentions

from tsmlab import paths

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
