"""`tsmalloc replay --movie`: it shows what happened, and the page works."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from prompt import ran, run_alone
from refusals import mentions

from tsmlab import paths
from tsmlab.movie import data, page
from tsmlab.traces import files

PAGE = 4096
ALLOCATORS = ("lock-best", "tsmalloc", "glibc")
LIBRARIES = ("libtsmalloc-lock-best.so", "libtsmalloc.so", "")


@pytest.fixture(scope="module")
def witness(build):
    code = (Path(__file__).parent / "movie_witness.c").read_text(encoding="utf-8")
    return build("witness.so.c", code, "-shared", "-fPIC")


# --- the truth ------------------------------------------------------------------------------------


def witnessed(path):
    """The pages that the witness saw in each frame: the frame's number + 1, the pages, a zero."""
    numbers = np.fromfile(path, "<u8")
    parts = np.split(numbers, np.flatnonzero(numbers == 0) + 1)[:-1]
    return {int(part[0]) - 1: set(map(int, part[1:-1])) for part in parts}


def numbers_of(path):
    return [int(number) for number in np.fromfile(path, "<u8")]


def own_pages(frames):
    numbers = numbers_of(frames)
    last = max(i for i in range(0, len(numbers), 2) if numbers[i] == numbers[i + 1] == 2**64 - 1)
    ranges = zip(numbers[last + 2 :: 2], numbers[last + 3 :: 2], strict=True)
    return {page for begin, end in ranges for page in range(begin, end, PAGE)}


