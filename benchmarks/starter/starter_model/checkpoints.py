"""Checkpoints as folders that transformers loads: weights, tokenizer and their configuration."""

from __future__ import annotations

import copy
import json
from pathlib import Path

from transformers import LlamaForCausalLM
from transformers import PreTrainedTokenizerFast


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Weights are stored in half the bytes, as float16; the configuration says float32, so that is how they compute.

    Half precision on a CPU would be slow, and would make scores depend on the machine.
    """
    stored = copy.deepcopy(model).half()
    stored.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _amend(folder / "config.json", {"dtype": "float32"})
    # The name that every version of transformers knows.
    _amend(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast"})


def _amend(path: Path, changes: dict[str, str]) -> None:
    values = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(values | changes, indent=2) + "\n", encoding="utf-8")
