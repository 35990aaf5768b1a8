"""pass@k. Case B32 a, b and d."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._errors import TemplateError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._registry import Registry
from pytest_llmeval._scoring import PassAtK
from pytest_llmeval._scoring import pass_at_k
from pytest_llmeval._scoring import resolve
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task


@pytest.mark.parametrize(
    ("n", "c", "k", "chance"),
    [
        (5, 2, 1, 0.4),
        (5, 2, 2, 0.7),
        (5, 2, 5, 1.0),
        (10, 3, 5, 0.916667),
        (4, 1, 2, 0.5),
        (4, 4, 2, 1.0),
        (3, 0, 3, 0.0),
    ],
)
def test_pass_at_k(n: int, c: int, k: int, chance: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(chance, abs=1e-6)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 0, 5), (3, 1, 5), (3, 4, 1), (3, -1, 1)])
def test_pass_at_k_is_never_a_number_where_it_is_not_defined(n: int, c: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"not defined for 3 samples|cannot pass"):
        pass_at_k(n, c, k)


@settings(deadline=None)
@given(st.integers(1, 30), st.data())
def test_pass_at_k_rises_with_passes_and_with_k(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    chance = pass_at_k(n, c, k)
    assert 0 <= chance <= 1
    assert c == n or pass_at_k(n, c + 1, k) >= chance
    assert k == n or pass_at_k(n, c, k + 1) >= chance
    assert pass_at_k(n, c, 1) == pytest.approx(c / n)


@dataclass(frozen=True)
class Outcome:
    """A sandbox's answer, as an object that is true whatever it says."""

    passed: bool


DOC = {"prompt": "def f(x):\n", "test": "def check(g):\n    assert g(1) == 2", "entry_point": "f"}
TARGET = ("def check(g):\n    assert g(1) == 2\ncheck(f)",)


def run(program: str) -> Outcome:
    try:
        exec(program, {})
    except Exception:
        return Outcome(False)
    return Outcome(True)


def scored(completions: Any, runner: Callable[[str], Any] | None = run, **options: Any) -> dict[str, float]:
    return PassAtK.from_options(**options).score(completions, DOC["prompt"], TARGET, DOC, runner)


RIGHT, WRONG = "    return x + 1", "    return x"


def test_a_program_is_prompt_completion_and_test() -> None:
    programs: list[str] = []
    assert scored("    return x + 1", lambda program: programs.append(program) is None) == {"pass@1": 1.0}
    assert programs == ["def f(x):\n    return x + 1\ndef check(g):\n    assert g(1) == 2\ncheck(f)"]


def test_the_program_may_be_spelled_by_the_task() -> None:
    programs: list[str] = []
    template = "# {{entry_point}}\n{{completion}}\n{{target}}\n"
    scored("{{x}}", lambda program: programs.append(program) is None, program=template)
    assert programs == [f"# f\n{{{{x}}}}\n{TARGET[0]}\n"]
    with pytest.raises(TemplateError, match="metric pass@k, program: field 'tests' is not in the doc"):
        scored("", program="{{tests}}")


def test_every_sample_counts() -> None:
    samples = [WRONG, RIGHT, "    syntax error", WRONG, RIGHT]
    assert scored(samples, k=[1, 2, 5]) == {"pass@1": 0.4, "pass@2": pytest.approx(0.7), "pass@5": 1.0}
    assert scored(RIGHT) == {"pass@1": 1.0}
    assert scored([RIGHT], lambda program: True, k=1) == {"pass@1": 1.0}


def test_fewer_samples_than_k_are_an_error() -> None:
    with pytest.raises(ValueError, match="pass@5 is not defined for 3 samples: raise repeats"):
        scored([RIGHT, RIGHT, RIGHT], k=[1, 5])


def test_nothing_is_run_without_a_runner() -> None:
    with pytest.raises(ValueError, match="set unsafe_code: true"):
        scored(RIGHT, None)


def test_a_function_with_the_name_of_the_metric_is_refused() -> None:
    metrics = resolve_metrics((MetricSpec("pass_at_k", function=len),), "generate_until")
    task = Task("t", Path("t.yaml"), "generate_until", None, None, metrics=metrics, unsafe_code=True)
    reason = Evaluation(Settings(allow_code=True), Registry()).refusal(task)
    assert reason is not None
    assert "functions of its own, which no sandbox holds; score it with one of the metrics pass@k, pass_at_k" in reason


@pytest.mark.parametrize("name", ["pass_at_k", "pass@k"])
@pytest.mark.parametrize("k", [0, [], [1, 0], "1", [True], 1.0])
def test_k_must_be_a_count(name: str, k: Any) -> None:
    with pytest.raises(ValueError, match=r"k must be (a whole number|at least 1)"):
        resolve(MetricSpec(name, options={"k": k}), "generate_until")
