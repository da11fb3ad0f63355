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
# With fewer rounds an interval is wide, whatever the truth.
FEW_ROUNDS = 5
# The parts as they stand in the paragraph, and in what order they get a place in it.
LINE = {"lead": 0, "reported": 2, "why": 1, "doubts": 3}
# Of a single analysis, so that the first does not take the place of the others.
MOST_OF_LEAD = 3
MOST_OF_WHY = 3
MOST_OF_REPORTED = 2


def answer(data: Measured, outcomes: Sequence[Outcome]) -> str:
    """The first sentence of each analysis has a place; then comes all that the first analysis says,
    since it is the experiment's main question, and then the others, as far as there is room.
    Nothing is said twice, and in the paragraph each analysis keeps its sentences together."""
    if not any(data.shown_runs()):
        return "Nothing can be said yet: no run has succeeded."
    if not outcomes:
        return "The experiment asks for no analysis; its tables stand for themselves."
    closing = _closing(data)
    parts = [{part: _part(outcome, part) for part in LINE} for outcome in outcomes]
    # Sentences by the place that they take in the paragraph, and in the line.
    places: dict[str, tuple[int, int]] = {}
    line: list[tuple[tuple[bool, bool, bool, int], str]] = []
    for index, of_outcome in enumerate(parts):
        for part, sentences in of_outcome.items():
            for number, sentence in enumerate(sentences):
                if sentence not in places:
                    places[sentence] = (index, len(places))
                    line.append((_rank(index, part, number), sentence))
    kept = [sentence for _, sentence in sorted(line, key=lambda each: each[0])]
    kept = kept[: MOST_SENTENCES - len(closing)]
    return " ".join([*sorted(kept, key=lambda sentence: places[sentence]), *closing])


def _rank(index: int, part: str, number: int) -> tuple[bool, bool, bool, int]:
    """Where the sentence of this number in a part of the analysis of this index stands in line."""
    opens = part == "lead" and number == 0
    return not opens, index > 0, number > 0, LINE[part]


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
        few = "only " if rounds < FEW_ROUNDS else ""
        sentences.append(f"(Brackets hold 95 % intervals; {few}{rounds} rounds.)")
    failed = data.failed_allocators()
    if failed:
        sentences.append(f"Runs failed under {phrases.some(failed)}.")
    return sentences
