"""The models of the session: specs parsed before anything runs, models loaded when the first item asks for one."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from pathlib import PurePath
from typing import TYPE_CHECKING

import pytest

from pytest_llmeval import _models
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._lm import LM
from pytest_llmeval._models import Given
from pytest_llmeval._models import ModelFactory
from pytest_llmeval._models import ModelSpec
from pytest_llmeval._models import TokenCache
from pytest_llmeval._models import history_between
from pytest_llmeval._session.options import SEAT
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._settings import parse_pairs


if TYPE_CHECKING:
    from pytest_llmeval._journal import Journal


NO_MODEL = (
    "no model is named: give --llmeval-model PATH-or-hub-id, set ini llmeval_model, or override the fixture "
    "llmeval_model in conftest.py"
)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One model of the session: its name in ids and reports, and its spec as the user wrote it, paths absolute."""

    name: str
    spec: str
    #: True if the user wrote NAME=SPEC.
    named: bool = False


class Models:
    """The models named by option or ini. Raises SettingError for names that do not tell them apart."""

    def __init__(self, config: pytest.Config, merged: Sequence[ModelChoice] | None = None) -> None:
        #: True if the models are those of shards, which have answered: none is loaded.
        self.have_answered = merged is not None
        self.choices = choices = _choices(config) if merged is None else tuple(merged)
        bisected = bool(value_of(config, "bisect"))
        #: Checkpoints of a search that were found beside its two ends, not named.
        self._found = choices[1:-1] if bisected and not config.getoption("llmeval_model") else ()
        #: The models that every item is run with; a search chooses its own.
        self.each_item: tuple[str, ...] = () if bisected else tuple(choice.name for choice in choices)
        self._origin = origin_of(config, "bisect" if bisected else "model")
        args = value_of(config, "model-args")
        self._args = parse_pairs(args, origin_of(config, "model-args")) if args else {}
        #: The place of this worker of xdist among those that share the machine; None without workers.
        self._seat: int | None = getattr(config, "workerinput", {}).get(SEAT)
        self._schemes: dict[str, ModelFactory] = {}
        #: Specs by the name of their model, each parsed once.
        self._specs: dict[str, ModelSpec] = {}
        #: Names by the `id` of a model, while that model is open: a later one may get the same `id`.
        self._served: dict[int, str] = {}
        self._config = config
        self._token_cache = TokenCache() if len(choices) > 1 else None
        config.hook.pytest_llmeval_register_models(register=self._schemes.__setitem__)

    @cached_property
    def journal(self) -> Journal | None:
        """The journal of answers; None if it is off."""
        # Imported here because it imports sqlite3.
        from pytest_llmeval._session.journal import journal_of

        return journal_of(self._config)

    def check(self) -> None:
        """Parse all specs. Raises SettingError with option, value and remedy.

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
        if self.have_answered:
            pytest.skip("--llmeval-merge runs without a model")
        choice = next((choice for choice in self.choices if choice.name == name), None)
        if choice is None:
            pytest.fail(NO_MODEL, pytrace=False)
        try:
            with gc_disabled():
                lm = _models.load_model(self._spec_of(choice), self._token_cache, self._seat, self.journal)
                # What was imported stays: pytest looks for garbage five times as it ends, a second of a short run.
                gc.freeze()
                getattr(lm, "prepare", lambda: None)()
        except LLMEvalError as error:
            # Errors of our own loader begin with the model's name; those of other schemes need not.
            message = str(error) if str(error).startswith("model ") else f"model {choice.name!r}: {error}"
            raise pytest.fail.Exception(message, pytrace=False) from None
        self._served[id(lm)] = choice.name if len(self.choices) > 1 else ""
        try:
            yield lm
        finally:
            self._served.pop(id(lm), None)
            getattr(lm, "close", lambda: None)()

    def given_name(self) -> str:
        """Return the name that the user gave the only model of the session; empty without one."""
        return self.choices[0].name if len(self.choices) == 1 and self.choices[0].named else ""

    def name_of(self, lm: LM) -> str:
        """Return the name in node ids of a model that is open here; empty if it is the only model."""
        return self._served.get(id(lm), "")

    def _spec_of(self, choice: ModelChoice) -> ModelSpec:
        if choice.name not in self._specs:
            self._specs[choice.name] = _models.parse_spec(choice.spec, self._args, schemes=self._schemes)
        return self._specs[choice.name]


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


def _choices(config: pytest.Config) -> tuple[ModelChoice, ...]:
    named = _given(config, "model")
    if ends := _given(config, "bisect"):
        named = _history(config, ends, named)
    short = _shortest_names([spec for _, spec in named])
    choices = tuple(ModelChoice(name or short[i], spec, named=name is not None) for i, (name, spec) in enumerate(named))
    for name, count in Counter(choice.name for choice in choices).items():
        if count > 1:
            raise SettingError(
                f"{origin_of(config, 'model')}: {count} models are called {name!r}; name them apart with NAME=SPEC"
            )
    return choices


def _given(config: pytest.Config, option: str) -> list[Given]:
    """Return the models that an option names, paths made absolute."""
    typed = config.getoption(f"llmeval_{option}") is not None
    base = config.invocation_params.dir if typed else config.rootpath
    named = [_split_name(str(text)) for text in value_of(config, option) or ()]
    return [(name, _absolute(spec, base)) for name, spec in named]


def _history(config: pytest.Config, ends: Sequence[Given], named: Sequence[Given]) -> list[Given]:
    """Return the checkpoints to search. Those of the ini file are for runs that name no model, so they are left out."""
    origin = origin_of(config, "bisect")
    if len(ends) != 2:
        raise SettingError(f"{origin}: expected two models, GOOD and BAD, got {len(ends)}")
    try:
        return history_between(ends[0], ends[1], named if config.getoption("llmeval_model") else ())
    except SettingError as error:
        raise SettingError(f"{origin}: {error}") from None


def _split_name(text: str) -> Given:
    """Return the name (None without one) and the spec of ``NAME=SPEC``; a name holds no slash and no colon."""
    name, equals, spec = text.partition("=")
    if equals and spec and not set(name) & set("/\\:") and name.strip():
        return name.strip(), spec
    return None, text


def _absolute(spec: str, base: Path) -> str:
    """Return a spec, made absolute if it is a path below `base`, so that xdist's workers find it from anywhere."""
    path = Path(spec).expanduser()
    if path.is_absolute() or (base / path).exists():
        return str(base / path)
    return spec


def _shortest_names(specs: Sequence[str]) -> list[str]:
    """Return the last path component of each spec, with as many more in front as make the names differ."""
    # The name of a served model follows a #.
    paths = [spec.replace("#", "/") if spec.startswith("openai:") else spec for spec in specs]
    parts = [PurePath(path.rstrip("/")).parts or (path,) for path in paths]
    depths = [1] * len(specs)
    while True:
        names = ["/".join(part[-depth:]).lstrip("/") for part, depth in zip(parts, depths, strict=True)]
        clashes = {name for name, count in Counter(names).items() if count > 1}
        growable = [i for i, name in enumerate(names) if name in clashes and depths[i] < len(parts[i])]
        if not growable:
            return names
        for i in growable:
            depths[i] += 1
