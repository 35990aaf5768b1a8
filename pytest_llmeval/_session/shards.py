"""``--llmeval-shard``: the docs of one job of several; ``--llmeval-merge``: the run that their results make together.

A merge is an ordinary run in which every doc has its answer already. So its items, gates, reports and exit code are
those of a run in one process.
"""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

import pytest

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._evaluation import TaskPlan
from pytest_llmeval._evaluation import docs_of
from pytest_llmeval._evaluation import plan_of
from pytest_llmeval._report import JoinedShards
from pytest_llmeval._report import ShardHead
from pytest_llmeval._report import answer_settings
from pytest_llmeval._report import read_shards
from pytest_llmeval._report import shard_path
from pytest_llmeval._report import task_difference
from pytest_llmeval._report import write_shard
from pytest_llmeval._session.items import doc_of
from pytest_llmeval._session.items import owner_of
from pytest_llmeval._session.options import origin_of
from pytest_llmeval._session.options import value_of
from pytest_llmeval._session.session import Session


def check_options(config: pytest.Config) -> None:
    """Raise SettingError if shards or their merge are asked for with an option that they exclude, or need another."""
    for name in ("shard", "merge"):
        if not value_of(config, name):
            continue
        origin = f"{origin_of(config, name)} {value_of(config, name)}"
        if value_of(config, "early-stop"):
            raise SettingError(
                f"{origin}: with {origin_of(config, 'early-stop')} the answers of all docs decide which others are "
                "needed, and a shard knows only its own: they cannot be combined"
            )
        if value_of(config, "bisect"):
            raise SettingError(
                f"{origin}: {origin_of(config, 'bisect')} judges each checkpoint: they cannot be combined"
            )
        if value_of(config, "confirm"):
            raise SettingError(
                f"{origin}: {origin_of(config, 'confirm')} asks for docs again once a gate would fail, when shards "
                "have ended: they cannot be combined (-o llmeval_confirm=false)"
            )
    if value_of(config, "shard") and value_of(config, "merge"):
        raise SettingError("--llmeval-merge: joins shards that were run before: omit --llmeval-shard")
    if value_of(config, "shard") and not value_of(config, "output"):
        raise SettingError(f"{origin_of(config, 'shard')}: needs --llmeval-output DIR, for the results to merge")
    if value_of(config, "merge") and config.getoption("llmeval_model"):
        raise SettingError("--llmeval-merge: the shards name their models: omit --llmeval-model")


def joined_shards(config: pytest.Config) -> JoinedShards:
    """Return the shards that `--llmeval-merge` names. Raises SettingError if they are not one evaluation."""
    pattern = str(value_of(config, "merge"))
    if config.getoption("dist", "no") != "no":
        raise SettingError(
            f"--llmeval-merge {pattern}: a merge asks no model, workers would wait for nothing: add -n 0"
        )
    base = config.invocation_params.dir
    try:
        return read_shards(base / path for path in sorted(glob.glob(pattern, root_dir=base, recursive=True)))
    except SettingError as error:
        raise SettingError(f"--llmeval-merge {pattern}: {error}") from None


def divide(session: Session, items: list[pytest.Item]) -> None:
    """Find out which docs this shard answers, and deselect all others; gates stay, and have missing docs answered."""
    shard = session.settings.shard
    if shard is None:
        return
    plans = _plans(session)
    session.plan = {plan.name: plan.hash for plan in plans}
    session.evaluation.shares = docs_of(shard, plans)
    others = {
        item
        for item in items
        if (found := doc_of(item)) and not session.evaluation.is_here(found.opened.task.name, found.index)
    }
    if others:
        session.config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = [item for item in items if item not in others]


def _plans(session: Session) -> list[TaskPlan]:
    """Return the plans of all tasks of this session, those of groups included, whose docs can be asked for."""
    evaluation = session.evaluation
    tasks = {task.name: task for owner in session.selection.collected.values() for task in evaluation.leaves(owner)}
    plans = []
    for task in tasks.values():
        try:
            if evaluation.refusal(task) is None:
                plans.append(plan_of(evaluation.open(task)))
        except LLMEvalError:
            # Its items and gates give the reason.
            continue
    return plans


def without_model(items: Iterable[pytest.Item]) -> None:
    """Let no item of a task set up the model, nor what only the model needs."""
    for item in items:
        if doc_of(item) or owner_of(item):
            wanted: Iterable[str] = item._fixtureinfo.initialnames  # type: ignore[attr-defined]
            names: list[str] = item.fixturenames  # type: ignore[attr-defined]
            names[:] = [name for name in wanted if name != "llmeval_model"]


def merge_problem(session: Session, joined: JoinedShards) -> str | None:
    """Return why the shards are not those of the tasks that were collected here; None if they are."""
    difference = task_difference(joined.head.tasks, {plan.name: plan.hash for plan in _plans(session)})
    return difference and f"--llmeval-merge: the shards and this run differ: {difference}"


def merge(session: Session, joined: JoinedShards) -> None:
    """Let the runs of this session have the results of all shards."""
    for shard in joined.runs:
        for model, plain in shard.items():
            run = session.selection.run(model)
            run.merge(plain)
            run.introduced = True


def close_shard(session: Session, reporter: pytest.TerminalReporter) -> None:
    """Write the results of a shard, and say that nothing was judged."""
    shard, config = session.settings.shard, session.config
    if shard is None:
        return
    if session.interrupted:
        session.failed_at_end = True
        reporter.write_line(
            f"ERROR: --llmeval-shard {shard}: the run was stopped before its end: no results are written", red=True
        )
        return
    models = [[choice.name, choice.spec, choice.named] for choice in session.models.choices]
    args = value_of(config, "model-args") or ""
    head = ShardHead(shard, answer_settings(session.settings), models, args, session.plan)
    runs = session.selection.runs
    docs = sum(len(run.results(task)) for run in runs.values() for task in run.scored())
    path = shard_path(config.invocation_params.dir / Path(value_of(config, "output")), shard)
    try:
        write_shard(path, head, {model: run.to_plain() for model, run in runs.items()})
    except SettingError as error:
        session.failed_at_end = True
        reporter.write_line(f"ERROR: {error}", red=True)
        return
    reporter.write_line(f"llmeval: shard {shard}: {docs:,} docs answered, nothing judged: --llmeval-merge does that")
    reporter.write_line(f"written: {path}")
