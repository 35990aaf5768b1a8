"""Models whose log-likelihoods can be worked out by hand, and tokenizers that show what encoding gets wrong.

The table models are real GPT-2 checkpoints whose logits depend on the previous token only. `P` holds their
probabilities: log P(yes | Q x A) is ln .5 whatever came before the `A`. All run on a processor in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import processors
from transformers import GPT2Config
from transformers import GPT2LMHeadModel
from transformers import PreTrainedTokenizerFast


VOCABULARY = ("<pad>", "<s>", "</s>", "Q", "A", "yes", "no", "x")
PAD, BOS, EOS, Q, A, YES, NO, X = range(8)

#: P[previous token] = probabilities of the next one, in the order of the vocabulary.
P = {
    "<pad>": [0.125] * 8,
    "<s>": [0.01, 0.01, 0.03, 0.50, 0.10, 0.20, 0.10, 0.05],
    "</s>": [0.01, 0.01, 0.03, 0.40, 0.20, 0.10, 0.20, 0.05],
    "Q": [0.01, 0.02, 0.03, 0.04, 0.60, 0.05, 0.05, 0.20],
    "A": [0.01, 0.01, 0.03, 0.03, 0.02, 0.50, 0.30, 0.10],
    "yes": [0.01, 0.04, 0.40, 0.20, 0.05, 0.10, 0.10, 0.10],
    "no": [0.01, 0.04, 0.35, 0.25, 0.05, 0.05, 0.20, 0.05],
    "x": [0.01, 0.01, 0.03, 0.10, 0.60, 0.05, 0.10, 0.10],
}
#: What greedy decoding of `chain` writes after each token.
NEXT = {"<pad>": "<pad>", "<s>": "Q", "</s>": "x", "Q": "yes", "A": "no", "yes": "</s>", "no": "x", "x": "no"}
NO_DROPOUT = {"attn_pdrop": 0.0, "resid_pdrop": 0.0, "embd_pdrop": 0.0}


def table_lm(table: torch.Tensor, n_positions: int = 600) -> GPT2LMHeadModel:
    """A GPT-2 whose logits at a position are exactly table[token there]: no mixing, no positions."""
    n = table.shape[0]
    config = GPT2Config(
        vocab_size=n,
        n_positions=n_positions,
        n_embd=n,
        n_layer=1,
        n_head=1,
        n_inner=4,
        layer_norm_epsilon=1e-12,
        tie_word_embeddings=False,
        bos_token_id=BOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        **NO_DROPOUT,
    )
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        # One-hot embeddings; the last layer norm's weight and bias undo what it does to a one-hot vector.
        model.transformer.wte.weight.copy_(torch.eye(n))
        model.transformer.ln_f.weight.fill_((n - 1) ** 0.5 / n)
        model.transformer.ln_f.bias.fill_(1 / n)
        model.lm_head.weight.copy_(table.T)
    return model


def bigram(n_positions: int = 600) -> GPT2LMHeadModel:
    """log P(next | previous) = ln P[previous][next]."""
    return table_lm(torch.tensor([P[word] for word in VOCABULARY]).log(), n_positions)


def chain(following: Mapping[str, str] = NEXT, vocabulary: Sequence[str] = VOCABULARY) -> GPT2LMHeadModel:
    """Greedy decoding goes from word to word as `following` says."""
    table = torch.zeros(len(vocabulary), len(vocabulary))
    for before, after in following.items():
        table[vocabulary.index(before), vocabulary.index(after)] = 10.0
    return table_lm(table)


def uniform(n: int) -> GPT2LMHeadModel:
    """Every token costs ln n, so a log-likelihood counts the scored tokens."""
    return table_lm(torch.zeros(n, n))


def tiny_gpt2() -> GPT2LMHeadModel:
    """A random GPT-2 with learned absolute positions, 64 words and 64 positions."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=64,
        n_positions=64,
        n_embd=32,
        n_layer=2,
        n_head=2,
        bos_token_id=1,
        eos_token_id=2,
        initializer_range=0.5,
        **NO_DROPOUT,
    )
    return GPT2LMHeadModel(config).eval()


def words(
    *, auto_bos: bool = False, auto_eos: bool = False, bos: bool = True, vocabulary: Sequence[str] = VOCABULARY
) -> PreTrainedTokenizerFast:
    """Words split at white space. `auto_bos` puts ``<s>`` before every text by itself, `auto_eos` ``</s>`` behind."""
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token=vocabulary[PAD]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if auto_bos or auto_eos:
        single = " ".join(["<s>"] * auto_bos + ["$A"] + ["</s>"] * auto_eos)
        tokenizer.post_processor = processors.TemplateProcessing(
            single=single, special_tokens=[("<s>", BOS), ("</s>", EOS)]
        )
    start: dict[str, Any] = {"bos_token": "<s>"} if bos else {}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", **start)


def sentencepiece_like() -> PreTrainedTokenizerFast:
    """18 ids; blanks are ``▁``, and one is put before every text."""
    vocabulary = [
        "<unk>",
        "<s>",
        "</s>",
        "▁",
        "Q",
        "A",
        "y",
        "e",
        "s",
        "n",
        "o",
        "▁Q",
        "▁A",
        "es",
        "yes",
        "▁yes",
        "no",
        "▁no",
    ]
    merges = [("▁", "Q"), ("▁", "A"), ("e", "s"), ("y", "es"), ("▁", "yes"), ("n", "o"), ("▁", "no")]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(vocabulary)}, merges, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def merging() -> PreTrainedTokenizerFast:
    """16 ids; ``Ans`` and ``wer`` become one token when they meet."""
    vocabulary = ["<unk>", "</s>", "A", "n", "s", "w", "e", "r", " ", "x", "An", "Ans", "we", "wer", "Answer", " x"]
    merges = [("A", "n"), ("An", "s"), ("w", "e"), ("we", "r"), ("Ans", "wer"), (" ", "x")]
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in enumerate(vocabulary)}, merges, unk_token="<unk>"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>", pad_token="</s>")


def save(folder: Path, model: Any, tokenizer: Any) -> Path:
    """A checkpoint folder that `--llmeval-model` can name."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
