"""Log-likelihoods of real model classes: whatever shares a batch, each is what it is alone."""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import tablemodels as tables
import torch
import transformers

from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.causal_model import SelectiveModel
from pytest_llmeval._engine.causal_model import log_probabilities
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._models import wrap_model


WORDS = 96
LARGE = 10**6
BUDGETS = {
    "one by one": Budget(LARGE, LARGE, 1),
    "few tokens": Budget(64, LARGE, LARGE),
    "few positions": Budget(LARGE, 7, LARGE),
    "at once": Budget(LARGE, LARGE, LARGE),
}
DECODER: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GROUPED = DECODER | {"num_key_value_heads": 2}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**GROUPED),
    "qwen2": lambda: transformers.Qwen2Config(**GROUPED),
    # A soft cap on the logits, and attention over a sliding window.
    "gemma2": lambda: transformers.Gemma2Config(
        **GROUPED, head_dim=8, query_pre_attn_scalar=8, sliding_window=8, final_logit_softcapping=5.0
    ),
    # Scaled logits.
    "cohere": lambda: transformers.CohereConfig(**GROUPED, logit_scale=0.25),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=WORDS, n_positions=64, n_embd=32, n_layer=2, n_head=4, initializer_range=0.5
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**DECODER),
    # Positions that start behind the padding.
    "opt": lambda: transformers.OPTConfig(
        vocab_size=WORDS,
        hidden_size=32,
        word_embed_proj_dim=32,
        ffn_dim=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        init_std=0.5,
    ),
    # Attention biases in place of positions.
    "bloom": lambda: transformers.BloomConfig(
        vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.5
    ),
    # A state in place of attention.
    "mamba": lambda: transformers.MambaConfig(
        vocab_size=WORDS, hidden_size=32, state_size=8, num_hidden_layers=2, initializer_range=0.5, pad_token_id=0
    ),
}


@pytest.fixture(autouse=True)
def own_random_numbers() -> Iterator[None]:
    """Models are drawn without a trace in the random numbers of other tests."""
    with torch.random.fork_rng():
        yield


def random_model(name: str) -> Any:
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()


def engine(model: Any, budget: Budget = BUDGETS["at once"]) -> PaddedEngine:
    return PaddedEngine(model, budget, budget, [2])


def nothing(done: int, total: int) -> None:
    """A progress that nobody watches."""


def random_requests(seed: int, *, words: int = WORDS, longest: int = 19) -> list[TokenRequest]:
    draw = random.Random(seed)

    def some(most: int) -> tuple[int, ...]:
        return tuple(draw.randrange(words) for _ in range(draw.randint(1, most)))

    contexts = [some(longest) for _ in range(7)]
    return [TokenRequest(context, some(4)) for context in contexts for _ in range(3)]


def alone(model: Any, request: TokenRequest) -> tuple[float, bool]:
    """The definition: one sequence, all logits, one log-softmax."""
    ids = request.context_ids + request.continuation_ids
    with torch.inference_mode():
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    first = len(request.context_ids) - 1
    places = [(first + i, target) for i, target in enumerate(request.continuation_ids)]
    total = sum(float(logprobs[place, target]) for place, target in places)
    return total, all(int(logprobs[place].argmax()) == target for place, target in places)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_architecture_scores_as_one_by_one(name: str) -> None:
    model = random_model(name)
    requests = random_requests(0)
    expected = [alone(model, request) for request in requests]
    for budget in BUDGETS.values():
        scored = engine(model, budget)
        assert scored.selective.head is not None
        answers = scored.score(requests, nothing)
        assert [answer.logprob for answer in answers] == pytest.approx([total for total, _ in expected], abs=1e-4)
        assert [answer.is_greedy for answer in answers] == [greedy for _, greedy in expected]


def test_order_and_batch_size_change_nothing() -> None:
    """Lengths 2 to 13, and 0 is both the padding and a word."""
    model = tables.tiny_gpt2()
    draw = random.Random(0)
    requests = [TokenRequest(tuple(draw.randrange(64) for _ in range(n)), (draw.randrange(64),)) for n in range(1, 13)]
    expected = [alone(model, request)[0] for request in requests]
    for rows in (1, 2, 5, 12):
        order = draw.sample(range(12), 12)
        answers = engine(model, Budget(LARGE, LARGE, rows)).score([requests[i] for i in order], nothing)
        assert [answer.logprob for answer in answers] == pytest.approx([expected[i] for i in order], abs=1e-4)


def test_choices_of_one_token_need_one_sequence() -> None:
    model = tables.bigram()
    seen = []
    scored = engine(model)
    model.register_forward_pre_hook(
        lambda _, __, keywords: seen.append(keywords["input_ids"].tolist()), with_kwargs=True
    )
    answers = scored.score([TokenRequest((3, 7, 4), (choice,)) for choice in (5, 6, 7)], nothing)
    assert [math.exp(answer.logprob) for answer in answers] == pytest.approx([0.5, 0.3, 0.1], abs=1e-4)
    assert [answer.is_greedy for answer in answers] == [True, False, False]
    assert seen == [[[3, 7, 4]]]


