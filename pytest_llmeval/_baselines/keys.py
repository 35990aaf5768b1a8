"""By what a doc is known again: hashes of its columns and of all that a model was sent for it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Any

from pytest_llmeval._errors import DataError
from pytest_llmeval._plain import plain_or_text
from pytest_llmeval._results import DocKey
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Task


#: Base-32 characters of 5 bits each; why so many is said in the docstring of this package.
DOC_CHARS, PROMPT_CHARS, CLUSTER_CHARS, DIGEST_CHARS = 10, 6, 10, 13


def doc_key(task: Task, index: int, data: DocData, sent: Sequence[Sequence[Any]]) -> DocKey:
    """The key of one doc. `sent` are the texts of its distinct requests, without generation settings.

    Raises DataError if the doc lacks the column that tells the task's clusters.
    """
    columns = dict(data)
    cluster = None
    if task.cluster is not None:
        if task.cluster not in columns:
            raise DataError(
                f"{task.path}: metadata.cluster: doc {index} of task {task.name} has no column {task.cluster!r} "
                f"(it has: {', '.join(map(str, columns))})"
            )
        cluster = hashed(_canonical(columns[task.cluster]), CLUSTER_CHARS)
    return DocKey(hashed(_canonical(columns), DOC_CHARS), hashed(_canonical(sent), PROMPT_CHARS), cluster)


def hashed(text: str, chars: int) -> str:
    """BLAKE2 in lower-case base 32: letters and the digits 2 to 7, safe in any diff."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).digest()
    return base64.b32encode(digest).decode("ascii").lower()[:chars]


def _canonical(value: Any) -> str:
    return json.dumps(plain_or_text(value), sort_keys=True)
