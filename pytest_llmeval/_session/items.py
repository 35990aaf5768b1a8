"""What an item of ours carries, and which model it belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from pytest_llmeval._evaluation.evaluation import OpenTask
from pytest_llmeval._gates import Gate
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


@dataclass(frozen=True, slots=True)
class DocItem:
    """The parameter of one doc item; `id` is its part of the node id."""

    id: str
    opened: OpenTask
    index: int


@dataclass(frozen=True, slots=True)
class GateItem:
    """The parameter of one gate item; `owner` is the task or group that it judges."""

    id: str
    owner: Task | Group
    gate: Gate


def doc_of(item: pytest.Item) -> DocItem | None:
    """The doc of an item, known before it is set up."""
    found = _parameter(item, "llmeval_doc")
    return found if isinstance(found, DocItem) else None


def gate_of(item: pytest.Item) -> GateItem | None:
    found = _parameter(item, "llmeval_gate")
    return found if isinstance(found, GateItem) else None


def variant_of(item: pytest.Item) -> str:
    """What the item's id says besides doc or gate: the model, where there are several; else an empty text."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return ""
    own = doc_of(item) or gate_of(item)
    variant: str = callspec.id
    return variant.removesuffix(own.id).removesuffix("-") if own else variant


def _parameter(item: pytest.Item, name: str) -> Any:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(name)
