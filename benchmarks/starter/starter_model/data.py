"""The data of the three tasks as JSON lines, one file a split."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starter_model.continuations import continuation_docs
from starter_model.letters import letters_docs
from starter_model.sums import sum_docs


def data_files(seed: int) -> dict[str, str]:
    """Relative path -> text of the file."""
    return {f"{folder}/{split}.jsonl": _lines(docs) for folder, split, docs in _splits(seed)}


def write_data(folder: Path, seed: int) -> None:
    """Writes the files below the folder."""
    for name, text in data_files(seed).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")


def _splits(seed: int) -> Iterator[tuple[str, str, Sequence[Mapping[str, Any]]]]:
    for subject, splits in letters_docs(seed).items():
        for split, docs in splits.items():
            yield subject, split, docs
    yield "continuations", "test", continuation_docs(seed)
    for split, worked in sum_docs(seed).items():
        yield "sums", split, worked


def _lines(docs: Sequence[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(doc) + "\n" for doc in docs)
