"""A model that is loaded when something is asked that the journal does not know.

Where the journal knows all answers of a run, neither weights nor torch are loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pytest_llmeval._errors import ModelError
from pytest_llmeval._journal.answers import known_answers
from pytest_llmeval._journal.journal import Journal
from pytest_llmeval._lm import LM
from pytest_llmeval._lm import GenerationKwargs


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a model: `answers` decides about its answers, `facts` about the facts that it states."""

    answers: str
    facts: str


class DeferredLM:
    """A model with all its members, opened when one of them is used, and loaded when it is asked.

    Parameters
    ----------
    name
        The name of the model in reports.
    open_model
        Returns the model without its weights.
    identify
        Returns the identity of the model, given this; None if its answers cannot be kept.
    """

    def __init__(
        self,
        name: str,
        journal: Journal,
        open_model: Callable[[], Any],
        identify: Callable[[DeferredLM], Identity | None],
    ) -> None:
        self.name = name
        self.is_loaded = False
        self._journal = journal
        self._open_model = open_model
        self._identify = identify
        self._on_progress: Callable[[int, int], None] | None = None
        self._failure: ModelError | None = None

    @property
    def identity(self) -> str | None:
        """The identity of the answers of the model; None if they cannot be kept."""
        return self._identity.answers if self._identity else None

    @property
    def facts_identity(self) -> str:
        """The identity of the facts that the model states of itself; empty if it has none."""
        return self._identity.facts if self._identity else ""

    @property
    def engine_choice(self) -> Any:
        """The engines of the model; None while it is not loaded."""
        return self._lm.engine_choice if self.is_loaded else None

    @property
    def on_progress(self) -> Callable[[int, int], None] | None:
        return self._on_progress

    @on_progress.setter
    def on_progress(self, report: Callable[[int, int], None] | None) -> None:
        self._on_progress = report
        if self.is_loaded:
            self._lm.on_progress = report

    def prepare(self) -> None:
        """Load the weights, unless the journal knows answers of this model: perhaps it knows all."""
        known = known_answers(self._journal, self)
        if known is None or not known.is_known():
            self.load()

    def load(self) -> None:
        """Load the weights now. Raises ModelError if that fails, again and again without another try."""
        if self._failure is not None:
            raise self._failure
        if self.is_loaded:
            return
        try:
            self._lm.prepare()
        except ModelError as error:
            self._failure = error
            raise
        self.is_loaded = True
        self._lm.on_progress = self._on_progress

    def close(self) -> None:
        """Free the memory of the model, if it was opened."""
        if "_lm" in self.__dict__:
            self._lm.close()
        self.is_loaded = False

    def usage(self) -> Mapping[str, int]:
        """Return the model's own counts; empty while it is not loaded."""
        usage: Mapping[str, int] = self._lm.usage() if self.is_loaded else {}
        return usage

    def loglikelihood(self, requests: Sequence[tuple[str, str]]) -> Sequence[tuple[float, bool]]:
        return self._loaded().loglikelihood(requests)

    def loglikelihood_rolling(self, requests: Sequence[str]) -> Sequence[float]:
        return self._loaded().loglikelihood_rolling(requests)

    def generate_until(self, requests: Sequence[tuple[str, GenerationKwargs]]) -> Sequence[str]:
        return self._loaded().generate_until(requests)

    @property
    def tracked(self) -> Any:
        """The method of the model that reports next tokens, for which it is loaded. Raises AttributeError."""
        method = self._lm.tracked
        self.load()
        return method

    def recomputed(self, dtype: str | None = None) -> Iterator[LM]:
        """Yield the same model, computing in other ways; their answers are neither kept nor taken from a journal."""
        self.load()
        others: Iterator[LM] = self._lm.recomputed(dtype)
        yield from others

    def describe(self) -> Mapping[str, Any]:
        """Return the facts of the model, which is loaded for them."""
        self.load()
        facts: Mapping[str, Any] = self._lm.describe()
        return facts

    def __getattr__(self, name: str) -> Any:
        """Return another member of the model, which is opened for it, without its weights."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._lm, name)

    @cached_property
    def _lm(self) -> Any:
        return self._open_model()

    @cached_property
    def _identity(self) -> Identity | None:
        return self._identify(self)

    def _loaded(self) -> LM:
        self.load()
        lm: LM = self._lm
        return lm
