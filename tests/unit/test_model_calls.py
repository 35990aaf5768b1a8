"""Calls of a model whose code fails: one doc is lost where one doc is at fault, and a broken model is not asked on."""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Sequence

import pytest

from pytest_llmeval._doc import Instance
from pytest_llmeval._evaluation.model_calls import ask_docs
from pytest_llmeval._lm import GenerationKwargs


class Fails:
    """Repeats each prompt, but raises for some."""

    def __init__(self, on: Collection[str]) -> None:
        self.on = on
        self.calls: list[int] = []

    def generate_until(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> list[str]:
        self.calls.append(len(requests))
        for text, _ in requests:
            if text in self.on:
                raise KeyError(f"no token for {text}")
        return [text for text, _ in requests]


def asked(n: int) -> dict[int, list[Instance]]:
    return {doc: [Instance("generate_until", "t", doc, 0, 0, (f"doc {doc}", GenerationKwargs()))] for doc in range(n)}


def test_only_the_doc_at_fault_is_lost() -> None:
    lm = Fails({"doc 1"})
    answers = ask_docs(lm, asked(4))  # type: ignore[arg-type]
    assert [answers[doc] for doc in (0, 2, 3)] == [(["doc 0"], None), (["doc 2"], None), (["doc 3"], None)]
    responses, reason = answers[1]
    assert responses == []
    assert reason is not None
    assert re.fullmatch(r"KeyError: 'no token for doc 1' \(\S*test_model_calls\.py:\d+\)", reason)
    assert lm.calls == [4, 1, 1, 1, 1]


@pytest.mark.parametrize(("docs", "calls"), [(1, [1]), (2, [2, 1, 1]), (50, [50, 1, 1, 1])])
def test_a_broken_model_is_not_asked_on(docs: int, calls: list[int]) -> None:
    lm = Fails({f"doc {doc}" for doc in range(docs)})
    with pytest.raises(KeyError, match="no token for doc 0"):
        ask_docs(lm, asked(docs))  # type: ignore[arg-type]
    assert lm.calls == calls


def test_a_late_fault_of_all_others_is_theirs() -> None:
    """The first docs are answered, so the model works: the others are lost one by one."""
    lm = Fails({f"doc {doc}" for doc in range(3, 10)})
    answers = ask_docs(lm, asked(10))  # type: ignore[arg-type]
    assert [doc for doc, (_, reason) in answers.items() if reason is None] == [0, 1, 2]
