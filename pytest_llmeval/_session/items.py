"""The parameters of doc and gate items, and the facts that an item's id tells."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._gates import Gate
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


@dataclass(frozen=True, slots=True)
class DocItem:
    """The parameter of a doc item; `id` is its part of the node id."""

    id: str
    opened: OpenTask
    index: int


@dataclass(frozen=True, slots=True)
class GateItem:
    """The parameter of a gate item; `owner` is the task or group that it judges."""

    id: str
    owner: Task | Group
    gate: Gate


def doc_of(item: pytest.Item) -> DocItem | None:
    """Return the parameter of a doc item; None for other items."""
    found = _parameter(item, "llmeval_doc")
    return found if isinstance(found, DocItem) else None


def gate_of(item: pytest.Item) -> GateItem | None:
    """Return the parameter of a gate item; None for other items."""
    found = _parameter(item, "llmeval_gate")
    return found if isinstance(found, GateItem) else None


def owner_of(item: pytest.Item) -> Task | Group | None:
    """Return the task or group that a gate or score item looks at; None for other items."""
    if found := gate_of(item):
        return found.owner
    owner = getattr(item.parent, "found", None)
    return owner if isinstance(owner, Group) and item.name.startswith("score") else None


def model_of(item: pytest.Item) -> str:
    """Return the model's name in the item's id; empty where the session has one model."""
    callspec = getattr(item, "callspec", None)
    if callspec is None:
        return ""
    own = doc_of(item) or gate_of(item)
    model: str = callspec.id
    return model.removesuffix(own.id).removesuffix("-") if own else model


def overrides_model(item: pytest.Item) -> bool:
    """Return True if a conftest.py gives the model of a doc, gate or score item."""
    fixtures: Mapping[str, Sequence[object]] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    return len(fixtures["llmeval_model"]) > 1


def _parameter(item: pytest.Item, name: str) -> Any:
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get(name)
