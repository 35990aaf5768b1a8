"""Options of filters and metrics, checked against the signature of the function that takes them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


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
