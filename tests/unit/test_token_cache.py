"""Several checkpoints, one encoding: shared where tokenizers are equal by content, and never otherwise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._engine import RequestError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._fake import FakeLM
from pytest_llmeval._models import TextEncoder
from pytest_llmeval._models import TokenCache
from pytest_llmeval._plain import BoundedCache
from pytest_llmeval._registry import Registry
from pytest_llmeval._settings import Settings


REQUESTS = [("capital: rome", " italy"), ("capital: rome", " spain"), ("", "hello"), ("a ", "b")]


def tokenizer(folder: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


class Counting:
    """A tokenizer that notes how many texts it was given."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped
        self.texts: list[str] = []

    def __call__(self, texts: Any, **options: Any) -> Any:
        self.texts += [texts] if isinstance(texts, str) else texts
        return self._wrapped(texts, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    def __len__(self) -> int:
        return len(self._wrapped)


def encoded(cache: TokenCache, given: Any, requests: Sequence[tuple[str, str]] = REQUESTS, **more: Any) -> int:
    """How many texts were encoded; the requests must be what an encoder of its own makes."""
    counting = Counting(given)
    encoder = TextEncoder(counting, more.pop("max_length", 64), cache=cache, **more)
    counting.texts.clear()
    found = encoder.pairs(requests)
    texts = len(counting.texts)
    assert found == TextEncoder(given, encoder.max_length, **more).pairs(requests)
    return texts


def test_equal_copies_share_wherever_they_lie(starter_models: Path, tmp_path: Path) -> None:
    shutil.copytree(starter_models / "damaged", tmp_path / "elsewhere")
    cache = TokenCache()
    assert encoded(cache, tokenizer(starter_models / "good")) > 0
    assert encoded(cache, tokenizer(starter_models / "damaged")) == 0
    assert encoded(cache, tokenizer(tmp_path / "elsewhere")) == 0
    assert encoded(cache, tokenizer(starter_models / "good"), [*REQUESTS, ("x", " new")]) == 2


@pytest.mark.parametrize("other", [{"max_length": 4}, {"add_bos_token": True}, {"prefix_token_id": 3}])
def test_other_settings_do_not_share(starter_models: Path, other: dict[str, Any]) -> None:
    cache, given = TokenCache(), tokenizer(starter_models / "good")
    assert encoded(cache, given) == encoded(cache, given, **other) > 0


def test_another_vocabulary_under_the_same_name_does_not_share(starter_models: Path, tmp_path: Path) -> None:
    shutil.copytree(starter_models / "good", tmp_path / "good")
    path = tmp_path / "good" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["merges"] = content["model"]["merges"][:10]
    path.write_text(json.dumps(content))
    cache = TokenCache()
    assert encoded(cache, tokenizer(starter_models / "good")) > 0
    assert encoded(cache, tokenizer(tmp_path / "good")) > 0


def test_a_tokenizer_of_unknown_content_shares_nothing(starter_models: Path) -> None:
    class Slow(Counting):
        is_fast = False
        backend_tokenizer = None

    cache, given = TokenCache(), Slow(tokenizer(starter_models / "good"))
    assert encoded(cache, given) == encoded(cache, given) > 0


def test_choices_of_a_doc_share_their_context(starter_models: Path) -> None:
    cache, given = TokenCache(), tokenizer(starter_models / "good")
    TextEncoder(given, 64, cache=cache).pairs(REQUESTS)
    first, second, *_ = TextEncoder(given, 64, cache=cache).pairs(REQUESTS)
    assert first.context_ids is second.context_ids


def test_without_room_everybody_encodes(starter_models: Path) -> None:
    cache, given = TokenCache(capacity=0), tokenizer(starter_models / "good")
    assert encoded(cache, given) == encoded(cache, given) > 0


def test_a_refused_request_keeps_its_place(starter_models: Path) -> None:
    encoder = TextEncoder(tokenizer(starter_models / "good"), 8, cache=TokenCache())
    encoder.pairs(REQUESTS[:1])
    with pytest.raises(RequestError) as caught:
        encoder.pairs([REQUESTS[0], ("a", " b"), ("c", " far too long" * 20)])
    assert caught.value.index == 2


def test_kept_until_the_room_is_taken() -> None:
    kept: BoundedCache[str, int] = BoundedCache(10)
    for number, name in enumerate("abc"):
        kept.put(name, number, 4)
    kept.put("d", 3, 2)
    kept.put("a", 9, 0)
    assert [kept.get(name) for name in "abcd"] == [0, 1, None, 3]


TASK = """
task: t
dataset_path: json
dataset_kwargs: {data_files: {test: t.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: !function render.text
doc_to_choice: ["yes", "no"]
doc_to_target: label
"""


@pytest.mark.parametrize(("several", "times"), [(True, 3), (False, 6)])
def test_docs_are_rendered_once_for_several_models(tmp_path: Path, several: bool, times: int) -> None:
    (tmp_path / "t.yaml").write_text(TASK)
    (tmp_path / "t.jsonl").write_text("".join(f'{{"q": "{i}", "label": 0}}\n' for i in range(3)))
    (tmp_path / "render.py").write_text(
        "from pathlib import Path\n\ndef text(doc):\n"
        "    with Path(__file__).with_name('log').open('a') as log:\n        log.write('x')\n    return doc['q']\n"
    )
    evaluation = Evaluation(Settings(), Registry())
    if several:
        evaluation.expect_models(2)
    task = evaluation.registry.load(tmp_path / "t.yaml")
    first, second = FakeLM(), FakeLM()
    runs = [ModelRun(evaluation, name) for name in ("a", "b")]
    for run, lm in zip(runs, (first, second), strict=True):
        run.score(lm, task, range(3))  # type: ignore[arg-type]
    assert first.calls == second.calls
    assert len((tmp_path / "log").read_text()) == times
    assert runs[0].results("t") == runs[1].results("t")
