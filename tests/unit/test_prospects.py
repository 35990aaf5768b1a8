"""What gates could show before they run."""

from __future__ import annotations

import pytest

from pytest_llmeval import _stats
from pytest_llmeval._gates import parse_gate_text
from pytest_llmeval._verdicts import Planned
from pytest_llmeval._verdicts import prospects


def planned(text: str, docs: int, *, name: str = "gate[acc] of t", members: int = 1) -> Planned:
    return Planned(name, parse_gate_text(text), docs, members)


def test_a_drop_that_needs_more_docs() -> None:
    short, seen = prospects([planned("acc >= baseline - 0.02 @ 0.95", 75)])
    text = "acc >= baseline - 0.02 at 95 % confidence"
    assert short == f"gate[acc] of t: cannot pass on 75 docs without gains: {text} needs 149 docs"
    drop = _stats.detectable_drop(75, 0.05, 0.05, margin=0.02)
    expected = (
        f"a true fall of {drop:.4f} on 75 docs would fail in 80 % of runs, if 5 % of the docs flip anyway (a guess)"
    )
    assert seen == f"{text}: {expected}"


def test_a_family_on_few_and_on_many_docs() -> None:
    family = [planned("acc >= baseline - 0.05 @ 0.95", docs, members=3) for docs in (300, 60, 120)]
    (seen,) = prospects(family)
    drops = [_stats.detectable_drop(docs, 0.05, 0.05 / 3, margin=0.05) for docs in (60, 300)]
    assert f"fall of {drops[0]:.4f} on 60 docs and a true fall of {drops[1]:.4f} on 300 docs would fail" in seen
    assert seen.endswith("and no other of its 3 gates fails")


def test_floors_that_no_number_of_docs_shows() -> None:
    never = list(prospects([planned("acc >= 1 @ 0.95", 10_000)]))
    assert never == ["gate[acc] of t: can never pass: no number of docs shows acc >= 1 at 95 % confidence"]
    few = list(prospects([planned("acc >= 0.98 @ 0.95", docs) for docs in (148, 149)]))
    assert few == [
        "gate[acc] of t: cannot pass on 148 docs even if all are right: acc >= 0.98 at 95 % confidence needs 149 docs"
    ]


@pytest.mark.parametrize("text", ["acc >= 0.98", "acc >= baseline - 0.02", "f1 >= 0.98 @ 0.95", "acc <= 0.98 @ 0.95"])
def test_gates_of_which_nothing_is_known(text: str) -> None:
    """Without a confidence, with scores between 0 and 1, or with a ceiling."""
    assert list(prospects([planned(text, 10)])) == []
