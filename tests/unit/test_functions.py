"""A function of a task that fails is the task's error, with file and line."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path

import pytest

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._functions import accepts
from pytest_llmeval._functions import call
from pytest_llmeval._functions import name_of


def fragile(values: list[int]) -> int:
    return values[3]


def test_the_value_comes_through() -> None:
    assert call(fragile, "metric", [0, 1, 2, 3]) == 3


def test_a_failure_names_file_line_key_and_function() -> None:
    with pytest.raises(TaskFileError) as failure:
        call(fragile, "process_results", [])
    line = inspect.getsourcelines(fragile)[1] + 1
    expected = f"{Path(__file__)}:{line}: process_results: fragile raised IndexError: list index out of range"
    assert str(failure.value) == expected
    assert isinstance(failure.value.__cause__, IndexError)


def test_a_wrong_call_has_no_line_of_its_own() -> None:
    with pytest.raises(TaskFileError, match=r"test_functions\.py: metric: fragile raised TypeError: .*positional"):
        call(fragile, "metric")


def test_a_builtin_has_only_a_name() -> None:
    with pytest.raises(TaskFileError, match=r"^int: metric: int raised ValueError"):
        call(int, "metric", "x")


def test_names() -> None:
    assert name_of(fragile) == "fragile"
    assert name_of(functools.partial(fragile, [1])) == "partial"


@pytest.mark.parametrize(
    ("args", "kwargs", "taken"), [((1,), {}, True), ((), {"values": 1}, True), ((), {}, False), ((1,), {"k": 2}, False)]
)
def test_accepts(args: tuple[int, ...], kwargs: dict[str, int], taken: bool) -> None:
    assert accepts(fragile, *args, **kwargs) is taken


def test_what_has_no_signature_is_taken_to_accept() -> None:
    class Opaque:
        __signature__ = "not one"

        def __call__(self) -> None: ...

    assert accepts(Opaque(), 1, 2, 3)
