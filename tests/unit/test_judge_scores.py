"""The public `judge`: plain scores in, the verdict of the plugin out."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pytest_llmeval
from pytest_llmeval import ArgumentError
from pytest_llmeval import LLMEvalError
from pytest_llmeval import _stats
from pytest_llmeval import judge
from pytest_llmeval._baselines import Baseline
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Field
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import judge as judge_gate


def hits(*counts: int) -> list[int]:
    """``hits(3, 2)``: three docs right, two wrong, and so on in turn."""
    return [1 - turn % 2 for turn, count in enumerate(counts) for _ in range(count)]


class TestOutcomes:
    def test_a_floor(self) -> None:
        judgement = judge("acc >= 0.35 @ 0.95", hits(50, 50))
        low, high = _stats.exact_bounds(50, 100, 0.95).low, _stats.exact_bounds(50, 100, 0.95).high
        assert (judgement.outcome, judgement.value, judgement.baseline) == ("passed", 0.5, None)
        assert judgement.interval == _stats.Interval(low, high)
        # P(at least 50 of 100 right) for a true .35, summed.
        tail = sum(math.comb(100, k) * 0.35**k * 0.65 ** (100 - k) for k in range(50, 101))
        assert judgement.p == pytest.approx(tail, rel=1e-6)
        assert judgement.sentence.startswith(
            "scores: acc 0.5000 +- 0.0503 over 100 docs, required >= 0.35 at 95 % conf"
        )

    def test_a_drop(self) -> None:
        judgement = judge("acc >= baseline - 0.01 @ 0.95", hits(90, 10), hits(100), name="nightly")
        assert (judgement.outcome, judgement.value, judgement.baseline) == ("failed", 0.9, 1.0)
        assert judgement.interval == _stats.paired_bounds(10, 0, 100, 0.95)
        assert judgement.p == pytest.approx(_stats.drop_p(10, 0, 100, 0.01))
        assert judgement.visible_drop is not None
        assert 0.01 < judgement.visible_drop < 0.5
        headline = "nightly: acc 0.9000, was 1.0000: fell by 0.1000, allowed 0.01 at 95 % confidence"
        assert judgement.text.splitlines()[0] == headline
        assert judgement.numbers["lost"] == 10

    def test_the_p_of_a_pass_is_that_of_the_worst_allowed_value(self) -> None:
        judgement = judge("acc >= baseline - 0.05 @ 0.95", hits(100), hits(100))
        assert judgement.outcome == "passed"
        assert judgement.p == pytest.approx(_stats.drop_p(0, 0, 100, -0.05), rel=1e-4)

    def test_lower_scores_may_be_better(self) -> None:
        assert judge("loss <= baseline + 1%", [1.0, 3.0], [1.0, 2.98]).outcome == "passed"
        assert judge("loss <= baseline + 1%", [1.0, 3.05], [1.0, 2.98]).outcome == "failed"

    def test_a_relative_tolerance_is_exact(self) -> None:
        assert judge("acc >= baseline - 5%", hits(95, 5), hits(100)).outcome == "passed"
        assert judge("acc > baseline - 5%", hits(95, 5), hits(100)).outcome == "failed"

    def test_a_data_set_is_certain_once_all_of_it_is_scored(self) -> None:
        gate = "acc >= baseline - 0.05 @ 0.95 dataset"
        assert judge(gate, hits(96, 4), hits(100)).outcome == "passed"
        part = judge(gate, hits(49, 1), hits(50), total=100)
        assert part.outcome == "inconclusive"
        first = judge("acc >= 0.4 @ 0.95 dataset", hits(49, 1), total=100, drawn="first")
        assert (first.outcome, first.interval) == ("passed", _stats.Interval(0.49, 0.99))
        assert "the first 50 docs are not a random sample" in first.sentence

    def test_passages_count(self) -> None:
        now, before = hits(80, 20), hits(100)
        alone = judge("acc >= baseline - 0.05 @ 0.95", now, before)
        shared = judge("acc >= baseline - 0.05 @ 0.95", now, before, clusters=[doc // 10 for doc in range(100)])
        assert (alone.outcome, shared.outcome) == ("failed", "inconclusive")

    def test_a_range_replaces_an_assumption(self) -> None:
        scores = [0.2, 0.8] * 20
        assert "assuming scores in" in judge("f1 >= 0.4 @ 0.95", scores).text
        known = judge("f1 >= 0.4 @ 0.95", scores, range=(0, 1))
        assert "assuming" not in known.text
        assert known.interval == _stats.mean_bounds(scores, 0.95, support=(0.0, 1.0))

    def test_arrays_are_scores(self) -> None:
        lists = judge("acc >= baseline - 0.01 @ 0.95", hits(90, 10), hits(100))
        arrays = judge("acc >= baseline - 0.01 @ 0.95", np.array(hits(90, 10)), np.ones(100, dtype=bool))
        assert arrays == lists


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        (("acc => 0.5", [1]), {}, "gate: 'acc => 0.5': '=>' is not an operator of gates"),
        (("acc >= 0.5 @ 95", [1]), {}, "did you mean 0.95?"),
        ((0.5, [1]), {}, "gate: expected a text such as 'acc >= 0.35 @ 0.95', got 0.5"),
        (("acc stays right", [1], [1]), {}, "gate: 'acc stays right' asks for single docs"),
        (("acc >= 0.5", []), {}, "scores: there are no scores"),
        (("acc >= 0.5", [1, math.nan]), {}, r"scores\[1\]: expected a finite number, got nan"),
        (("acc >= 0.5", [1, "1"]), {}, r"scores\[1\]: expected a finite number, got '1'"),
        (("acc >= 0.5", [[1, 0], [0, 1]]), {}, r"scores\[0\]: expected a finite number, got \[1, 0\]"),
        (("acc >= 0.5", "11"), {}, "scores: expected one number per doc, got a str"),
        (("acc >= 0.5", 0.7), {}, "scores: expected one number per doc, got a float"),
        (("acc >= baseline", [1]), {}, "baseline: the gate 'acc >= baseline' compares, so it needs the scores before"),
        (("acc >= baseline", [1], [1, 0]), {}, "baseline: 2 scores before and 1 now do not pair"),
        (("acc >= 0.5", [1, 0]), {"clusters": ["a"]}, "clusters: 1 clusters for 2 scores; each doc has one"),
        (("acc >= 0.5", [1, 0]), {"total": 1}, "total: 2 scores are more than the 1 docs of the data set"),
        (("acc >= 0.5", [1, 0]), {"total": 2.5}, "total: expected the number of docs of the data set, got 2.5"),
        (("acc >= 0.5", [1, 0]), {"total": "9"}, "total: expected the number of docs of the data set, got '9'"),
        (("acc >= 0.5", [1, 0]), {"total": 10**30}, "total: expected the number of docs of the data set"),
        (("acc >= 0.5", [1, 0]), {"clusters": [[1], [2]]}, "clusters: expected one hashable value per doc"),
        (("acc >= 0.5", [1, 1e300]), {}, r"scores\[1\]: expected a finite number, got 1e\+300"),
        (("acc >= 0.5", {0, 1}), {}, "scores: expected one number per doc, got a set"),
        (("acc >= 70", [1, 0]), {}, "did you mean 0.7?"),
        (("acc >= baseline - 2 @ 0.95", [1], [1]), {}, "a difference of 2 decides nothing; did you mean 0.02?"),
        (("acc >= baseline - 200% @ 0.95", [1], [1]), {}, "a difference of 200% decides nothing"),
        (("acc >= 0.5", [1, 7]), {"range": (0, 5)}, r"scores\[1\]: 7 is outside of the range from 0 to 5"),
        (("acc >= 0.5", [1]), {"range": (1, 0)}, r"range: expected \(LEAST, GREATEST\), got \(1, 0\)"),
        (("acc >= 0.5", [1]), {"total": 9, "drawn": "last"}, "drawn: expected 'random' or 'first', got 'last'"),
    ],
)
def test_unusable_arguments(arguments: tuple[Any, ...], named: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message) as error:
        judge(*arguments, **named)
    assert isinstance(error.value, ValueError)
    assert isinstance(error.value, LLMEvalError)


@pytest.mark.parametrize("clusters", [None, [str(doc // 4) for doc in range(80)]])
@pytest.mark.parametrize(
    "gate",
    ["acc >= 0.6 @ 0.95", "acc >= 0.6 @ 0.9 dataset", "acc >= baseline - 0.03 @ 0.95", "acc >= baseline - 5% @ 0.95"],
)
def test_the_plugin_judges_by_the_same_function(gate: str, clusters: list[str] | None, tmp_path: Path) -> None:
    now, before = hits(60, 20), hits(55, 10, 15)
    field = Field("doc_to_text", text="{{q}}")
    metrics = resolve_metrics((MetricSpec("acc"),), "multiple_choice")
    metadata = {} if clusters is None else {"cluster": "passage"}
    path = Path("t.yaml")
    task = Task("t", path, "multiple_choice", field, field, metrics=metrics, test_split="t", metadata=metadata)

    def results(scores: list[int]) -> list[DocResult]:
        keys = [DocKey(f"{doc}", "p", clusters and clusters[doc]) for doc in range(len(scores))]
        return [DocResult(doc, {"none": {"acc": score}}, key=keys[doc]) for doc, score in enumerate(scores)]

    stored, old = Baseline("main", tmp_path, Settings()), TaskData(task, results(before), 80)
    stored.update(task, old.results, old.summary(old.results), "m", {})
    data = GateData(task, [TaskData(task, results(now), 80, stored.compare(task, results(now)))], baseline="main")
    verdict = judge_gate(parse_gate(gate, path=path, line=1), data.summary(), data=data)
    judgement = judge(gate, now, before, clusters=clusters)
    assert (judgement.outcome, judgement.interval) == (verdict.outcome, verdict.evidence.interval)
    shared = {name: verdict.numbers[name] for name in judgement.numbers if not name.endswith("stderr")}
    assert shared == {name: number for name, number in judgement.numbers.items() if not name.endswith("stderr")}


def test_the_name_is_public_and_costs_nothing_before_its_use() -> None:
    assert {"judge", "Judgement", "ArgumentError"} <= set(pytest_llmeval.__all__)
    code = (
        "import sys, pytest_llmeval; early = set(sys.modules);"
        "pytest_llmeval.judge('acc >= 0.1', [1]);"
        "print(early & {'numpy', 'yaml'}, set(sys.modules) & {'pytest', 'torch', 'transformers', 'datasets'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[0] == "set() set()"


def test_the_example_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    section = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8").partition("## Gate numbers from")[2]
    _, code, _, shown, *_ = section.split("```")
    exec(code.removeprefix("python"), {})
    printed = capsys.readouterr().out
    pattern = re.escape(shown.strip()).replace(re.escape("..."), r"\d+")
    assert re.fullmatch(pattern, printed.strip()), printed
