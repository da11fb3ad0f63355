"""What an analysis found, as one row: a verdict and the sentence with its figures.

Why: six kinds of analysis have some verdicts in common, which must be the same words.
Refuses to: say why. What was counted stands in tables beside the verdicts.
"""

from collections.abc import Mapping, Sequence

from tsmlab.experiments.model import AnalysisRequest, Estimate, Finding, FittedCurve

CONFIRMED = "confirmed"
REFUTED = "refuted"
UNRESOLVED = "unresolved"
CANNOT_TELL = "cannot be told"


def row(
    request: AnalysisRequest,
    verdict: str,
    allocators: Sequence[str],
    text: str,
    estimates: Mapping[str, Estimate],
    curves: Sequence[FittedCurve] = (),
) -> Finding:
    return Finding(
        kind=request.kind,
        metric=request.metric,
        allocators=list(dict.fromkeys(allocators)),
        verdict=verdict,
        estimates=dict(estimates),
        curves=list(curves),
        text=text,
    )


def cannot_tell(request: AnalysisRequest, why: str, allocators: Sequence[str] = ()) -> Finding:
    """`why`: a whole sentence."""
    return row(request, CANNOT_TELL, allocators, why, {})
