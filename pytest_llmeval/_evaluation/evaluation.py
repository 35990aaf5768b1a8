"""The tasks of an evaluation: opened once, and answered by any number of models."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import nullcontext
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import TypeAlias

from pytest_llmeval import _sandbox
from pytest_llmeval._baselines import Baseline
from pytest_llmeval._baselines import Kept
from pytest_llmeval._baselines import doc_key
from pytest_llmeval._doc import ChatTemplate
from pytest_llmeval._doc import Instance
from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._docs import DataSource
from pytest_llmeval._docs import open_docs
from pytest_llmeval._docs import select
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._evaluation.model_calls import ask_docs
from pytest_llmeval._evaluation.model_calls import chat_of
from pytest_llmeval._evaluation.model_calls import grouped
from pytest_llmeval._evaluation.next_tokens import Comparing
from pytest_llmeval._evaluation.next_tokens import Keeping
from pytest_llmeval._journal import Journal
from pytest_llmeval._journal import KnownAnswers
from pytest_llmeval._lm import LM
from pytest_llmeval._lm import Tracked
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._plain import BoundedCache
from pytest_llmeval._plain import plain_or_text
from pytest_llmeval._prompts import Shots
from pytest_llmeval._prompts import instances_for
from pytest_llmeval._prompts import render_doc
from pytest_llmeval._prompts import written_kwargs
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._scoring import METRICS
from pytest_llmeval._scoring import CodeRunner
from pytest_llmeval._scoring import pick_of
from pytest_llmeval._scoring import score_doc
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


#: A doc, and what is sent to a model for it.
Rendered: TypeAlias = tuple[RenderedDoc, tuple[Instance, ...]]

#: Characters of prompts that are kept for later models (MMLU with five shots holds some 45 million).
RENDERED_CHARACTERS = 1 << 27


class OpenTask:
    """A task with its data open: the docs that this run asks for, and the requests of each."""

    def __init__(self, task: Task, settings: Settings, source: DataSource) -> None:
        self.task = task
        self.settings = settings
        self.docs = open_docs(task, settings, source)
        self.asked: Sequence[int] = select(len(self.docs), settings)
        self._shots = Shots(task, self.docs, settings)

    def check_examples(self) -> None:
        """Raise DataError if the examples that stand before every doc cannot be drawn."""
        self._shots.check()

    def render(self, index: int) -> RenderedDoc:
        """Return a doc with its fields evaluated."""
        return render_doc(self.task, index, self.docs[index])

    def instances(self, doc: RenderedDoc, chat: ChatTemplate | None) -> tuple[Instance, ...]:
        """Return the requests of a doc, with its few-shot examples in front."""
        return instances_for(self.task, doc, self._shots.for_doc(doc.index), self.settings, chat)

    def prepare(
        self, index: int, chat: ChatTemplate | None, kept: BoundedCache[tuple[str, int], Rendered] | None
    ) -> Rendered:
        """Return a doc and its instances, which `kept` may hold from another model or keep for one.

        Raises LLMEvalError if the doc cannot be scored.
        """
        if kept is None or chat is not None or not self._is_worth_keeping():
            return self._prepare(index, chat)
        found = kept.get((self.task.name, index))
        if found is None:
            found = self._prepare(index, chat)
            kept.put((self.task.name, index), found, _size_of(found))
        return found

    def _prepare(self, index: int, chat: ChatTemplate | None) -> Rendered:
        doc = self.render(index)
        if doc.problem:
            raise LLMEvalError(doc.problem)
        return doc, self.instances(doc, chat)

    def _is_worth_keeping(self) -> bool:
        """Return False where text is generated, which takes far longer, and where a function may change its doc."""
        return not OUTPUT_TYPES[self.task.output_type].generates and self.task.process_results is None


class Evaluation:
    """The tasks that one session evaluates, each opened once for all models."""

    def __init__(self, settings: Settings, registry: Registry, baseline: Baseline | None = None) -> None:
        self.settings = settings
        self.registry = registry
        #: The baseline to compare with; None while one is written.
        self._baseline = baseline
        #: Task name -> the next tokens that the baseline keeps of it.
        self._kept: dict[str, Kept | None] = {}
        #: Task name -> (docs asked for, docs of the data set), of every task opened here or in a worker.
        self.sizes: dict[str, tuple[int, int]] = {}
        #: Task name -> the reason why its docs cannot be evaluated, whatever the model.
        self.data_errors: dict[str, str] = {}
        #: Task name -> the docs that this shard answers; None if there are no shards.
        self.shares: Mapping[str, AbstractSet[int]] | None = None
        #: The number of models that are judged in this session, at most.
        self.models = 1
        self._source = DataSource()
        #: The journal, which is asked before a model; None without one.
        self.journal: Journal | None = None
        self._open: dict[str, OpenTask] = {}
        #: (task name, doc) -> the doc as it is sent to a model; None if nothing is kept for other models.
        self._rendered: BoundedCache[tuple[str, int], Rendered] | None = None
        #: The reason why the sandbox does not work here; empty if it does, None before it was tried.
        self._no_sandbox: str | None = None

    def open(self, task: Task) -> OpenTask:
        """Return the task with its data. Raises DataError if the data is not available."""
        if task.name not in self._open:
            self._open[task.name] = opened = OpenTask(task, self.settings, self._source)
            self.sizes[task.name] = (len(opened.asked), len(opened.docs))
        return self._open[task.name]

    def leaves(self, owner: Task | Group) -> tuple[Task, ...]:
        """Return the tasks of a group at any depth, or the task itself."""
        return (owner,) if isinstance(owner, Task) else self.registry.leaves(owner)

    def asked(self, task: str) -> int:
        """Return how many docs this session asks for; 0 for a task that is not open."""
        return self.sizes.get(task, (0, 0))[0]

    def is_here(self, task: str, doc: int) -> bool:
        """Return True if this session answers a doc; False for a doc of another shard."""
        return self.shares is None or doc in self.shares.get(task, ())

    def expect_models(self, count: int) -> None:
        """Take note of the number of models that are judged. For several, rendered docs are kept.

        With one model, memory does not grow with the docs.
        """
        self.models = max(count, 1)
        if count > 1:
            self._rendered = self._rendered or BoundedCache(RENDERED_CHARACTERS)

    def refusal(self, task: Task) -> str | None:
        """Return why the code that a model writes for this task is not run; None if it is run, or there is none."""
        if not task.unsafe_code:
            return None
        place = f"{task.path}: task {task.name!r}"
        if not self.settings.allow_code:
            return (
                f"{place} runs code that the model writes; allow it with --llmeval-allow-code (it then runs sandboxed)"
            )
        if not any(metric.pass_at for metric in task.metrics):
            in_sandbox = sorted(name for name, definition in METRICS.items() if definition.runs_code)
            return (
                f"{place} runs code that the model writes in functions of its own, which no sandbox holds; score it "
                f"with one of the metrics {', '.join(in_sandbox)}"
            )
        if self._no_sandbox is None:
            self._no_sandbox = _sandbox.available() or ""
        return f"{place} needs a sandbox: {self._no_sandbox}" if self._no_sandbox else None

    def path_of(self, task: str) -> Path:
        """Return the file in which an open task is written."""
        return self._open[task].task.path

    def answer(
        self,
        lm: LM,
        task: Task,
        indices: Sequence[int],
        known: KnownAnswers | None = None,
        *,
        reseed: int = 0,
        compares: bool = False,
    ) -> list[DocResult]:
        """Return the results of docs of an open task in one wave: answers that are known, or given by a model.

        `compares`: a gate needs the distance of their next tokens from the baseline. See `answer`.
        """
        positions = self._positions(task, lm, compares=compares)
        return answer(self._open[task.name], lm, indices, self._rendered, known, positions, reseed=reseed)

    def _kept_of(self, task: Task) -> Kept | None:
        """Return the next tokens that the baseline keeps of a task; None if it keeps none, or cannot be read."""
        if task.name not in self._kept:
            self._kept[task.name] = None
            # A file that cannot be read fails the gates that need it.
            with suppress(BaselineError):
                if self._baseline is not None and (record := self._baseline.read(task.name)):
                    self._kept[task.name] = self._baseline.kept(record)
        return self._kept[task.name]

    def _positions(self, task: Task, lm: LM, *, compares: bool) -> Keeping | Comparing | None:
        """Return what is done with the next tokens of a task's docs. Raises ModelError if the model gives none."""
        if OUTPUT_TYPES[task.output_type].generates:
            return None
        if self.settings.baseline_topk:
            return Keeping.by(lm, self.settings.baseline_topk)
        kept = self._kept_of(task) if compares else None
        return None if kept is None else Comparing.of(kept, lm)


