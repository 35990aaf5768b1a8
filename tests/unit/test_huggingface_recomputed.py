"""One model computing otherwise: same numbers up to rounding, nothing left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tablemodels as tables
import torch

from pytest_llmeval import wrap_model
from pytest_llmeval._errors import ModelError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._models import load_model
from pytest_llmeval._models import parse_spec
from pytest_llmeval._registry import Registry
from pytest_llmeval._settings import Settings


REQUESTS = [("Q x A", " yes"), ("Q x A", " no"), ("Q", " A yes")]


def test_other_passes_give_the_same_numbers() -> None:
    model = tables.bigram()
    lm = wrap_model(model, tables.words())
    expected = [answer.logprob for answer in lm.loglikelihood(REQUESTS)]
    names = []
    for other in lm.recomputed():  # type: ignore[attr-defined]
        names.append(other.name)
        assert [answer.logprob for answer in other.loglikelihood(REQUESTS)] == pytest.approx(expected, abs=1e-4)
        assert other.engine is not lm.engine  # type: ignore[attr-defined]
    assert names == ["passes of 256 tokens", "one sequence per pass"]


def test_another_dtype_is_a_copy_that_does_not_stay() -> None:
    model = tables.bigram()
    lm = wrap_model(model, tables.words())
    lm.prepare()  # type: ignore[attr-defined]
    others = list(lm.recomputed("bfloat16"))  # type: ignore[attr-defined]
    other = others[-1]
    assert other.name == "bfloat16"
    # After the last one was used nothing of it is held.
    assert "_model" not in other.__dict__
    for other in lm.recomputed("bfloat16"):  # type: ignore[attr-defined]
        if other.name == "bfloat16":
            answers = [answer.logprob for answer in other.loglikelihood(REQUESTS)]
            assert other.describe()["model"]["model_dtype"] == "torch.bfloat16"
    expected = [answer.logprob for answer in lm.loglikelihood(REQUESTS)]
    assert answers != expected
    assert answers == pytest.approx(expected, abs=0.05)
    assert model.dtype == torch.float32


def test_a_checkpoint_is_read_again(tmp_path: Path) -> None:
    """In float64 the numbers of the file itself, not those that were rounded to bfloat16 before."""
    folder = tables.save(tmp_path / "m", tables.bigram(), tables.words())
    lm = load_model(parse_spec(str(folder), {"dtype": "bfloat16"}))
    in_double = load_model(parse_spec(str(folder), {"dtype": "float64"}))
    exact = [answer.logprob for answer in in_double.loglikelihood(REQUESTS)]
    found = []
    for other in lm.recomputed("float64"):  # type: ignore[attr-defined]
        found = [answer.logprob for answer in other.loglikelihood(REQUESTS)]
    assert found == exact


def test_the_model_closes_the_other_dtype(tmp_path: Path) -> None:
    folder = tables.save(tmp_path / "m", tables.bigram(), tables.words())
    lm = load_model(parse_spec(str(folder), {"dtype": "bfloat16"}))
    *_, other = zip(range(3), lm.recomputed("float32"), strict=False)  # type: ignore[attr-defined]
    assert other[1].describe()["model"]["model_dtype"] == "torch.float32"
    lm.close()  # type: ignore[attr-defined]
    assert "_model" not in other[1].__dict__


def test_its_own_dtype_is_no_other() -> None:
    lm = wrap_model(tables.bigram(), tables.words(), engine="padded")
    with pytest.raises(ModelError, match="already computes in float32: choose another dtype"):
        list(lm.recomputed("float32"))  # type: ignore[attr-defined]


TASK = """\
task: t
dataset_path: json
dataset_kwargs: {data_files: {test: t.jsonl}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{q}}"
doc_to_choice: ["yes", "no"]
doc_to_target: 0
metric_list: [{metric: acc}]
"""


def test_a_calibration_uses_each_way_once_then_other_orders(tmp_path: Path) -> None:
    """After A yes is likelier than no, after x it is not, however that is computed in float32."""
    (tmp_path / "t.yaml").write_text(TASK)
    (tmp_path / "t.jsonl").write_text('{"q": "Q A"}\n{"q": "Q x"}\n{"q": "x Q A"}\n')
    registry = Registry()
    own: Any = registry.load(tmp_path / "t.yaml")
    run = ModelRun(Evaluation(Settings(calibration_runs=5), registry))
    run.score(wrap_model(tables.bigram(), tables.words()), own, range(3))
    results = [run.results("t")[doc] for doc in range(3)]
    found = run.repeats.calibration("t", results)
    assert found is not None
    assert found.ways == ["passes of 256 tokens", "one sequence per pass", "other order", "other order"]
    assert [result.correct for result in results] == [True, False, True]
    assert (found.docs, found.scores["acc,none"].down, found.scores["acc,none"].flips) == (3, [0] * 4, 0)
