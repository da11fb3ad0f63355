"""A page as a self-contained HTML file: it loads nothing, and its tables need no script.

The page's security policy lists the hashes of the only scripts that may run: Vega's and ours.
Everything from results is escaped by jinja2, or is JSON in a data block.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from tsmlab import __version__
from tsmlab.report import vega
from tsmlab.report.page import Page, Spec
from tsmlab.report.theme import TONES
from tsmlab.tables import Cell, rows_of
from tsmlab.text import capital, visible, with_minus

FOLDER = Path(__file__).parent


def overview(title: str, entries: list[tuple[str, Page]]) -> str:
    """A page that links to others, by their paths."""
    page = Page("reports", title, "They are separate; they are not compared with each other.", [])
    return render(page, entries=entries)


def render(page: Page, **more: Any) -> str:
    figures = page.figures
    library = vega.library() if figures else ""
    scripts = [*filter(None, [page.script]), *([_figures_script()] if library else [])]
    text = _template().render(
        page=page,
        style=stylesheet(),
        footer=page.footer or f"Written by tsmalloc {__version__}. This file is self-contained.",
        contents=[section for section in page.sections if section.title],
        library=_packed(library) if library else "",
        missing=vega.MISSING if figures and not library else "",
        scripts=scripts,
        hashes=" ".join(_hashes([*scripts, *([library] if library else [])])),
        **more,
    )
    # Valid UTF-8, without invisible characters and those that reorder the text around them.
    return visible(text)


def _hashes(scripts: list[str]) -> Iterator[str]:
    for script in scripts:
        digest = hashlib.sha256(script.encode()).digest()
        yield f"'sha256-{base64.b64encode(digest).decode()}'"


@lru_cache(maxsize=1)
def _packed(library: str) -> str:
    return base64.b64encode(gzip.compress(library.encode(), 9, mtime=0)).decode()


@lru_cache(maxsize=1)
def _figures_script() -> str:
    return (FOLDER / "figures.js").read_text(encoding="utf-8")


def _panels_block(panels: Sequence[Spec]) -> str:
    """Panels as JSON that cannot close its element. Their rows are columns, which takes a third of
    the space; figures.js restores them."""
    packed = [{**panel, "data": _columns(panel.get("data", {}))} for panel in panels]
    text = json.dumps(packed, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028")


def _columns(data: Mapping[str, Any]) -> Mapping[str, Any]:
    rows = data.get("values", [])
    if not rows or any(row.keys() != rows[0].keys() for row in rows):
        return data
    return {"columns": {name: [row[name] for row in rows] for name in rows[0]}}


# The terminal's colours, as styles of pages.
MARKS = {"green": "better", "red": "worse", "yellow": "open"}


def _mark(cell: Cell) -> str:
    return MARKS.get(cell.style, cell.style)


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"minus": with_minus, "mark": _mark, "capital": capital,
                            "panels": _panels_block, "rows": rows_of}  # fmt: skip
    return environment.get_template("page.html")


@lru_cache(maxsize=1)
def stylesheet() -> str:
    """The colours of both themes, then style.css.

    The dark colours apply if the user chose them, or if the system asks for them and the user did
    not choose the light ones; print is always light."""
    light = "".join(f"--{name}:{tone.light};" for name, tone in TONES.items())
    dark = "".join(f"--{name}:{tone.dark};" for name, tone in TONES.items())
    return (
        f":root{{color-scheme:light;{light}}}\n"
        "@media screen and (prefers-color-scheme:dark){"
        f":root:not(:has(#theme-light:checked)){{color-scheme:dark;{dark}}}}}\n"
        f"@media screen{{:root:has(#theme-dark:checked){{color-scheme:dark;{dark}}}}}\n"
        + (FOLDER / "style.css").read_text(encoding="utf-8")
    )
