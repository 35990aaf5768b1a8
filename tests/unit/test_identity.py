"""The identity of a model in the journal: what changes it, because answers may change, and what does not."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._journal import Identity
from pytest_llmeval._journal import Journal
from pytest_llmeval._models import HuggingFaceSpec
from pytest_llmeval._models import ModelArgs
from pytest_llmeval._models import identity as identities
from pytest_llmeval._models.identity import identity_of_commit
from pytest_llmeval._models.identity import identity_of_files


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = Journal(lambda: tmp_path / "journal")
    yield journal
    journal.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "rope_theta": 10000.0}))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 2}))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"add_bos_token": True, "chat_template": "{{ messages }}"})
    )
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 1}}}))
    (folder / "model.safetensors").write_bytes(bytes(range(256)))
    return folder


def of(folder: Path, journal: Journal, **args: Any) -> Identity:
    found = identity_of_files(HuggingFaceSpec("folder", str(folder), ModelArgs(**args)), journal, lambda: None)
    assert found is not None
    return found


def edited(name: str, **values: Any) -> Callable[[Path], object]:
    def edit(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return edit


def another_weight(folder: Path) -> None:
    """Of the same size, with the times of the file before."""
    path = folder / "model.safetensors"
    before = path.stat()
    path.write_bytes(bytes(reversed(range(256))))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def an_adapter(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(folder), "r": 8}))
    (folder / "adapter_model.safetensors").write_bytes(b"adapter")


def a_template_that_thinks(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ messages }}<think></think>")


@pytest.mark.parametrize(
    "change",
    [
        another_weight,
        an_adapter,
        a_template_that_thinks,
        edited("config.json", rope_theta=500000.0),
        edited("generation_config.json", eos_token_id=[2, 3]),
        edited("tokenizer.json", model={"vocab": {"a": 1, "b": 0}}),
        edited("tokenizer_config.json", add_bos_token=False),
        edited("tokenizer_config.json", chat_template="{{ messages }}<think></think>"),
    ],
)
def test_files_that_decide_an_answer(model: Path, journal: Journal, change: Callable[[Path], object]) -> None:
    before = of(model, journal)
    change(model)
    assert of(model, journal).answers != before.answers


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: os.utime(folder / "model.safetensors"),
        lambda folder: (folder / "README.md").write_text("a model"),
        edited("config.json", _name_or_path="elsewhere", transformers_version="9.9"),
        edited("tokenizer_config.json", chat_template="{{ bos_token }}{{ messages }}"),
    ],
)
def test_what_changes_no_answer(model: Path, journal: Journal, change: Callable[[Path], object]) -> None:
    before = of(model, journal)
    change(model)
    assert of(model, journal).answers == before.answers


def test_a_copy_answers_equally(model: Path, journal: Journal, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "elsewhere" / "checkpoint"))
    assert of(copy, journal) == of(model, journal)


@pytest.mark.parametrize(
    "args",
    [
        {"dtype": "bfloat16"},
        {"attn_implementation": "eager"},
        {"engine": "padded"},
        {"max_length": 128},
        {"add_bos_token": True},
        {"think_end_token": "</think>"},
        {"device": "cuda"},
    ],
)
def test_arguments_that_decide_an_answer(model: Path, journal: Journal, args: dict[str, Any]) -> None:
    usual = of(model, journal, device="cpu").answers
    assert of(model, journal, **{"device": "cpu", **args}).answers != usual
    assert of(model, journal, device="cpu").answers == usual


def test_sizes_of_batches_and_the_number_of_a_device_decide_nothing(model: Path, journal: Journal) -> None:
    first = of(model, journal, device="cuda:0", batch_size=1)
    assert of(model, journal, device="cuda:1", max_batch_tokens=64).answers == first.answers


@pytest.mark.parametrize("package", ["torch", "transformers", "tokenizers"])
def test_other_versions_and_other_code_are_asked_again(
    model: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    before, version_of = of(model, journal).answers, identities.version_of
    with monkeypatch.context() as patch:
        patch.setattr(identities, "version_of", lambda name: "0" if name == package else version_of(name))
        assert of(model, journal).answers != before
    with monkeypatch.context() as patch:
        patch.setattr(identities, "_code_hash", lambda: "other code")
        assert of(model, journal).answers != before
    assert of(model, journal).answers == before


def test_a_hub_model_is_its_commit() -> None:
    spec = HuggingFaceSpec("hub", "org/name", ModelArgs())
    first, other = identity_of_commit(spec, "a" * 40), identity_of_commit(spec, "b" * 40)
    assert first is not None
    assert other is not None
    assert first.answers != other.answers
    assert identity_of_commit(spec, "") is None
    assert identity_of_commit(HuggingFaceSpec("hub", "org/name", ModelArgs(trust_remote_code=True)), "a" * 40) is None


def test_an_adapter_of_a_base_that_is_not_here_has_none(model: Path, journal: Journal) -> None:
    (model / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base"}))
    assert identity_of_files(HuggingFaceSpec("folder", str(model), ModelArgs()), journal, lambda: None) is None
