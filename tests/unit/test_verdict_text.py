"""The screen of a gate that did not pass: headline, labelled facts, the most informative docs, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._baselines import Baseline
from pytest_llmeval._gates import parse_gate
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Pick
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._settings import Settings
from pytest_llmeval._stats import paired_bounds
from pytest_llmeval._task import Field
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Fact
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import judge


PATH = Path("/suite/tasks/t.yaml")

#: A doc: its score, and its choice and margin if they are known.
Doc = tuple[float] | tuple[float, int, float]


def task(name: str = "t", metric: str = "acc", kind: str = "multiple_choice", **more: Any) -> Task:
    text = Field("doc_to_text", text="{{q}}")
    metrics = resolve_metrics((MetricSpec(metric),), kind)
    return Task(name, PATH, kind, text, text, metrics=metrics, test_split="test", **more)


def results(own: Task, docs: Sequence[Doc]) -> list[DocResult]:
    metric = own.metrics[0].name
    found = []
    for i, (score, *choice) in enumerate(docs):
        pick = Pick(int(choice[0]), (0,), choice[1], {} if metric == "acc" else {metric: choice[1]}) if choice else None
        found.append(DocResult(i, {"none": {metric: score}}, key=DocKey(f"{own.name}{i}", "p"), pick=pick))
    return found


def judged(
    entry: Any, now: Mapping[Task, Sequence[Doc]], before: Mapping[Task, Sequence[Doc]], folder: Path, **more: Any
) -> Verdict:
    baseline = Baseline("main", folder, Settings())
    tasks = []
    for own, docs in now.items():
        if own in before:
            old = TaskData(own, results(own, before[own]), len(before[own]))
            baseline.update(own, old.results, old.summary(old.results), "m", {})
        known = results(own, docs)
        tasks.append(TaskData(own, known, len(known), baseline.compare(own, known) if before else None))
    owner = more.get("owner") or tasks[0].task
    data = GateData(owner, tasks, baseline="main" if before else "", root=Path("/suite"))
    return judge(parse_gate(entry, path=PATH, line=1), data.summary(), data=data)


def told(verdict: Verdict) -> list[str]:
    return [line for fact in verdict.facts if fact.label == "most informative docs" for line in fact.lines]


RIGHT: Doc = (1.0, 0, 0.4)


class TestTheScreen:
    def test_of_a_comparison(self, tmp_path: Path) -> None:
        own = task()
        now: list[Doc] = [(0.0, 3, 2.31), RIGHT, (0.0, 1, 0.1), RIGHT]
        verdict = judged("acc >= baseline - 0.02", {own: now}, {own: [RIGHT] * 4}, tmp_path)
        bounds = paired_bounds(2, 0, 4, 0.95)
        assert verdict.outcome == "failed"
        assert verdict.text.splitlines() == [
            "t: acc 0.5000, was 1.0000: fell by 0.5000, allowed 0.02",
            f"  change    between {bounds.low:.4f} and {bounds.high:.4f} (each bound holds at 95 %)",
            "  docs      4 docs compared: 2 lost, 0 gained",
            "  noise     p = 0.15 for a fall beyond 0.02: it may be noise",
            "  limit     the tolerance is 0.1 standard errors of the difference",
            "  most informative docs",
            "    doc[0]  expected 0, chose 3 (margin 2.31), before 0 (margin 0.4)",
            "    doc[2]  expected 0, chose 1 (margin 0.1), before 0 (margin 0.4)",
            "  next      pytest 'tasks/t.yaml::doc[0]' --llmeval-show prints the prompt; update the baseline only if "
            "the change is intended",
        ]
        assert len(verdict.headline) <= 120

    def test_of_a_floor(self, tmp_path: Path) -> None:
        verdict = judged("acc >= 0.9", {task(): [(0.0, 1, 0.2), RIGHT, (0.0, 2, 1.5)]}, {}, tmp_path)
        assert verdict.text.splitlines() == [
            "t: acc 0.3333 over 3 docs, required >= 0.9",
            "  most informative docs",
            "    doc[2]  expected 0, chose 2 (margin 1.5)",
            "    doc[0]  expected 0, chose 1 (margin 0.2)",
            "  next      pytest 'tasks/t.yaml::doc[2]' --llmeval-show prints the prompt",
        ]

    def test_facts_stand_in_their_order_whenever_they_are_added(self) -> None:
        verdict = Verdict("failed", "head").adding(Fact("next", "run"), None, Fact("docs", "3 docs"))
        verdict = verdict.adding(
            Fact("family", "Holm's correction over 6 gates"), Fact("power", "much"), Fact("reason", "why")
        )
        assert verdict.sentence == "head; why; 3 docs; Holm's correction over 6 gates"
        assert verdict.full_sentence == "head; why; 3 docs; Holm's correction over 6 gates; power: much; next: run"
        assert [line.split()[0] for line in verdict.text.splitlines()[1:]] == [
            "reason",
            "docs",
            "family",
            "power",
            "next",
        ]


class TestDocsThatTell:
    def test_five_at_most_the_surest_first(self, tmp_path: Path) -> None:
        own = task()
        now: list[Doc] = [(0.0, 1, margin) for margin in (0.1, 0.7, 0.3, 0.2, 0.6, 0.5, 0.4)]
        verdict = judged("acc >= baseline", {own: now}, {own: [(1.0, 0, 0.05)] * 7}, tmp_path)
        assert [line.split()[0] for line in told(verdict)] == ["doc[1]", "doc[4]", "doc[5]", "doc[6]", "doc[2]"]

    def test_a_margin_before_counts_as_well(self, tmp_path: Path) -> None:
        own = task()
        before: list[Doc] = [(1.0, 0, 0.1), (1.0, 0, 3.0)]
        verdict = judged("acc >= baseline", {own: [(0.0, 1, 0.2), (0.0, 1, 0.1)]}, {own: before}, tmp_path)
        assert [line.split()[0] for line in told(verdict)] == ["doc[1]", "doc[0]"]

    def test_a_metric_that_picks_by_other_values_shows_scores(self, tmp_path: Path) -> None:
        own = task(metric="acc_norm")
        verdict = judged("acc_norm >= baseline", {own: [(0.0, 0, 0.25)]}, {own: [(1.0, 0, 0.5)]}, tmp_path)
        assert told(verdict) == ["doc[0]  scored 0 (margin 0.25), before 1 (margin 0.5)"]

    def test_without_picks_the_first_docs(self, tmp_path: Path) -> None:
        own = task(metric="exact_match", kind="generate_until")
        docs: list[Doc] = [(1.0,), *[(0.0,)] * 9]
        found = [f"doc[{doc}]  scored 0" for doc in range(1, 6)]
        assert told(judged("exact_match >= 0.9", {own: docs}, {}, tmp_path)) == found
        compared = judged("exact_match >= baseline", {own: docs}, {own: [(1.0,)] * 10}, tmp_path)
        assert told(compared) == [f"{line}, before 1" for line in found]

    def test_other_scores_by_how_much_worse_they_became(self, tmp_path: Path) -> None:
        """A doc's log-probability: the lower, the worse."""
        own = task(metric="perplexity", kind="loglikelihood")
        now, before = [(-2.0,), (-9.0,), (-1.0,)], [(-1.0,), (-2.0,), (-3.0,)]
        verdict = judged("perplexity <= baseline", {own: now}, {own: before}, tmp_path)
        assert told(verdict) == ["doc[1]  scored -9, before -2", "doc[0]  scored -2, before -1"]

    def test_docs_of_a_group_are_called_by_their_tasks(self, tmp_path: Path) -> None:
        a, b = task("a"), task("b")
        group = Group("g", PATH, (a, b), metrics=(GroupMetric("acc"),))
        verdict = judged(
            "acc >= baseline", {a: [RIGHT], b: [(0.0, 1, 1.0)]}, {a: [RIGHT], b: [RIGHT]}, tmp_path, owner=group
        )
        assert told(verdict) == ["b doc[0]  expected 0, chose 1 (margin 1), before 0 (margin 0.4)"]
        # Both tasks are written in the group's file.
        assert "pytest 'tasks/t.yaml::doc[b-0]' --llmeval-show" in verdict.text

    def test_nothing_where_there_is_nothing_to_tell(self, tmp_path: Path) -> None:
        own = task()
        passed = judged("acc >= baseline - 0.5", {own: [RIGHT, (0.0, 1, 1.0)]}, {own: [RIGHT] * 2}, tmp_path / "a")
        same = judged("acc > baseline", {own: [RIGHT] * 2}, {own: [RIGHT] * 2}, tmp_path / "b")
        assert [(one.outcome, told(one)) for one in (passed, same)] == [("passed", []), ("failed", [])]

    def test_no_docs_of_a_comparison_that_is_refused(self, tmp_path: Path) -> None:
        own = task()
        verdict = judged("acc >= baseline", {own: [(0.0, 1, 1.0)] * 2}, {own: [RIGHT]}, tmp_path)
        assert [fact.label for fact in verdict.facts] == ["reason"]


