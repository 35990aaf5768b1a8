"""Docs to requests: what a doc of a task asks of a model.

fields      what a field of the task gives for a doc, with its type
answers     what doc_to_target means for each output type
messages    the turns of a prompt, as plain text or as a chat
generation  how texts are generated
values      RenderedDoc and Instance
rendering   a doc, or an example, with its fields worked out
requests    the calls of a model
"""

from pytest_llmeval._instances.generation import generation_kwargs
from pytest_llmeval._instances.generation import overrides_of
from pytest_llmeval._instances.generation import written_kwargs
from pytest_llmeval._instances.rendering import render_doc
from pytest_llmeval._instances.requests import instances_for
from pytest_llmeval._instances.values import ChatTemplate
from pytest_llmeval._instances.values import Instance
from pytest_llmeval._instances.values import RenderedDoc
from pytest_llmeval._instances.values import RequestKind


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
