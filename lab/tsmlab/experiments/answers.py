"""The paragraph that answers an experiment's question for the data at hand.

Why: whoever asks a question wants a paragraph, and finds the tables behind it. It leads with the
answer, gives its reason, sets the source report beside it, and says what stays open.
Refuses to: grow. What does not fit is in the findings, which have all their sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

from tsmlab.experiments import phrases
from tsmlab.experiments.measured import Measured
from tsmlab.experiments.outcome import CANNOT_TELL, Outcome

MOST_SENTENCES = 8
# Of a single analysis, so that the first does not take the place of the others.
MOST_OF_LEAD = 3
MOST_OF_WHY = 3
MOST_OF_REPORTED = 2


def answer(data: Measured, outcomes: Sequence[Outcome]) -> str:
    """The first sentences of all analyses have a place, then the rest of their answers, the
    reports, the reasons and the doubts, as far as there is room; nothing is said twice. In the
    paragraph each analysis keeps its sentences together."""
    if not any(data.shown_runs()):
        return "Nothing can be said yet: no run has succeeded."
    if not outcomes:
        return "The experiment asks for no analysis; its tables stand for themselves."
    closing = _closing(data)
    room = MOST_SENTENCES - len(closing)
    wanted: list[tuple[int, int, str]] = []
    for rank, part in enumerate(("lead", "reported", "why", "doubts")):
        for index, outcome in enumerate(outcomes):
            wanted += [(rank, index, sentence) for sentence in _part(outcome, part)]
    firsts = [w for w in wanted if w[0] == 0 and w[2] == _part(outcomes[w[1]], "lead")[0]]
    rest = [w for w in wanted if w not in firsts]
    kept = list({w[2]: w for w in reversed([*firsts, *rest])}.values())[::-1][:room]
    ordered = sorted(kept, key=lambda w: (w[1], wanted.index(w)))
    return " ".join([*(sentence for _, _, sentence in ordered), *closing])


def _part(outcome: Outcome, part: str) -> Sequence[str]:
    if part == "lead":
        # What cannot be told is the answer, where there is no other.
        return (
            outcome.doubts[:1]
            if outcome.verdict == CANNOT_TELL and not outcome.lead
            else (outcome.lead[:MOST_OF_LEAD])
        )
    if part == "why":
        return outcome.why[:MOST_OF_WHY]
    if part == "reported":
        return outcome.reported[:MOST_OF_REPORTED]
    return () if outcome.verdict == CANNOT_TELL and not outcome.lead else outcome.doubts


def _closing(data: Measured) -> list[str]:
    """What the figures rest on, and what is missing from them."""
    sentences = []
    rounds = data.rounds()
    if rounds >= 2:
        sentences.append(f"(Brackets hold 95 % intervals; {rounds} rounds.)")
    failed = data.failed_allocators()
    if failed:
        sentences.append(f"Runs failed under {phrases.some(failed)}.")
    return sentences
