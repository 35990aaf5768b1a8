"""The hooks and fixtures that pytest sees in every run; each body calls one noun.

Hooks that pytest calls for every item are in `_session.hooks.Running`. It is registered when the first task file, or an
option, needs it, so that other suites never pay for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_llmeval import hookspecs
from pytest_llmeval._lm import LM
from pytest_llmeval._session import file_patterns
from pytest_llmeval._session.options import add_options
from pytest_llmeval._session.options import refuse_unknown_key
from pytest_llmeval._session.startup import MODELS
from pytest_llmeval._session.startup import configure
from pytest_llmeval._session.startup import report_header
from pytest_llmeval._session.startup import session_of


if TYPE_CHECKING:
    from pytest_llmeval._results import Summary


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    configure(config)


def pytest_warning_recorded(warning_message: warnings.WarningMessage) -> None:
    refuse_unknown_key(warning_message.message)


def pytest_report_header(config: pytest.Config) -> str | None:
    return report_header(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    file_patterns.hint(terminalreporter, exitstatus)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    from pytest_llmeval._session import collect

    return collect.module_for(file_path, parent)


@pytest.hookimpl(trylast=True)  # doc and gate come after the model, so that ids read doc[model-17]
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = metafunc.config.stash[MODELS].each_item
    if "llmeval_model_name" in metafunc.fixturenames and len(names) > 1:
        metafunc.parametrize("llmeval_model_name", names, indirect=True, ids=names, scope="session")
    generate = getattr(metafunc.definition.parent, "llmeval_generate", None)
    if generate is not None:
        generate(metafunc)


@pytest.fixture(scope="session")
def llmeval_model_name(request: pytest.FixtureRequest) -> str | None:
    """The name of the model that `llmeval_model` serves, one of those named by --llmeval-model."""
    choices = request.config.stash[MODELS].choices
    name: str | None = getattr(request, "param", choices[0].name if choices else None)
    return name


@pytest.fixture(scope="session")
def llmeval_model(request: pytest.FixtureRequest, llmeval_model_name: str | None) -> Iterator[LM]:
    """The language model under test: an object with loglikelihood, loglikelihood_rolling, generate_until."""
    yield from request.config.stash[MODELS].serve(llmeval_model_name)


@pytest.fixture(scope="session")
def llmeval_result(request: pytest.FixtureRequest, llmeval_model: LM) -> Callable[[str], Summary]:
    """Evaluates a task or group by name: ``llmeval_result("mmlu_anatomy").metrics["acc"]``."""
    session, model = session_of(request.config), request.config.stash[MODELS].name_of(llmeval_model)
    return lambda name: session.asked_result(name, model, llmeval_model)