@pytest.mark.parametrize(
    ("entry", "asked"),
    [
        ("acc >= baseline - 0.02", "allowed 0.02"),
        ("acc > baseline - 0.02 @ 0.95", "allowed less than 0.02 at 95 % confidence"),
        ("acc >= baseline - 5% @ 0.95 dataset", "allowed 5% at 95 % confidence for this data set"),
        ("acc >= baseline", "required no fall"),
        ("acc > baseline", "required a rise"),
        ("acc >= baseline + 0.5", "required a rise of 0.5"),
        ("acc > baseline + 0.5", "required a rise of more than 0.5"),
        # Such a gate is refused when it is checked: it holds no loss.
        ("acc <= baseline + 0.5", "required <= baseline + 0.5"),
    ],
)
def test_what_a_comparison_allows(tmp_path: Path, entry: str, asked: str) -> None:
    own = task()
    verdict = judged(entry, {own: [RIGHT, RIGHT]}, {own: [RIGHT, (0.0, 1, 1.0)]}, tmp_path)
    assert verdict.headline == f"t: acc 1.0000, was 0.5000: rose by 0.5000, {asked}"


@pytest.mark.parametrize(
    ("entry", "asked"),
    [
        ("perplexity <= baseline + 5%", "allowed 5%"),
        ("perplexity <= baseline", "required no rise"),
        ("perplexity < baseline - 1", "required a fall of more than 1"),
    ],
)
def test_what_is_allowed_of_a_metric_that_should_be_low(tmp_path: Path, entry: str, asked: str) -> None:
    own = task(metric="perplexity", kind="loglikelihood")
    verdict = judged(entry, {own: [(-1.0,)]}, {own: [(-1.0,)]}, tmp_path)
    assert verdict.headline == f"t: perplexity 2.7183, was 2.7183: unchanged, {asked}"
