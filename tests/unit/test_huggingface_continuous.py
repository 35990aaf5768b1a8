"""Continuous batching on real model classes: the texts of the padded engine, whatever is written beside them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import tablemodels as tables
import torch
import transformers
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from tablemodels import EOS
from tablemodels import NO
from tablemodels import YES
from tablemodels import A
from tablemodels import Q
from tablemodels import X

from pytest_llmeval._engine import Completion
from pytest_llmeval._engine import EngineChoice
from pytest_llmeval._engine import EngineOptions
from pytest_llmeval._engine import GenerationRequest
from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.choosing import choose_engine
from pytest_llmeval._engine.chunks import Chunk
from pytest_llmeval._engine.chunks import ChunkRunner
from pytest_llmeval._engine.continuous import ContinuousGenerator
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import GenerationKwargs


WORDS, WINDOW, LARGE = 96, 64, 10**6
SHAPE: dict[str, Any] = {"vocab_size": WORDS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
IDS = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": 0}
DECODER = SHAPE | IDS | {"intermediate_size": 64, "max_position_embeddings": WINDOW, "initializer_range": 0.5}
GROUPED = DECODER | {"num_key_value_heads": 2}
GEMMA = GROUPED | {"head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 62}
FALCON = SHAPE | IDS | {"initializer_range": 0.5}

#: Models that are run so.
ROWS = {
    "llama": lambda: transformers.LlamaConfig(**GROUPED),
    "qwen2": lambda: transformers.Qwen2Config(**GROUPED),
    "qwen3": lambda: transformers.Qwen3Config(**GROUPED, head_dim=8),
    "gemma3": lambda: transformers.Gemma3TextConfig(**GEMMA),
    "mistral": lambda: transformers.MistralConfig(**GROUPED, sliding_window=None),
    "mixtral": lambda: transformers.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=2),
    "phi": lambda: transformers.PhiConfig(**DECODER),
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=WORDS, n_positions=WINDOW, n_embd=32, n_layer=2, n_head=4, initializer_range=0.5, **IDS
    ),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**DECODER),
    "opt": lambda: transformers.OPTConfig(
        **SHAPE, **IDS, word_embed_proj_dim=32, ffn_dim=64, max_position_embeddings=WINDOW, init_std=0.5
    ),
    "falcon": lambda: transformers.FalconConfig(**FALCON, alibi=False),
}
#: Two reasons against a way that was tried.
FAILS = r"the model failed on \d+ tokens after 0 in the cache, in sequences of up to \d+: (Value|Index)Error: \w"
DIFFER = r"log-probabilities differ by \d.* \(root mean square\), rounding allows 0\.00"
#: Models that are not, and the reason: attention of another form, biases by place, a state, a short window.
PADDED = {
    "gemma2": (lambda: transformers.Gemma2Config(**GEMMA), "continuous", DIFFER),
    "llama": (lambda: transformers.LlamaConfig(**GROUPED, attn_implementation="eager"), "continuous", DIFFER),
    "bloom": (
        lambda: transformers.BloomConfig(
            vocab_size=WORDS, hidden_size=32, n_layer=2, n_head=4, initializer_range=0.5, **IDS
        ),
        "tree",
        FAILS,
    ),
    "falcon": (lambda: transformers.FalconConfig(**FALCON, alibi=True), "tree", FAILS),
    "mamba": (
        lambda: transformers.MambaConfig(
            vocab_size=WORDS, hidden_size=32, state_size=8, num_hidden_layers=2, initializer_range=0.5, **IDS
        ),
        "tree",
        FAILS,
    ),
    "gemma3": (lambda: transformers.Gemma3TextConfig(**(GEMMA | {"sliding_window": 8})), "continuous", DIFFER),
}


@pytest.fixture(autouse=True)
def own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def random_model(config: Any) -> Any:
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


@cache
def llama() -> Any:
    with torch.random.fork_rng():
        return random_model(ROWS["llama"]())


def padded_engine(model: Any) -> PaddedEngine:
    budget = Budget(LARGE, LARGE, LARGE)
    return PaddedEngine(model, budget, budget, [EOS])


def continuous(
    model: Any, *, rows: int = LARGE, pack: int = 512, tokens: int = LARGE, reach: float = LARGE
) -> ContinuousGenerator:
    return ContinuousGenerator(model, padded_engine(model), Budget(tokens, LARGE, rows), pack, reach)


def nothing(done: int, total: int) -> None:
    """A progress that nobody watches."""


def never(ids: Sequence[int], kwargs: GenerationKwargs) -> bool:
    return False


def greedy(model: Any, prompt: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The definition: the likeliest token of the whole sequence so far, again and again."""
    ids = list(prompt)
    while len(ids) < len(prompt) + n:
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == EOS:
            break
    return tuple(ids[len(prompt) :])


