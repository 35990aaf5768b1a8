"""What answers cost: tokens read, each distinct one once, and memory."""

from __future__ import annotations

import tablemodels as tables
import torch

from pytest_llmeval._engine.devices import peak_memory
from pytest_llmeval._evaluation import usage_of
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._models import wrap_model


def test_distinct_tokens_are_counted_once_and_the_model_is_left_as_it_was() -> None:
    model = tables.bigram()
    lm = wrap_model(model, tables.words(), engine="tree")
    assert usage_of(lm) == {}
    lm.loglikelihood([("Q x A", " yes"), ("Q x A", " no"), ("Q x A", " yes no"), ("Q x Q", " no")])
    # Q x A yes, Q: what is only predicted is not read.
    assert usage_of(lm)["tokens"] == 5
    lm.loglikelihood([("Q", " no")])
    assert usage_of(lm)["tokens"] == 6
    assert not model._forward_pre_hooks


def test_padding_is_counted() -> None:
    lm = wrap_model(tables.bigram(), tables.words(), engine="padded")
    lm.prepare()
    lm.loglikelihood([("Q x A Q", " yes"), ("A", " no")])
    assert usage_of(lm)["tokens"] == 8


def test_generation_is_counted() -> None:
    lm = wrap_model(tables.bigram(), tables.words())
    lm.generate_until([("Q x", GenerationKwargs(max_gen_toks=1))])
    assert usage_of(lm)["tokens"] >= 2


def test_memory_is_that_of_this_process() -> None:
    before = peak_memory(torch.device("cpu"))
    block = torch.ones(2**25)
    assert peak_memory(torch.device("cpu")) >= max(before, block.nbytes)


def test_other_models_need_not_count() -> None:
    assert usage_of(object()) == {}  # type: ignore[arg-type]
