"""A server that lies is found out before the first doc: one lie at a time."""

from __future__ import annotations

import json
from typing import Any

import pytest
import tokenizers
import transformers
from modelserver import Remembered
from modelserver import Served
from modelserver import opened
from modelserver import starter_model

from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import LM
from pytest_llmeval._models import wrap_model


REQUESTS = [
    ("Q: what is 2+2?\nA:", " 4"),
    ("Q: what is 2+2?\nA:", " 5"),
    ("The lion is", " a cat that lives in"),
    ("", "Once upon a time"),
]


@pytest.fixture(scope="module")
def parts() -> tuple[Remembered, Any]:
    return starter_model()


@pytest.fixture(scope="module")
def true_answers(parts: tuple[Remembered, Any]) -> list[tuple[float, bool]]:
    return list(in_process(parts).loglikelihood(REQUESTS))


def in_process(parts: tuple[Remembered, Any], **args: Any) -> LM:
    return wrap_model(parts[0].model, parts[1], **args)


def near(found: list[Any], expected: list[Any]) -> bool:
    return [pair[1] for pair in found] == [pair[1] for pair in expected] and all(
        abs(one[0] - other[0]) < 1e-4 for one, other in zip(found, expected, strict=True)
    )


def renumbered(tokenizer: Any) -> Any:
    """A tokenizer that splits texts in the same way, with other ids."""
    data = json.loads(tokenizer.backend_tokenizer.to_str())
    special = {entry["id"] for entry in data["added_tokens"]}
    ids = sorted(token for token in data["model"]["vocab"].values() if token not in special)
    moved = dict(zip(ids, ids[7:] + ids[:7], strict=True))
    data["model"]["vocab"] = {text: moved.get(token, token) for text, token in data["model"]["vocab"].items()}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(data)), bos_token="<|bos|>", eos_token="<|eos|>"
    )


DOORS = {
    "generate": ("sglang", {"generate"}),
    "tokens": ("vllm", {"tokens", "echo"}),
    "prompt_logprobs": ("vllm", {"prompt_logprobs", "tokenize"}),
    "echo": ("vllm", {"echo"}),
    "echo of others": ("me", {"echo"}),
    "forced": ("me", {"forced"}),
}


@pytest.mark.parametrize("name", DOORS)
def test_an_honest_server_is_asked_by_its_best_door(
    name: str, parts: tuple[Remembered, Any], true_answers: list[Any]
) -> None:
    owner, doors = DOORS[name]
    with opened(Served(*parts, owner=owner, doors=frozenset(doors))) as lm:
        assert lm.engine_choice.facts["scoring"] == name.removesuffix(" of others")
        assert near(lm.loglikelihood(REQUESTS), true_answers)


def test_a_door_may_be_named(parts: tuple[Remembered, Any], true_answers: list[Any]) -> None:
    served = Served(*parts, doors=frozenset({"labels", "prompt_logprobs", "tokenize", "echo"}))
    with opened(served, door="echo") as lm:
        assert lm.engine_choice.facts == {"scoring": "echo", "generation": "completions"}
        assert near(lm.loglikelihood(REQUESTS), true_answers)
    with opened(served, door="generate") as lm, pytest.raises(ModelError, match=r"generate: /generate refuses .* 404"):
        lm.loglikelihood(REQUESTS)


@pytest.mark.parametrize("doors", [{"echo"}, {"forced"}])
def test_a_server_of_texts_is_honest_too(
    doors: set[str], parts: tuple[Remembered, Any], true_answers: list[Any]
) -> None:
    with opened(Served(*parts, owner="me", doors=frozenset(doors), takes_ids=False)) as lm:
        assert near(lm.loglikelihood(REQUESTS), true_answers)


def test_a_server_that_adds_bos_to_texts_gets_them_without(parts: tuple[Remembered, Any]) -> None:
    expected = in_process(parts, add_bos_token=True).loglikelihood(REQUESTS[:3])
    served = Served(*parts, owner="me", takes_ids=False, adds_bos=True)
    with opened(served, add_bos_token="true") as lm:
        assert near(lm.loglikelihood(REQUESTS[:3]), expected)
    with opened(served) as lm, pytest.raises(ModelError, match="puts BOS before every prompt, which the named"):
        lm.prepare()


@pytest.mark.parametrize(("lie", "shift"), [("early", "one row before that"), ("late", "one row behind that")])
def test_rows_that_are_shifted_are_put_right(
    lie: str, shift: str, parts: tuple[Remembered, Any], true_answers: list[Any]
) -> None:
    with opened(Served(*parts, lie=lie)) as lm:
        assert f"echo: each value is found {shift} of its token: corrected" in str(lm.engine_choice.slower)
        # The first token of a text without context has no row where rows are early.
        n = 3 if lie == "early" else 4
        values = [pair[0] for pair in lm.loglikelihood(REQUESTS[:n])]
        assert values == pytest.approx([pair[0] for pair in true_answers[:n]], abs=1e-4)


