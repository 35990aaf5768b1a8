"""Multiple testing: procedures that bound the probability of any false alarm among several gates."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic
from typing import TypeVar


K = TypeVar("K")


def holm(p_values: Mapping[K, float], alpha: float) -> frozenset[K]:
    """Return the hypotheses that Holm's step-down procedure rejects (1979, Scand. J. Statist. 6, 65-70).

    The probability of rejecting any true hypothesis is at most `alpha`, for any dependence of the p-values. A
    hypothesis whose p-value is NaN is never rejected.
    """
    rejected: set[K] = set()
    for key in sorted(p_values, key=lambda key: _comparable(p_values[key])):
        if not p_values[key] <= alpha / (len(p_values) - len(rejected)):
            break
        rejected.add(key)
    return frozenset(rejected)


def closed_tree(p_values: Mapping[K, float], parents: Mapping[K, K | None], alpha: float) -> frozenset[K]:
    """Return the hypotheses in a tree that are rejected, a child only if its parent is.

    The inheritance procedure (Goeman and Finos 2012, "The inheritance procedure", Stat. Appl. Genet. Mol. Biol. 11,
    article 11), which improves on Meinshausen (2008, Biometrika 95, 265-278). The roots share `alpha` in proportion
    to their numbers of leaves; the share of a rejected hypothesis is divided among its children in the same way, and
    the share of a subtree in which everything is rejected goes to its siblings. The probability of rejecting any true
    hypothesis is at most `alpha`, for any dependence of the p-values and any logical relation of the hypotheses: at
    every step the shares of the hypotheses under test sum to `alpha`, and no share shrinks as others are rejected
    (the sequential rejection principle, Goeman and Solari 2010, Ann. Statist. 38, 3782-3810).

    `parents` gives each node's parent, None for a root. A node without a p-value has no hypothesis and only groups
    its children; a p-value without a node in `parents` is a root. Raises ValueError for a tree with a cycle.
    """
    tree = _Tree.of(p_values, parents)
    rejected: frozenset[K] = frozenset()
    while True:
        parts = dict(tree.parts(rejected, alpha))
        more = {node for node, part in parts.items() if p_values[node] <= part}
        if not more:
            return rejected
        rejected |= more


@dataclass(frozen=True, slots=True)
class _Tree(Generic[K]):
    """A tree with the `children` and number of `leaves` of each node; the nodes in `tested` have a hypothesis."""

    roots: tuple[K, ...]
    children: Mapping[K, tuple[K, ...]]
    leaves: Mapping[K, int]
    tested: frozenset[K]

    @classmethod
    def of(cls, p_values: Mapping[K, float], parents: Mapping[K, K | None]) -> _Tree[K]:
        children: dict[K, list[K]] = {node: [] for node in (*p_values, *parents)}
        children |= {parent: [] for parent in parents.values() if parent is not None and parent not in children}
        for node, parent in parents.items():
            if parent is not None:
                children[parent].append(node)
        roots = tuple(node for node in children if parents.get(node) is None)
        leaves: dict[K, int] = {}
        for node in reversed(_breadth_first(roots, children)):
            leaves[node] = sum(leaves[child] for child in children[node]) or 1
        if len(leaves) < len(children):
            raise ValueError(f"not a tree: {[node for node in children if node not in leaves]} are their own ancestors")
        return cls(roots, {node: tuple(below) for node, below in children.items()}, leaves, frozenset(p_values))

    def parts(self, rejected: frozenset[K], alpha: float) -> Iterator[tuple[K, float]]:
        """Yield the hypotheses under test, each with its share of `alpha`, given those already rejected."""
        unfinished = self._unfinished(rejected)
        waiting = list(self._shares(self.roots, unfinished, alpha))
        while waiting:
            node, part = waiting.pop()
            if node in self.tested and node not in rejected:
                yield node, part
            else:
                waiting.extend(self._shares(self.children[node], unfinished, part))

    def _shares(self, nodes: tuple[K, ...], unfinished: frozenset[K], part: float) -> list[tuple[K, float]]:
        heirs = [node for node in nodes if node in unfinished]
        whole = sum(self.leaves[node] for node in heirs)
        return [(node, part * self.leaves[node] / whole) for node in heirs]

    def _unfinished(self, rejected: frozenset[K]) -> frozenset[K]:
        """Return the nodes whose subtrees hold a hypothesis that is not rejected yet."""
        found: set[K] = set()
        for node in reversed(_breadth_first(self.roots, self.children)):
            own = node in self.tested and node not in rejected
            if own or any(child in found for child in self.children[node]):
                found.add(node)
        return frozenset(found)


def _breadth_first(roots: tuple[K, ...], children: Mapping[K, list[K]] | Mapping[K, tuple[K, ...]]) -> list[K]:
    order = list(roots)
    for node in order:
        order.extend(children[node])
    return order


def _comparable(p_value: float) -> float:
    return p_value if p_value == p_value else float("inf")
