"""The checkpoints of one training run: in which order they come, and which of them is the first bad one.

Everything here rests on one assumption, which is the user's to know: once a checkpoint is bad, all later ones are.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from pytest_llmeval._errors import SettingError


#: A model as the user gave it: the name that it shall have, if any, and what to load.
Given: TypeAlias = tuple[str | None, str]

_NUMBER = re.compile(r"([0-9]+)")


def history_between(good: Given, bad: Given, listed: Sequence[Given] = ()) -> list[Given]:
    """All checkpoints from `good` to `bad`, both included, in the order in which they were saved.

    `listed` are further models in that order; `good` and `bad` may be among them, by name or by spec. Without any,
    the history is what lies beside the two in their folder: names like theirs but for the numbers, in the order of
    these. Raises SettingError where there is no such order, or where a model is not between the two.
    """
    if good[1] == bad[1]:
        raise SettingError(f"GOOD and BAD are both {good[1]!r}: name two checkpoints")
    if listed:
        return _as_listed(good, bad, listed)
    named = {path: name for name, path in (good, bad)}
    return [(named.get(path), path) for path in _saved_between(good[1], bad[1])]


def first_bad(count: int, is_bad: Callable[[int], bool | None]) -> tuple[int, int]:
    """The places of the last good and the first bad of `count` checkpoints: the first one is good, the last one bad.

    Asks about ceil(log2(count - 1)) others, and one more for each that cannot be judged (None): the search goes on
    with those beside it. What lies between the two places found could not be judged.
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
    start, end = _place(good, listed, -1), _place(bad, listed, len(listed))
    if start > end:
        raise SettingError(f"GOOD {good[1]!r} is listed behind BAD {bad[1]!r}: name the older checkpoint first")
    outside = [*listed[: max(start, 0)], *listed[end + 1 :]]
    if outside:
        raise SettingError(f"the model {outside[0][1]!r} is not between GOOD {good[1]!r} and BAD {bad[1]!r}")
    first = good if start < 0 else listed[start]
    last = bad if end == len(listed) else listed[end]
    return [first, *listed[start + 1 : end], last]


def _place(wanted: Given, listed: Sequence[Given], otherwise: int) -> int:
    return next((i for i, (name, spec) in enumerate(listed) if wanted[1] in (name, spec)), otherwise)


def _saved_between(good: str, bad: str) -> list[str]:
    for place in (good, bad):
        if not Path(place).exists():
            raise SettingError(f"{place!r}: there is no such folder or file; {_OR_LIST}")
    first, last = Path(good), Path(bad)
    if first.parent.resolve() != last.parent.resolve():
        raise SettingError(f"{good!r} and {bad!r} lie in different folders; {_OR_LIST}")
    texts, start = _split(first.name)
    texts_of_bad, end = _split(last.name)
    if texts != texts_of_bad or not start:
        raise SettingError(f"{first.name!r} and {last.name!r} do not differ in numbers alone; {_OR_LIST}")
    if start >= end:
        raise SettingError(f"GOOD {first.name!r} is not older than BAD {last.name!r}: name the older one first")
    found = {path.name: _split(path.name) for path in first.parent.iterdir()}
    between = [(numbers, name) for name, (own, numbers) in found.items() if own == texts and start < numbers < end]
    return [good, *(str(first.parent / name) for _, name in sorted(between)), bad]


_OR_LIST = "name the checkpoints between them in their order, each with --llmeval-model"


def _split(name: str) -> tuple[list[str], list[int]]:
    """
    >>> _split("epoch-2-step-1000")
    (['epoch-', '-step-', ''], [2, 1000])
    """
    parts = _NUMBER.split(name)
    return parts[::2], [int(number) for number in parts[1::2]]
