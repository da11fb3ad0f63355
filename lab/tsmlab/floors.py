"""The floors: libraries that do less than any allocator can, so that times have a lower bound.

Why: "twice as fast as glibc" does not say how much is left to gain; the distance to a floor does.
Refuses to: take them for allocators. They run only those workloads that name them, are nobody's
peer, and their memory says nothing (lab/native/README.md).
"""

from tsmlab import __version__, paths
from tsmlab.allocators import Allocator

FLOORS = {
    "null": "always the same block",
    "bump": "the next bytes of a small ring",
    "lifo": "the block of its size that was freed last",
}


def floor(name: str) -> Allocator:
    """The floor of this name, one of FLOORS; raises UserError if it is not built."""
    path = paths.preloadable(paths.library(f"libtsmalloc-floor-{name}.so"))
    return Allocator(name, path, "floor", __version__, summary=FLOORS[name])
