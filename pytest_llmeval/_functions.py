"""Calling what a task's ``!function`` names: a failure in it is the task's, and says where.

Such a function is the user's code. Whatever it raises becomes one TaskFileError with its file, line and name.

Options of filters and metrics, checked against the signature of the function that takes them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from collections.abc import Mapping
from types import MappingProxyType
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


def check_options(owner: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises ValueError, beginning with `owner`, if an option is unknown, missing, or not of the annotated type.

    `function` takes its options as keywords, annotated with the types named in `_TYPES`.
    """
    known = inspect.signature(function).parameters
    for name, value in options.items():
        if name not in known:
            raise ValueError(f"{owner}: unknown option {name!r}; its options: {', '.join(known) or 'none'}")
        fits, words = _TYPES[known[name].annotation]
        if not fits(value):
            raise ValueError(f"{owner}: {name} must be {words}, got {value!r}")
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in options:
            raise ValueError(f"{owner}: needs the option {name!r}")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and all(isinstance(one, str) for one in value))


def _are_whole(value: Any) -> bool:
    return _is_whole(value) or (isinstance(value, list | tuple) and len(value) > 0 and all(map(_is_whole, value)))


#: By annotation, as it is written: whether a value is of the type, and the type in words.
_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = MappingProxyType(
    {
        "Any": (lambda value: True, "anything"),
        "Mapping[Any, Any]": (lambda value: isinstance(value, Mapping), "a mapping"),
        "Sequence[str] | None": (_are_texts, "a list of texts"),
        "bool": (lambda value: isinstance(value, bool), "true or false"),
        "float": (lambda value: _is_whole(value) or isinstance(value, float), "a number"),
        "int": (_is_whole, "a whole number"),
        "int | Sequence[int]": (_are_whole, "a whole number or a list of these"),
        "str": (lambda value: isinstance(value, str), "a text"),
        "str | None": (lambda value: value is None or isinstance(value, str), "a text"),
    }
)