def answer(
    opened: OpenTask,
    lm: LM,
    indices: Sequence[int],
    kept: BoundedCache[tuple[str, int], Rendered] | None = None,
    known: KnownAnswers | None = None,
    positions: Keeping | Comparing | None = None,
    *,
    reseed: int = 0,
) -> list[DocResult]:
    """Return the results of docs through one model: render, ask, score. An error in one doc does not affect others.

    `positions`: what is done with the next tokens at scored positions. `reseed` is added to the seeds of sampled texts.
    """
    chat = chat_of(lm) if opened.settings.chat_template else None
    results: dict[int, DocResult] = {}
    asked: dict[int, Rendered] = {}
    for index in indices:
        try:
            asked[index] = opened.prepare(index, chat, kept)
        except LLMEvalError as error:
            results[index] = DocResult(index, {}, error=str(error))
    sent = {index: _reseeded(instances, reseed) for index, (_, instances) in asked.items()}
    tracked = {} if positions is None else {index: _tracked(opened, positions, *asked[index]) for index in asked}
    # A journal has no next tokens.
    responses = ask_docs(lm, sent, tracked, None if any(tracked.values()) else known)
    with _sandbox.Worker() if opened.task.unsafe_code else nullcontext() as worker:
        for index, (given, refused) in responses.items():
            if refused is not None:
                results[index] = DocResult(index, {}, error=refused)
            else:
                result = _score(opened, *asked[index], given, worker.run if worker else None)
                results[index] = result if positions is None or result.error else positions.noted(result, given)
    return [results[index] for index in indices]


