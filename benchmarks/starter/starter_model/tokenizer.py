"""A byte-level BPE tokenizer trained on the lessons, with a chat template."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex
from tokenizers import Tokenizer
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import trainers
from transformers import PreTrainedTokenizerFast

from starter_model.chat import ASSISTANT
from starter_model.chat import BOS
from starter_model.chat import CHAT_TEMPLATE
from starter_model.chat import EOS
from starter_model.chat import PAD
from starter_model.chat import SYSTEM
from starter_model.chat import USER


VOCABULARY = 2048
MAX_LENGTH = 4096


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Every digit is a token of its own (the first with its blank), so that sums can be worked digit by digit.

    No BOS is added by itself. All 256 bytes are in the vocabulary: there is no unknown text.
    """
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r" ?\d"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[PAD, BOS, EOS, SYSTEM, USER, ASSISTANT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        additional_special_tokens=[SYSTEM, USER, ASSISTANT],
        chat_template=CHAT_TEMPLATE,
        model_max_length=MAX_LENGTH,
        clean_up_tokenization_spaces=False,
    )
