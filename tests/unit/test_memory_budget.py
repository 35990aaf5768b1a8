"""Budgets from free memory: the speed of a device first, and never more than fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from pytest_llmeval._engine import EngineOptions
from pytest_llmeval._engine import devices as memory
from pytest_llmeval._engine.devices import CPU_PASSES
from pytest_llmeval._engine.devices import WRITING
from pytest_llmeval._engine.devices import pass_limits
from pytest_llmeval._engine.devices import scoring_budget
from pytest_llmeval._engine.devices import writing_budget
from pytest_llmeval._engine.token_tree import Limits


def model(dtype: torch.dtype = torch.float32) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=10,
        hidden_size=8,
        intermediate_size=20,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    with torch.random.fork_rng():
        return transformers.LlamaForCausalLM(config).to(dtype)


def test_what_a_token_takes() -> None:
    # 2 x 3 layers x 2 heads x 2 numbers, 8 x 8, 3 x 20; logits 10 x (4 + 8).
    assert memory.bytes_per_token(model(), 0) == 4 * (24 + 64 + 60)
    assert memory.bytes_per_token(model(), 0.5) == 4 * (24 + 64 + 60) + 0.5 * 120
    assert memory.bytes_per_token(model(torch.bfloat16), 0) == 2 * (24 + 64 + 60)


def test_little_memory_makes_budgets_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    each = 4 * (24 + 64 + 60)
    monkeypatch.setattr(memory, "free_bytes", lambda _: 200 * (each + 120))
    assert pass_limits(model(), EngineOptions()) == Limits(100, 100)
    assert scoring_budget(model(), EngineOptions()).tokens == 100
    assert writing_budget(model(), EngineOptions()).tokens == 120
    assert pass_limits(model(), EngineOptions(max_batch_tokens=300)) == Limits(300, 300)
    assert scoring_budget(model(), EngineOptions(max_batch_tokens=300)).tokens == 300


@pytest.mark.parametrize("free", [None, 10**12])
def test_much_memory_makes_no_difference(free: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: free)
    assert pass_limits(model(), EngineOptions()) == CPU_PASSES
    assert writing_budget(model(), EngineOptions()) == WRITING["cpu"]


@pytest.mark.parametrize(
    ("limit", "used", "free"), [("max", "5", 3072), ("4096", "2048", 2048), ("9999999", "1", 3072), ("10", "20", 0)]
)
def test_a_container_may_have_less_than_its_machine(
    limit: str, used: str, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:       3 kB\n")
    (tmp_path / "memory.max").write_text(limit + "\n")
    (tmp_path / "memory.current").write_text(used + "\n")
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.free_bytes(torch.device("cpu")) == free


def test_elsewhere_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MEMINFO", tmp_path / "none")
    monkeypatch.setattr(memory, "_CGROUP", tmp_path)
    assert memory.free_bytes(torch.device("cpu")) is None
