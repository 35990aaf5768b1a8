"""The comparison of a task's run with its baseline: the pairs of docs, and the reasons against comparing them."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._baselines.entry import Entry
from pytest_llmeval._baselines.entry import docs_named
from pytest_llmeval._baselines.record import Header
from pytest_llmeval._baselines.record import Record
from pytest_llmeval._baselines.record import canonical_json
from pytest_llmeval._plain import listed


@dataclass(frozen=True, slots=True)
class Pairing:
    """The docs of a baseline and of a run, paired.

    `pairs` are (before, now) in the order of the run's docs. `changed` are docs of the run whose columns are in the
    baseline with another prompt, `unknown` docs of the run that are not in the baseline, and `unused` docs of the
    baseline without a partner.
    """

    pairs: Sequence[tuple[Entry, Entry]] = ()
    changed: Sequence[Entry] = ()
    unknown: Sequence[Entry] = ()
    unused: Sequence[Entry] = ()


def pair(before: Iterable[Entry], now: Sequence[Entry]) -> Pairing:
    """Return the docs paired by the hashes of columns and prompt.

    Copies of a doc in one data set have equal hashes: those with the same number are paired first, then the others in
    order.
    """
    unpaired = _Unpaired(before)
    partners = unpaired.take(now, lambda entry: (entry.key.doc, entry.key.prompt))
    alone = [entry for entry, partner in zip(now, partners, strict=True) if partner is None]
    same_doc = _Unpaired(unpaired.entries()).take(alone, lambda entry: entry.key.doc)
    return Pairing(
        pairs=[(partner, entry) for entry, partner in zip(now, partners, strict=True) if partner is not None],
        changed=[entry for entry, partner in zip(alone, same_doc, strict=True) if partner is not None],
        unknown=[entry for entry, partner in zip(alone, same_doc, strict=True) if partner is None],
        unused=unpaired.entries(),
    )


def replaced(before: Iterable[Entry], now: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a baseline with those of docs that were run again replaced, also if prompts changed."""
    unpaired = _Unpaired(before)
    unpaired.take(now, lambda entry: entry.key.doc)
    return sorted([*unpaired.entries(), *now], key=lambda entry: entry.doc)


class _Unpaired:
    """The entries of a baseline that have no partner yet."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries = dict(enumerate(entries))

    def take(self, wanted: Sequence[Entry], key: Callable[[Entry], Any]) -> list[Entry | None]:
        """Remove and return an entry of the same key for each wanted entry; None if there is none."""
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

    def entries(self) -> list[Entry]:
        return list(self._entries.values())


@dataclass(frozen=True, slots=True)
class Comparison:
    """One task of a run and its baseline.

    `record` is None if the task has no baseline, or if its file cannot be read: `problem` then gives the reason.
    """

    now: Header
    record: Record | None = None
    pairing: Pairing = Pairing()
    problem: str | None = None

    def problems(self, *, whole: bool, ignore_unpaired: bool) -> list[str]:
        """Return the reasons why docs cannot be compared. `whole`: the run has all docs of the data set."""
        if self.record is None:
            return [self.problem or f"it has no task {self.now.task}"]
        if differing := differing_settings(self.record.header, self.now):
            return differing
        pairing = self.pairing
        if pairing.changed:
            return [f"the prompt of {docs_named(pairing.changed)} changed"]
        if not pairing.pairs:
            return ["it has none of the docs that were run"]
        found = []
        if pairing.unknown and not ignore_unpaired:
            found.append(f"it lacks {docs_named(pairing.unknown)} of the run")
        if whole and pairing.unused and not ignore_unpaired:
            found.append(f"the data no longer has {docs_named(pairing.unused)} of it")
        return found

    def column_problems(self, metric: str, filter_name: str) -> list[str]:
        """Return the reasons why docs cannot be compared by one metric under one filter.

        A metric that neither header lists is named by a function of the task.
        """
        if self.record is None:
            return []
        before, differing = self.record.header, []
        for what, name, old, new in (
            ("filter", filter_name, before.filters, self.now.filters),
            ("metric", metric, before.metrics, self.now.metrics),
        ):
            if name in old and old[name] != new.get(name):
                differing.append(
                    f"{what} {name} was {canonical_json(old[name])} and is {canonical_json(new.get(name))}"
                )
            elif name not in old and (name in new or what == "filter"):
                differing.append(f"it has no {what} {name} (it has: {listed(old) or 'none'})")
        if not differing and f"{metric},{filter_name}" not in before.values:
            differing.append(f"it has no {metric},{filter_name} (it has: {listed(before.values) or 'none'})")
        return differing

    @property
    def complete(self) -> bool:
        """True if run and baseline have the same docs."""
        return bool(self.pairing.pairs) and not (self.pairing.changed or self.pairing.unknown or self.pairing.unused)


def differing_settings(before: Header, now: Header) -> list[str]:
    """Return the settings that differ, in words: ``num_fewshot was 5 and is 0``."""
    differing = []
    # A setting that only one side has depends on another one that differs: there is no seed without examples.
    for name in [name for name in before.settings if name in now.settings]:
        # Compared as JSON, as in the file, where tuples and lists are equal.
        old, new = (json.loads(json.dumps(header.settings[name])) for header in (before, now))
        if old != new:
            differing.append(f"{name} was {canonical_json(old)} and is {canonical_json(new)}")
    return differing
