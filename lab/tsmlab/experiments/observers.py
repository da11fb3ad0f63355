"""Who counts causes: the observers that there are."""

from __future__ import annotations

from tsmlab.experiments.causes import Observer


def all_observers() -> list[Observer]:
    return []
