"""Which doc of a run is which of the baseline, and why the others have no partner."""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._baselines.entries import Entry
from pytest_llmeval._baselines.header import Header


@dataclass(frozen=True, slots=True)
class Pairing:
    """The docs of a baseline and of a run.

    `pairs` are (before, now) in the order of the run's docs. Of the others `changed` are docs of the run whose
    columns are in the baseline with another prompt, `unknown` those that are not there at all; `unused` are the
    baseline's docs that the run has not, or with another prompt only.
    """

    pairs: Sequence[tuple[Entry, Entry]]
    changed: Sequence[Entry] = ()
    unknown: Sequence[Entry] = ()
    unused: Sequence[Entry] = ()


def pair(before: Iterable[Entry], now: Sequence[Entry]) -> Pairing:
    """Pair docs by the hashes of columns and prompt.

    Copies of a doc in one data set have equal hashes: of these, those with the same number belong together, then
    the first with the first, and so on.
    """
    waiting = _Waiting(before)
    partners = waiting.take(now, lambda entry: (entry.key.doc, entry.key.prompt))
    left = [entry for entry, partner in zip(now, partners, strict=True) if partner is None]
    same_doc = _Waiting(waiting.left()).take(left, lambda entry: entry.key.doc)
    return Pairing(
        pairs=[(partner, entry) for entry, partner in zip(now, partners, strict=True) if partner is not None],
        changed=[entry for entry, partner in zip(left, same_doc, strict=True) if partner is not None],
        unknown=[entry for entry, partner in zip(left, same_doc, strict=True) if partner is None],
        unused=waiting.left(),
    )


class _Waiting:
    """Entries that have no partner yet."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = dict(enumerate(entries))

    def take(self, wanted: Sequence[Entry], key: Any) -> list[Entry | None]:
        """For each entry the one of the same key that it belongs to, which waits no longer; None without one."""
        by_key: dict[Any, list[int]] = {}
        for place, entry in self._entries.items():
            by_key.setdefault(key(entry), []).append(place)
        found: dict[int, int] = {}
        for same_number in (True, False):
            for position, entry in enumerate(wanted):
                places = by_key.get(key(entry), ())
                fitting = (place for place in places if not same_number or self._entries[place].doc == entry.doc)
                partner = None if position in found else next(fitting, None)
                if partner is not None:
                    by_key[key(entry)].remove(partner)
                    found[position] = partner
        return [self._entries.pop(found[position]) if position in found else None for position in range(len(wanted))]

    def left(self) -> list[Entry]:
        return list(self._entries.values())


def replaced(before: Iterable[Entry], now: Sequence[Entry]) -> list[Entry]:
    """The entries of a baseline after a part of its docs was run again, whatever their prompts are now."""
    waiting = _Waiting(before)
    waiting.take(now, lambda entry: entry.key.doc)
    return sorted([*waiting.left(), *now], key=lambda entry: entry.doc)


def unlike(before: Header, now: Header) -> list[str]:
    """Which settings differ, in words: ``num_fewshot was 5 and is 0``. Docs are then not to be compared."""
    return list(_differences(before.settings, now.settings))


def unlike_column(before: Header, now: Header, metric: str, filter_name: str) -> list[str]:
    """Likewise of the filter and the metric of one number.

    A metric that neither header lists is one that a function of the task names.
    """
    differing = []
    for what, name, old, new in (
        ("filter", filter_name, before.filters, now.filters),
        ("metric", metric, before.metrics, now.metrics),
    ):
        if old.get(name) != new.get(name) and name in old:
            differing.append(f"{what} {name} was {_shown(old[name])} and is {_shown(new.get(name))}")
        elif name not in old and (name in new or what == "filter"):
            differing.append(f"it has no {what} {name} (it has: {', '.join(old) or 'none'})")
    if not differing and f"{metric},{filter_name}" not in before.values:
        differing.append(f"it has no {metric},{filter_name} (it has: {', '.join(before.values) or 'none'})")
    return differing


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    # What only one side has depends on another setting, which then differs: no seed without examples.
    for name in [name for name in before if name in now]:
        # Through JSON, as the file has it: tuples and lists are the same there.
        old, new = (json.loads(json.dumps(side.get(name))) for side in (before, now))
        if old != new:
            yield f"{name} was {_shown(old)} and is {_shown(new)}"


def _shown(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
