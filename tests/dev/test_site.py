"""dev/site/build: links of the pages as the site needs them, and a redirect for each page."""

from pathlib import Path

import pytest
from prompt import dev_script

ROOT = Path(__file__).resolve().parents[2]
build = dev_script("site/build")

FILES = {
    "docs/use.md",
    "docs/adr/README.md",
    "docs/pictures/block.svg",
    "bench/day/page.md",
    "src/README.md",
    "src/a.h",
}


@pytest.mark.parametrize(
    ("path", "text", "wanted"),
    [
        ("docs/use.md", "[a](adr/README.md#b)", "[a](adr/README.md#b)"),
        ("docs/use.md", "[a](../bench/day/page.md#b)", "[a](project/bench/day/page.md#b)"),
        ("docs/use.md", "[a](../src)", "[a](project/src/README.md)"),
        (
            "docs/adr/README.md",
            "[a](../../bench/day/page.md)",
            "[a](../project/bench/day/page.md)",
        ),
        ("bench/day/page.md", "[a](../../docs/use.md)", "[a](../../../use.md)"),
        ("docs/use.md", "![p](pictures/block.svg) [1, 2] x", "![p](pictures/block.svg) [1, 2] x"),
        ("docs/use.md", "[a](https://e.org/x) [b](#c)", "[a](https://e.org/x) [b](#c)"),
        ("docs/use.md", "```\n[a](../src/a.h)\n```\n", "```\n[a](../src/a.h)\n```\n"),
        ("docs/use.md", "- a\n    b\n[a](../src)", "- a\n    b\n[a](project/src/README.md)"),
    ],
)
def test_links_lead_to_pages_of_the_site(path, text, wanted):
    assert build.relinked(text, path, FILES) == wanted


def test_links_to_sources_lead_to_the_forge(monkeypatch):
    text = "[`a.h`](../src/a.h)"
    monkeypatch.setattr(build, "FORGE", "")
    assert build.relinked(text, "docs/use.md", FILES) == "`a.h`"
    monkeypatch.setattr(build, "FORGE", "https://e.org/blob/main")
    assert build.relinked(text, "docs/use.md", FILES) == "[`a.h`](https://e.org/blob/main/src/a.h)"


def test_each_page_is_in_a_section():
    in_sections = {f"{page}.md" for pages in build.SECTIONS.values() for page in pages.split()}
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs)) for path in docs.rglob("*.md")}
    below = {
        str(path.relative_to(docs))
        for page, pattern in build.PAGES_BELOW.items()
        for path in (docs / page).parent.glob(f"{pattern}.md")
    }
    assert pages - below - {"index.md"} == in_sections - {"api.md"}
