"""What would settle a gate that scores of unknown range could not decide."""

from __future__ import annotations

from pytest_llmeval._gates import Gate
from pytest_llmeval._verdicts.samples import Sample
from pytest_llmeval._verdicts.verdict import Outcome


def advice(gate: Gate, outcome: Outcome, *samples: Sample) -> str | None:
    """None for a gate that is decided, and where the range is known: then it is the docs alone that are too few."""
    if outcome != "inconclusive" or all(sample.support is not None for sample in samples):
        return None
    ways = ["run more docs"]
    if all(sample.plain for sample in samples):
        ways.insert(0, f"tell the range of a doc's score (metadata.ranges: {{{gate.metric}: [LEAST, GREATEST]}})")
    if gate.scope == "population":
        ways.append("ask of this data set alone (@ CONFIDENCE dataset)")
    return f"to decide it {', '.join(ways[:-1])}{' or ' if len(ways) > 1 else ''}{ways[-1]}"
