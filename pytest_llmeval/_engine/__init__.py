"""Token ids to log-probabilities and new token ids: plans of forward passes, and their execution with torch.

The engine knows nothing about tasks or text. This module is its face, without torch: the values of `requests`. The two
modules that run a model import torch and are imported by their own names, late: `choosing.choose_engine` returns the
engine of a model, `devices` says where it runs and what it used.
"""

from __future__ import annotations

from pytest_llmeval._engine.requests import ENGINES
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import EngineChoice
from pytest_llmeval._engine.requests import EngineOptions
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import RequestError
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import fit_prompt
from pytest_llmeval._engine.requests import fit_request
from pytest_llmeval._engine.requests import rolling_windows


__all__ = [
    "ENGINES",
    "Completion",
    "EngineChoice",
    "EngineOptions",
    "GenerationRequest",
    "IsStopped",
    "OnProgress",
    "RequestError",
    "TokenIds",
    "TokenRequest",
    "fit_prompt",
    "fit_request",
    "rolling_windows",
]
