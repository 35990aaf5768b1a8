"""Mistakes of the command line and the ini file that are found before the work begins."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_llmeval._errors import BaselineError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._prompts import generation_kwargs
from pytest_llmeval._report import prepare_output
from pytest_llmeval._session.baseline import BaselineOptions
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.items import gate_of
from pytest_llmeval._session.items import owner_of
from pytest_llmeval._session.models import Models
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.session import Session
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import may_be_confirmed


#: A fixture that takes none of these cannot know of the models that the command line names.
LOOKS_AT_NAMES = frozenset({"llmeval_model", "llmeval_model_name", "request", "pytestconfig"})


def check_before_collection(config: pytest.Config, settings: Settings, models: Models) -> None:
    """Raise SettingError for a folder, a baseline or a generation setting that would fail only after hours."""
    if folder := value_of(config, "output"):
        prepare_output(config.invocation_params.dir / folder)
    if config.getoption("llmeval_baseline") is not None:
        BaselineOptions(config, settings).check([choice.name for choice in models.choices])
    generation_kwargs(Task("any", Path(), "generate_until", None, None), settings)


def usage_problem(session: Session, items: Iterable[pytest.Item]) -> str | None:
    """Return why the selected items cannot be run as asked, as far as is known without loading a model; else None."""
    if session.rules.problem:
        return session.rules.problem
    if idle := session.rules.unmatched_problem(session.selection.collected.values()):
        return idle
    if session.config.option.collectonly or session.looks_only:
        return None
    needed = list(items)
    try:
        if session.joined is None and any("llmeval_model_name" in getattr(item, "fixturenames", ()) for item in needed):
            session.models.check()
        _check_served(session, needed)
        if any(doc_of(item) or owner_of(item) for item in needed):
            session.baseline.check([choice.name for choice in session.models.choices])
            _check_distances(session, needed)
            _check_comparisons(session, needed)
    except SettingError as error:
        return str(error)
    return None


def _check_served(session: Session, items: Iterable[pytest.Item]) -> None:
    """Raise SettingError if models are named on the command line and an item's fixture would not look at them."""
    named = session.config.getoption("llmeval_model")
    for item in items if named else ():
        # Items of other plugins need not have fixtures.
        fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
        models = fixtures.get("llmeval_model", ())
        if len(models) > 1 and LOOKS_AT_NAMES.isdisjoint(models[-1].argnames):
            raise SettingError(
                f"--llmeval-model: {named[0]} would not be used, because a conftest.py overrides the fixture "
                "llmeval_model; let the fixture request llmeval_model (the loaded model) or llmeval_model_name (its "
                "name), or omit the option"
            )


def _check_distances(session: Session, items: Iterable[pytest.Item]) -> None:
    """Raise SettingError if a gate of the command line is on a distance that its baseline cannot give."""
    baseline = session.baseline.chosen
    for item in items:
        found = gate_of(item)
        if found is None or not found.gate.distance or not found.gate.place.origin.startswith("--"):
            continue
        if baseline is None:
            raise found.gate.place.error("there is no baseline to compare with: name one with --llmeval-baseline")
        if session.baseline.updating or not found.gate.needs_next_tokens:
            continue
        for task in session.evaluation.leaves(found.owner):
            # A file that cannot be read fails the gate, which says why.
            with suppress(BaselineError):
                record = baseline.read(task.name)
                if record is not None and not record.header.next_tokens:
                    raise found.gate.place.error(
                        f"baseline {baseline.name!r} keeps no next tokens of {task.name}: write it again with "
                        "--llmeval-update-baseline --llmeval-baseline-topk 4"
                    )


def _check_comparisons(session: Session, items: Iterable[pytest.Item]) -> None:
    """Raise SettingError for an option of the command line about comparisons that no selected gate would use."""
    gates, settings = [found.gate for item in items if (found := gate_of(item))], session.settings
    for name, asked, used, gate in (
        ("noise", settings.noise_docs, any(gate.compares for gate in gates), "gate"),
        ("confirm", settings.confirm, any(may_be_confirmed(gate) for gate in gates), "gate with a confidence"),
    ):
        origin = origin_of(session.config, name)
        if asked and not used and origin.startswith("--"):
            raise SettingError(
                f"{origin}: no selected {gate} compares with the baseline: add one, e.g. --llmeval-fail-on "
                "'*.acc >= baseline - 0.02 @ 0.95'"
            )
