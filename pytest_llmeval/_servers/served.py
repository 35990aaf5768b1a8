"""The entry of a model in the list that a server gives of its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_llmeval._errors import ModelError
from pytest_llmeval._servers.client import MODELS
from pytest_llmeval._servers.client import Client
from pytest_llmeval._servers.client import closes
from pytest_llmeval._servers.client import denies


@dataclass(frozen=True, slots=True)
class Served:
    """A served model: its name, the software that serves it, the place that it was loaded from, its window in tokens.

    `owner` is empty and `window` None if the server does not say; `root` is then the name.
    """

    name: str
    owner: str = ""
    root: str = ""
    window: int | None = None


async def find_served(client: Client, name: str) -> Served:
    """Return the model of that name, or the only one for an empty name.

    Raises ModelError if the server does not serve it; GoneError if it does not answer.
    """
    try:
        data = await client.get(MODELS)
    except ModelError as error:
        if denies(error) or not closes(error):
            raise
        data = {}
    listed = data.get("data") if isinstance(data, Mapping) else None
    entries = [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    names = [str(entry.get("id")) for entry in entries]
    wanted = name or (names[0] if len(names) == 1 else "")
    if not wanted or (names and wanted not in names):
        there = f"it serves {', '.join(names)}" if names else "it does not list its models"
        raise ModelError(f"the server at {client.root} has no model {wanted!r}: {there}; write openai:URL#MODEL")
    entry = entries[names.index(wanted)] if names else {}
    window = entry.get("max_model_len")
    return Served(
        wanted,
        str(entry.get("owned_by") or ""),
        str(entry.get("root") or wanted),
        window if isinstance(window, int) else None,
    )
