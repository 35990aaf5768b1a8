"""Docs that must stay right: every one counts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pytest_llmeval._gates import Gate
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts.pairs import Pairs
from pytest_llmeval._verdicts.pairs import pairs_of
from pytest_llmeval._verdicts.verdict import GateData
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.wording import basis
from pytest_llmeval._verdicts.wording import docs_text
from pytest_llmeval._verdicts.wording import listed
from pytest_llmeval._verdicts.wording import name_of_value
from pytest_llmeval._verdicts.wording import required


def judge_must_stay_right(
    gate: Gate, docs: tuple[int, ...] | Literal["all"], summary: Summary, value: MetricValue, evidence: GateData
) -> Verdict:
    """Fails if a doc that was right in the baseline is wrong now; of docs that are named, if one is wrong at all."""
    head = (
        f"{summary.name}: {name_of_value(value)} {value.value:.4f} {basis(summary, value.n)}, required {required(gate)}"
    )
    numbers: dict[str, float | int] = {value.metric: value.value, "docs": value.n, "docs_total": summary.n_total}
    pairs = pairs_of(evidence, value)
    if isinstance(pairs, str):
        return Verdict("failed", f"{head}; {pairs}", numbers)
    looked_at = [(name, old, new) for name, old, new in _docs(pairs, value) if docs == "all" or new.doc in docs]
    scores = [(_right(old, value), _right(new, value)) for _, old, new in looked_at]
    if any(score is None for pair in scores for score in pair):
        return Verdict("failed", f"{head}; {value.metric} does not say of every doc whether it is right", numbers)
    verdict = Verdict("passed", head, numbers)
    if docs != "all" and (gone := [doc for doc in docs if doc not in {new.doc for _, _, new in looked_at}]):
        # Under a limit they were not asked for; in a whole run they do not exist, and that is the gate's mistake.
        if evidence.drawn == "all" or len(gone) == len(docs):
            return Verdict("failed", f"{head}; {listed(gone)} not among the docs that were compared", numbers)
        verdict = verdict.adding(f"{listed(gone)} not among the docs that were asked for")
    lost = [(name, new.doc) for (name, _, new), (old, now) in zip(looked_at, scores, strict=True) if old and not now]
    wrong = (
        []
        if docs == "all"
        else [new.doc for (_, _, new), (old, now) in zip(looked_at, scores, strict=True) if not old and not now]
    )
    facts = [f"{docs_text(len(lost))} of {sum(bool(old) for old, _ in scores):,} became wrong{_named(lost)}"]
    if wrong:
        facts.append(f"wrong already in the baseline: {listed(wrong)}")
    outcome = "failed" if lost or wrong else verdict.outcome
    numbers |= {"lost": len(lost)}
    return Verdict(outcome, verdict.sentence, numbers).adding(*facts, pairs.left_out)


def _docs(pairs: Pairs, value: MetricValue) -> Iterator[tuple[str, DocResult, DocResult]]:
    """(task, before, now) of every doc that has the number."""
    for (task, before), (_, now) in zip(pairs.before, pairs.now, strict=True):
        for old, new in zip(before, now, strict=True):
            if value.metric in new.scores.get(value.filter, {}):
                yield task.name if len(pairs.now) > 1 else "", old, new


def _right(result: DocResult, value: MetricValue) -> bool | None:
    """Whether a doc is right by this number; None unless that is 0 or 1."""
    item = result.scores.get(value.filter, {}).get(value.metric)
    if item not in (0, 1):
        return None
    return bool(item) is not (value.higher_is_better is False)


def _named(lost: list[tuple[str, int]], most: int = 5) -> str:
    if not lost:
        return ""
    names = [f"{task} doc[{doc}]".strip() for task, doc in lost[:most]]
    return f": {', '.join(names)}" + (f", and {len(lost) - most} more" if len(lost) > most else "")
