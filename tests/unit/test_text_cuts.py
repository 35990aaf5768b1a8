"""Parts of a text that are encoded by themselves: exactly where the tokenizer's rules allow it, nowhere else."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
import tablemodels as tables
import transformers
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from tokenizers import Regex
from tokenizers import Tokenizer
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import trainers

from pytest_llmeval._models import TextEncoder
from pytest_llmeval._models import cuts


#: The rules of GPT-3.5, Llama 3 and Qwen.
LINES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXT = "Q: it's 12\nx\nA: yes\n\n 3.\n\nQ\n no,\nA: yes\n \n"


def byte_level(*rules: Any, normalizer: Any = None, added: AddedToken | None = None) -> Any:
    """A trained tokenizer, whose vocabulary holds pairs of whatever its rules leave together."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(list(rules))
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        show_progress=False,
        special_tokens=["</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([TEXT] * 8, trainer)
    if added is not None:
        tokenizer.add_tokens([added])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>")


def split(pattern: str) -> list[Any]:
    return [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]


GPT2 = [pre_tokenizers.ByteLevel(add_prefix_space=False)]
EXACT = {
    "gpt2": byte_level(*GPT2),
    "gpt2 with composed letters": byte_level(*GPT2, normalizer=normalizers.NFC()),
    "digits first": byte_level(pre_tokenizers.Digits(individual_digits=True), *GPT2),
    "gpt3.5": byte_level(*split(LINES)),
    "an added word": byte_level(*GPT2, added=AddedToken("yes", rstrip=False)),
    "words": tables.words(),
}
UNKNOWN = {
    "marks the start": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "no rules": byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)),
    "a rule over lines": byte_level(*split(r"\w\sA|" + LINES)),
    "a rule that looks back": byte_level(*split(r"(?<=x)\s+|" + LINES)),
    "an added token over lines": byte_level(*GPT2, added=AddedToken("yes\n")),
    "an added token that takes what follows": byte_level(*GPT2, added=AddedToken("yes", rstrip=True)),
    "another normalizer": byte_level(*GPT2, normalizer=normalizers.Replace("x\n", "x")),
    "sentencepiece": tables.sentencepiece_like(),
    "one piece": tables.merging(),
}


def encoded(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


@pytest.mark.parametrize("name", EXACT)
def test_known_rules_may_be_cut(name: str) -> None:
    assert cuts.cuts_are_exact(EXACT[name])


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_rules_may_not(name: str) -> None:
    assert not cuts.cuts_are_exact(UNKNOWN[name])


@pytest.mark.parametrize("name", ["a rule over lines", "an added token over lines", "sentencepiece"])
def test_for_them_parts_would_make_a_difference(name: str) -> None:
    tokenizer = UNKNOWN[name]
    parts = chain.from_iterable(encoded(tokenizer, part) for part in cuts.parts(TEXT))
    assert list(parts) != encoded(tokenizer, TEXT)


@pytest.mark.parametrize("name", EXACT)
def test_parts_are_encoded_as_the_whole(name: str) -> None:
    tokenizer = EXACT[name]

    @settings(deadline=None)
    @given(st.one_of(st.text("QAyesx12.,' \n\r\t", max_size=30), st.text(max_size=30)))
    def check(text: str) -> None:
        parts = cuts.parts(text)
        assert "".join(parts) == text
        assert list(chain.from_iterable(encoded(tokenizer, part) for part in parts)) == encoded(tokenizer, text)

    check()


def test_cuts_lie_behind_letters_and_digits() -> None:
    assert cuts.parts("Q x\nA: 1\n\n.\né\nno") == ["Q x", "\nA: 1", "\n\n.\né\nno"]
    assert cuts.parts("\nA\n") == ["\nA", "\n"]
    assert cuts.last_cut("Q x\nA: 1\n\n.\né\nno") == 8
    assert [cuts.last_cut(text) for text in ("", "\n", "no cut", ".\n")] == [0, 0, 0, 0]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("add_bos_token", [None, False])
def test_requests_are_those_of_whole_texts(
    name: str, add_bos_token: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(TEXT * 2 + end, rest) for end in ("A:", "x", "x\nA:", "") for rest in (" yes", " no", "\nx", " 12 x")]
    pairs += [("", " yes"), ("\n", "x\nA")]
    cut = TextEncoder(EXACT[name], 600, add_bos_token=add_bos_token).pairs(pairs)
    monkeypatch.setattr("pytest_llmeval._models.encoding.cuts_are_exact", lambda _: False)
    assert cut == TextEncoder(EXACT[name], 600, add_bos_token=add_bos_token).pairs(pairs)


def test_lines_that_prompts_share_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = TextEncoder(EXACT["gpt2"], 600)
    seen: list[str] = []
    call = encoder._tokenize
    monkeypatch.setattr(encoder, "_tokenize", lambda texts, **kw: [seen.extend(texts), call(texts, **kw)][1])
    encoder.pairs([("Q x\nA: no" + doc + "\nA:", rest) for doc in ("\n\nQ 1", "\n\nQ 2") for rest in (" yes", " no")])
    assert sorted(seen) == ["\n\nQ 1", "\n\nQ 2", "\nA:", "\nA: no", "\nA: no", "\nA: yes", "Q x"]
