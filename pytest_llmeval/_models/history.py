"""The saved checkpoints of one training run: their order, and the search for the first bad one.

The search assumes that all checkpoints after a bad one are bad too.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from pytest_llmeval._errors import SettingError


#: A model as given by the user: (its name, or None, and its spec).
Given: TypeAlias = tuple[str | None, str]

_NUMBER = re.compile(r"([0-9]+)")
_OR_LIST = "name the checkpoints between them in their order, each with --llmeval-model"


def history_between(good: Given, bad: Given, listed: Sequence[Given] = ()) -> list[Given]:
    """Return all checkpoints from `good` to `bad`, both included, in the order in which they were saved.

    `listed`: the models between them in that order, optionally with `good` and `bad`, by name or by spec. If it is
    empty, the result is all checkpoints in the folder of `good` and `bad` whose names differ from theirs only in
    numbers, sorted by these. Raises SettingError if they cannot be sorted, or if a model is not between the two.
    """
    if good[1] == bad[1]:
        raise SettingError(f"GOOD and BAD are both {good[1]!r}: name two checkpoints")
    if listed:
        return _as_listed(good, bad, listed)
    named = {path: name for name, path in (good, bad)}
    return [(named.get(path), path) for path in _saved_between(good[1], bad[1])]


def first_bad(count: int, is_bad: Callable[[int], bool | None]) -> tuple[int, int]:
    """Return the indices of the last good and the first bad of `count` checkpoints; the first is good, the last is bad.

    `is_bad` is called for ceil(log2(count - 1)) others, and for one more per checkpoint that cannot be judged (None):
    the search continues with its neighbours. Checkpoints between the returned indices could not be judged.
    """
    good, bad = 0, count - 1
    left = list(range(1, bad))
    while left:
        middle = left[(len(left) - 1) // 2]
        found = is_bad(middle)
        if found is None:
            left.remove(middle)
        elif found:
            bad, left = middle, [place for place in left if place < middle]
        else:
            good, left = middle, [place for place in left if place > middle]
    return good, bad


def _as_listed(good: Given, bad: Given, listed: Sequence[Given]) -> list[Given]:
    start = next((i for i, known in enumerate(listed) if good[1] in known), -1)
    end = next((i for i, known in enumerate(listed) if bad[1] in known), len(listed))
    if start > end:
        raise SettingError(f"GOOD {good[1]!r} is listed after BAD {bad[1]!r}: name the older checkpoint first")
    outside = [*listed[: max(start, 0)], *listed[end + 1 :]]
    if outside:
        raise SettingError(f"the model {outside[0][1]!r} is not between GOOD {good[1]!r} and BAD {bad[1]!r}")
    first = good if start < 0 else listed[start]
    last = bad if end == len(listed) else listed[end]
    return [first, *listed[start + 1 : end], last]


def _saved_between(good: str, bad: str) -> list[str]:
    for place in (good, bad):
        if not Path(place).exists():
            raise SettingError(f"{place!r}: there is no such folder or file; {_OR_LIST}")
    first, last = Path(good), Path(bad)
    if first.parent.resolve() != last.parent.resolve():
        raise SettingError(f"{good!r} and {bad!r} are in different folders; {_OR_LIST}")
    texts, start = _texts_and_numbers(first.name)
    texts_of_bad, end = _texts_and_numbers(last.name)
    if texts != texts_of_bad or not start:
        raise SettingError(f"{first.name!r} and {last.name!r} do not differ in numbers only; {_OR_LIST}")
    if start >= end:
        raise SettingError(f"GOOD {first.name!r} is not older than BAD {last.name!r}: name the older one first")
    found = {path.name: _texts_and_numbers(path.name) for path in first.parent.iterdir()}
    between = [(numbers, name) for name, (own, numbers) in found.items() if own == texts and start < numbers < end]
    return [good, *(str(first.parent / name) for _, name in sorted(between)), bad]


def _texts_and_numbers(name: str) -> tuple[list[str], list[int]]:
    """Return the texts between the numbers of a name, and the numbers.

    >>> _texts_and_numbers("epoch-2-step-1000")
    (['epoch-', '-step-', ''], [2, 1000])
    """
    parts = _NUMBER.split(name)
    return parts[::2], [int(number) for number in parts[1::2]]
