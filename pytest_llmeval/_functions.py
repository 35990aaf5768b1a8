"""The functions of a task (``!function``), and the options of filters and metrics.

A ``!function`` is the user's code: an exception in it becomes a TaskFileError with its file, line and name.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pytest_llmeval._errors import TaskFileError


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function for messages, which is also the name of a metric that uses it."""
    return str(getattr(function, "__name__", None) or type(function).__name__)


def call(function: Callable[..., Any], role: str, *args: Any, **kwargs: Any) -> Any:
    """Return ``function(*args, **kwargs)``, where `function` is a function of a task.

    `role`: the YAML key of the function, and the doc or split that it is called for. Raises TaskFileError with the
    file of the function, the line that failed, the role, and the exception.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        name = name_of(function)
        try:
            path = inspect.getsourcefile(function) or name
        except TypeError:
            path = name
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        message = f"{name} raised {type(error).__name__}: {error}"
        raise TaskFileError(path, message, line=lines[-1] if lines else None, key=role) from error


def accepts(function: Callable[..., Any], *args: Any, **kwargs: Any) -> bool:
    """Return True if a function accepts these arguments, or if it has no signature to inspect."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def check_options(owner: str, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise ValueError, beginning with `owner`, if an option is unknown, missing, or not of the annotated type.

    `function` takes its options as keywords, which are annotated with types of `_TYPES`.
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


#: For each annotation, as written in the source: a check of the type, and the type in words.
_TYPES: Mapping[str, tuple[Callable[[Any], bool], str]] = MappingProxyType(
    {
        "Any": (lambda value: True, "anything"),
        "Mapping[Any, Any]": (lambda value: isinstance(value, Mapping), "a mapping"),
        "Sequence[str] | None": (_are_texts, "a list of texts"),
        "bool": (lambda value: isinstance(value, bool), "true or false"),
        "float": (lambda value: _is_whole(value) or isinstance(value, float), "a number"),
        "int": (_is_whole, "a whole number"),
        "int | Sequence[int]": (_are_whole, "a whole number or a list of whole numbers"),
        "str": (lambda value: isinstance(value, str), "a text"),
        "str | None": (lambda value: value is None or isinstance(value, str), "a text"),
    }
)
