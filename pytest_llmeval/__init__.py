"""Language-model benchmarks as pytest suites.

These are the public names; every module whose name starts with an underscore is private.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING
from typing import Any

from pytest_llmeval._errors import ArgumentError
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import LLMEvalWarning
from pytest_llmeval._lm import LM
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import NextToken
from pytest_llmeval._lm import RollingLoglikelihood
from pytest_llmeval._models import wrap_model
from pytest_llmeval._settings import Settings


if TYPE_CHECKING:
    from pytest_llmeval._evaluation import evaluate
    from pytest_llmeval._fake import FakeLM
    from pytest_llmeval._verdicts.scores import Judgement
    from pytest_llmeval._verdicts.scores import judge

__all__ = [
    "LM",
    "ArgumentError",
    "FakeLM",
    "Generation",
    "GenerationKwargs",
    "Judgement",
    "LLMEvalError",
    "LLMEvalWarning",
    "Loglikelihood",
    "NextToken",
    "RollingLoglikelihood",
    "Settings",
    "evaluate",
    "judge",
    "wrap_model",
]

#: Public names whose rooms import yaml, jinja2 and numpy: loaded when asked for, for pytest always imports this module.
_LATER = {
    "evaluate": "pytest_llmeval._evaluation",
    "FakeLM": "pytest_llmeval._fake",
    "Judgement": "pytest_llmeval._verdicts.scores",
    "judge": "pytest_llmeval._verdicts.scores",
}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
