"""Verdicts on docs that must stay right: a single doc that became wrong fails the gate."""

from __future__ import annotations

from typing import Literal

from pytest_llmeval._gates import Gate
from pytest_llmeval._plain import listed
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._verdicts.gate_data import GateData
from pytest_llmeval._verdicts.gate_data import paired_docs
from pytest_llmeval._verdicts.observed import headline_of_value
from pytest_llmeval._verdicts.sentence import docs_listed
from pytest_llmeval._verdicts.sentence import docs_text
from pytest_llmeval._verdicts.telling import is_right
from pytest_llmeval._verdicts.verdict import Fact
from pytest_llmeval._verdicts.verdict import Verdict
from pytest_llmeval._verdicts.verdict import fact


def judge_must_stay_right(
    gate: Gate, docs: tuple[int, ...] | Literal["all"], summary: Summary, value: MetricValue, data: GateData
) -> Verdict:
    """Return the verdict: failed if a doc that was right in the baseline is wrong now, or if a named doc is wrong."""
    numbers: dict[str, float | int] = {value.metric: value.value, "docs": value.n, "docs_total": summary.n_total}
    failed = Verdict("failed", headline_of_value(gate, summary, value), numbers)
    paired = paired_docs(data, value)
    if isinstance(paired, str):
        return failed.adding(Fact("reason", paired))
    found: list[tuple[str, DocResult, bool | None, bool | None]] = []
    for (task, olds), (_, news) in zip(paired.before, paired.now, strict=True):
        name = f"{task.name} " if len(paired.now) > 1 else ""
        for old, new in zip(olds, news, strict=True):
            if value.metric in new.scores.get(value.filter, {}) and (docs == "all" or new.doc in docs):
                found.append((name, new, is_right(old, value), is_right(new, value)))
    if any(before is None or now is None for _, _, before, now in found):
        return failed.adding(Fact("reason", f"{value.metric} is not 0 or 1 for every doc"))
    gone = [] if docs == "all" else [doc for doc in docs if doc not in {new.doc for _, new, _, _ in found}]
    absent = f"{docs_listed(gone)} {'is' if len(gone) == 1 else 'are'} not among the docs that were"
    if gone and (data.drawn == "all" or len(gone) == len(docs)):
        # A limit may leave docs out; in a whole run they do not exist, which is a mistake in the gate.
        return failed.adding(Fact("reason", f"{absent} compared"))
    lost = [f"{name}doc[{new.doc}]" for name, new, before, now in found if before and not now]
    wrong = [new.doc for _, new, before, now in found if docs != "all" and not before and not now]
    named = f": {listed(lost)}" if lost else ""
    right = sum(bool(before) for _, _, before, _ in found)
    verdict = Verdict("failed" if lost or wrong else "passed", failed.headline, numbers | {"lost": len(lost)})
    return verdict.adding(
        fact("caution", gone and f"{absent} run"),
        Fact("docs", f"{docs_text(len(lost))} of {right:,} became wrong{named}"),
        fact("reason", wrong and f"wrong already in the baseline: {docs_listed(wrong)}"),
        fact("caution", paired.left_out),
    )
