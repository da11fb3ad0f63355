"""A report's page as one file of HTML: templates, style and figures together.

Why: a page that stands alone can be mailed, archived and opened anywhere, offline.
Refuses to: let anything through unescaped (jinja2 escapes all but our own SVG and style), to load
anything, and to need a script.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2

from tsmlab.report.pages.common import AMOUNTS, Report
from tsmlab.report.theme import TONES
from tsmlab.text import visible, with_minus

FOLDER = Path(__file__).parent
GENERATOR = "tsmalloc report"
# A page must be easy to mail and quick to open.
LIMIT_BYTES = 1_000_000


def page(report: Report) -> str:
    """The page, with as much of the raw data as the limit allows; with none if need be."""
    text = ""
    for amount in AMOUNTS:
        raw = report.raw(amount)
        if len(raw.href) < LIMIT_BYTES:
            text = from_template(report.template, page={**report.page, "raw": raw})
            if len(text.encode()) < LIMIT_BYTES:
                break
    return text


def from_template(template: str, **variables: Any) -> str:
    """A template's text, as valid UTF-8 without invisible characters."""
    text = (
        _environment()
        .get_template(template)
        .render(style=stylesheet(), generator=GENERATOR, **variables)
    )
    return visible(text)


@lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["minus"] = with_minus
    return environment


@lru_cache(maxsize=1)
def stylesheet() -> str:
    """The colours of both themes, then style.css.

    The dark colours hold where the system asks for them and the light ones were not chosen, or
    where they were chosen; paper is always light."""
    light = "".join(f"--{name}:{tone.light};" for name, tone in TONES.items())
    dark = "".join(f"--{name}:{tone.dark};" for name, tone in TONES.items())
    return (
        f":root{{color-scheme:light;{light}}}\n"
        "@media screen and (prefers-color-scheme:dark){"
        f":root:not(:has(#theme-light:checked)){{color-scheme:dark;{dark}}}}}\n"
        f"@media screen{{:root:has(#theme-dark:checked){{color-scheme:dark;{dark}}}}}\n"
        + (FOLDER / "style.css").read_text(encoding="utf-8")
    )
