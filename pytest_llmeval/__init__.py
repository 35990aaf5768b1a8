"""Language-model benchmarks as pytest suites.

These are the public names; every module whose name starts with an underscore is private.
"""

from __future__ import annotations

from pytest_llmeval._engine import LM
from pytest_llmeval._engine import Generation
from pytest_llmeval._engine import GenerationKwargs
from pytest_llmeval._engine import Loglikelihood
from pytest_llmeval._errors import LLMEvalError


__all__ = ["LM", "Generation", "GenerationKwargs", "LLMEvalError", "Loglikelihood"]