def asked(prompt: tuple[int, ...], n: int = 8, **kwargs: Any) -> GenerationRequest:
    return GenerationRequest(prompt, GenerationKwargs(max_gen_toks=n, **kwargs))


def benchmark() -> list[GenerationRequest]:
    """Prompts with and without shots, one up to the window's edge, samples of one prompt, one of no new token."""
    draw = random.Random(1)
    some = [tuple(draw.randrange(WORDS) for _ in range(n)) for n in (20, 4, 9, 1, 12, 2, 7)]
    shots, *docs = some
    requests = [asked((*shots, *doc), 3 * i) for i, doc in enumerate(docs)]
    requests += [asked(doc, 20 - 3 * i) for i, doc in enumerate(docs)]
    requests += [asked((*shots, *shots, *docs[0]), WINDOW - 44), asked(shots), asked((*shots, *docs[0]), 5)]
    sampled = {"do_sample": True, "temperature": 1.0}
    requests += [asked((*shots, *docs[0]), repeat=i, **sampled) for i in range(3)]
    requests += [asked((*shots, *docs[0]), seed=7, top_p=0.9, **sampled), asked(docs[1], top_k=3, **sampled)]
    return requests


def spy(monkeypatch: pytest.MonkeyPatch) -> list[list[Chunk]]:
    """Grows by the chunks of every pass."""
    passes: list[list[Chunk]] = []
    run = ChunkRunner.run

    def seen(self: ChunkRunner, chunks: Sequence[Chunk]) -> torch.Tensor:
        passes.append(list(chunks))
        return run(self, chunks)

    monkeypatch.setattr(ChunkRunner, "run", seen)
    return passes


@pytest.mark.parametrize("name", ROWS)
def test_texts_are_those_of_the_padded_engine(name: str) -> None:
    model = random_model(ROWS[name]())
    engine = choose_engine(model, EngineOptions(), [EOS])
    assert (engine.choice.scoring, engine.choice.generation) == ("tree", None)
    expected = padded_engine(model).generate(benchmark(), never, nothing)
    assert engine.generate(benchmark(), never, nothing) == expected
    assert engine.choice.generation == "continuous"
    assert engine.choice.slower is None
    for writer in (continuous(model, rows=1, pack=7), continuous(model, rows=3, pack=30)):
        assert writer.generate(benchmark(), never, nothing) == expected


@pytest.mark.parametrize("name", PADDED)
def test_models_that_cannot_be_run_so_are_served_padded_and_say_why(name: str) -> None:
    config, refused, reason = PADDED[name]
    model = random_model(config())
    engine = choose_engine(model, EngineOptions(), [EOS])
    requests = [asked((5, 6, 7)), asked((8,))]
    assert engine.generate(requests, never, nothing) == padded_engine(model).generate(requests, never, nothing)
    scoring = "padded" if refused == "tree" else "tree"
    assert (engine.choice.scoring, engine.choice.generation) == (scoring, "padded")
    assert re.match(reason, engine.choice.refused[refused])
    slower = engine.choice.slower
    assert slower is not None
    each = "request" if refused == "tree" else "prompt"
    assert slower.endswith(f"again for each {each}: {refused} refused: {engine.choice.refused[refused]}")
    assert EngineChoice(**engine.choice.facts) == engine.choice


ids = st.lists(st.integers(3, 5), min_size=1, max_size=9).map(tuple)
shared = st.lists(st.integers(3, 5), max_size=40).map(tuple)
texts = st.builds(
    lambda start, parts: [(start + prompt, n) for prompt, n in parts],
    shared,
    st.lists(st.tuples(ids, st.integers(1, WINDOW - 49)), max_size=8),
)


