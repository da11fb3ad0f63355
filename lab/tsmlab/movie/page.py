"""The page of a movie: data packed into columns that the page's script unpacks.

A column is an array of integers: all lowest bytes come first, then all second ones, and so on;
deflated and in base64. The script is movie.js, the page movie.html, both next to this file.
"""

import base64
import html
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt

from tsmlab.movie.data import Blocks, Curves, Heap, Ints, thinned

MAX_BYTES = 15_000_000
_ROOM_BYTES = MAX_BYTES - 500_000  # for columns; frames and the rest of the page take little


def column(values: npt.NDArray[Any]) -> dict[str, Any]:
    """Packs the values, which are not negative."""
    values = np.asarray(values, np.uint64)
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 8))
    planes = values.astype("<u8").view(np.uint8).reshape(-1, 8).T[:width]
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15)
    deflated = deflater.compress(planes.tobytes()) + deflater.flush()
    packed = base64.b64encode(deflated).decode()
    return {"width": width, "count": len(values), "data": packed}


def _zigzag(deltas: Ints) -> Ints:
    return np.where(deltas < 0, -2 * deltas - 1, 2 * deltas)


def predicted(values: Ints, size: Ints) -> Ints:
    """Differences from the previous block of the same size, which is often close."""
    order = np.argsort(size, kind="stable")
    deltas = np.empty_like(values)
    sorted_values = values[order]
    first = np.r_[True, size[order][1:] != size[order][:-1]]
    deltas[order] = np.where(first, sorted_values, sorted_values - np.r_[0, sorted_values[:-1]])
    return _zigzag(deltas)


def _of_blocks(blocks: Blocks) -> dict[str, Any]:
    return {
        "born": column(np.diff(blocks.born, prepend=0)),
        "life": column(blocks.died - blocks.born),
        "size": column(blocks.size),
        "thread": column(blocks.thread),
    }


def _addresses(found: Heap, size: Ints, kept: npt.NDArray[Any]) -> dict[str, Any]:
    offset = found.offset(found.address[kept])
    unit = next(unit for unit in (16, 8, 4, 2, 1) if not np.any(offset % unit))
    return {"unit": unit, "place": column(predicted(offset // unit, size[kept]))}


def _frames(found: Heap) -> dict[str, Any]:
    """For each frame, the bounds that only it or the previous frame has."""
    counts, pages = [], []
    last: Ints = np.zeros(0, np.int64)
    for frame in found.frames:
        bounds = found.pages(frame.bounds)
        toggled = np.setxor1d(last, bounds)
        counts.append(len(toggled))
        pages.append(np.diff(toggled, prepend=0))
        last = bounds
    return {
        "entries": [frame.entry for frame in found.frames],
        "counts": column(np.array(counts)),
        "pages": column(np.concatenate(pages)),
    }


def _choose(
    blocks: Blocks, heaps: Sequence[Heap]
) -> tuple[npt.NDArray[Any], Ints | None, dict[str, Any], list[dict[str, Any]]]:
    """What fits: all blocks, or the blocks alive at some moments, as many moments as fit."""
    moments: Ints = np.array([frame.entry for frame in heaps[0].frames], np.int64)
    kept: npt.NDArray[Any] = np.ones(len(blocks.born), bool)
    chosen = None
    while True:
        common = _of_blocks(blocks.only(kept))
        places = [_addresses(each, blocks.size, kept) for each in heaps]
        size = sum(len(each["data"]) for each in (*common.values(), *(p["place"] for p in places)))
        if size <= _ROOM_BYTES or (chosen is not None and len(chosen) < 3):
            return kept, chosen, common, places
        chosen = moments if chosen is None else chosen[::2]
        kept = thinned(blocks, chosen)


def page(
    blocks: Blocks,
    heaps: Sequence[Heap],
    each_curves: Sequence[Curves],
    facts: Mapping[str, Any],
    notes: Sequence[str],
) -> tuple[str, list[str]]:
    """The page, and text about what it leaves out."""
    kept, moments, common, places = _choose(blocks, heaps)
    left_out = []
    if blocks.left_out:
        share = blocks.entries / (blocks.entries + blocks.left_out)
        left_out.append(
            f"it ends after the first {blocks.entries:,} events of the log ({share:.1%}); "
            f"{blocks.left_out:,} are left out"
        )
    if moments is not None:
        left_out.append(
            f"exact at {len(moments):,} moments; {len(kept) - int(kept.sum()):,} of {len(kept):,} "
            "blocks, which lived only between two of these, are left out"
        )
    messages = [*left_out, *notes]
    movie = {
        **facts,
        "entries": blocks.entries,
        "notes": messages,
        "exact": None if moments is None else moments.tolist(),
        "blocks": common,
        "heaps": [
            {
                "name": each.name,
                "regions": each.regions.tolist(),
                **place,
                "frames": _frames(each),
                "curves": asdict(curve),
            }
            for each, curve, place in zip(heaps, each_curves, places, strict=True)
        ],
    }
    folder = Path(__file__).parent
    names = ", ".join(each.name for each in heaps)
    return (
        Template((folder / "movie.html").read_text(encoding="utf-8")).substitute(
            title=html.escape(f"{facts['program']} on {names}"),
            script=(folder / "movie.js").read_text(encoding="utf-8"),
            movie=json.dumps(movie, separators=(",", ":")).replace("</", "<\\/"),
            table=_table(heaps, each_curves),
        ),
        messages,
    )


def _table(heaps: Sequence[Heap], each_curves: Sequence[Curves]) -> str:
    """For readers without scripts: the frame with the most resident memory for each allocator."""
    rows = []
    for each, curve in zip(heaps, each_curves, strict=True):
        peak = int(np.argmax(curve.resident))
        cells = (each.frames[peak].entry, curve.live[peak], curve.resident[peak], curve.holes[peak])
        data = "".join(f"<td>{number:,}</td>" for number in cells)
        rows.append(f"<tr><th>{html.escape(each.name)}</th>{data}</tr>")
    return "".join(rows)
