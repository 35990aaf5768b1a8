"""Docs that must stay right: every one counts by itself."""

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
    """Fail if a doc that was right in the baseline is wrong now; of docs that are named, if one is wrong at all."""
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
        return failed.adding(Fact("reason", f"{value.metric} does not say of every doc whether it is right"))
    gone = [] if docs == "all" else [doc for doc in docs if doc not in {new.doc for _, new, _, _ in found}]
    if gone and (data.drawn == "all" or len(gone) == len(docs)):
        # Under a limit they were not asked for; in a whole run they do not exist, and that is the gate's mistake.
        return failed.adding(Fact("reason", f"{docs_listed(gone)} not among the docs that were compared"))
    lost = [f"{name}doc[{new.doc}]" for name, new, before, now in found if before and not now]
    wrong = [new.doc for _, new, before, now in found if docs != "all" and not before and not now]
    named = f": {listed(lost)}" if lost else ""
    right = sum(bool(before) for _, _, before, _ in found)
    verdict = Verdict("failed" if lost or wrong else "passed", failed.headline, numbers | {"lost": len(lost)})
    return verdict.adding(
        fact("caution", gone and f"{docs_listed(gone)} not among the docs that were asked for"),
        Fact("docs", f"{docs_text(len(lost))} of {right:,} became wrong{named}"),
        fact("reason", wrong and f"wrong already in the baseline: {docs_listed(wrong)}"),
        fact("caution", paired.left_out),
    )
