#!/usr/bin/env python3
"""Makes the course's movies of heaps: build/movies/N.html for lesson N of docs/course.md.

    dev/movies.py [LESSON...]                all of them, or some, as in dev/movies.py 1 4
    dev/movies.py --pictures [LESSON...]     then draws docs/movies/*.png: needs chromium, pngquant

It prints each command, so that you can change it and run it yourself.
"""

from __future__ import annotations

import argparse
import base64
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILT = os.environ.get("TSMALLOC_BUILD_DIR", "build/release")
FOLDER = "build/movies"
PICTURES = ROOT / "docs" / "movies"


@dataclass(frozen=True)
class Lesson:
    """A lesson's movie: what to record (or an existing trace, or a C file), how to replay it, and
    the fragment of the page's address that its picture shows; empty if it has no picture."""

    name: str
    program: str
    replay: str
    shown: str = ""

    def commands(self, number: int, folder: str) -> list[list[str]]:
        """The command lines, with `tsmalloc` and the build folder as in a checkout."""
        words, trace, commands = shlex.split(self.program), f"{folder}/{self.name}.tstrace", []
        if words[0].endswith(".tstrace"):
            trace = words[0]
        else:
            if words[0].endswith(".c"):
                commands.append(["cc", "-o", f"{folder}/{self.name}", words[0]])
                words = [f"{folder}/{self.name}"]
            else:
                words[0] = f"{BUILT}/bin/{words[0]}"
            commands.append(["./tsmalloc", "record", "-f", "-q", "-o", trace, "--", *words])
        options = ["-a", *shlex.split(self.replay), "--movie", f"{folder}/{number}.html", "-f"]
        return [*commands, ["./tsmalloc", "replay", trace, *options]]


SHARED = "bench-fits mixed --threads 3 --iterations 10"
ROBIN = "--schedule round-robin --window 0"
LESSONS = {
    1: Lesson("row", "docs/movies/row.c", "lock-first,lock-best,glibc", "t=29&z=1"),
    2: Lesson(
        "fits", "bench-fits mixed --iterations 100", "lock-first,lock-best,lock-worst", "t=150000"
    ),
    3: Lesson(
        "search",
        "bench-search-cost replace --free 2000 --operations 2000",
        "lock-first,lock-best,tsmalloc",
        "t=6001&c=size",
    ),
    4: Lesson(
        "system",
        "bench-large --operations 60 --least 500000 --most 2500000",
        "lock-best,glibc,tsmalloc",
        "t=64",
    ),
    5: Lesson("lock", SHARED, f"lock-best,nolock-best,tsmalloc {ROBIN}", "t=15000&c=thread"),
    6: Lesson("rwlock", SHARED, f"lock-first,rwlock-first,lock-worst,rwlock-worst {ROBIN}"),
    7: Lesson(
        "streams",
        "lab/traces/streams.tstrace",
        "nolock-best,arenas-best,glibc,tsmalloc",
        "t=48000&c=thread",
    ),
    8: Lesson(
        "home",
        "bench-remote --blocks 20000 --batch 64 --depth 8",
        f"nolock-best,arenas-best,cached-best,tsmalloc {ROBIN}",
        "t=39000",
    ),
    9: Lesson(
        "lockfree",
        "bench-search-cost replace --free 5000 --operations 5000",
        "lock-best,lockfree-best",
        "t=15001",
    ),
    10: Lesson(
        "stride",
        SHARED,
        "lock-first,lock-best,lock-worst --schedule stride --tickets 1,3,2,1 --window 0",
        "t=9000&c=thread",
    ),
    11: Lesson(
        "redis", "lab/traces/redis.tstrace", "lock-best,glibc,jemalloc,tsmalloc", "t=120000&c=size"
    ),
}


def make(number: int, folder: str = FOLDER, tsmalloc: Sequence[str] = ("./tsmalloc",)) -> Path:
    """Makes the movie of this lesson anew."""
    (ROOT / folder).mkdir(parents=True, exist_ok=True)
    for command in LESSONS[number].commands(number, folder):
        print(shlex.join(command), flush=True)
        words = [*tsmalloc, *command[1:]] if command[0] == "./tsmalloc" else command
        subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return ROOT / folder / f"{number}.html"


READY = """new Promise((done) => {
  const look = () =>
    document.documentElement.dataset.ready ? setTimeout(done, 300) : setTimeout(look, 20);
  look();
})"""
PLACE = """(() => {
  const box = (element) => element.getBoundingClientRect();
  const from = box(document.getElementById("legend")).top;
  const to = Math.max(...[...document.querySelectorAll(".curve")].map((each) => box(each).bottom));
  return [from + scrollY - 4, to - from + 6];
})()"""


def draw(browser: Any, movie: Path, lesson: Lesson) -> None:
    width = max(680, 20 + 220 * len(lesson.replay.split()[0].split(",")))
    browser.open(movie, width)
    browser.call("Runtime.evaluate", awaitPromise=True, expression=READY)
    browser.evaluate(f'location.hash = "{lesson.shown}"')
    browser.call("Runtime.evaluate", awaitPromise=True, expression=READY)
    top, height = browser.evaluate(PLACE)
    clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
    screenshot = browser.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    png = base64.b64decode(screenshot["data"])
    small = subprocess.run(
        ["pngquant", "--nofs", "64", "-"], input=png, capture_output=True, check=True
    )
    (PICTURES / f"{lesson.name}.png").write_bytes(small.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lessons", nargs="*", type=int, metavar="LESSON", help="1 to 11")
    parser.add_argument("--pictures", action="store_true", help="draw docs/movies/*.png too")
    given = parser.parse_args()
    if unknown := set(given.lessons) - set(LESSONS):
        parser.error(f"no such lesson: {min(unknown)}; lessons are 1 to {max(LESSONS)}")
    movies = {number: make(number) for number in given.lessons or LESSONS}
    if given.pictures:
        sys.path.insert(0, str(ROOT / "lab" / "tests"))
        from headless_browser import Browser  # noqa: PLC0415

        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
            Browser(profile) as browser,
        ):
            for number, movie in movies.items():
                if LESSONS[number].shown:
                    draw(browser, movie, LESSONS[number])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
