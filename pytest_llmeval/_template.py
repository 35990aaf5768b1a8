"""The Jinja dialect of task files.

As in lm-evaluation-harness, a trailing newline is kept, an undefined field is an error, and ``regex_replace`` is a
filter. In addition, templates run in Jinja's sandbox, with limits on their computations and output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from itertools import islice
from typing import Any

import jinja2
from jinja2 import meta
from jinja2 import nodes
from jinja2.nativetypes import NativeCodeGenerator
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from pytest_llmeval._errors import TemplateError
from pytest_llmeval._time_limit import TimeLimitError
from pytest_llmeval._time_limit import limited


#: The largest number of characters that a template may write for one doc.
MAX_OUTPUT = 10_000_000

#: The largest number of bits in the result of a power.
MAX_BITS = 100_000


class OutputLimitError(ValueError):
    """A template exceeded the limits on computations or output, which no real prompt does."""


class _Environment(ImmutableSandboxedEnvironment):
    """A sandboxed environment that limits the operations by which a short template can create a huge value."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*" and max(_size(left, right), _size(right, left)) > MAX_OUTPUT:
            raise OutputLimitError(f"a product with more than {MAX_OUTPUT:,} elements")
        are_whole = isinstance(left, int) and isinstance(right, int)
        if operator == "**" and are_whole and left.bit_length() * right > MAX_BITS:
            raise OutputLimitError(f"a power with more than {MAX_BITS:,} bits")
        return super().call_binop(context, operator, left, right)

    @staticmethod
    def concat(pieces: Iterable[str]) -> str:
        """Join the output of a template; characters are counted while it runs, so that an endless loop ends."""
        kept = []
        left = MAX_OUTPUT
        for piece in pieces:
            kept.append(piece)
            left -= len(piece)
            if left < 0:
                raise OutputLimitError(f"more than {MAX_OUTPUT:,} characters")
        return "".join(kept)


class _TypedGenerator(NativeCodeGenerator):
    """A code generator that keeps the type of an expression and converts only the surrounding text."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Any, finalize: Any) -> Any:
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class _TypedEnvironment(_Environment):
    """The same dialect, but a template that outputs a single value returns it with its type."""

    code_generator_class = _TypedGenerator

    @staticmethod
    def concat(pieces: Iterable[Any]) -> Any:
        rest = iter(pieces)
        kept = list(islice(rest, 2))
        if len(kept) == 1 and not isinstance(kept[0], jinja2.Undefined):
            return kept[0]
        return _Environment.concat(map(str, chain(kept, rest)))


def _size(sequence: Any, times: Any) -> int:
    if isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int):
        return len(sequence) * times
    return 0


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A compiled template. `slow`: it may run for a long time, so each call has a time limit, which costs 10 us."""

    template: jinja2.Template
    fields: frozenset[str]
    slow: bool


@lru_cache(maxsize=2)
def _environment(typed: bool) -> _Environment:
    environment = (_TypedEnvironment if typed else _Environment)(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["regex_replace"] = lambda text, pattern, repl, count=0: re.sub(pattern, repl, text, count=count)
    return environment


@lru_cache(maxsize=4096)
def _compile(template: str, typed: bool) -> _Compiled:
    def build() -> _Compiled:
        environment = _environment(typed)
        tree = environment.parse(template)
        slow = next(tree.find_all((nodes.For, nodes.Macro, nodes.Filter)), None) is not None
        return _Compiled(environment.from_string(template), frozenset(meta.find_undeclared_variables(tree)), slow)

    # The limit applies here too, since Jinja evaluates constant expressions at compile time.
    return limited(build)


def render(template: str, doc: Mapping[str, Any], *, place: str) -> str:
    """Return the text of a template for one doc.

    Values of the doc are inserted unchanged, never rendered as templates. Raises TemplateError, whose message starts
    with `place` (task, key, file and line), for a syntax error, a field that the doc does not have, an expression that
    fails, and a template that exceeds its limits.
    """
    text: str = _run(_compiled(template, place), doc, place)
    return text


def evaluate(template: str, doc: Mapping[str, Any], *, place: str) -> Any:
    """Return the value of a template for one doc, with its type if the template outputs a single value.

    ``{{label}}`` with ``{"label": 1}`` is the number 1, ``{{t}}`` with ``{"t": "[1, 2]"}`` is the text ``[1, 2]``, and
    ``{% set i = n - 1 %}{{options[i]}}`` is the option, of any type. For several values, or text around a value, it is
    the text that `render` returns. Raises TemplateError as `render` does.
    """
    return _run(_compiled(template, place, typed=True), doc, place)


def fields(template: str, *, place: str) -> frozenset[str]:
    """Return the fields of a doc that a template uses. Raises TemplateError if it cannot be compiled."""
    return _compiled(template, place).fields


def _run(compiled: _Compiled, doc: Mapping[str, Any], place: str) -> Any:
    try:
        if compiled.slow:
            return limited(lambda: compiled.template.render(doc))
        return compiled.template.render(doc)
    except Exception as error:
        missing = sorted(name for name in compiled.fields - doc.keys() if f"'{name}' is undefined" == str(error))
        if missing:
            reason = f"field {missing[0]!r} is not in the doc (it has: {', '.join(map(str, doc))})"
        else:
            reason = f"the template fails on this doc: {type(error).__name__}: {error}"
        raise TemplateError(f"{place}: {reason}") from error


def _compiled(template: str, place: str, typed: bool = False) -> _Compiled:
    try:
        return _compile(template, typed)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateError(f"{place}: template line {error.lineno}: {error.message}") from error
    except TimeLimitError as error:
        raise TemplateError(f"{place}: template: {error}") from error
