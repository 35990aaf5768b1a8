"""Families of hypotheses: Holm's procedure, plain and on conditional p-values, and the false discovery rate."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_llmeval._stats import benjamini_hochberg
from pytest_llmeval._stats import conditional_holm
from pytest_llmeval._stats import holm


NAN = float("nan")


def test_holm_by_hand() -> None:
    """.005 <= .05/4, .01 <= .05/3, but .03 > .05/2."""
    assert holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}, 0.05) == {"a", "d"}
    assert holm({"a": 0.0125, "b": 0.0166, "c": 0.025, "d": 0.05}, 0.05) == {"a", "b", "c", "d"}
    assert holm({"a": NAN, "b": 0.02}, 0.05) == {"b"}
    assert holm({}, 0.05) == frozenset()


def test_conditional_holm_by_hand() -> None:
    """Two of six are left and doubled: .024 <= .05/2, then .044 <= .05; plain Holm would ask for .05/6."""
    safe = {"c": 0.76, "d": 0.9, "e": 1.0, "f": 1.0}
    assert conditional_holm({"a": 0.012, "b": 0.022, **safe}, 0.05) == {"a", "b"}
    assert conditional_holm({"a": 0.0126, "b": 0.022, **safe}, 0.05) == frozenset()
    assert conditional_holm({"a": 0.012, "b": 0.0251, **safe}, 0.05) == {"a"}
    assert holm({"a": 0.012, "b": 0.022, **safe}, 0.05) == frozenset()
    assert conditional_holm(safe, 0.05) == frozenset()
    assert conditional_holm({}, 0.05) == frozenset()


def test_p_values_near_one_half_count_in_part() -> None:
    """.625 counts as .5/.625 = .8 of a hypothesis, so one p-value may be .05/1.8/2 = .01389; .75 counts 2/3."""
    assert conditional_holm({"a": 0.0138, "b": 0.625, "c": 0.8}, 0.05) == {"a"}
    assert conditional_holm({"a": 0.0139, "b": 0.625, "c": 0.8}, 0.05) == frozenset()
    assert conditional_holm({"a": 0.0149, "b": 0.75, "c": 0.8}, 0.05) == {"a"}
    assert conditional_holm({"a": 0.0125, "b": 0.5}, 0.05) == {"a"}
    assert conditional_holm({"a": 0.0126, "b": 0.5}, 0.05) == frozenset()


def test_a_gate_without_a_p_value_counts_in_full() -> None:
    assert conditional_holm({"a": 0.0125, "b": NAN}, 0.05) == {"a"}
    assert conditional_holm({"a": 0.0126, "b": NAN}, 0.05) == frozenset()
    assert conditional_holm({"b": NAN}, 0.05) == frozenset()


def test_benjamini_hochberg_by_hand() -> None:
    """Of five: .03 <= .05 * 3/5 takes .025 along, which is above .05 * 2/5; .041 > .05 * 4/5."""
    p_values = {"a": 0.03, "b": 0.009, "c": 0.025, "d": 0.041, "e": 0.6}
    assert benjamini_hochberg(p_values, 0.05) == {"a", "b", "c"}
    assert benjamini_hochberg(p_values | {"d": 0.04}, 0.05) == {"a", "b", "c", "d"}
    assert benjamini_hochberg(p_values | {"d": NAN, "a": 0.0301}, 0.05) == {"b"}
    assert benjamini_hochberg({}, 0.05) == frozenset()


def test_the_error_of_the_family_is_kept() -> None:
    """20 independent tasks on the edge: an error of .1 is used up, but for the tasks that count in part: .1 / 1.4.

    On average a task counts .5 + .5 log(.75/.5) = .70 instead of .5. Three standard errors are .015.
    """
    from scipy.special import ndtr

    p_values = ndtr(np.random.default_rng(0).normal(size=(4_000, 20))).tolist()
    wrong = {
        procedure: np.mean([bool(procedure(dict(enumerate(row)), 0.1)) for row in p_values])
        for procedure in (holm, conditional_holm, benjamini_hochberg)
    }
    assert wrong[holm] == pytest.approx(0.1, abs=0.015)
    assert wrong[benjamini_hochberg] == pytest.approx(0.1, abs=0.015)
    assert wrong[conditional_holm] == pytest.approx(0.07, abs=0.015)


def test_tasks_far_inside_their_limits_cost_little() -> None:
    """One of 57 tasks is bad (z -3.2), the others lie 2 standard errors inside: found in 77 against 50 % of runs."""
    from scipy.special import ndtr

    scores = np.random.default_rng(1).normal(size=(1_000, 57)) + 2.0
    scores[:, 0] -= 5.2
    p_values = ndtr(scores).tolist()
    found = {
        procedure: np.mean([0 in procedure(dict(enumerate(row)), 0.05) for row in p_values])
        for procedure in (holm, conditional_holm)
    }
    assert found[holm] == pytest.approx(0.53, abs=0.05)
    assert found[conditional_holm] == pytest.approx(0.75, abs=0.05)
