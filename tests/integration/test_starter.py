"""The embedded checkpoints: the good one passes, an early one fails, the damaged one fails where it is damaged."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest


pytest_plugins = ["pytester"]

STARTER = Path(__file__).parents[2] / "benchmarks" / "starter"


def failed_gates(pytester: pytest.Pytester, models: Path, name: str, *options: str) -> tuple[set[str], int]:
    """The task files whose gates failed, and the exit code.

    A process of its own: torch cannot be imported twice in one.
    """
    result = pytester.runpytest_subprocess(
        str(STARTER), "-m", "llmeval_gate", "--llmeval-model", str(models / name), "--junitxml=out.xml", *options
    )
    return failed_in_report("gate["), int(result.ret)


def failed_in_report(gate: str) -> set[str]:
    """The task files of which gates failed whose id begins with `gate`, in the last run."""
    cases = [case for case in ElementTree.parse("out.xml").iter("testcase") if case.get("name", "").startswith(gate)]
    return {case.get("classname", "").rsplit(".", 2)[-2] for case in cases if case.find("failure") is not None}


def test_good_passes_every_gate(pytester: pytest.Pytester, starter_models: Path) -> None:
    assert failed_gates(pytester, starter_models, "good") == (set(), 0)


def test_damaged_fails_the_gate_of_its_subject_and_no_other(pytester: pytest.Pytester, starter_models: Path) -> None:
    assert failed_gates(pytester, starter_models, "damaged") == ({"capitals"}, 1)


def test_early_has_not_learned_everything(pytester: pytest.Pytester, starter_models: Path) -> None:
    failed, code = failed_gates(pytester, starter_models, "early")
    assert {"sums", "comparisons"} <= failed
    assert "capitals" not in failed
    assert code == 1


def test_stopped_early_the_damaged_fails_the_same_gate(pytester: pytest.Pytester, starter_models: Path) -> None:
    failed, code = failed_gates(
        pytester, starter_models, "damaged", "--llmeval-early-stop", "--llmeval-output=out", "-ollmeval_stop_seed=0"
    )
    assert (failed, code) == ({"capitals"}, 1)
    (written,) = Path("out").rglob("results_*.json")
    stopped = json.loads(written.read_text())["pytest_llmeval"]["stopped_early"]
    assert stopped["starter_capitals"] == {"docs": 32, "docs_total": 75}
    assert len(stopped) > 4


def test_against_the_good_model(pytester: pytest.Pytester, starter_models: Path) -> None:
    """The damaged one fails its subject and the group above it, the early one where it is worse, the good one nowhere.

    At .95 a subject of 80 docs must lose about a fifth more than the margin for that to show.
    """
    options = [f"--llmeval-baseline={pytester.path / 'good'}"]
    assert failed_gates(pytester, starter_models, "good", *options, "--llmeval-update-baseline") == (set(), 0)
    for subjects in ("letters", "animals", "calendar", "capitals", "comparisons", "elements", "opposites"):
        options.append(f"--llmeval-fail-on=starter_{subjects}.acc >= baseline - 0.05 as drop")
    rule = "--llmeval-fail-on=starter_[aceloc]*.acc >= baseline - 0.05 @ 0.95 as shown"
    options += [rule, "--llmeval-fail-on=starter_sums.exact_match,strict-match >= baseline - 5% as drop"]
    assert failed_gates(pytester, starter_models, "good", *options) == (set(), 0)
    _, code = failed_gates(pytester, starter_models, "damaged", *options, "-n2")
    assert (failed_in_report("gate[drop"), failed_in_report("gate[shown"), code) == (
        {"capitals", "letters"},
        {"capitals", "letters"},
        1,
    )
    failed_gates(pytester, starter_models, "early", *options)
    failed = failed_in_report("gate[drop")
    assert {"letters", "animals", "calendar", "comparisons", "sums"} <= failed
    assert not failed & {"capitals", "elements", "opposites"}
