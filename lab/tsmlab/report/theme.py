"""The colours of pages: a light and a dark value for each name, and a style per allocator.

Pages and figures use the names as CSS variables, so that a figure works in both themes. The tests
check the contrast of every pair that meets on a page, and that readers with red-green colour
blindness can distinguish the hues.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Tone:
    """A colour in the light and in the dark theme, as #rrggbb."""

    light: str
    dark: str


# Surfaces, text, lines. `soft` is secondary text; `rest` draws what is not emphasised.
SURFACES = {
    "paper": Tone("#ffffff", "#0f1318"),
    "panel": Tone("#f4f6f9", "#181e26"),
    "ink": Tone("#161b22", "#e9edf2"),
    "soft": Tone("#4d5766", "#a9b4c2"),
    "rule": Tone("#d5dbe3", "#333d4a"),
    "grid": Tone("#e7ebf0", "#262e39"),
    "rest": Tone("#8590a0", "#7a8696"),
    "band": Tone("#e4edf8", "#1c2a3d"),
    "link": Tone("#0a58b5", "#82baff"),
}

# The hues of allocators: legible as text on their background, and as different as possible, also
# for readers with red-green colour blindness (the tests simulate it).
HUES = {
    "blue": Tone("#0046e3", "#488eff"),
    "slate": Tone("#26342f", "#f1f6dc"),
    "orange": Tone("#bf3202", "#df9432"),
    "green": Tone("#007543", "#5ff583"),
    "violet": Tone("#66278b", "#e7a8ff"),
    "ochre": Tone("#5c2e0c", "#f5ec53"),
    "teal": Tone("#007588", "#6eded3"),
    "pink": Tone("#b50070", "#f76f8f"),
}

# Verdicts as text, and the backgrounds of warnings and failures.
SIGNALS = {
    "better": Tone("#00694d", "#4fd6a9"),
    "worse": Tone("#a63c06", "#ff9f63"),
    "open": Tone("#6f5600", "#e3bf55"),
    "alarm": Tone("#ae1f2b", "#ff8f92"),
    "alarm-paper": Tone("#fdf0f0", "#2c1619"),
    "care-paper": Tone("#fdf7e6", "#282112"),
}

TONES = SURFACES | HUES | SIGNALS


# The legend's symbol for each of Vega's shapes.
SIGNS = {"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "triangle-down": "▼",
         "triangle-left": "◀", "triangle-right": "▶", "cross": "✚"}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How a series is drawn: the name of a colour, a Vega shape, and a dash pattern (none:
    solid)."""

    hue: str
    shape: str = "circle"
    dash: tuple[float, ...] = ()

    @property
    def sign(self) -> str:
        return SIGNS[self.shape]

    @property
    def is_strong(self) -> bool:
        """Whether it stands out against grey ones."""
        return self.hue != "rest"


REQUESTED = Style("ink", dash=(2, 3))

# Peers and the engine are solid, the teaching heaps dashed: hue shows the strategy, dash and shape
# the fit. So they differ even where hues do not (in print, or with colour blindness).
_NAMED = {
    "tsmalloc": Style("blue"),
    "glibc": Style("slate", "square"),
    "jemalloc": Style("orange", "diamond"),
    "mimalloc": Style("green", "triangle-left"),
    "tcmalloc": Style("violet", "triangle-down"),
    "tbbmalloc": Style("ochre", "cross"),
    "scudo": Style("teal", "triangle-right"),
}
_STRATEGIES = {
    "lock": "orange",
    "rwlock": "ochre",
    "nolock": "green",
    "arenas": "teal",
    "cached": "violet",
    "lockfree": "pink",
}
_FITS: dict[str, tuple[str, tuple[float, ...]]] = {
    "first": ("circle", (5.0, 1.6)),
    "best": ("square", (2.2, 1.6)),
    "worst": ("triangle-up", (6.0, 1.6, 1.2, 1.6)),
}
_SPARE = [
    Style("pink", "diamond"),
    Style("teal", "triangle-up"),
    Style("ochre", "triangle-down"),
    Style("orange", "cross"),
    Style("green", "triangle-right"),
    Style("violet", "diamond"),
    Style("slate", "triangle-down"),
    Style("pink", "triangle-up"),
]


def styles_for(names: Sequence[str]) -> dict[str, Style]:
    """A style for each name: always the same for a known one, the next spare one for others."""
    spare = itertools.cycle(_SPARE)
    styles: dict[str, Style] = {}
    for name in names:
        strategy, _, fit = name.partition("-")
        if name in _NAMED:
            styles[name] = _NAMED[name]
        elif strategy in _STRATEGIES and fit in _FITS:
            shape, dash = _FITS[fit]
            styles[name] = Style(_STRATEGIES[strategy], shape, dash)
        else:
            styles[name] = next(spare)
    return styles


# Up to this many series, each has its own colour; beyond, only the most important ones do.
ALL_IN_COLOUR = 8


def emphasised(names: Sequence[str], important: Sequence[str]) -> dict[str, Style]:
    """A style for each name: its own for the most important ones, grey for the rest."""
    styles = styles_for(names)
    kept = [name for name in dict.fromkeys([*important, *names]) if name in styles]
    strong = set(kept[:ALL_IN_COLOUR])
    return {n: s if n in strong else replace(s, hue="rest") for n, s in styles.items()}
