"""Calling what a task's ``!function`` names: a failure in it is the task's, and says where.

Such a function is the user's code. Whatever it raises becomes one TaskFileError with its file, line and name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pytest_llmeval._errors import TaskFileError


def name_of(function: Callable[..., Any]) -> str:
    """The name under which a function is shown, and under which a metric made of it is reported."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def call(function: Callable[..., Any], role: str, *args: Any, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)`. `role` is the YAML key it serves, for the message."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        path, line = _place(function, error)
        reason = f"{name_of(function)} raised {type(error).__name__}: {error}"
        raise TaskFileError(path, reason, line=line, key=role) from error


def accepts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Whether the signature takes these arguments; True where a function has none to inspect."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _place(function: Callable[..., Any], error: Exception) -> tuple[str, int | None]:
    """The file of a function, and the line of that file on which it failed, if it did there."""
    try:
        path = inspect.getsourcefile(function) or name_of(function)
    except TypeError:
        return name_of(function), None
    line = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return path, line
