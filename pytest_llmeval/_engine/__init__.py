"""Token ids to log-probabilities and new token ids: plans of forward passes, and their execution with torch.

The engine knows nothing about tasks or text. This module exports the values of `requests` and does not import torch.
The two modules that run a model import torch, so users import them by name when a model is loaded:
`choosing.choose_engine` returns the engine of a model, `devices` chooses its device and measures its usage.
"""

from __future__ import annotations

from pytest_llmeval._engine.requests import ENGINES
from pytest_llmeval._engine.requests import Completion
from pytest_llmeval._engine.requests import EngineChoice
from pytest_llmeval._engine.requests import EngineOptions
from pytest_llmeval._engine.requests import GenerationRequest
from pytest_llmeval._engine.requests import IsStopped
from pytest_llmeval._engine.requests import OnProgress
from pytest_llmeval._engine.requests import Prompt
from pytest_llmeval._engine.requests import RequestError
from pytest_llmeval._engine.requests import TokenIds
from pytest_llmeval._engine.requests import TokenRequest
from pytest_llmeval._engine.requests import Watch
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
    "Prompt",
    "RequestError",
    "TokenIds",
    "TokenRequest",
    "Watch",
    "fit_prompt",
    "fit_request",
    "rolling_windows",
]
