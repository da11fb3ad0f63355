"""What one analysis found, with its sentences sorted by what they are for.

Why: a finding shows all of its text; the answer of the experiment takes the sentences that matter
most from all findings, and must know which these are.
Refuses to: choose; answers.py does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tsmlab.experiments.model import AnalysisRequest, Estimate, Finding, FittedCurve

# Verdicts that are the same words in every kind of analysis.
CONFIRMED = "confirmed"
REFUTED = "refuted"
UNRESOLVED = "unresolved"
CANNOT_TELL = "cannot be told"


@dataclass(frozen=True)
class Outcome:
    """lead: the answer itself. reported: the source report beside it. why: reasons from the counts.
    details: what else the numbers say. doubts: what they cannot say, and why."""

    request: AnalysisRequest
    verdict: str
    allocators: Sequence[str] = ()
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    curves: Sequence[FittedCurve] = ()
    lead: Sequence[str] = ()
    why: Sequence[str] = ()
    reported: Sequence[str] = ()
    details: Sequence[str] = ()
    doubts: Sequence[str] = ()

    def finding(self) -> Finding:
        parts = (self.lead, self.reported, self.why, self.details, self.doubts)
        return Finding(
            kind=self.request.kind,
            metric=self.request.metric,
            allocators=list(self.allocators),
            verdict=self.verdict,
            estimates=dict(self.estimates),
            curves=list(self.curves),
            text=" ".join(sentence for part in parts for sentence in part),
        )


def cannot_tell(request: AnalysisRequest, why: str, allocators: Sequence[str] = ()) -> Outcome:
    """`why`: a whole sentence."""
    return Outcome(request, CANNOT_TELL, allocators, doubts=[why])
