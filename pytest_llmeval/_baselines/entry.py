"""The entry of one doc in a baseline: the hashes that identify it, its scores, and its line in the file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._errors import DataError
from pytest_llmeval._plain import listed
from pytest_llmeval._plain import plain_or_text
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Pick
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Task


#: Numbers of base-32 characters of 5 bits each; the docstring of this package explains why they suffice.
DOC_CHARS, PROMPT_CHARS, CLUSTER_CHARS, DIGEST_CHARS = 10, 6, 10, 13

#: The text of a missing value: a doc without this score, or without a choice.
NONE = "-"

#: Significant digits of scores that are not whole numbers, and of margins. Both sides are compared after rounding.
SCORE_DIGITS, MARGIN_DIGITS = 7, 3

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

#: Longer lists are not stored; [gold, pick], [loglikelihood, words] and the probabilities of ten choices are.
_MOST_NUMBERS = 10


def doc_key(task: Task, index: int, data: DocData, sent: Sequence[Sequence[Any]]) -> DocKey:
    """Return the key of one doc. `sent` holds the texts of its distinct requests, without generation settings.

    Raises DataError if the doc lacks the column that names the task's clusters.
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
    """Return the first `chars` of the text's BLAKE2 hash in lower-case base 32: letters and the digits 2 to 7."""
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=10).digest()
    return base64.b32encode(digest).decode("ascii").lower()[:chars]


def _canonical(value: Any) -> str:
    return json.dumps(plain_or_text(value), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Entry:
    """The stored values of one doc: `scores` by ``metric,filter``, each a number, numbers, or [label, numbers].

    `doc` is the doc's number in the run that wrote the entry. `next_tokens` is the text of its scored positions, which
    is stored in a file of its own; empty if they are not kept.
    """

    doc: int
    key: DocKey
    scores: Mapping[str, Any] = NOTHING
    pick: Pick | None = None
    next_tokens: str = ""

    def as_result(self, filters: Sequence[str]) -> DocResult:
        """Return the entry as a result, which can be summarized like those of a run."""
        scores: dict[str, dict[str, Any]] = {name: {} for name in filters}
        for column, item in self.scores.items():
            metric, _, filter_name = column.rpartition(",")
            if item is not None:
                scores.setdefault(filter_name, {})[metric] = item
        return DocResult(self.doc, scores, key=self.key, pick=self.pick)


def docs_named(docs: Sequence[Entry] | Sequence[DocResult]) -> str:
    """Return a text such as ``3 docs (doc[1], doc[5] and 1 more)``."""
    named = listed((f"doc[{one.doc}]" for one in docs), 2)
    return f"{len(docs):,} doc{'s' * (len(docs) != 1)} ({named})"


def entry_of(result: DocResult) -> Entry:
    """Return the entry of a result that has a key and no error, rounded as it is written.

    Scores that are texts or long lists are left out.
    """
    if result.key is None:
        raise ValueError(f"doc {result.doc} has no key")
    scores = {
        f"{metric},{name}": read_item(written)
        for name, metrics in result.scores.items()
        for metric, item in metrics.items()
        if (written := write_item(item)) is not None
    }
    pick = result.pick
    if pick is not None:
        margins = {name: _rounded(margin) for name, margin in pick.margins.items()}
        pick = Pick(pick.index, pick.gold, _rounded(pick.margin), margins)
    return Entry(result.doc, DocKey(result.key.doc, result.key.prompt), scores, pick, result.next_tokens)


def _rounded(margin: float) -> float:
    return float(f"{margin:.{MARGIN_DIGITS}g}")


def entry_line(entry: Entry, columns: Sequence[str], margins: Sequence[str] = ()) -> str:
    """Return the line of a doc; `columns` are the names of scores, `margins` the metrics with separate margins."""
    pick, gold, margin = [NONE] * 3
    if entry.pick is not None:
        pick, gold = _letter(entry.pick.index), "".join(map(_letter, entry.pick.gold)) or NONE
        known = [entry.pick.margin, *(entry.pick.margins.get(name) for name in margins)]
        margin = "/".join(NONE if one is None else f"{one:.{MARGIN_DIGITS}g}" for one in known)
    scores = [write_item(entry.scores.get(column)) or NONE for column in columns]
    return " ".join([str(entry.doc), entry.key.doc, entry.key.prompt, pick, gold, margin, *scores])


def read_entry(line: str, columns: Sequence[str], margins: Sequence[str] = ()) -> Entry:
    """Return the entry of a line. Raises ValueError for a line that is not valid, with the reason."""
    parts = line.split(" ")
    if len(parts) != 6 + len(columns):
        raise ValueError(f"expected {6 + len(columns)} fields, found {len(parts)}")
    doc, identity, prompt, pick, gold, margin, *scores = parts
    if not (doc.isascii() and doc.isdigit()):
        raise ValueError(f"expected the number of a doc, found {doc!r}")
    chosen = None
    if not pick == margin == NONE:
        first, *others = margin.split("/")
        known = {name: float(one) for name, one in zip(margins, others, strict=True) if one != NONE}
        chosen = Pick(next(iter(_indices(pick)), -1), _indices(gold), float(first), known)
    items = {column: read_item(text) for column, text in zip(columns, scores, strict=True)}
    if any("nan" in text.lower() for text in scores):
        raise ValueError("a score is NaN: nothing can be compared with it")
    return Entry(int(doc), DocKey(identity, prompt), items, chosen)


def write_item(item: Any) -> str | None:
    """Return a score as text; None for a score that is not stored.

    >>> write_item(1.0), write_item(-12.345678901), write_item([-20.5, 7]), write_item([1, [0.25, 0.75]])
    ('1', '-12.34568', '-20.5/7', '1:0.25/0.75')
    """
    if isinstance(item, bool | int | float):
        # Rounded before the test for a whole number: 9999999.5 is written, and read back, as one.
        number = float(item) if float(item).is_integer() else float(f"{item:.{SCORE_DIGITS}g}")
        return str(int(number)) if number.is_integer() and abs(number) < 1e15 else f"{number:.{SCORE_DIGITS}g}"
    if not isinstance(item, list | tuple) or not 1 < len(item) <= _MOST_NUMBERS:
        return None
    if len(item) == 2 and isinstance(item[0], int) and isinstance(item[1], list):
        values = write_item(item[1])
        return None if values is None else f"{item[0]}:{values}"
    parts = [write_item(part) if isinstance(part, int | float) else None for part in item]
    return None if None in parts else "/".join(part for part in parts if part is not None)


def read_item(text: str) -> Any:
    """Return the score of a text: a number, a list of numbers, [label, numbers], or None for ``-``.

    Raises ValueError.
    """
    if text == NONE:
        return None
    label, colon, values = text.partition(":")
    if colon:
        return [int(label), read_item(values)]
    numbers = [float(part) for part in text.split("/")]
    whole = [int(number) if number.is_integer() and "e" not in text else number for number in numbers]
    return whole if len(whole) > 1 else whole[0]


def _letter(index: int) -> str:
    """Return A for 0, B for 1; options after Z are numbers in parentheses; ``-`` for no choice."""
    if index < 0:
        return NONE
    return _LETTERS[index] if index < len(_LETTERS) else f"({index})"


def _indices(text: str) -> tuple[int, ...]:
    found, rest = [], "" if text == NONE else text
    while rest:
        if rest[0] == "(":
            number, _, rest = rest[1:].partition(")")
            found.append(int(number))
        else:
            found.append(_LETTERS.index(rest[0]))
            rest = rest[1:]
    return tuple(found)
