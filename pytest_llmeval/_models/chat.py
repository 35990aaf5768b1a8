"""The chat template of a tokenizer, and the facts of a tokenizer for result files."""

from __future__ import annotations

import datetime
import re
import warnings
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import jinja2

from pytest_llmeval._errors import LLMEvalWarning
from pytest_llmeval._errors import ModelError
from pytest_llmeval._models.encoding import Tokenizer
from pytest_llmeval._task import NOTHING


#: The date for chat templates that print one, which is the default date in the template of Llama 3.
TODAY = datetime.datetime(2024, 7, 26)
_STRFTIME_NOW = re.compile(r"""strftime_now\(\s*(?P<quote>["'])(?P<format>.*?)(?P=quote)\s*\)""")


def render_chat(
    tokenizer: Tokenizer,
    model: str,
    messages: Sequence[Mapping[str, str]],
    add_generation_prompt: bool,
    variables: Mapping[str, Any] = NOTHING,
) -> str:
    """Return the prompt of messages by the template of a model's tokenizer; a date in it is `TODAY`.

    Without `add_generation_prompt` the last message is left open, to be continued. A system message that the
    template does not accept is omitted with a warning, as in lm_eval. `variables` are those that the user sets. Raises
    ModelError if there is no template, if it fails, or if it has no such variable.
    """
    if not tokenizer.chat_template:
        raise ModelError(f"model {model!r} has no chat template: run it without --llmeval-chat-template")
    template = tokenizer.get_chat_template()
    for name in variables:
        if name not in template:
            raise ModelError(f"the chat template of model {model!r} has no variable {name!r}: omit it")
    dated = _STRFTIME_NOW.sub(lambda call: repr(TODAY.strftime(call["format"])), template)
    refusal: Exception | None = None
    for taken in (messages, [message for message in messages if message["role"] != "system"]):
        try:
            prompt = str(
                tokenizer.apply_chat_template(
                    [dict(message) for message in taken],
                    chat_template=dated,
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    continue_final_message=not add_generation_prompt,
                    date_string=TODAY.strftime("%d %b %Y"),
                    **variables,
                )
            )
            break
        except (jinja2.TemplateError, ValueError) as error:
            refusal = refusal or error
    else:
        raise ModelError(f"the chat template of model {model!r} fails: {refusal}") from refusal
    if refusal is not None:
        warnings.warn(
            f"the chat template of model {model!r} does not accept a system message ({refusal}): it is omitted",
            LLMEvalWarning,
            stacklevel=3,
        )
    return prompt


def describe_tokenizer(tokenizer: Tokenizer, max_length: int) -> dict[str, Any]:
    """Return the facts of a tokenizer and its chat template, under lm_eval's names."""
    special = {
        f"tokenizer_{name}_token": [token, str(getattr(tokenizer, f"{name}_token_id"))]
        for name in ("pad", "eos", "bos")
        for token in [getattr(tokenizer, f"{name}_token")]
    }
    return {
        "tokenizer": {**special, "eot_token_id": tokenizer.eos_token_id, "max_length": max_length},
        "chat_template": tokenizer.get_chat_template() if tokenizer.chat_template else None,
    }