def test_only_scored_positions_reach_the_output_layer() -> None:
    model = random_model("llama")
    widths = []
    scored = engine(model)
    model.lm_head.register_forward_hook(lambda _, inputs, __: widths.append(inputs[0].shape[:2]))
    scored.score([TokenRequest(tuple(range(3, 30)), (5, 6)), TokenRequest((7,), (8,))], nothing)
    assert widths == [(1, 3)]


#: Where the feed-forward part of the last layer is a module that takes hidden states and nothing else.
FEED_FORWARD = {"llama", "qwen2", "gemma2", "cohere", "gpt2", "gpt_neox"}


@pytest.mark.parametrize("name", CONFIGS)
def test_what_nobody_reads_of_the_last_layer_is_left_out(name: str) -> None:
    model = random_model(name)
    selective = SelectiveModel(model)
    names = [key.split(".")[-2:] for key, module in model.named_modules() if module in selective.mixers]
    assert names == ([["1", "mlp"]] if name in FEED_FORWARD else [])
    counts: list[int] = []
    for mixer in selective.mixers:
        mixer.register_forward_hook(lambda _, inputs, __: counts.append(inputs[0].shape[:2].numel()))
    ids = torch.tensor([[3, 4, 5, 6, 7], [8, 9, 10, 11, 12]])
    expected = model(ids).logits.flatten(0, 1)
    del counts[:]
    for wanted in ([2, 7, 9], [0], [9, 1, 1], []):
        found = selective.logits({"input_ids": ids}, torch.tensor(wanted, dtype=torch.long))
        torch.testing.assert_close(found, expected[wanted], atol=1e-4, rtol=0)
    assert counts == [3, 1, 3, 10] * len(selective.mixers)