def _reseeded(instances: tuple[Instance, ...], by: int) -> tuple[Instance, ...]:
    """Return the requests of a doc with other seeds, where texts are generated."""
    if not by or instances[0].kind != "generate_until":
        return instances
    return tuple(
        replace(one, arguments=(one.arguments[0], replace(one.arguments[1], seed=one.arguments[1].seed + by)))
        for one in instances
    )


def _tracked(
    opened: OpenTask, positions: Keeping | Comparing, doc: RenderedDoc, instances: Sequence[Instance]
) -> list[Tracked]:
    """Return the token ids to report for each request of a doc; nothing for a doc whose key is an error."""
    try:
        return positions.asked(_key(opened.task, doc, instances), len(instances))
    except LLMEvalError:
        return []


def _size_of(rendered: Rendered) -> int:
    """Characters of the doc and of its distinct prompts."""
    doc, instances = rendered
    texts = {id(text): len(text) for instance in instances for text in instance.arguments if isinstance(text, str)}
    return len(str(doc.data)) + sum(texts.values())


def _score(
    opened: OpenTask,
    doc: RenderedDoc,
    instances: Sequence[Instance],
    responses: Sequence[Any],
    code_runner: CodeRunner | None,
) -> DocResult:
    keep, answers = opened.settings.keep_samples, grouped(instances, responses)
    result = score_doc(opened.task, doc.index, doc, answers, code_runner=code_runner, keep_sample=keep)
    if result.error is None and (pick := pick_of(opened.task, doc, answers)):
        result = replace(result, pick=pick)
    if opened.settings.keep_keys or opened.task.cluster is not None:
        result = _with_key(result, opened.task, doc, instances)
    if result.sample is None:
        return result
    arguments = [_arguments(opened, instance) for instance in instances if instance.repeat == 0]
    return replace(result, sample={**result.sample, "doc": plain_or_text(dict(doc.data)), "arguments": arguments})


def _with_key(result: DocResult, task: Task, doc: RenderedDoc, instances: Sequence[Instance]) -> DocResult:
    """Return the result with the identity of the doc, for a baseline or clusters."""
    try:
        key = _key(task, doc, instances)
    except LLMEvalError as error:
        return DocResult(doc.index, {}, error=str(error))
    return replace(result, key=key)


def _key(task: Task, doc: RenderedDoc, instances: Sequence[Instance]) -> DocKey:
    return doc_key(task, doc.index, doc.data, [instance.texts for instance in instances if instance.repeat == 0])


def _arguments(opened: OpenTask, instance: Instance) -> list[Any]:
    """Return the arguments of a request for sample files: generation settings as the task and the user wrote them."""
    if instance.kind != "generate_until":
        return list(instance.arguments)
    return [instance.arguments[0], written_kwargs(opened.task, opened.settings)]
