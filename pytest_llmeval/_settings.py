"""The settings of a run: the user's options as one frozen value that every room may read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_llmeval._task import NOTHING


#: The default seed for few-shot draws in lm_eval (--seed 0,1234,1234,1234).
FEWSHOT_SEED = 1234


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a run.

    `limit`: a number of docs (int), or a share of each task's docs (float below 1). `sample_seed`: with a limit,
    draw that many docs at random by this seed instead of the first ones. `num_fewshot`: None takes the task's own.
    `gen_kwargs`: override a task's `generation_kwargs` key by key. `keep_keys`: results carry their doc's key and pick,
    for a baseline. `identify`: models are asked for their fingerprint, which may read all their weights.
    `early_stop`: docs run in the random order of `stop_seed`, as many as the gates need; gates without a confidence
    of their own are proven at `stop_confidence`. `noise_docs`: number of docs per compared task to rescore with other
    batch sizes, and in `noise_dtype` if that is set.
    """

    data_dir: Path | None = None
    limit: int | float | None = None
    sample_seed: int | None = None
    num_fewshot: int | None = None
    fewshot_seed: int = FEWSHOT_SEED
    chat_template: bool = False
    fewshot_multiturn: bool = False
    system: str | None = None
    gen_kwargs: Mapping[str, Any] = NOTHING
    allow_code: bool = False
    strict: bool = False
    bootstrap_iters: int = 1000
    keep_samples: bool = False
    keep_keys: bool = False
    identify: bool = False
    early_stop: bool = False
    stop_seed: int = 0
    stop_confidence: float = 0.95
    noise_docs: int = 0
    noise_dtype: str | None = None