def accounted(log, entry, pages):
    """Live bytes, resident bytes, and bytes in holes, computed call by call and page by page."""
    numbers = numbers_of(log)
    live: dict[int, int] = {}
    for i in range(entry):
        address, size = numbers[2 * i], numbers[2 * i + 1] & (1 << 40) - 1
        if size:
            live[address] = size
        else:
            del live[address]
    covered = 0
    for address, size in live.items():
        for start in range(address // PAGE * PAGE, address + size, PAGE):
            if start in pages:
                covered += min(address + size, start + PAGE) - max(address, start)
    return sum(live.values()), len(pages) * PAGE, len(pages) * PAGE - covered


@pytest.mark.parametrize("library", LIBRARIES)
def test_ten_frames_are_what_a_witness_finds(trace, witness, tmp_path, library):
    log = tmp_path / "log"
    preloads = [str(witness), *([str(paths.library(library))] if library else [])]
    environment = {"LD_PRELOAD": ":".join(preloads), "WITNESS": str(tmp_path / "seen")}
    environment["TSMALLOC_BACKGROUND"] = "off"  # it would purge between the two looks
    words = ("--schedule", "recorded", "--addresses", log, "--frames", "30", trace)
    ran(paths.tool("replay"), *words, env=os.environ | environment, status=0)
    blocks, address = data.read_blocks(log)
    frames = data.read_frames(tmp_path / "log.frames", blocks.entries)
    curves = data.curves(blocks, data.heap("it", address, blocks.size, frames))
    seen, own = witnessed(tmp_path / "seen"), own_pages(tmp_path / "log.frames")
    chosen = range(0, len(frames), len(frames) // 9)
    assert len(chosen) >= 10
    for at in (*chosen, len(frames) - 1):
        found = (curves.live[at], curves.resident[at], curves.holes[at])
        assert found == accounted(log, frames[at].entry, seen[frames[at].entry] - own)
    assert max(curves.live) > 50_000
    assert max(curves.holes) > PAGE
    assert curves.live[-1] == 0 < curves.resident[-1]


# --- parts ----------------------------------------------------------------------------------------


def logged(path, *entries):
    """Entries are address, size and thread."""
    rows = [(address, size | thread << 40) for address, size, thread in entries]
    np.array(rows, "<u8").tofile(path)
    return path


def test_blocks_of_a_log(tmp_path):
    log = logged(tmp_path / "log", (64, 8, 0), (96, 16, 2), (64, 0, 1), (64, 4, 1), (96, 0, 0))
    blocks, address = data.read_blocks(log)
    assert address.tolist() == [64, 96, 64]
    assert (blocks.born.tolist(), blocks.died.tolist()) == ([0, 1, 3], [2, 4, 5])
    assert (blocks.size.tolist(), blocks.thread.tolist()) == ([8, 16, 4], [0, 2, 1])
    cut, _ = data.read_blocks(log, max_entries=2)
    assert (cut.entries, cut.left_out, cut.died.tolist()) == (2, 3, [2, 2])
    for entries in ([(64, 8, 0)] * 2, [(64, 0, 0)], [(64, 8, 0), *[(64, 0, 0)] * 2]):
        with pytest.raises(data.UnsuitableLog):
            data.read_blocks(logged(tmp_path / "log", *entries))


def test_frames_are_without_replays_own(tmp_path):
    heading = 2**64 - 1
    pairs = [(7, heading), (0x1000, 0x5000), (0x5000, 0x6000), (0x9000, 0xA000),
             (heading, heading), (0x2000, 0x3000), (0x9000, 0xB000)]  # fmt: skip
    np.array(pairs, "<u8").tofile(tmp_path / "frames")
    (frame,) = data.read_frames(tmp_path / "frames", 10)
    assert (frame.entry, frame.bounds.tolist()) == (7, [0x1000, 0x2000, 0x3000, 0x6000])
    assert data.read_frames(tmp_path / "frames", 6) == []


def made_up(count):
    """Every fourth block is kept; sizes are random, so addresses are hard to predict."""
    rng = np.random.default_rng(1)
    born = np.arange(count, dtype=np.int64) * 2
    died = np.where(born % 8 == 0, 2 * count, born + 1)
    size = rng.integers(1, 1 << 20, count)
    blocks = data.Blocks(born, died, size, np.zeros(count, np.int64), 2 * count, 0)
    bounds = np.array([0x1000, 0x3000])
    frames = [data.Frame(entry, bounds) for entry in range(0, 2 * count, count // 5)]
    heap = data.heap("one", np.cumsum(size) - size, size, frames)
    return blocks, heap, data.curves(blocks, heap)


def columns_of(text):
    return json.loads(text.split('id="movie">', 1)[1].split("</script>", 1)[0])


FACTS = {"program": "p<>", "trace": "t", "schedule": "recorded", "end": 0}


def test_what_does_not_fit_is_left_out_and_told(monkeypatch):
    blocks, heap, curves = made_up(5000)
    whole, told = page.page(blocks, [heap], [curves], FACTS, [])
    assert told == []
    assert columns_of(whole)["blocks"]["born"]["count"] == 5000
    monkeypatch.setattr(page, "_ROOM_BYTES", 30_000)
    text, told = page.page(blocks, [heap], [curves], FACTS, [])
    movie = columns_of(text)
    (note,) = told
    moments = movie["exact"]
    alive = {b for m in moments for b in np.flatnonzero(blocks.alive(m)).tolist()}
    assert movie["blocks"]["born"]["count"] == len(alive) < 5000
    assert f"{len(moments)} moments" in note
    assert f"{5000 - len(alive):,} of 5,000 blocks" in note
    assert "<p<>" not in text


def test_regions_keep_no_wide_gaps_and_all_that_is_used():
    _, heap, _ = made_up(10)
    far = data.heap("far", np.array([0x1000, 0x7FFF_0000_0008]), np.array([8, 16]), heap.frames)
    assert len(far.regions) == 2
    first, second = far.offset(far.address).tolist()
    assert first % PAGE == 0
    assert second % PAGE == 8
    assert second < 5 * PAGE


# --- at the prompt --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def movie(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("movie") / "heap.html"
    run_alone("replay", trace, "-a", ",".join(ALLOCATORS), "--movie", path)
    return path


def test_an_allocator_that_crashes_is_left_out(tsmalloc, trace, tmp_path, misbehaving):
    target = tmp_path / "heap.html"
    own = ("--allocator", f"mine={misbehaving('abort()')}", "--movie", target)
    done = tsmalloc("replay", trace, *own, "-a", "mine,tsmalloc", status=2)
    mentions(done.stderr, "mine", "SIGABRT")
    found = columns_of(target.read_text(encoding="utf-8"))
    assert [heap["name"] for heap in found["heaps"]] == ["tsmalloc"]
    assert "mine" in found["notes"][0]
    done = tsmalloc("replay", trace, *own, "-a", "mine", "-f", status=1)
    assert "SIGABRT" in done.stderr


def test_what_makes_no_movie_is_told_before_anything_runs(tsmalloc, trace, tmp_path):
    target, nowhere = tmp_path / "heap.html", tmp_path / "none" / "heap.html"
    target.write_text("mine")
    for words, told in (
        ((trace, target, trace), "--schedule recorded"),
        ((trace, target, "--schedule", "paced"), "--schedule recorded"),
        ((trace, target, "--schedule", "all"), "--schedule recorded"),
        ((trace, nowhere), str(nowhere.parent)),
        ((trace, target), "-f"),
    ):
        assert told in tsmalloc("replay", "--movie", *words[1:], words[0], status=1).stderr
    assert target.read_text() == "mine"
    assert len(files.read_whole_trace(trace).images) == 1


# --- in a browser ---------------------------------------------------------------------------------


READY = """
new Promise((done) => {
  const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));
  const look = () => document.documentElement.dataset.ready ? drawn() : setTimeout(look, 20);
  look();
})
"""
PAUSE = "new Promise((done) => setTimeout(done, 500))"


def wait_for(browser, promise=READY):
    browser.call("Runtime.evaluate", awaitPromise=True, expression=promise)


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_page_fits_and_nobody_complains(browser, movie, width, theme):
    browser.open(movie, width, theme=theme)
    wait_for(browser)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.complaints == []
    shades = "new Set(new Uint32Array(movie.views[1].picture.data.buffer)).size"
    assert browser.evaluate(shades) > 4


def test_the_page_shows_each_byte_where_it_was(browser, movie):
    """For all cells together: bytes in blocks and in pages, after steps forward, back and jumps."""
    browser.open(movie, 1280)
    wait_for(browser)
    curves = [heap["curves"] for heap in columns_of(movie.read_text(encoding="utf-8"))["heaps"]]
    frames = browser.evaluate("movie.movie.heaps[0].frames.entries")
    for at in (0, 5, len(frames) - 1, 100, 101, 60, 61, len(frames) // 2):
        browser.evaluate(f"movie.seek({frames[at]}); movie.views.map((view) => view.draw())")
        sums = browser.evaluate(
            "movie.views.map((v) => [v.used, v.there].map((a) => a.reduce((x, y) => x + y, 0)))"
        )
        for (used, there), curve in zip(sums, curves, strict=True):
            assert used == pytest.approx(curve["live"][at], abs=200)  # 32-bit floats
            assert there == pytest.approx(curve["resident"][at], abs=200)


def test_keys_play_step_and_zoom_and_a_link_leads_back(browser, movie):
    browser.open(movie, 1280)
    wait_for(browser)
    browser.evaluate("movie.seek(1000)")
    browser.press(".", 190)
    assert browser.evaluate("movie.now") == 1001
    browser.press("+", 187)
    wait_for(browser)
    scale = browser.evaluate("document.getElementById('scale').textContent")
    browser.evaluate("movie.views[1].map.focus()")
    browser.press("ArrowRight", 39)
    assert "tsmalloc, 0x" in browser.evaluate("document.getElementById('about').textContent")
    browser.evaluate("document.getElementById('link').click()")
    fragment = browser.evaluate("location.hash")
    assert "t=1001" in fragment
    browser.press(" ", 32)
    wait_for(browser, PAUSE)
    assert browser.evaluate("movie.now") > 1001
    browser.press(" ", 32)
    browser.evaluate(f"location.hash = {json.dumps(fragment)}")
    browser.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    wait_for(browser)
    assert browser.evaluate("movie.now") == 1001
    assert browser.evaluate("document.getElementById('scale').textContent") == scale
