"""Families of hypotheses: Holm's procedure and inheritance along a tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._stats import closed_tree
from pytest_llmeval._stats import holm


P_VALUES = st.dictionaries(st.integers(0, 9), st.sampled_from([0.0, 0.001, 0.004, 0.006, 0.01, 0.02, 0.04, 0.05, 0.3]))
TREE = {"all": None, "stem": "all", "arts": "all", "physics": "stem", "biology": "stem", "music": "arts"}


def test_holm_by_hand() -> None:
    """.005 <= .05/4, .01 <= .05/3, but .03 > .05/2."""
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}, 0.05) == {"a", "d"}
    assert holm({"a": 0.0125, "b": 0.0166, "c": 0.025, "d": 0.05}, 0.05) == {"a", "b", "c", "d"}
    assert holm({"a": float("nan"), "b": 0.02}, 0.05) == {"b"}
    assert holm({}, 0.05) == frozenset()


@given(P_VALUES)
@settings(deadline=None)
def test_without_inner_nodes_a_tree_is_holms_procedure(p_values: dict[int, float]) -> None:
    assert closed_tree(p_values, dict.fromkeys(p_values), 0.05) == holm(p_values, 0.05)


def test_a_child_waits_for_its_parent() -> None:
    small = dict.fromkeys(TREE, 1e-9)
    assert closed_tree(small, TREE, 0.05) == set(TREE)
    assert closed_tree(small | {"stem": 0.9}, TREE, 0.05) == {"all", "arts", "music"}
    assert closed_tree(small | {"all": 0.051}, TREE, 0.05) == frozenset()
    assert closed_tree(small | {"all": 0.05}, TREE, 0.05) == set(TREE)
    assert closed_tree(small | {"all": float("nan")}, TREE, 0.05) == frozenset()


def test_parts_go_by_leaves_and_are_inherited() -> None:
    """Two thirds of .06 go to stem, one third to arts; physics and biology get .02 each. Biology inherits
    physics' part; and what all of stem had goes to arts.
    """
    p_values = {"all": 0.001, "stem": 0.04, "arts": 0.03, "physics": 0.02, "biology": 0.5, "music": 0.02}
    assert closed_tree(p_values, TREE, 0.06) == {"all", "stem", "physics"}
    assert closed_tree(p_values | {"biology": 0.041}, TREE, 0.06) == {"all", "stem", "physics"}
    assert closed_tree(p_values | {"biology": 0.04}, TREE, 0.06) == set(TREE) - {"music"} | {"music"}
    assert closed_tree(p_values | {"stem": 0.041}, TREE, 0.06) == {"all"}
    assert closed_tree(p_values | {"arts": 0.02, "stem": 0.041}, TREE, 0.06) == set(TREE) - {"biology"}


def test_nodes_without_a_hypothesis_only_join() -> None:
    leaves = {"physics": 0.02, "biology": 0.5, "music": 0.02}
    assert closed_tree(leaves, TREE, 0.06) == {"physics", "music"}
    assert closed_tree({"music": 0.05}, {"music": "arts"}, 0.05) == {"music"}
    assert closed_tree({"music": 0.05, "chess": 0.9}, {"music": "arts"}, 0.05) == frozenset()


def test_a_ring_is_no_tree() -> None:
    with pytest.raises(ValueError, match="their own ancestors"):
        closed_tree({"a": 0.1, "b": 0.1}, {"a": "b", "b": "a"}, 0.05)


def test_the_error_of_the_family_is_kept() -> None:
    """Nothing changed in 12 leaves of 4 groups; groups' z-scores are those of their leaves together."""
    rng = np.random.default_rng(0)
    parents: dict[object, object | None] = {"all": None} | dict.fromkeys(range(4), "all")
    parents |= {(group, leaf): group for group in range(4) for leaf in range(3)}
    wrong_holm = wrong_tree = 0
    from scipy.special import ndtr

    for leaves in rng.normal(size=(2_000, 4, 3)):
        scores: dict[object, float] = {"all": leaves.sum() / 12**0.5}
        scores |= {group: leaves[group].sum() / 3**0.5 for group in range(4)}
        scores |= {(group, leaf): leaves[group, leaf] for group in range(4) for leaf in range(3)}
        p_values = {node: float(ndtr(score)) for node, score in scores.items()}
        wrong_tree += bool(closed_tree(p_values, parents, 0.1))
        wrong_holm += bool(holm({node: p for node, p in p_values.items() if isinstance(node, tuple)}, 0.1))
    # Three standard errors of a tenth among 2,000 are .02.
    assert wrong_tree / 2_000 == pytest.approx(0.1, abs=0.02)
    assert wrong_holm / 2_000 == pytest.approx(0.1, abs=0.02)
