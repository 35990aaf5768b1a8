"""The marks around the thoughts of a model, from its chat template or from the argument `think_end_token`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import ThoughtMarks


#: The marks of known families of models: Qwen and DeepSeek, Magistral, Command A, Seed-OSS.
KNOWN_MARKS = (
    ThoughtMarks("<think>", "</think>"),
    ThoughtMarks("[THINK]", "[/THINK]"),
    ThoughtMarks("<|START_THINKING|>", "<|END_THINKING|>"),
    ThoughtMarks("<seed:think>", "</seed:think>"),
)


def marks_of(tokenizer: Any, think_end_token: str | None) -> ThoughtMarks | None:
    """Return the marks of a model's thoughts; None if they are unknown, or are to be kept (an empty argument).

    Without the argument they are those known marks that the chat template contains. Raises ModelError for the number
    of a token that the tokenizer does not have.
    """
    if think_end_token is None:
        template = tokenizer.get_chat_template() if tokenizer.chat_template else ""
        return next((marks for marks in KNOWN_MARKS if marks.end in template), None)
    end = think_end_token
    if end.isdecimal():
        if int(end) >= len(tokenizer):
            raise ModelError(f"think_end_token: the tokenizer has {len(tokenizer):,} tokens, none with number {end}")
        end = str(tokenizer.decode([int(end)]))
    return next((marks for marks in KNOWN_MARKS if marks.end == end), ThoughtMarks("", end)) if end else None


class ThoughtText:
    """The text of new tokens with the marks of thoughts, also where these are special tokens.

    Special tokens are left out of answers. A tokenizer may count its marks among them.
    """

    def __init__(self, tokenizer: Any, marks: ThoughtMarks | None) -> None:
        self._tokenizer = tokenizer
        special = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))
        texts = () if marks is None else (marks.start, marks.end)
        #: Special token -> its text.
        self._marks: dict[int, str] = {special[text]: text for text in texts if text in special}

    def of(self, ids: Sequence[int]) -> str:
        """Return the text of tokens without special tokens other than the marks."""
        parts, start = [], 0
        for place, token in enumerate(ids):
            if token in self._marks:
                parts += [self._decode(ids[start:place]), self._marks[token]]
                start = place + 1
        return "".join([*parts, self._decode(ids[start:])])

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True)) if ids else ""