@settings(max_examples=20, deadline=None)
@given(texts=st.tuples(texts, texts), rows=st.integers(1, 9), pack=st.integers(1, 70), least=st.integers(1, 20))
def test_any_texts_beside_any_others_are_what_they_are_alone(texts: Any, rows: int, pack: int, least: int) -> None:
    requests = [asked(*text) for part in texts for text in part]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_llmeval._engine.continuous.LEAST_PREFIX", least)
        done = continuous(llama(), rows=rows, pack=pack).generate(requests, never, nothing)
    assert [one.ids for one in done] == [greedy(llama(), one.ids, one.kwargs.max_gen_toks) for one in requests]


def test_what_prompts_share_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = spy(monkeypatch)
    shots = tuple(range(3, 33))
    samples = [asked((*shots, 40, 41), 1, do_sample=True, temperature=1.0, repeat=i) for i in range(5)]
    docs = [asked((*shots, 50 + doc, 60), 1) for doc in range(4)]
    continuous(llama()).generate([*samples, *docs], never, nothing)
    assert sum(len(chunk.ids) for chunks in passes for chunk in chunks) == 30 + 5 * 2 + 4 * 2


def test_rows_that_are_done_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = spy(monkeypatch)
    model = tables.chain()
    requests = [asked(ids, 5) for ids in [(Q,), (A,), (X, Q), (X, A)]]
    done = continuous(model, rows=2).generate(requests, never, nothing)
    assert [one.ids for one in done] == [(YES, EOS), (NO, X, NO, X, NO)] * 2
    assert all(len(chunks) == 2 for chunks in passes[:4])


def test_a_text_that_turns_in_circles_takes_few_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = spy(monkeypatch)
    (done,) = continuous(tables.chain()).generate([asked((A,), 256)], never, nothing)
    assert done.ids == (NO, X) * 128
    assert len(passes) < 60


