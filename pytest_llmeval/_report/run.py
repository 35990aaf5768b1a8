"""The values that files are made of: one model's run, its tasks and groups, and what is kept of a doc."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import TypedDict

from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Verdict


class Sample(TypedDict):
    """What `DocResult.sample` holds for a sample file. Lists run over the doc's distinct requests."""

    #: The doc's columns.
    doc: Mapping[str, Any]
    target: Any
    #: What the LM got: [context, continuation], [context, generation settings], or [text].
    arguments: Sequence[Sequence[Any]]
    #: Per request the answers of all repeats: a text, a number, or [loglikelihood, is greedy].
    resps: Sequence[Sequence[Any]]
    #: Filter -> per request what the filter left.
    filtered_resps: Mapping[str, Sequence[Any]]


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task with its numbers and the results they rest on."""

    task: Task
    summary: Summary
    results: Sequence[DocResult]


@dataclass(frozen=True, slots=True)
class GroupRun:
    """A group with its numbers and the names of its direct members."""

    summary: Summary
    members: Sequence[str]


@dataclass(frozen=True, slots=True)
class Run:
    """What one model scored.

    `model` is how the model is called and names the folder; `spec` and `model_args` are as the user gave them.
    `model_info` goes into the block `config` (model_dtype, model_sha, ...), `tokenizer_info` to the top level
    (tokenizer_bos_token, max_length, ...). `started` is in seconds since 1970, `seconds` how long it took.
    `verdicts` are those of the gates, by node id. `usage`: tokens read and bytes of peak memory, if the model says.
    """

    model: str
    tasks: Sequence[TaskRun]
    settings: Settings
    groups: Sequence[GroupRun] = ()
    variant: str = ""
    spec: str = ""
    model_args: str = ""
    started: float = 0.0
    seconds: float = 0.0
    chat_template: str | None = None
    git_hash: str | None = None
    model_info: Mapping[str, Any] = NOTHING
    tokenizer_info: Mapping[str, Any] = NOTHING
    verdicts: Mapping[str, Verdict] = NOTHING
    usage: Mapping[str, int] = NOTHING
