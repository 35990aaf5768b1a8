"""Our model layer and lm-evaluation-harness's on the same models and texts, in one process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import tablemodels as tables
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import processors
from tokenizers import trainers

from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._models import wrap_model


pytestmark = pytest.mark.filterwarnings("ignore")

WINDOW = 48
LETTERS = "aeinorst .,\n?é日Ω0123456789"
TEXT = ["the tea is in the pot", "a stone is on the sand", "no, it is not. yes?", "one, two, three: é日Ω\n\n0123"]
SHAPE: dict[str, Any] = {"num_hidden_layers": 2, "hidden_size": 32, "initializer_range": 0.4}
DECODER = {**SHAPE, "num_attention_heads": 4, "intermediate_size": 64, "max_position_embeddings": WINDOW}
CONFIGS = {
    "llama": lambda **ids: transformers.LlamaConfig(**DECODER, **ids),
    "qwen2": lambda **ids: transformers.Qwen2Config(**DECODER, num_key_value_heads=2, **ids),
    "gpt_neox": lambda **ids: transformers.GPTNeoXConfig(**DECODER, **ids),
    "gemma2": lambda **ids: transformers.Gemma2Config(
        **DECODER, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=8, final_logit_softcapping=5.0, **ids
    ),
    "gpt2": lambda **ids: transformers.GPT2Config(
        n_positions=WINDOW, n_embd=32, n_layer=2, n_head=4, initializer_range=0.4, **ids
    ),
}


def byte_level(*, auto_bos: bool) -> transformers.PreTrainedTokenizerFast:
    """A byte-level vocabulary of a few merges, trained on `TEXT`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, special_tokens=["<pad>", "<s>", "</s>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXT * 3, trainer)
    if auto_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


class Pair:
    """One model in memory, served by both."""

    def __init__(self, model: Any, tokenizer: Any, batch: int = 4) -> None:
        huggingface = pytest.importorskip("lm_eval.models.huggingface")
        self.peer = huggingface.HFLM(pretrained=model, tokenizer=tokenizer, batch_size=batch)
        self.ours: Any = wrap_model(model, tokenizer, batch_size=batch)

    def ask_peer(self, method: str, requests: Sequence[tuple[Any, ...]]) -> list[Any]:
        asked = [SimpleNamespace(args=request, task_name="t") for request in requests]
        return list(getattr(self.peer, method)(asked, disable_tqdm=True))


@pytest.fixture(autouse=True)
def own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


@pytest.fixture(scope="module", params=[(name, bos) for name in CONFIGS for bos in (False, True)], ids=str)
def pair(request: pytest.FixtureRequest) -> Pair:
    name, auto_bos = request.param
    tokenizer = byte_level(auto_bos=auto_bos)
    torch.manual_seed(1)
    config = CONFIGS[name](vocab_size=len(tokenizer), bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return Pair(transformers.AutoModelForCausalLM.from_config(config).eval(), tokenizer)


def texts(seed: int, n: int, longest: int) -> list[str]:
    """Random letters, and pieces of `TEXT`, without blanks at the ends."""
    draw = random.Random(seed)
    made = []
    while len(made) < n:
        length = draw.randint(1, longest)
        if draw.random() < 0.5:
            text = "".join(draw.choice(LETTERS) for _ in range(length))
        else:
            text = " ".join(draw.choices(TEXT, k=3))[: length * 2]
        made += [text.strip()] if text.strip() else []
    return made


def keeps_border(tokenizer: Any, context: str, continuation: str) -> bool:
    """Whether the encoded context begins the encoded whole; where not, lm_eval loses letters or fails."""
    kept = context.rstrip()
    whole = tokenizer(context + continuation)["input_ids"]
    left = tokenizer(kept)["input_ids"]
    return bool(whole[: len(left)] == left and len(whole) > len(left))


def test_loglikelihood(pair: Pair) -> None:
    contexts = [*texts(0, 12, 10), *texts(1, 4, 90), "", "A: ", "A:\n\n"]
    continuations = [" yes", " no", " the tea", "\nyes", " é日Ω"]
    tokenizer = pair.peer.tokenizer
    requests = [
        (context, continuation)
        for context in contexts
        for continuation in continuations
        if not context or keeps_border(tokenizer, context, continuation)
    ]
    assert len(requests) > 70
    assert any(len(tokenizer(context)["input_ids"]) > WINDOW for context, _ in requests)
    ours, theirs = pair.ours.loglikelihood(requests), pair.ask_peer("loglikelihood", requests)
    assert [answer[0] for answer in ours] == pytest.approx([answer[0] for answer in theirs], abs=1e-4)
    assert [answer[1] for answer in ours] == [answer[1] for answer in theirs]


def test_loglikelihood_rolling(pair: Pair) -> None:
    """Over up to five windows. Where a tokenizer adds BOS itself lm_eval predicts it, which is no part of the text."""
    requests = [*texts(2, 6, 20), *texts(3, 4, 200)]
    bos_first = pair.peer.tokenizer("a")["input_ids"][0] == 1
    pair.peer.add_bos_token = False if bos_first else None
    theirs = pair.ask_peer("loglikelihood_rolling", [(text,) for text in requests])
    pair.peer.add_bos_token = None
    assert pair.ours.loglikelihood_rolling(requests) == pytest.approx(theirs, abs=1e-4)


@pytest.mark.parametrize("stops", [["\n\n"], ["e", " t"], [], ["</s>", "é"]], ids=repr)
def test_generate_until(pair: Pair, stops: list[str]) -> None:
    prompts = [*texts(4, 8, 10), *texts(5, 2, 120)]
    settings = {"until": stops, "max_gen_toks": 16, "do_sample": False}
    # One prompt at a time: beside other rows lm_eval goes on after a row's own end.
    pair.peer.batch_size_per_gpu = 1
    theirs = pair.ask_peer("generate_until", [(prompt, settings) for prompt in prompts])
    kwargs = GenerationKwargs(until=tuple(stops), max_gen_toks=16)
    ours = pair.ours.generate_until([(prompt, kwargs) for prompt in prompts])
    assert [str(text) for text in ours] == theirs
    assert ours[-1].truncated


@pytest.mark.parametrize("tokenizer", [tables.words, tables.sentencepiece_like], ids=["words", "sentencepiece"])
def test_by_hand_both_say_the_same(tokenizer: Any) -> None:
    made = tokenizer()
    pair = Pair(tables.uniform(len(made)), made)
    requests = [("Q A", " yes"), ("Q A", " no"), ("", "yes"), ("Q A yes", " no no no")]
    ours, theirs = pair.ours.loglikelihood(requests), pair.ask_peer("loglikelihood", requests)
    assert [answer[0] for answer in ours] == pytest.approx([answer[0] for answer in theirs], abs=1e-4)


def test_the_window_is_the_same() -> None:
    huggingface = pytest.importorskip("lm_eval.models.huggingface")
    for config in (transformers.GPT2Config(n_positions=7), transformers.LlamaConfig(max_position_embeddings=9)):
        config.vocab_size, config.hidden_size, config.num_hidden_layers = 8, 16, 1
        config.num_attention_heads = config.n_head = 1
        model = transformers.AutoModelForCausalLM.from_config(config)
        ours: Any = wrap_model(model, tables.words())
        assert ours.max_length == huggingface.HFLM(pretrained=model, tokenizer=tables.words()).max_length
