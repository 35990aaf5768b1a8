"""What changed from model to model: doc by doc, with its standard error, and whether chance explains it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._report import GroupReport
from pytest_llmeval._report import ModelComparison
from pytest_llmeval._report import ModelReport
from pytest_llmeval._report import TaskReport
from pytest_llmeval._report import Trend
from pytest_llmeval._report import compare_models
from pytest_llmeval._report import trends_of_group
from pytest_llmeval._report import trends_of_task
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import TaskData


def results(*scores: object, metric: str = "acc") -> list[DocResult]:
    return [DocResult(doc, {"none": {metric: score}}) for doc, score in enumerate(scores)]


def summary(value: float, n: int, *, name: str = "t", metric: str = "acc", tasks: tuple[str, ...] = ()) -> Summary:
    return Summary(name, name, 1, 0, n, n, (MetricValue(metric, "none", value, None, True, n),), tasks)


def trend(*columns: Sequence[float], name: str = "t") -> Trend:
    summaries = [summary(sum(scores) / len(scores), len(scores), name=name) for scores in columns]
    (found,) = trends_of_task(summaries, [results(*scores) for scores in columns])
    return found


def test_a_change_worked_out_by_hand() -> None:
    found = trend([1, 1, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1])
    assert [value.value for value in found.column] == [0.75, 0.0, 0.75]
    assert (found.change, found.rose, found.fell) == (0.0, 1, 1)
    # Differences -1 0 0 1: variance 2/3, over 4 docs.
    assert found.stderr == pytest.approx(math.sqrt(2 / 3 / 4))
    assert found.p_value == 1.0


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=30))
def test_the_error_of_the_difference_is_that_of_its_mean(pairs: list[tuple[float, float]]) -> None:
    found = trend([a for a, _ in pairs], [b for _, b in pairs])
    moved = [b - a for a, b in pairs]
    mean = sum(moved) / len(moved)
    assert found.change == pytest.approx(mean, abs=1e-9)
    assert found.stderr is not None
    assert found.stderr**2 == pytest.approx(
        sum((d - mean) ** 2 for d in moved) / (len(moved) - 1) / len(moved), abs=1e-9
    )


def test_other_docs_are_not_compared() -> None:
    broken = [*results(1), DocResult(1, {}, error="no gold")]
    assert trends_of_task([summary(1, 2), summary(1, 1)], [results(1, 1), results(1)]) == []
    assert trends_of_task([summary(1, 2), summary(1, 1)], [results(1, 1), broken]) == []
    assert trends_of_task([summary(1, 2), summary(1, 1)], [results(), results()]) == []


@pytest.mark.parametrize("scores", [([-5.0, 3], [-7.0, 4]), (-5.0, -7.0), (1.0, math.nan)])
def test_a_value_that_is_no_mean_of_numbers_has_no_error(scores: tuple[object, object]) -> None:
    columns = [results(score, score, metric="ppl") for score in scores]
    (found,) = trends_of_task([summary(20.0, 2, metric="ppl"), summary(30.0, 2, metric="ppl")], columns)
    assert (found.change, found.stderr, found.p_value) == (10.0, None, None)


def test_one_doc_has_no_error() -> None:
    assert trend([1], [0]).stderr is None


@pytest.mark.parametrize(
    ("weighted", "error"), [(True, math.hypot(4 * 0.25, 2 * 0.5) / 6), (False, math.hypot(0.25, 0.5) / 2)]
)
def test_a_group_is_weighted_as_its_value_is(weighted: bool, error: float) -> None:
    members = [trend([1, 1, 1, 0], [0, 1, 1, 0], name="a"), trend([0, 0], [1, 0], name="b")]
    assert [member.stderr for member in members] == [0.25, 0.5]
    group = Group("g", Path("g.yaml"), ("a", "b"), metrics=(GroupMetric("acc", weight_by_size=weighted),))
    sides = [summary(value, 6, name="g", tasks=("a", "b")) for value in (0.5, 0.5)]
    (found,) = trends_of_group(group, sides, members)
    assert found.stderr == pytest.approx(error)
    assert (found.rose, found.fell, found.summary.tasks) == (1, 1, ("a", "b"))
    assert trends_of_group(group, sides, members[:1]) == []


@pytest.mark.parametrize(
    ("rose", "fell", "p"),
    [(0, 0, 1.0), (1, 0, 1.0), (0, 5, 0.0625), (1, 7, 0.0703125), (4, 4, 1.0), (7000, 7000, 1.0), (0, 14042, 0.0)],
)
def test_the_sign_test_of_a_trend(rose: int, fell: int, p: float) -> None:
    for up, down in ((rose, fell), (fell, rose)):
        assert Trend(summary(0.0, 9), (), 0.1, up, down).p_value == pytest.approx(p, rel=1e-12)


def moved(name: str, fell: int, stderr: float | None = 0.1) -> Trend:
    numbers = summary(1.0, 9, name=name)
    return Trend(numbers, [*numbers.values, *numbers.values], stderr, 0, fell)


def significant(*trends: Trend) -> set[str]:
    return {name for name, _ in ModelComparison(["a", "b"], trends).significant()}


def test_holm_is_strict_with_many() -> None:
    """p of 0 against 7: 1/64; against 8: 1/128; against 1: 1."""
    lost = [moved("a", 8), moved("b", 7)]
    still = [moved(f"t{i}", 0) for i in range(4)]
    assert significant(lost[0]) == {"a"}
    assert significant(*lost) == {"a", "b"}
    # Five tests: 1/128 < .05/5; then 1/64 > .05/4.
    assert significant(*lost, *still[:3]) == {"a"}
    assert significant(*lost, *still) == {"a"}
    assert significant(moved("p", 9, None)) == set()


def model(name: str, **tasks: list[int]) -> ModelReport:
    """A model's report: right (1) or wrong answers by task, all in a group."""
    reports = [
        TaskReport(
            TaskData(Task(task, Path(), "multiple_choice", None, None), results(*scores), 9),
            summary(sum(scores) / len(scores), len(scores), name=task),
        )
        for task, scores in tasks.items()
    ]
    group = Group("g", Path("g.yaml"), tuple(tasks), metrics=(GroupMetric("acc"),))
    docs = [score for scores in tasks.values() for score in scores]
    whole = summary(sum(docs) / len(docs), len(docs), name="g", tasks=tuple(tasks))
    return ModelReport(name, reports, [GroupReport(group, whole, tuple(tasks))])


def test_models_side_by_side() -> None:
    models = [model("old", a=[1, 1, 1, 0], b=[0, 0], c=[1]), model("new", a=[0, 1, 1, 0], b=[1, 0], d=[1])]
    found = compare_models(models)
    assert found is not None
    assert [(trend.summary.name, trend.change) for trend in found.trends] == [("a", -0.25), ("b", 0.5)]
    assert (found.models, found.apart, found.children) == (["old", "new"], {}, {"g": ("a", "b", "c")})


def test_other_docs_of_a_task_are_named_and_not_compared() -> None:
    found = compare_models([model("old", a=[1, 1], b=[0, 0]), model("new", a=[1, 1], b=[0])])
    assert found is not None
    assert ([trend.summary.name for trend in found.trends], found.apart) == (["a"], {"b": [2, 1]})


def test_one_model_is_not_compared() -> None:
    assert compare_models([model("old", a=[1, 1]), ModelReport("new")]) is None
    assert compare_models([model("old", a=[1]), model("new", b=[1])]) is None