@pytest.mark.parametrize("settings", [{}, {"do_sample": True, "temperature": 0.001}], ids=["greedy", "drawn"])
def test_what_rounding_could_decide_is_decided_alone(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens tie; beside other texts one or the other is ahead by less than rounding may be."""
    tie = torch.zeros(8, 8)
    tie[:, YES] = tie[:, NO] = 10.0
    model = tables.table_lm(tie)
    run = ChunkRunner.run

    def rounded(self: ChunkRunner, chunks: Sequence[Chunk]) -> torch.Tensor:
        logits = run(self, chunks)
        logits[:, NO if len(chunks) % 2 else YES] += 1e-4 * (len(chunks) - 1)
        return logits

    monkeypatch.setattr(ChunkRunner, "run", rounded)
    requests = [asked((Q, *[X] * i), 2 + 2 * i, seed=i, **settings) for i in range(5)]
    alone = [continuous(model).generate([one], never, nothing)[0] for one in requests]
    for rows in (2, 5):
        assert continuous(model, rows=rows).generate(requests, never, nothing) == alone


def test_a_clear_choice_needs_no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContinuousGenerator, "_alone", None)
    continuous(tables.chain()).generate([asked((A,)), asked((Q,))], never, nothing)
    sampled = {"do_sample": True, "temperature": 1.0, "top_k": 3}
    continuous(tables.bigram()).generate([asked((A,), 1, seed=i, **sampled) for i in range(30)], never, nothing)


def test_stops_end_a_text_in_the_middle_of_a_right_guess() -> None:
    def ends(ids: Sequence[int], kwargs: GenerationKwargs) -> bool:
        return len(ids) == 21

    (done,) = continuous(tables.chain()).generate([asked((A,), 256)], ends, nothing)
    assert done == Completion((NO, X) * 10 + (NO,), "stop")


def out_of_memory(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Sequence[Chunk]], bool], error: Exception) -> None:
    run = ChunkRunner.run

    def in_little_memory(self: ChunkRunner, chunks: Sequence[Chunk]) -> torch.Tensor:
        if fails(chunks):
            raise error
        return run(self, chunks)

    monkeypatch.setattr(ChunkRunner, "run", in_little_memory)


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_passes_get_smaller_when_memory_runs_out(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = padded_engine(llama()).generate(benchmark(), never, nothing)
    writer = continuous(llama())
    out_of_memory(monkeypatch, lambda chunks: sum(len(chunk.ids) for chunk in chunks) > 20 or len(chunks) > 4, error)
    seen: list[int] = []
    assert writer.generate(benchmark(), never, lambda done, _: seen.append(done)) == expected
    assert seen == sorted(seen)
    assert writer._pack <= 20
    assert writer._budget.rows <= 4


def test_texts_go_on_where_memory_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth pass fails: what is written by then is not written again."""
    sampled = [asked((5, 6, 7), 30, do_sample=True, temperature=1.0, repeat=i) for i in range(6)]
    expected = padded_engine(llama()).generate(sampled, never, nothing)
    passes = spy(monkeypatch)
    out_of_memory(monkeypatch, lambda chunks: len(passes) in (4, 9), MemoryError())
    failed = [0]
    monkeypatch.setattr("pytest_llmeval._engine.continuous.free_memory", lambda: (failed.append(1), passes.append([])))
    assert continuous(llama()).generate(sampled, never, nothing) == expected
    assert len(failed) == 3


def test_one_token_that_does_not_fit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    out_of_memory(monkeypatch, lambda chunks: True, MemoryError())
    with pytest.raises(ModelError, match="out of memory on 1 sequence of up to 11 tokens; give a smaller max_length"):
        continuous(llama()).generate([asked((3, 7, 9)), asked((4,))], never, nothing)


def test_a_token_that_the_model_lacks_is_an_error() -> None:
    with pytest.raises(ModelError, match="the model failed on 1 sequence of up to 10 tokens: IndexError"):
        continuous(llama()).generate([asked((3, 999))], never, nothing)


def test_little_room_is_shared_one_after_the_other() -> None:
    expected = padded_engine(llama()).generate(benchmark(), never, nothing)
    assert continuous(llama(), tokens=70).generate(benchmark(), never, nothing) == expected
    assert continuous(llama(), tokens=1).generate(benchmark(), never, nothing) == expected


def test_long_texts_and_other_settings_are_written_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = spy(monkeypatch)
    model = random_model(ROWS["llama"]())
    requests = [
        asked((3, 4, 5), 8, extra={"repetition_penalty": 1.7}),
        asked((3, 4, 5), 8, extra={"num_beams": 2}),
        asked((3, 4, 5, 6), 8),
        asked((3, 4), 8),
        asked((3, 4), 8, extra={"repetition_penalty": 1.0, "num_beams": 1}),
    ]
    expected = padded_engine(model).generate(requests, never, nothing)
    seen: list[tuple[int, int]] = []
    writer = continuous(model, reach=11)
    assert writer.generate(requests, never, lambda done, total: seen.append((done, total))) == expected
    assert [chunk.ids for chunk in passes[0]] == [(3, 4), (3, 4)]
    assert seen == sorted(seen)
    assert seen[-1] == (5, 5)
    model.generation_config.repetition_penalty = 1.7
    passes.clear()
    assert writer.generate(requests[2:4], never, nothing) == padded_engine(model).generate(
        requests[2:4], never, nothing
    )
    assert passes == []


def test_nothing_is_asked() -> None:
    assert continuous(llama()).generate([], never, nothing) == []
    assert continuous(llama()).generate([asked((3,), 0)], never, nothing) == [Completion((), "length")]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs(dtype: torch.dtype) -> None:
    model = random_model(ROWS["llama"]()).to(dtype)
    engine = choose_engine(model, EngineOptions(), [EOS])
    done = engine.generate(benchmark(), never, nothing)
    assert engine.choice.generation == "continuous"
    for request, one in zip(benchmark(), done, strict=True):
        assert one.finish_reason == ("eos" if one.ids[-1:] == (EOS,) else "length")
        assert one.finish_reason == "eos" or len(one.ids) == request.kwargs.max_gen_toks


def test_a_model_that_learns_is_left_in_its_mode() -> None:
    model = random_model(ROWS["gpt2"]()).train()
    continuous(model).generate([asked((3, 4))], never, nothing)
    assert model.training
