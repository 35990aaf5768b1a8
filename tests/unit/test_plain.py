"""What crosses a process border is plain."""

from __future__ import annotations

import datetime
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._plain import plain
from pytest_llmeval._plain import plain_or_text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.float64(0.5), 0.5),
        (np.int32(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2]]), [[1, 2]]),
        ((1, (2.5, "x")), [1, [2.5, "x"]]),
        (Loglikelihood(-1.0, True), [-1.0, True]),
        (Generation("text"), "text"),
        (MappingProxyType({1: (np.float32(0.5),)}), {"1": [0.5]}),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


def test_torch_scalars() -> None:
    torch = pytest.importorskip("torch")
    assert plain({"a": torch.tensor(0.5), "b": torch.tensor([1, 2])}) == {"a": 0.5, "b": [1, 2]}


@pytest.mark.parametrize("value", [{1, 2}, object(), b"x", [datetime.date(2024, 1, 2)]])
def test_what_has_no_plain_form(value: Any) -> None:
    with pytest.raises(TypeError, match="is no plain value"):
        plain(value)


def test_it_can_be_shown_all_the_same() -> None:
    assert plain_or_text(datetime.date(2024, 1, 2)) == "2024-01-02"
    assert plain_or_text((1,)) == [1]
