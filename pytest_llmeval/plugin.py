"""The hooks. Each body calls one noun; what it does is written there.

Nothing heavy is imported before a task file is collected or a model is asked for (yaml, jinja2 and numpy cost
`pytest --help` a tenth of a second, torch several): hence the imports inside the hooks. Hooks that pytest calls
for every item are in `hooks.Running`, registered with the first task file, so other suites never pay.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_llmeval import hookspecs
from pytest_llmeval._errors import SettingError
from pytest_llmeval._lm import LM
from pytest_llmeval._session import file_patterns
from pytest_llmeval._session.models import Models
from pytest_llmeval._session.options import add_options
from pytest_llmeval._session.options import read_settings
from pytest_llmeval._session.options import value_of
from pytest_llmeval._settings import Settings


if TYPE_CHECKING:
    from pytest_llmeval._results import Summary
    from pytest_llmeval._session.session import Session


SETTINGS = pytest.StashKey[Settings]()
MODELS = pytest.StashKey[Models]()


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "llmeval(task, group): docs and gates of a language-model task")
    config.addinivalue_line("markers", "llmeval_gate: a gate, which rests on all docs of its task or group")
    try:
        config.stash[SETTINGS] = read_settings(config)
        config.stash[MODELS] = Models(config)
        if config.getoption("llmeval_model") or config.getoption("llmeval_bisect"):
            config.stash[MODELS].check()
        if value_of(config, "output") or value_of(config, "gen-kwargs") or config.getoption("llmeval_baseline"):
            from pytest_llmeval._session import hooks

            hooks.check_before_the_work(config, config.stash[SETTINGS], config.stash[MODELS])
        if value_of(config, "bisect"):
            from pytest_llmeval._session import bisect

            config.pluginmanager.register(bisect.Bisection(_session(config)), "llmeval-bisect")
        if config.getoption("dist", "no") != "no":  # true only in the controller of xdist
            from pytest_llmeval._session.xdist import Controller

            config.pluginmanager.register(Controller(_session(config)), "llmeval-controller")
    except SettingError as error:
        raise pytest.UsageError(str(error)) from None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    file_patterns.hint(terminalreporter, exitstatus)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    from pytest_llmeval._session import collect

    return collect.module_for(file_path, parent, _session)


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
    session, model = _session(request.config), request.config.stash[MODELS].variant_of(llmeval_model)
    return lambda name: session.asked_result(name, model, llmeval_model)


def _session(config: pytest.Config) -> Session:
    """The session of this run, made when the first task file (or result) is asked for."""
    from pytest_llmeval._session import hooks

    return hooks.session_of(config, config.stash[SETTINGS], config.stash[MODELS])
