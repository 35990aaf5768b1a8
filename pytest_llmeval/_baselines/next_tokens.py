"""The next-token probabilities of a task's docs, in a file beside its baseline, so that diffs of the latter stay short.

    llmeval next tokens, format 1

    0 kvzwylfo5a 4dq2bv 260:0.412,281:2.031~5310:9.214/1.12;30:0.002,17:6.9~88:12.5/7.1|=0;11:0.31,30:2~4:8.8/2.2

A line has the number and the hashes of a doc, then its requests, separated by ``|``, and their scored positions,
separated by ``;``. A position has the likeliest token ids, each with minus the natural log of its probability; after
``~`` one id that was drawn from all others; after ``/`` minus the log of their joint probability. ``=0`` repeats the
first of the doc's distinct positions: choices share theirs. The header of the baseline holds the digest of this file.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_llmeval._baselines.entry import DIGEST_CHARS
from pytest_llmeval._baselines.entry import Entry
from pytest_llmeval._baselines.entry import hashed
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._lm import NextToken
from pytest_llmeval._results import DocKey


FORMAT = 1

_FIRST = "llmeval next tokens, format "

#: The text of a doc without scored positions, whose text is empty.
NO_POSITIONS = "-"
#: Decimals of logs. An error of 0.0005 changes a divergence by 1e-7. Both sides are compared after rounding.
DIGITS = 3
#: A smaller probability than exp(-999), which no float32 holds, counts as this one.
_MOST = 999.0


def cost_of(logprob: float) -> float:
    """Return minus a log-probability, rounded as in a file and finite unless it is NaN."""
    return round(min(max(0.0, -logprob), _MOST), DIGITS) if not math.isnan(logprob) else math.nan


def positions_text(requests: Iterable[Sequence[NextToken]]) -> str:
    """Return the text of a doc's positions, request by request.

    >>> positions_text([[NextToken((5, 7), (-0.25, -3.5), -1.5, 5)] * 2])
    '5:0.25~7:3.5/1.5;=0'
    """
    places: dict[NextToken, int] = {}
    written = []
    for tokens in requests:
        parts = []
        for token in tokens:
            seen = len(places)
            place = places.setdefault(token, seen)
            parts.append(_position(token) if place == seen else f"={place}")
        written.append(";".join(parts))
    return "|".join(written)


def read_positions(text: str) -> list[list[NextToken]]:
    """Return the positions of a doc's requests from their text. Raises ValueError."""
    distinct: list[NextToken] = []
    requests = []
    for request in text.split("|"):
        found = []
        for part in request.split(";") if request != NO_POSITIONS else ():
            if part.startswith("="):
                found.append(distinct[int(part[1:])])
            else:
                distinct.append(_read_position(part))
                found.append(distinct[-1])
        requests.append(found)
    return requests


def _position(token: NextToken) -> str:
    *kept, drawn = (f"{i}:{_number(value)}" for i, value in zip(token.ids, token.logprobs, strict=True))
    return f"{','.join(kept)}~{drawn}/{_number(token.rest)}"


def _number(logprob: float) -> str:
    return f"{cost_of(logprob):.{DIGITS}f}".rstrip("0").rstrip(".")


def _read_position(text: str) -> NextToken:
    ids, _, rest = text.partition("/")
    kept, _, drawn = ids.partition("~")
    pairs = [part.split(":") for part in (*kept.split(","), drawn)]
    numbers = tuple(int(number) for number, _ in pairs)
    return NextToken(numbers, tuple(-float(cost) for _, cost in pairs), -float(rest), numbers[0])


@dataclass(frozen=True, slots=True)
class Kept:
    """The next tokens that a baseline keeps of one task: the text of each doc's positions by its two hashes.

    `vocabulary` identifies the token ids. `top`: the number of ids that are kept at a position.
    """

    top: int
    vocabulary: str
    texts: Mapping[tuple[str, str], str]

    def of(self, key: DocKey) -> list[list[NextToken]] | None:
        """Return the positions of the requests of a doc; None if none are kept."""
        text = self.texts.get((key.doc, key.prompt))
        return None if text is None else read_positions(text)


def kept_text(entries: Iterable[Entry]) -> str:
    """Return the file text of the next tokens of a task's docs."""
    lines = (f"{one.doc} {one.key.doc} {one.key.prompt} {one.next_tokens}\n" for one in entries if one.next_tokens)
    return f"{_FIRST}{FORMAT}\n\n{''.join(lines)}"


def digest_of(text: str) -> str:
    return hashed(text, DIGEST_CHARS)


def read_kept(path: Path, stated: Mapping[str, Any]) -> Kept:
    """Return the next tokens in a file, which `stated` in the header of the baseline describes.

    Raises BaselineError for a file that is missing, of another format, or not the one that the header describes.
    """
    again = "write the baseline again with --llmeval-baseline-topk, or restore a committed version"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BaselineError(path, f"the next tokens that the baseline names cannot be read: {error}; {again}") from None
    if not text.startswith(f"{_FIRST}{FORMAT}\n\n"):
        raise BaselineError(path, f"expected {_FIRST + str(FORMAT)!r}, found {text[:60]!r}; {again}", line=1)
    if digest_of(text) != stated["digest"]:
        raise BaselineError(path, f"it is not the file that was written with its baseline; {again}")
    texts = {}
    for line in text.splitlines()[2:]:
        _, doc, prompt, positions = line.split(" ")
        texts[doc, prompt] = positions
    return Kept(stated["top"], stated["vocabulary"], texts)
