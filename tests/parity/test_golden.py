"""Recorded results of lm-evaluation-harness on real data, reproduced doc by doc.

Runs where LLMEVAL_SHARED names the recorded rows and LLMEVAL_SMOLLM2 the model (a folder or a GGUF file). Here a
few docs of each set; `python perf/golden.py` compares all of them. Log-likelihoods are held to the recorded ones and
to lm_eval's own on this machine.
"""

from __future__ import annotations

import os
from pathlib import Path

import goldenrows
import pytest

from pytest_llmeval._lm import LM
from pytest_llmeval._models import load_model
from pytest_llmeval._models import parse_spec


#: Set -> docs of each task that fit CI's time on two cores.
DOCS = {"csqa0": 20, "arc_c0": 10, "piqa0": 20, "lambada0": 15, "mmlu5": 0, "gsm8k5": 1}


@pytest.fixture(scope="module")
def smollm2() -> LM:
    path = os.environ.get("LLMEVAL_SMOLLM2")
    if not path or not Path(path).exists():
        pytest.skip("LLMEVAL_SMOLLM2 names no model: no SmolLM2 on this machine")
    return load_model(parse_spec(path, {"dtype": "float32", "device": "cpu"}))


@pytest.mark.parametrize("name", [name for name, docs in DOCS.items() if docs])
def test_every_doc_equals_the_recorded_one(name: str, smollm2: LM, shared: Path, pytestconfig: pytest.Config) -> None:
    benchmarks = pytestconfig.rootpath / "benchmarks"
    found = goldenrows.compare_set(name, smollm2, shared, benchmarks, docs=DOCS[name])
    assert found.docs == DOCS[name]
    assert (found.prompts, found.picks, found.texts, found.metrics) == ([], [], [], [])
    assert goldenrows.beyond(found.scored, goldenrows.ask_lm_eval(found.scored, smollm2)) == []


@pytest.mark.parametrize(
    ("ours", "recorded", "here", "wrong"),
    [
        (-94.14612, -94.14621, -94.14620, False),
        (-94.14612, -94.14633, -94.14614, True),  # near to lm_eval alone
        (-94.14612, -94.14612, -94.14623, True),  # near to the recording alone
        (-94.14612, -94.14623, -94.14623, True),
        (float("nan"), -94.14612, -94.14612, True),
        (-94.14612, -94.14612, float("nan"), True),
    ],
)
def test_which_log_likelihoods_are_not_lm_evals(ours: float, recorded: float, here: float, wrong: bool) -> None:
    one = goldenrows.Scored("piqa 20", ("What alcohol do you pour?", " white rum"), ours, recorded)
    expected = [f"piqa 20: {ours}, recorded {recorded} for ' white rum'; lm_eval here: {here}"]
    assert goldenrows.beyond([one], [here]) == (expected if wrong else [])
