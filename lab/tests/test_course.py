"""The course's movies: its commands make each, and every number in an answer is in its movie."""

import base64
import json
import re
import sys
import zlib

import numpy as np
import pytest
from prompt import dev_script

from tsmlab import allocators, paths

ROOT = paths.repository_root()
PAGE = 4096
LINE = 64  # a cache line
# The smallest gap that a free block fits into: its 32 bytes, and the tag of the block before it.
HOLE = 40
FAR = 65536  # a larger gap is not a hole, but separates parts of the address space


movies = dev_script("movies.py")


# --- the contents of a page -----------------------------------------------------------------------


def column(packed):
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"]), -15), np.uint8)
    planes = planes.reshape(packed["width"], packed["count"]).astype(np.int64)
    return sum(plane << 8 * number for number, plane in enumerate(planes))


class Heap:
    """One allocator's heap in a movie: `at` has the start of each block, relative to the heap's."""

    def __init__(self, movie, packed):
        self.movie, coded = movie, column(packed["place"])
        deltas = np.where(coded % 2, -(coded + 1) // 2, coded // 2)
        self.at = np.empty_like(deltas)
        for size in np.unique(movie.size):
            self.at[movie.size == size] = np.cumsum(deltas[movie.size == size])
        self.at *= packed["unit"]
        self.entries = np.array(packed["frames"]["entries"])
        self.live, self.resident, self.holes = (
            np.array(packed["curves"][name]) for name in ("live", "resident", "holes")
        )
        counts, toggled = (column(packed["frames"][name]) for name in ("counts", "pages"))
        self.bounds, bounds = [], np.zeros(0, np.int64)
        for pages in np.split(toggled, np.cumsum(counts)[:-1]):
            bounds = np.setxor1d(bounds, np.cumsum(pages))
            self.bounds.append(bounds)

    def frame(self, moment):
        return int(np.searchsorted(self.entries, moment, side="right")) - 1

    def peak(self):
        """The most resident bytes while the program runs."""
        return int(self.resident[: self.frame(self.movie.end) + 1].max())

    def rows(self, moment):
        """The live blocks at that moment, by address; their addresses; the gaps between them."""
        alive = self.movie.alive(moment)
        alive = alive[np.argsort(self.at[alive])]
        at = self.at[alive]
        return alive, at, at[1:] - at[:-1] - self.movie.size[alive][:-1]

    def free(self, moment):
        _, _, gaps = self.rows(moment)
        return gaps[(gaps >= HOLE) & (gaps < FAR)]

    def bare(self, moment):
        """Bytes of resident pages that never contain a block."""
        bounds = self.bounds[self.frame(moment)]
        first, last = self.at // PAGE, (self.at + self.movie.size - 1) // PAGE
        used = set(np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]))
        pages = (
            page for a, b in zip(bounds[::2], bounds[1::2], strict=True) for page in range(a, b)
        )
        return PAGE * sum(page not in used for page in pages)

    def strangers(self, moment):
        """The share of neighbours from different threads, and how many cache lines threads
        share."""
        alive, at, _ = self.rows(moment)
        thread, owners, shared = self.movie.thread[alive], {}, set()
        for block, begin, owner in zip(alive, at, thread, strict=True):
            for line in range(begin // LINE, (begin + self.movie.size[block] - 1) // LINE + 1):
                if owners.setdefault(line, owner) != owner:
                    shared.add(line)
        return (thread[1:] != thread[:-1]).mean(), len(shared)


class Movie:
    def __init__(self, path):
        text = path.read_text(encoding="utf-8")
        found = json.loads(text.split('id="movie">', 1)[1].split("</script>", 1)[0])
        assert found["exact"] is None
        assert found["notes"] == []
        blocks = {name: column(packed) for name, packed in found["blocks"].items()}
        self.born, self.size, self.thread = (
            np.cumsum(blocks["born"]),
            blocks["size"],
            blocks["thread"],
        )
        self.died, self.end = self.born + blocks["life"], found["end"]
        self.heaps = {heap["name"]: Heap(self, heap) for heap in found["heaps"]}

    def alive(self, moment):
        return np.flatnonzero((self.born < moment) & (self.died >= moment))

    def of(self, *names):
        return [self.heaps[name] for name in names]


# --- each movie's answers: the numbers in the order of the lesson's text --------------------------


def loosely(number, rel=0.3):
    """A number that depends on another allocator's version, or on when memory is purged."""
    return pytest.approx(number, rel=rel)


def a_row(movie):
    first, best, glibc = movie.of("lock-first", "lock-best", "glibc")
    large, small, ends = 16, 17, movie.size + 8
    assert movie.size[large] == 5000
    assert movie.size[small] == 500
    for fit in (first, best):
        assert fit.at[large] == fit.at[1]
        assert fit.at[8] == fit.at[1] + 7 * 1008
    assert first.at[small] == first.at[large] + ends[large]
    assert best.at[small] == best.at[9]
    assert best.at[10] - best.at[9] < best.at[8] - best.at[large] - ends[large]
    assert glibc.at[large] >= glibc.at[15]
    (step,) = set(np.diff(first.at[:16]))
    return [step, movie.size[0]]


def fits(movie):
    counts, peaks, young = [], [], []
    for heap in movie.of("lock-first", "lock-best", "lock-worst"):
        holes = heap.free(movie.end)
        counts += [len(holes), holes.mean()]
        peaks.append(heap.peak() / 1e6)
        alive, at, _ = heap.rows(movie.end)
        latest = heap.at[np.sort(alive)[-1000:]]
        main = at[at < at[0] + heap.peak()]  # without the parts elsewhere
        young.append(100 * (latest > main[-1] - (main[-1] - main[0]) / 10).mean())
    return [*counts, young[2], (young[0] + young[1]) / 2, *peaks]


def search(movie):
    first, best, engine = movie.of("lock-first", "lock-best", "tsmalloc")
    (choice,) = {len(first.free(6001)), len(best.free(6001))}
    passed = []
    for block in np.flatnonzero((movie.born > 6001) & (movie.born < movie.end - 2001)):
        _, at, gaps = first.rows(movie.born[block])
        passed.append(((at[:-1] < first.at[block]) & (gaps >= HOLE)).sum())
    between = []
    for heap in (first, best, engine):
        gaps = heap.rows(4001)[2]
        between.append(gaps[gaps < HOLE].mean())
    assert between[0] == between[1]
    return [choice, np.mean(passed), between[0], np.gcd.reduce(first.at - first.at[0]), between[2]]


def system(movie):
    held, falls, touched = [], [], []
    for heap in movie.of("lock-best", "glibc", "tsmalloc"):
        steps = np.diff(heap.resident)
        held.append(heap.resident[-1] / 1e6)
        falls.append((steps < 0).sum())
        touched.append(steps[steps > 0].sum() / 1e6)
    assert heap.live[-1] < heap.live.max() / 100
    assert falls[0] == 0
    assert held[0] > 0.99 * movie.of("lock-best")[0].peak() / 1e6
    return [held[0], *map(loosely, [held[1], held[2], falls[1], touched[1]]), touched[0]]


def lock(movie):
    shared, apart, engine = movie.of("lock-best", "nolock-best", "tsmalloc")
    share, lines = shared.strangers(movie.end)
    for heap in (apart, engine):
        assert heap.strangers(movie.end)[0] < 0.01
        assert heap.strangers(movie.end)[1] <= 1
    return [100 * share, lines, *(heap.peak() / 1e6 for heap in (apart, shared, engine))]


def readers(movie):
    counts = []
    for fit in ("first", "worst"):
        one, many = movie.of(f"lock-{fit}", f"rwlock-{fit}")
        assert np.array_equal(one.at, many.at)
        assert np.array_equal(one.resident, many.resident)
        counts.append(len(many.free(movie.end)))
    return [*counts, *np.ceil(np.log2(counts))]


def streams(movie):
    names = ("nolock-best", "arenas-best", "glibc", "tsmalloc")
    heaps = movie.of(*names)
    again = [100 * (1 - len(np.unique(heap.at)) / len(heap.at)) for heap in heaps]
    assert again[0] == 0
    assert np.count_nonzero(np.bincount(movie.thread) >= 5000) == 8
    stranded, last = heaps[0], heaps[0].frame(movie.end)
    assert stranded.holes[last] > 0.99 * stranded.resident[last]
    nolock, arenas, glibc, engine = (heap.peak() / 1e6 for heap in heaps)
    return [nolock, arenas, loosely(glibc), loosely(engine, 0.1), again[1], again[3]]


def home(movie):
    heaps = movie.of("nolock-best", "arenas-best", "cached-best", "tsmalloc")
    nolock, *addresses = (len(np.unique(heap.at)) for heap in heaps)
    assert nolock == len(movie.born)
    last = heaps[0].frame(movie.end)
    assert max(len(movie.alive(moment)) for moment in range(0, movie.end, 7)) <= 110
    held = [heap.resident[last] / 1e6 for heap in heaps]
    return [*addresses, *held, heaps[2].holes[last] / 1e3, heaps[1].holes[last] / 1e3]


def lock_free(movie):
    tagged, versions = movie.of("lock-best", "lockfree-best")
    free = len(versions.free(15_001))
    nodes = versions.bare(15_001) - versions.bare(10_001)
    assert versions.bare(movie.end) == versions.bare(15_001)
    assert tagged.bare(movie.end) == tagged.bare(10_001) < 0.1 * nodes
    return [nodes / 1e3, nodes / free, free, movie.died.min(), movie.died.min() + 5000]


def stride(movie):
    allocated = np.bincount(movie.thread[movie.born < 9000])
    last = [movie.born[movie.thread == thread].max() for thread in (1, 2, 3)]
    return [*allocated[1:], *last]


def redis(movie):
    held, between = [], []
    for heap in movie.of("lock-best", "glibc", "jemalloc", "tsmalloc"):
        held.append(heap.peak() / 1e6)
        gaps = heap.rows(122_000)[2]
        between.append(gaps[gaps < 24].mean())
    assert heap.live.max() == pytest.approx(2.0e6, rel=0.03)
    held[1:3] = map(loosely, held[1:3])
    return [*held, between[0], loosely(between[2]), between[3]]


ANSWERS = dict(enumerate((a_row, fits, search, system, lock, readers, streams, home, lock_free,
                          stride, redis), 1))  # fmt: skip


def told(number):
    """The numbers in the answers of a lesson, as written."""
    text = (ROOT / "docs" / "course.md").read_text(encoding="utf-8")
    lesson = text.split(f"\n## {number}. ", 1)[1].split("\n## ", 1)[0]
    watch = lesson.split(f"**Watch** `dev/movies.py {number}`", 1)[1].split("**Exercise.**", 1)[0]
    picture = movies.LESSONS[number].name
    assert (f"(movies/{picture}.png)" in watch) == bool(movies.LESSONS[number].shown)
    questions = re.split(r"\n\d\. ", watch)[1:]
    assert [question.count("? (") for question in questions] == [1, 1, 1]
    answers = " ".join(question.split("? (", 1)[1] for question in questions)
    return re.findall(r"\d[\d,]*(?:\.\d+)?(?![\w,]*-best)", re.sub(r",(?!\d{3})", " ", answers))


@pytest.mark.parametrize("number", movies.LESSONS)
def test_the_answers_are_in_the_movie(number, tmp_path):
    asked = movies.LESSONS[number].replay.split()[0].split(",")
    if missing := set(asked) - {each.name for each in allocators.discover([])}:
        pytest.skip(f"not installed: {', '.join(missing)}")
    movie = Movie(movies.make(number, str(tmp_path), (sys.executable, "-m", "tsmlab")))
    found, written = ANSWERS[number](movie), told(number)
    print(number, found, written)
    assert len(found) == len(written)
    for value, text in zip(found, written, strict=True):
        last_digit = 10.0 ** -len(text.partition(".")[2])
        loose = not isinstance(value, (int, float, np.number))
        expected = value if loose else pytest.approx(value, rel=0.02, abs=0.51 * last_digit)
        assert float(text.replace(",", "")) == expected