class Blended(torch.nn.Module):
    """A step in which each token sees all others."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.inner(hidden) + hidden.mean(1, keepdim=True)


def blended_at_the_end() -> Any:
    """The feed-forward part looks at single tokens, but what it gives for any of them is read behind it."""
    model = random_model("llama")
    model.model.norm = Blended(model.model.norm)
    return model


def blended_in_the_last_layer() -> Any:
    model = random_model("llama")
    model.model.layers[-1].mlp = Blended(model.model.layers[-1].mlp)
    return model


def shared_by_layers() -> Any:
    """Left out in the last layer, tokens would be left out in the first one too."""
    model = random_model("llama")
    model.model.layers[-1].mlp = model.model.layers[0].mlp
    return model


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (blended_at_the_end, "the logits change"),
        (blended_in_the_last_layer, "no part of it computes each token by itself"),
        (shared_by_layers, "no part of it computes each token by itself"),
    ],
)
def test_a_last_layer_that_needs_all_tokens_gets_them(make: Any, reason: str) -> None:
    model = make()
    selective = SelectiveModel(model)
    assert selective.head is model.lm_head
    assert selective.mixers == ()
    assert selective.refused == {"last layer": reason}
    ids, wanted = torch.tensor([[3, 4, 5, 6, 7]]), torch.tensor([1, 3])
    found = selective.logits({"input_ids": ids}, wanted)
    torch.testing.assert_close(found, model(ids).logits[0, wanted], atol=1e-4, rtol=0)


class Reordered(transformers.GPT2LMHeadModel):
    """A model whose logits are not what its output layer makes of the hidden states alone."""

    def forward(self, input_ids: torch.Tensor, **keywords: Any) -> Any:
        logits = super().forward(input_ids, **keywords).logits
        return SimpleNamespace(logits=logits + logits.mean(1, keepdim=True))


def test_a_model_of_another_kind_is_asked_for_all_logits() -> None:
    torch.manual_seed(1)
    model = Reordered(CONFIGS["gpt2"]()).eval()
    scored = engine(model, BUDGETS["one by one"])
    assert (scored.selective.head, scored.selective.mixers) == (None, ())
    assert scored.selective.refused == dict.fromkeys(("last layer", "output layer"), "the logits change")
    request = TokenRequest((3, 4, 5), (6,))
    with torch.inference_mode():
        expected = float(model(torch.tensor([[3, 4, 5]])).logits[0, -1].log_softmax(-1)[6])
    assert scored.score([request], nothing)[0].logprob == pytest.approx(expected, abs=1e-4)


def test_half_precision_is_scored_in_single() -> None:
    logits = torch.tensor([[1.0, 1.0078125, 9.0, 0.0]], dtype=torch.bfloat16)
    values, greedy = log_probabilities(logits, [0, 0], [0, 1])
    assert values == pytest.approx([-8.000797, -7.992984], abs=1e-6)
    assert greedy == [False, False]


def test_large_vocabularies_lose_no_precision() -> None:
    """Off by 8e-6 a token, which `logsumexp` is here, a text of 100 tokens is off by 8e-4."""
    torch.manual_seed(0)
    logits = torch.randn(100, 50_000) * 3
    rows, targets = list(range(100)), torch.randint(50_000, (100,)).tolist()
    expected = logits.double().log_softmax(-1)[rows, targets].sum()
    values, _ = log_probabilities(logits, rows, targets)
    assert math.fsum(values) == pytest.approx(float(expected), abs=1e-4)


def test_more_logits_than_are_copied_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(7, 5)
    rows, targets = [6, 0, 3, 3, 5], [0, 1, 2, 3, 4]
    whole = log_probabilities(logits, rows, targets)
    monkeypatch.setattr("pytest_llmeval._engine.causal_model.FLOAT_ELEMENTS", 10)
    assert log_probabilities(logits, rows, targets) == whole


def test_minus_infinity_is_a_value_and_nan_stays_visible() -> None:
    table = torch.zeros(8, 8)
    table[3, 5] = -math.inf
    table[4] = math.nan
    impossible, broken = engine(tables.table_lm(torch.zeros(8, 8))).score, tables.table_lm(torch.zeros(8, 8))
    values, greedy = log_probabilities(table[[3, 4]], [0, 1], [5, 0])
    assert values[0] == -math.inf
    assert math.isnan(values[1])
    assert greedy[0] is False
    broken.lm_head.weight.data[:] = math.nan
    answer = engine(broken).score([TokenRequest((4,), (0,))], nothing)[0]
    assert math.isnan(answer.logprob)
    assert not answer.is_greedy
    assert impossible([TokenRequest((3,), (0,))], nothing)[0].is_greedy


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_batches_get_smaller_when_memory_runs_out(error: RuntimeError, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tables.bigram()
    scored = engine(model)
    run, sizes = scored.answer, []

    def run_in_little_memory(batch: Any) -> Any:
        sizes.append(len(batch))
        if len(batch) > 2:
            raise error
        return run(batch)

    monkeypatch.setattr(scored, "answer", run_in_little_memory)
    requests = [TokenRequest((3, 7, i), (4,)) for i in range(7)]
    answers = scored.score(requests, nothing)
    assert [answer.logprob for answer in answers] == pytest.approx([alone(model, r)[0] for r in requests], abs=1e-4)
    assert sizes == [7, 3, 1, 1, 1, 1, 1, 1, 1]


def test_one_sequence_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    scored = engine(tables.bigram())

    def fail(batch: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(scored, "answer", fail)
    with pytest.raises(ModelError, match="out of memory on 1 sequence of up to 2 tokens; give a smaller max_length"):
        scored.score([TokenRequest((3, 7), (4,))], nothing)


def test_a_token_that_the_model_lacks_is_an_error() -> None:
    with pytest.raises(ModelError, match="the model failed on 1 sequence of up to 2 tokens: IndexError"):
        engine(tables.bigram()).score([TokenRequest((3, 99), (4,))], nothing)


def test_progress_ends_with_all_requests() -> None:
    lm = wrap_model(tables.bigram(), tables.words(), batch_size=1, engine="padded")
    seen: list[tuple[int, int]] = []
    lm.on_progress = lambda done, total: seen.append((done, total))
    lm.loglikelihood([("Q", " yes"), ("A", " yes"), ("A", " no"), ("x", " x")])
    assert seen == [(1, 4), (3, 4), (4, 4)]
    assert lm.loglikelihood([]) == []
    assert lm.loglikelihood_rolling([]) == []


def test_a_model_in_training_is_evaluated_and_left_in_training() -> None:
    config = CONFIGS["gpt2"]()
    config.resid_pdrop = 0.9
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(config)
    lm = wrap_model(model, tables.words())
    model.train()
    model.transformer.ln_f.eval()
    assert lm.loglikelihood([("Q x", " A")]) == lm.loglikelihood([("Q x", " A")])
    assert model.training
    assert not model.transformer.ln_f.training
    model(torch.tensor([[3, 4]])).logits.sum().backward()
    assert lm.fingerprint is None


def test_a_model_that_learns_answers_anew() -> None:
    model = tables.bigram()
    lm = wrap_model(model, tables.words())
    before = lm.loglikelihood([("A", " yes")])
    model.lm_head.weight.data.zero_()
    assert before[0][0] == pytest.approx(math.log(0.5), abs=1e-4)
    assert lm.loglikelihood([("A", " yes")]) == [Loglikelihood(pytest.approx(-math.log(8), abs=1e-4), False)]


def test_nothing_is_said_while_scoring(capfd: pytest.CaptureFixture[str]) -> None:
    lm = wrap_model(tables.tiny_gpt2(), tables.words())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lm.loglikelihood([("<pad> Q", " <pad>"), ("Q", " x")])
    assert capfd.readouterr() == ("", "")
