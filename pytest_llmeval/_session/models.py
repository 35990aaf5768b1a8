"""The models of the session: specs parsed before anything runs, models loaded when the first item asks for one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from pytest_llmeval import _models
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._lm import LM
from pytest_llmeval._models import Encodings
from pytest_llmeval._models import ModelFactory
from pytest_llmeval._models import ModelSpec
from pytest_llmeval._session.options import ModelChoice
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import parse_pairs
from pytest_llmeval._session.options import value_of


class Models:
    """The models named by option or ini."""

    def __init__(self, config: pytest.Config, choices: tuple[ModelChoice, ...]) -> None:
        self.choices = choices
        bisected = bool(value_of(config, "bisect"))
        #: Checkpoints of a search that were found beside its two ends, not named.
        self._found = choices[1:-1] if bisected and not config.getoption("llmeval_model") else ()
        #: The models that every item is run with; a search chooses its own.
        self.each_item: tuple[str, ...] = () if bisected else tuple(choice.name for choice in choices)
        self._origin = origin_of(config, "bisect" if bisected else "model")
        args = value_of(config, "model-args")
        self._args = parse_pairs(args, origin_of(config, "model-args")) if args else {}
        self._schemes: dict[str, ModelFactory] = {}
        #: Specs by the name of their model, each parsed once.
        self._specs: dict[str, ModelSpec] = {}
        #: Names by the `id` of a model, while that model is open: a later one may get the same `id`.
        self._served: dict[int, str] = {}
        self._encodings = Encodings() if len(choices) > 1 else None
        config.hook.pytest_llmeval_register_models(register=self._schemes.__setitem__)

    def check(self) -> None:
        """Parse all specs. Raises SettingError with option, value and mend.

        Models of the command line are checked at once, those of the ini file when an item needs one: a suite that
        needs none must not fail because a checkpoint is missing; nor must a search, for a checkpoint that nobody
        named.
        """
        if not self.choices:
            raise SettingError(NO_MODEL)
        for choice in self.choices:
            if choice not in self._found:
                try:
                    self._spec_of(choice)
                except SettingError as error:
                    raise SettingError(f"{self._origin}: {error}") from None

    def serve(self, name: str | None) -> Iterator[LM]:
        """Load the model of that name, hand it out once, and close it."""
        choice = next((choice for choice in self.choices if choice.name == name), None)
        if choice is None:
            pytest.fail(NO_MODEL, pytrace=False)
        try:
            with gc_disabled():
                lm = _models.load_model(self._spec_of(choice), self._encodings)
                # What was imported stays: pytest looks for garbage five times as it ends, a second of a short run.
                gc.freeze()
                getattr(lm, "prepare", _nothing)()
        except LLMEvalError as error:
            # Errors of our own loader begin with the model's name; those of other schemes need not.
            message = str(error) if str(error).startswith("model ") else f"model {choice.name!r}: {error}"
            raise pytest.fail.Exception(message, pytrace=False) from None
        self._served[id(lm)] = choice.name if len(self.choices) > 1 else ""
        try:
            yield lm
        finally:
            self._served.pop(id(lm), None)
            getattr(lm, "close", _nothing)()

    def variant_of(self, lm: LM) -> str:
        """The name in node ids of a model that is open here; empty where there is no other."""
        return self._served.get(id(lm), "")

    def _spec_of(self, choice: ModelChoice) -> ModelSpec:
        if choice.name not in self._specs:
            self._specs[choice.name] = _models.parse_spec(choice.spec, self._args, schemes=self._schemes)
        return self._specs[choice.name]


NO_MODEL = (
    "no model is named: give --llmeval-model PATH-or-hub-id, set ini llmeval_model, or override the fixture "
    "llmeval_model in conftest.py"
)


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Load without garbage collection: what is imported stays, and looking through it took a quarter of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _nothing() -> None:
    """Stands in for `prepare` and `close` of models that have none."""
