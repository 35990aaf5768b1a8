"""Runs as nights: with the ini key ``llmeval_nights``, a run adds a night to the history of each gate that compares."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from pytest_llmeval._baselines import History
from pytest_llmeval._baselines import history_path
from pytest_llmeval._baselines import read_history
from pytest_llmeval._baselines import write_history
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._gates import Gate
from pytest_llmeval._session.baseline import BaselineOptions
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Fact
from pytest_llmeval._verdicts import Verdict
from pytest_llmeval._verdicts import over_nights


def with_nights(verdict: Verdict, run: ModelRun, owner: Task | Group, gate: Gate, options: BaselineOptions) -> Verdict:
    """Return the verdict of a gate with its nights, and write the history if this run is one of them.

    A gate whose history cannot be read or written fails.
    """
    baseline = options.chosen
    if baseline is None or not options.keeps_nights or gate.change is None:
        return verdict
    if reason := _not_a_night(run):
        return verdict.adding(Fact("nights", f"not counted: {reason}"))
    if run.missing(owner):
        return verdict
    name = f"{owner.name} {gate.id}"
    path = history_path(baseline.path, owner.name, gate.id)
    try:
        history = read_history(path, name) or History(name, "", 0)
        data = replace(options.data(run, owner), members=run.family_size(gate))
        judged, longer = over_nights(verdict, gate, data, history, datetime.now().strftime("%Y-%m-%d"))
        if longer is not None:
            write_history(path, longer)
    except LLMEvalError as error:
        return replace(verdict, outcome="failed").adding(Fact("reason", f"its nights are not known: {error}"))
    return judged


def _not_a_night(run: ModelRun) -> str | None:
    if run.evaluation.settings.early_stop:
        return "--llmeval-early-stop omits docs"
    if run.evaluation.models > 1:
        return f"nights follow one model, and this run has {run.evaluation.models}"
    return None
