"""Recorded results of lm-evaluation-harness on real data, reproduced doc by doc.

Runs where LLMEVAL_SHARED names the recorded rows and LLMEVAL_SMOLLM2 the model (a folder or a GGUF file). Here a
few docs of each set; `python perf/golden.py` compares all of them.
"""

from __future__ import annotations

import os
from pathlib import Path

import goldenrows
import pytest

from pytest_llmeval._engine import LM
from pytest_llmeval._models import load_model


#: Set -> docs of each task that fit CI's time on two cores; `gguf` sets run on the file as it is.
DOCS = {"csqa0": 40, "arc_c0": 15, "piqa0": 40, "lambada0": 30, "mmlu5": 0, "gsm8k5": 1}


@pytest.fixture(scope="module")
def smollm2() -> LM:
    path = os.environ.get("LLMEVAL_SMOLLM2")
    if not path or not Path(path).exists():
        pytest.skip("LLMEVAL_SMOLLM2 names no model: no SmolLM2 on this machine")
    return load_model(path, {"dtype": "float32", "device": "cpu"})


@pytest.mark.parametrize("name", [name for name, docs in DOCS.items() if docs])
def test_every_doc_equals_the_recorded_one(name: str, smollm2: LM, shared: Path, pytestconfig: pytest.Config) -> None:
    benchmarks = pytestconfig.rootpath / "benchmarks"
    found = goldenrows.compare_set(name, smollm2, shared, benchmarks, docs=DOCS[name])
    assert found.docs == DOCS[name]
    assert (found.prompts, found.picks, found.texts, found.metrics) == ([], [], [], [])
    # What lm_eval gives on this processor tells a mistake of ours from another rounding of its products.
    assert found.largest <= 1e-4, [str(one) for one in found.far] + goldenrows.apart(found.far, smollm2)


def test_what_is_wrong_here_too_is_seen(smollm2: LM) -> None:
    request = ("Question: What alcohol do you pour for a mojito?\nAnswer:", " white rum")
    [(value, _)] = smollm2.loglikelihood([request])
    far = [goldenrows.Far("here", request, ours, recorded=0.0) for ours in (value, value + 3e-4, float("nan"))]
    assert [one.partition(" != ")[0] for one in goldenrows.apart(far, smollm2)] == [
        f"here: {value + 3e-4}",
        "here: nan",
    ]
