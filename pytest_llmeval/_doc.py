"""A rendered doc, and an instance, which is one call of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from typing import Literal
from typing import TypeAlias

from pytest_llmeval._task import DocData


RequestKind: TypeAlias = Literal["loglikelihood", "loglikelihood_rolling", "generate_until"]

#: Renders chat messages (``{"role": ..., "content": ...}``) to a prompt. The flag adds the header of a new reply;
#: without it the last message, by the assistant, is left open for the model to continue.
ChatTemplate: TypeAlias = Callable[[list[dict[str, str]], bool], str]


@dataclass(frozen=True, slots=True)
class RenderedDoc:
    """A doc with each field of its task evaluated once, with its type.

    `text`: the prompt of the doc itself, without description and few-shot examples. `choices`: the texts of options,
    None if the task has none. `gold`: the indices of the right choices, possibly empty. `references`: the right answers
    as texts, with which a generation is compared, or which a loglikelihood or rolling task scores. `target`: the value
    of doc_to_target, for sample files. `inputs`: the contexts of a task whose options are contexts with one shared
    continuation, one per option; else None. `problem`: the reason why the doc cannot be scored (gold out of range, an
    empty choice); such a doc is an error, not a wrong answer.
    """

    index: int
    data: DocData
    text: str
    choices: tuple[str, ...] | None
    gold: tuple[int, ...]
    references: tuple[str, ...]
    target: Any
    inputs: tuple[str, ...] | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Instance:
    """One call of a model: `arguments` are those of the `LM` method with the name `kind`.

    `index` numbers the distinct requests of a doc (choice 0, 1, ..., then the unconditional ones), `repeat` the samples
    of one request.
    """

    kind: RequestKind
    task: str
    doc: int
    index: int
    repeat: int
    arguments: tuple[Any, ...]

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts among the arguments: context and continuation, without generation settings."""
        return tuple(argument for argument in self.arguments if isinstance(argument, str))
