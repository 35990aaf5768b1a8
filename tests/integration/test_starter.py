"""The embedded checkpoints: the good one passes, an early one fails, the damaged one fails where it is damaged."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest


pytest_plugins = ["pytester"]

STARTER = Path(__file__).parents[2] / "benchmarks" / "starter"


def failed_gates(pytester: pytest.Pytester, models: Path, name: str) -> tuple[set[str], int]:
    """The task files whose gates failed, and the exit code.

    A process of its own: torch cannot be imported twice in one.
    """
    result = pytester.runpytest_subprocess(
        str(STARTER), "-m", "llmeval_gate", "--llmeval-model", str(models / name), "--junitxml=out.xml"
    )
    cases = ElementTree.parse("out.xml").iter("testcase")
    failed = {case.get("classname", "").rsplit(".", 2)[-2] for case in cases if case.find("failure") is not None}
    return failed, int(result.ret)


def test_good_passes_every_gate(pytester: pytest.Pytester, starter_models: Path) -> None:
    assert failed_gates(pytester, starter_models, "good") == (set(), 0)


def test_damaged_fails_the_gate_of_its_subject_and_no_other(pytester: pytest.Pytester, starter_models: Path) -> None:
    assert failed_gates(pytester, starter_models, "damaged") == ({"capitals"}, 1)


def test_early_has_not_learned_everything(pytester: pytest.Pytester, starter_models: Path) -> None:
    failed, code = failed_gates(pytester, starter_models, "early")
    assert {"sums", "comparisons"} <= failed
    assert "capitals" not in failed
    assert code == 1
