"""Docs to requests: what a doc of a task asks of a model.

fields      what a field of the task gives for a doc, with its type
answers     what doc_to_target means for each output type
messages    the turns of a prompt, as plain text or as a chat
generation  how texts are generated
values      RenderedDoc and Instance
rendering   a doc, or an example, with its fields worked out
requests    the calls of a model
"""

from pytest_llmeval._doc import ChatTemplate
from pytest_llmeval._doc import Instance
from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._doc import RequestKind
from pytest_llmeval._prompts.rendering import render_doc
from pytest_llmeval._prompts.requests import generation_kwargs
from pytest_llmeval._prompts.requests import instances_for
from pytest_llmeval._prompts.requests import overrides_of
from pytest_llmeval._prompts.requests import written_kwargs


__all__ = [
    "ChatTemplate",
    "Instance",
    "RenderedDoc",
    "RequestKind",
    "generation_kwargs",
    "instances_for",
    "overrides_of",
    "render_doc",
    "written_kwargs",
]
