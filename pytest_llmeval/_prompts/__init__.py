"""The prompts of a doc, and the requests that a task sends to a model for it.

fields      the value of a field of the task for a doc, with its type
rendering   a doc, or an example, with all its fields computed
turns       the turns of a prompt, as plain text or as a chat
fewshot     the few-shot examples before each doc
generation  the settings of generations
requests    the requests to a model
"""

from pytest_llmeval._prompts.fewshot import Shots
from pytest_llmeval._prompts.fewshot import num_fewshot
from pytest_llmeval._prompts.generation import generation_kwargs
from pytest_llmeval._prompts.generation import overrides_of
from pytest_llmeval._prompts.generation import written_kwargs
from pytest_llmeval._prompts.rendering import render_doc
from pytest_llmeval._prompts.requests import instances_for


__all__ = [
    "Shots",
    "generation_kwargs",
    "instances_for",
    "num_fewshot",
    "overrides_of",
    "render_doc",
    "written_kwargs",
]