SEEN = {
    "missing": "echo: no value",
    "zero": "echo: every value is 0",
    "constant": "echo: every token has the value -2.5000, whatever the context",
    "no context": "echo: after 'The capital of France is' the log-probability of the token",
    "clipped": "unlikely tokens have the values -20.0000, -20.0000, -20.0000: clipped",
    "after itself": "each token is shown with its probability after itself (rows shifted by one)",
}


@pytest.mark.parametrize("lie", SEEN)
def test_a_door_that_lies_is_closed_with_what_was_seen(lie: str, parts: tuple[Remembered, Any]) -> None:
    with opened(Served(*parts, lie=lie)) as lm:
        lm.prepare()
        with pytest.raises(ModelError, match="gives no log-probabilities of prompts that can be used") as error:
            lm.loglikelihood(REQUESTS)
        assert SEEN[lie] in str(error.value)
        assert SEEN[lie] in str(lm.engine_choice.slower)
        assert "scoring" not in lm.engine_choice.facts


@pytest.mark.parametrize("door", ["generate", "tokens", "prompt_logprobs"])
@pytest.mark.parametrize("lie", ["missing", "zero", "constant", "clipped"])
def test_the_doors_of_ids_are_examined_in_the_same_way(door: str, lie: str, parts: tuple[Remembered, Any]) -> None:
    owner = "sglang" if door == "generate" else "vllm"
    with opened(Served(*parts, owner=owner, doors=frozenset({door}), lie=lie)) as lm:
        assert "scoring" not in lm.engine_choice.facts
        assert door in lm.engine_choice.facts["refused"]


def test_another_door_is_taken_if_the_best_one_lies(parts: tuple[Remembered, Any], true_answers: list[Any]) -> None:
    served = Served(*parts, owner="me", doors=frozenset({"echo", "forced"}), lie="after itself", takes_ids=False)
    with opened(served) as lm:
        assert near(lm.loglikelihood(REQUESTS), true_answers)
        assert lm.engine_choice.facts["scoring"] == "forced"
        assert "echo is not used: each token is shown with its probability after itself" in str(lm.engine_choice.slower)


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ("second bos", r"reads 8, \d+, \d+ tokens where prompts of 7, \d+, \d+ are sent: it puts a second BOS before"),
        ("template", "it puts a chat template around every prompt, which would be put on twice"),
        ("deaf", "writes the same tokens with the same probabilities after every prompt: it ignores the context"),
    ],
)
def test_a_server_that_reads_other_prompts_is_refused(lie: str, told: str, parts: tuple[Remembered, Any]) -> None:
    with opened(Served(*parts, lie=lie)) as lm, pytest.raises(ModelError, match=told):
        lm.prepare()


@pytest.mark.parametrize("door", ["generate", "tokens", "prompt_logprobs", "echo"])
def test_wrong_token_ids_are_seen(door: str, parts: tuple[Remembered, Any]) -> None:
    owner = "sglang" if door == "generate" else "vllm"
    served = Served(*parts, owner=owner, doors=frozenset({door}), lie="wrong ids")
    told = r"token ids [\d, ]+ where \d+ was sent|tokenizer .* differs"
    with opened(served) as lm, pytest.raises(ModelError, match=told):
        lm.loglikelihood(REQUESTS)


@pytest.mark.parametrize("doors", [{"echo"}, {"echo", "tokenize"}, {"prompt_logprobs", "tokenize"}])
def test_another_tokenizer_is_named_with_both_readings(doors: set[str], parts: tuple[Remembered, Any]) -> None:
    model, tokenizer = parts
    served = Served(model, tokenizer, doors=frozenset(doors))
    told = r"the tokenizer of the server at http\S+ differs from the named one: "
    with opened(served, own=renumbered(tokenizer)) as lm, pytest.raises(ModelError, match=told):
        lm.prepare()


def test_without_log_probabilities_texts_can_still_be_written(parts: tuple[Remembered, Any]) -> None:
    with opened(Served(*parts, doors=frozenset({"echo", "silent"}))) as lm:
        lm.prepare()
        assert "no log-probabilities: log-probabilities: " in str(lm.engine_choice.slower)
        with pytest.raises(ModelError, match="has no logprobs"):
            lm.loglikelihood(REQUESTS)


@pytest.mark.parametrize("cached", [True, False])
def test_the_prefix_cache_is_read_only_where_the_server_says_how_much(
    cached: bool, parts: tuple[Remembered, Any], true_answers: list[Any]
) -> None:
    served = Served(*parts, doors=frozenset({"tokens", "echo"} | ({"cache"} if cached else set())))
    context = "one two three four five six seven eight nine ten eleven twelve " * 3
    requests = [(context, " a b c d"), (context, " a b c e"), (context, " a b c d"), *REQUESTS]
    with opened(served) as lm:
        first = lm.loglikelihood(requests)
        assert ("without the prefix cache" in str(lm.engine_choice.slower)) is not cached
        asked = len(served.requests)
        # Rows of tokens that come from the cache are garbage: what was asked before is asked again without it.
        assert near(lm.loglikelihood(requests), first)
        expected = in_process(parts).loglikelihood(requests)
        assert near(first, list(expected))
        skips = [body["sampling_params"]["skip_reading_prefix_cache"] for _, body in served.requests[asked:]]
        assert (False in skips) is cached
