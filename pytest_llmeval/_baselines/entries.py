"""One doc of a baseline, and its line."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Pick
from pytest_llmeval._task import NOTHING


#: What stands for nothing: a doc without this score, or without a pick.
NONE = "-"

#: Digits of a score that is no whole number, and of a margin. Runs are compared after the same rounding.
SCORE_DIGITS, MARGIN_DIGITS = 7, 3

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

#: Longer lists are not kept: [gold, pick], [loglikelihood, words] and the probabilities of ten choices are.
_MOST_NUMBERS = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """What is kept of one doc: `scores` by ``metric,filter``, each a number, numbers, or [label, numbers].

    `doc` is its number in the run that wrote it.
    """

    doc: int
    key: DocKey
    scores: Mapping[str, Any] = NOTHING
    pick: Pick | None = None

    def as_result(self, filters: Sequence[str]) -> DocResult:
        """The entry as the result of a run, for summing up."""
        scores: dict[str, dict[str, Any]] = {name: {} for name in filters}
        for column, item in self.scores.items():
            metric, _, filter_name = column.rpartition(",")
            if item is not None:
                scores.setdefault(filter_name, {})[metric] = item
        return DocResult(self.doc, scores, key=self.key, pick=self.pick)


def docs_named(entries: Sequence[Entry]) -> str:
    """``3 docs (doc[1], doc[5], ...)``"""
    named = ", ".join(f"doc[{entry.doc}]" for entry in entries[:2]) + ", ..." * (len(entries) > 2)
    return f"{len(entries):,} doc{'s' * (len(entries) != 1)} ({named})"


def entry_of(result: DocResult) -> Entry:
    """What a baseline keeps of a result, rounded as it is written. The result has a key and no error.

    Scores of another kind (texts) and long lists are left out.
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
    return Entry(result.doc, DocKey(result.key.doc, result.key.prompt), scores, pick)


def _rounded(margin: float) -> float:
    return float(f"{margin:.{MARGIN_DIGITS}g}")


def entry_line(entry: Entry, columns: Sequence[str], margins: Sequence[str] = ()) -> str:
    """The line of a doc; `columns` are those of scores, in order, `margins` the metrics with margins of their own."""
    pick, gold, margin = [NONE] * 3
    if entry.pick is not None:
        pick, gold = _choice(entry.pick.index), "".join(map(_choice, entry.pick.gold)) or NONE
        known = [entry.pick.margin, *(entry.pick.margins.get(name) for name in margins)]
        margin = "/".join(NONE if one is None else f"{one:.{MARGIN_DIGITS}g}" for one in known)
    scores = [write_item(entry.scores.get(column)) or NONE for column in columns]
    return " ".join([str(entry.doc), entry.key.doc, entry.key.prompt, pick, gold, margin, *scores])


def read_entry(line: str, columns: Sequence[str], margins: Sequence[str] = ()) -> Entry:
    """Raises ValueError, which says what is wrong with the line."""
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
        chosen = Pick(_index(pick), _indices(gold), float(first), known)
    items = {column: read_item(text) for column, text in zip(columns, scores, strict=True)}
    if any("nan" in text.lower() for text in scores):
        raise ValueError("a score is NaN: nothing can be compared with it")
    return Entry(int(doc), DocKey(identity, prompt), items, chosen)


def write_item(item: Any) -> str | None:
    """A score as text; None for one that is not kept.

    >>> write_item(1.0), write_item(-12.345678901), write_item([-20.5, 7]), write_item([1, [0.25, 0.75]])
    ('1', '-12.34568', '-20.5/7', '1:0.25/0.75')
    """
    if isinstance(item, bool | int | float):
        # Of what is written: 9999999.5 is as whole as what it will be read as.
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
    """The score of a text: a number, a list of numbers, [label, numbers], or None for ``-``. Raises ValueError."""
    if text == NONE:
        return None
    label, colon, values = text.partition(":")
    if colon:
        return [int(label), read_item(values)]
    numbers = [float(part) for part in text.split("/")]
    whole = [int(number) if number.is_integer() and "e" not in text else number for number in numbers]
    return whole if len(whole) > 1 else whole[0]


def _choice(index: int) -> str:
    """A for 0, B for 1; options after Z are numbers in parentheses; ``-`` for no choice."""
    if index < 0:
        return NONE
    return _LETTERS[index] if index < len(_LETTERS) else f"({index})"


def _index(text: str) -> int:
    found = _indices(text)
    return found[0] if found else -1


def _indices(text: str) -> tuple[int, ...]:
    if text == NONE:
        return ()
    found, rest = [], text
    while rest:
        if rest[0] == "(":
            number, _, rest = rest[1:].partition(")")
            found.append(int(number))
        else:
            found.append(_LETTERS.index(rest[0]))
            rest = rest[1:]
    return tuple(found)
