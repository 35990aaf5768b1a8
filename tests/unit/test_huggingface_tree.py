"""The tree engine on real model classes: the numbers of the padded engine, each distinct token computed once."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import tablemodels as tables
import torch
import transformers
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._engine import EngineOptions
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._engine.attention import Windows
from pytest_llmeval._engine.attention import tree_mask
from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.choosing import choose_engine
from pytest_llmeval._engine.choosing import proven_reach
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._engine.token_tree import Limits
from pytest_llmeval._engine.token_tree import Pass
from pytest_llmeval._engine.token_tree import Tree
from pytest_llmeval._engine.tree import TreeEngine
from pytest_llmeval._errors import ModelError
from pytest_llmeval._models import wrap_model


WORDS, WINDOW = 96, 64
LARGE = 10**6
AT_ONCE = Budget(LARGE, LARGE, LARGE)
SHAPE: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
DECODER = SHAPE | IDS | {"intermediate_size": 64, "max_position_embeddings": WINDOW, "initializer_range": 0.5}
GROUPED = DECODER | {"num_key_value_heads": 2}
GEMMA = GROUPED | {"head_dim": 8, "query_pre_attn_scalar": 8}
FALCON = SHAPE | IDS | {"initializer_range": 0.5}

#: Models that take the tree, and up to which length.
TREE = {
    "llama": (lambda: transformers.LlamaConfig(**GROUPED), float("inf")),
    "qwen2": (lambda: transformers.Qwen2Config(**GROUPED), float("inf")),
    "qwen3": (lambda: transformers.Qwen3Config(**GROUPED, head_dim=8), float("inf")),
    "gemma2": (
        lambda: transformers.Gemma2Config(**GEMMA, sliding_window=20, final_logit_softcapping=5.0),
        float("inf"),
    ),
    "gemma3": (
        lambda: transformers.Gemma3TextConfig(**GEMMA | {"num_hidden_layers": 6}, sliding_window=9),
        float("inf"),
    ),
    "mistral": (lambda: transformers.MistralConfig(**GROUPED, sliding_window=None), float("inf")),
    "mistral with a window": (lambda: transformers.MistralConfig(**GROUPED, sliding_window=12), float("inf")),
    "qwen2 with windows": (
        lambda: transformers.Qwen2Config(**GROUPED, use_sliding_window=True, sliding_window=3, max_window_layers=1),
        float("inf"),
    ),
    "phi3": (lambda: transformers.Phi3Config(**GROUPED, sliding_window=30, original_max_position_embeddings=40), 40),
    "mixtral": (
        lambda: transformers.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2),
        float("inf"),
    ),
    "phi": (lambda: transformers.PhiConfig(**DECODER), float("inf")),
    "gpt2": (
        lambda: transformers.GPT2Config(
            vocab_size=WORDS, n_positions=WINDOW, n_embd=32, n_layer=2, n_head=4, initializer_range=0.5, **IDS
        ),
        float("inf"),
    ),
    "gpt_neox": (lambda: transformers.GPTNeoXConfig(**DECODER), float("inf")),
    "opt": (
        lambda: transformers.OPTConfig(
            **SHAPE, **IDS, word_embed_proj_dim=32, ffn_dim=64, max_position_embeddings=WINDOW, init_std=0.5
        ),
        float("inf"),
    ),
    "falcon": (lambda: transformers.FalconConfig(**FALCON, alibi=False), float("inf")),
}
#: Models that do not: attention biases by place, a state.
PADDED = {
    "bloom": lambda: transformers.BloomConfig(
        vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.5, **IDS
    ),
    "falcon": lambda: transformers.FalconConfig(**FALCON, alibi=True),
    "mamba": lambda: transformers.MambaConfig(
        vocab_size=WORDS, hidden_size=32, state_size=8, num_hidden_layers=2, initializer_range=0.5, **IDS
    ),
}


@pytest.fixture(autouse=True)
def own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def random_model(config: Any) -> Any:
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def padded_engine(model: Any) -> PaddedEngine:
    return PaddedEngine(model, AT_ONCE, AT_ONCE, [2])


def nothing(done: int, total: int) -> None:
    """A progress that nobody watches."""


def some(draw: random.Random, n: int) -> tuple[int, ...]:
    return tuple(draw.randrange(WORDS) for _ in range(n))


def benchmark(seed: int = 0) -> list[TokenRequest]:
    """Two tasks of shots, docs and choices, one doc alone, and some that fill the window."""
    draw = random.Random(seed)
    requests = []
    for shots in (some(draw, 20), some(draw, 7), ()):
        for _ in range(4):
            doc = shots + some(draw, draw.randint(1, 15))
            requests += [TokenRequest(doc, some(draw, draw.randint(1, 4))) for _ in range(3)]
    requests += [TokenRequest(shots + some(draw, WINDOW - 3), some(draw, 4)) for shots in ((), ())]
    requests += [requests[4], TokenRequest(requests[0].context_ids[:12], requests[0].context_ids[12:])]
    draw.shuffle(requests)
    return requests


def computed(model: Any) -> list[int]:
    """Grows by the number of tokens of each forward pass."""
    counts: list[int] = []
    model.register_forward_pre_hook(
        lambda _, __, keywords: counts.append(keywords["input_ids"].numel()), with_kwargs=True
    )
    return counts


@pytest.mark.parametrize("name", TREE)
def test_the_numbers_are_those_of_the_padded_engine(name: str) -> None:
    config, reach = TREE[name]
    model = random_model(config())
    padded = padded_engine(model)
    found = proven_reach(model, padded)
    assert (found.tokens, found.refused) == (reach, {})
    requests = benchmark()
    expected = padded.score(requests, nothing)
    for limits, block in ((Limits(8, 8), 0), (Limits(16, 40), 6), (Limits(LARGE, 2 * LARGE), 20)):
        engine = TreeEngine(model, limits, padded, reach, found.windows, block=block)
        answers = engine.score(requests, nothing)
        assert [a.logprob for a in answers] == pytest.approx([a.logprob for a in expected], abs=1e-4)
        assert [a.is_greedy for a in answers] == [a.is_greedy for a in expected]


@pytest.mark.parametrize("name", PADDED)
def test_models_that_cannot_take_the_tree_are_served_padded_and_say_why(name: str) -> None:
    model = random_model(PADDED[name]())
    choice = choose_engine(model, EngineOptions(), [2]).choice
    assert (choice.scoring, choice.generation) == ("padded", "padded")
    reason = choice.refused["tree"]
    assert re.match(
        r"the model failed on \d+ tokens after 0 in the cache, in sequences of up to \d+: (Value|Index)Error: ", reason
    )
    assert choice.slower == (
        f"scored by the padded engine, which reads shared prefixes again for each request: tree refused: {reason}"
    )
    with pytest.raises(ModelError, match=rf"engine=tree: .* \({re.escape(reason)}\); use engine=padded"):
        choose_engine(model, EngineOptions(engine="tree"), [2])


def test_the_padded_engine_that_was_asked_for_is_no_refusal() -> None:
    choice = choose_engine(llama(), EngineOptions(engine="padded"), [2]).choice
    assert choice.facts == {"scoring": "padded", "generation": "padded"}
    assert choice.slower is None


def test_other_numbers_with_the_masks_of_the_tree_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_llmeval._engine.attention.tree_mask", blind)
    choice = choose_engine(random_model(TREE["llama"][0]()), EngineOptions(), [2]).choice
    assert re.fullmatch(
        r"log-probabilities differ by [\d.]+ \(root mean square\), rounding allows [\d.]+", choice.refused["tree"]
    )


def test_refused_windows_leave_the_tree_to_sequences_that_fit_into_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_llmeval._engine.attention.Windows.masks", without_windows)
    config = transformers.MistralConfig(**GROUPED, sliding_window=40)
    choice = choose_engine(random_model(config), EngineOptions(), [2]).choice
    assert (choice.scoring, choice.longest) == ("tree", {"tree": 40})
    assert choice.refused["windows"].startswith("log-probabilities differ by ")


def test_other_devices_write_padded_without_a_trial() -> None:
    engine = choose_engine(llama(), EngineOptions(), [2])
    engine._model = OnAnotherDevice()
    assert engine._writer is engine._padded
    assert engine.choice.refused == {"continuous": "it runs on CPUs only"}
    assert engine.choice.slower is None


def blind(step: Pass, dtype: torch.dtype, device: torch.device, window: int | None = None) -> torch.Tensor:
    """A mask under which each token sees itself alone."""
    n = len(step.ids)
    mask = torch.full((1, 1, n, step.held + n), torch.finfo(dtype).min, dtype=dtype)
    mask[0, 0, range(n), range(step.held, step.held + n)] = 0
    return mask


def without_windows(self: Windows, step: Pass, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return tree_mask(step, dtype, device)


class OnAnotherDevice:
    device = torch.device("meta")


@cache
def llama() -> Any:
    with torch.random.fork_rng():
        return random_model(TREE["llama"][0]())


def alone(request: TokenRequest) -> float:
    """The definition: one sequence, all logits, one log-softmax."""
    ids = request.context_ids + request.continuation_ids
    with torch.inference_mode():
        logprobs = llama()(torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
    first = len(request.context_ids) - 1
    return sum(float(logprobs[first + i, target]) for i, target in enumerate(request.continuation_ids))


ids = st.lists(st.integers(0, 2), min_size=1, max_size=10).map(tuple)
shared = st.lists(st.integers(0, 2), max_size=40).map(tuple)
asked = st.builds(
    lambda start, pairs: [TokenRequest(start + context, continuation) for context, continuation in pairs],
    shared,
    st.lists(st.tuples(ids, ids), max_size=10),
)


@settings(max_examples=40, deadline=None)
@given(requests=asked, pack=st.integers(1, 40), more=st.integers(0, 40), block=st.integers(0, 40))
def test_any_requests_in_any_packs_are_what_they_are_alone(
    requests: list[TokenRequest], pack: int, more: int, block: int
) -> None:
    engine = TreeEngine(llama(), Limits(pack, pack + more), padded_engine(llama()), float("inf"), block=block)
    answers = engine.score(requests, nothing)
    assert [a.logprob for a in answers] == pytest.approx([alone(request) for request in requests], abs=1e-4)


def test_each_distinct_token_is_computed_once() -> None:
    model = random_model(TREE["llama"][0]())
    engine = TreeEngine(model, Limits(16, 40), padded_engine(model), float("inf"))
    counts = computed(model)
    engine.score(benchmark(), nothing)
    assert sum(counts) == Tree(benchmark()).n_tokens
    assert max(counts) <= 40


def test_waves_share_what_they_begin_with(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_llmeval._engine.tree.WAVE_PASSES", 1)
    model = random_model(TREE["llama"][0]())
    engine = TreeEngine(model, Limits(8, 48), padded_engine(model), float("inf"))
    requests = [TokenRequest((*range(40), 50 + doc, 3, 4), (5, 6)) for doc in range(12)]
    counts = computed(model)
    answers = engine.score(requests, nothing)
    assert sum(counts) == Tree(requests).n_tokens == 40 + 12 * 4
    expected = padded_engine(model).score(requests, nothing)
    assert [a.logprob for a in answers] == pytest.approx([a.logprob for a in expected], abs=1e-4)


@pytest.mark.parametrize(("remembers", "read_again"), [(True, 0), (False, 40)])
def test_the_next_call_goes_on_from_the_last_where_weights_stay(remembers: bool, read_again: int) -> None:
    model = random_model(TREE["llama"][0]())
    engine = TreeEngine(model, Limits(8, 48), padded_engine(model), float("inf"), remembers=remembers)
    first, second = ([TokenRequest((*range(40), 50 + doc), (5,)) for doc in docs] for docs in (range(4), range(4, 9)))
    engine.score(first, nothing)
    counts = computed(model)
    answers = engine.score(second, nothing)
    assert sum(counts) == read_again + 5
    expected = padded_engine(model).score(second, nothing)
    assert [a.logprob for a in answers] == pytest.approx([a.logprob for a in expected], abs=1e-4)


def test_only_scored_positions_reach_the_output_layer() -> None:
    model = random_model(TREE["llama"][0]())
    engine = TreeEngine(model, Limits(LARGE, LARGE), padded_engine(model), float("inf"))
    widths = []
    model.lm_head.register_forward_hook(lambda _, inputs, __: widths.append(inputs[0].shape[:2]))
    engine.score([TokenRequest(tuple(range(3, 30)), (5, 6)), TokenRequest((7,), (8,))], nothing)
    assert widths == [(1, 3)]


def test_a_model_without_a_selective_head_is_asked_for_all_logits() -> None:
    model = random_model(TREE["gpt2"][0]())
    padded = padded_engine(model)
    padded.selective.head = None
    requests = benchmark()
    answers = TreeEngine(model, Limits(16, 40), padded, float("inf")).score(requests, nothing)
    expected = padded.score(requests, nothing)
    assert [a.logprob for a in answers] == pytest.approx([a.logprob for a in expected], abs=1e-4)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_passes_get_smaller_when_memory_runs_out(error: RuntimeError, monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(TREE["llama"][0]())
    padded = padded_engine(model)
    engine = TreeEngine(model, Limits(64, 128), padded, float("inf"))
    logits = engine._logits

    def in_little_memory(step: Any, places: list[int]) -> torch.Tensor:
        if len(step.ids) > 20:
            raise error
        return logits(step, places)

    monkeypatch.setattr(engine, "_logits", in_little_memory)
    seen = []
    answers = engine.score(benchmark(), lambda done, total: seen.append((done, total)))
    expected = padded.score(benchmark(), nothing)
    assert [a.logprob for a in answers] == pytest.approx([a.logprob for a in expected], abs=1e-4)
    assert seen == sorted(seen)
    assert seen[-1] == (len(expected), len(expected))
    assert engine._limits.longest <= 20


def test_one_token_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model(TREE["llama"][0]())
    engine = TreeEngine(model, Limits(64, 128), padded_engine(model), float("inf"))

    def fail(step: Any, places: list[int]) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(engine, "_logits", fail)
    with pytest.raises(
        ModelError,
        match="out of memory on 1 token after 0 in the cache, in sequences of up to 1; give a smaller max_length",
    ):
        engine.score([TokenRequest((3, 7, 9), (4,))], nothing)


def test_a_token_that_the_model_lacks_is_an_error() -> None:
    engine = choose_engine(tables.bigram(), EngineOptions(engine="tree"), [2])
    with pytest.raises(
        ModelError, match="the model failed on 2 tokens after 0 in the cache, in sequences of up to 2: IndexError"
    ):
        engine.score([TokenRequest((3, 99), (4,))], nothing)


def test_progress_ends_with_all_requests() -> None:
    lm = wrap_model(tables.bigram(), tables.words(), engine="tree", max_batch_tokens=1)
    seen: list[tuple[int, int]] = []
    lm.on_progress = lambda done, total: seen.append((done, total))
    lm.loglikelihood([("Q", " yes"), ("A", " yes"), ("A", " no"), ("x", " x")])
    assert seen[-1] == (4, 4)
    assert seen == sorted(seen)
    assert lm.loglikelihood([]) == []
    assert lm.loglikelihood_rolling([]) == []


def test_a_model_that_learns_answers_anew() -> None:
    model = tables.bigram()
    lm = wrap_model(model, tables.words(), engine="tree")
    lm.loglikelihood([("Q A", " yes")])
    model.transformer.wte.weight.data.zero_()
    changed = lm.loglikelihood([("Q A", " yes")])
    assert changed == wrap_model(model, tables.words(), engine="padded").loglikelihood([("Q A", " yes")])
