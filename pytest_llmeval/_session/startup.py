"""The start of a session: options read and checked, and the objects of the plugin, made when first needed.

Nothing heavy is imported before a task file is collected or an option asks for it (yaml, jinja2 and numpy cost
`pytest --help` a tenth of a second, torch several), so functions import late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_llmeval._errors import SettingError
from pytest_llmeval._session.models import ModelChoice
from pytest_llmeval._session.models import Models
from pytest_llmeval._session.options import order_text
from pytest_llmeval._session.options import read_settings
from pytest_llmeval._session.options import value_of
from pytest_llmeval._settings import Settings


if TYPE_CHECKING:
    from pytest_llmeval._report import JoinedShards
    from pytest_llmeval._session.session import Session


SETTINGS = pytest.StashKey[Settings]()
MODELS = pytest.StashKey[Models]()
SESSION = pytest.StashKey["Session"]()
JOINED: pytest.StashKey[JoinedShards] = pytest.StashKey()


def configure(config: pytest.Config) -> None:
    """Read the options, and register the parts of the plugin that they ask for. Raises pytest.UsageError."""
    config.addinivalue_line("markers", "llmeval(task, group): docs and gates of a language-model task")
    config.addinivalue_line("markers", "llmeval_gate: a gate, which needs all docs of its task or group")
    try:
        settings, merged = read_settings(config), None
        if value_of(config, "shard") or value_of(config, "merge"):
            from pytest_llmeval._session.shards import check_options

            check_options(config)
        if value_of(config, "merge"):
            from pytest_llmeval._session.shards import joined_shards

            config.stash[JOINED] = joined = joined_shards(config)
            settings = joined.adopted(settings)
            merged = [ModelChoice(*choice) for choice in joined.head.models]
            config.option.llmeval_model_args = joined.head.model_args or None
        config.stash[SETTINGS] = settings
        config.stash[MODELS] = models = Models(config, merged)
        if config.getoption("llmeval_model") or config.getoption("llmeval_bisect"):
            models.check()
        if value_of(config, "output") or value_of(config, "gen-kwargs") or config.getoption("llmeval_baseline"):
            from pytest_llmeval._session.checks import check_before_collection

            check_before_collection(config, settings, models)
        if value_of(config, "bisect"):
            from pytest_llmeval._session.bisect import Bisection

            config.pluginmanager.register(Bisection(session_of(config)), "llmeval-bisect")
        if config.getoption("dist", "no") != "no":  # true only in the controller of xdist
            from pytest_llmeval._session.xdist import Controller

            config.pluginmanager.register(Controller(session_of(config)), "llmeval-controller")
    except SettingError as error:
        raise pytest.UsageError(str(error)) from None


def report_header(config: pytest.Config) -> str | None:
    """Return the line that says how to repeat the order of docs; None without early stopping."""
    settings = config.stash[SETTINGS]
    return f"llmeval: {order_text(settings)}" if settings.early_stop else None


def session_of(config: pytest.Config) -> Session:
    """Return the session of this run; the first call makes it and registers the hooks that run its items."""
    if SESSION not in config.stash:
        from pytest_llmeval._session.hooks import Running
        from pytest_llmeval._session.session import Session
        from pytest_llmeval._session.signals import EndingSignals

        joined = config.stash.get(JOINED, None)
        config.stash[SESSION] = session = Session(config, config.stash[SETTINGS], config.stash[MODELS], joined)
        config.pluginmanager.register(Running(session), "llmeval-running")
        if not session.on_worker:
            config.pluginmanager.register(EndingSignals(), "llmeval-signals")
    return config.stash[SESSION]
