"""The whole way from a task to its numbers, without pytest.

An `Evaluation` opens each task once, has a model answer the docs that are asked for and not yet known, wave by
wave, and sums up. The plugin's rooms only decide which docs are asked for, and show what came out.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from typing import TypeAlias

from pytest_llmeval import _sandbox
from pytest_llmeval._baselines import doc_key
from pytest_llmeval._doc import ChatTemplate
from pytest_llmeval._doc import Instance
from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._docs import DataSource
from pytest_llmeval._docs import open_docs
from pytest_llmeval._docs import select
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import SandboxError
from pytest_llmeval._evaluation.model_calls import Progress
from pytest_llmeval._evaluation.model_calls import ask_docs
from pytest_llmeval._evaluation.model_calls import chat_of
from pytest_llmeval._evaluation.model_calls import facts_of
from pytest_llmeval._evaluation.model_calls import grouped
from pytest_llmeval._evaluation.model_calls import usage_of
from pytest_llmeval._evaluation.model_calls import watched
from pytest_llmeval._lm import LM
from pytest_llmeval._output_types import OUTPUT_TYPES
from pytest_llmeval._plain import BoundedCache
from pytest_llmeval._plain import plain_or_text
from pytest_llmeval._prompts import Shots
from pytest_llmeval._prompts import instances_for
from pytest_llmeval._prompts import num_fewshot
from pytest_llmeval._prompts import render_doc
from pytest_llmeval._prompts import written_kwargs
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Ledger
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import METRICS
from pytest_llmeval._scoring import CodeRunner
from pytest_llmeval._scoring import pick_of
from pytest_llmeval._scoring import score_doc
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


#: Docs in the first wave of a session, the most in any, and the seconds that a wave aims at: short enough for
#: smooth progress and -x, long enough for the engine to sort and share prefixes.
FIRST_WAVE, LARGEST_WAVE, WAVE_SECONDS = 32, 2048, 4.0


#: A doc, and what is sent to a model for it.
Rendered: TypeAlias = tuple[RenderedDoc, tuple[Instance, ...]]

#: Characters of prompts that are kept for later models (MMLU with five shots holds some 45 million).
CAPACITY = 1 << 27


class OpenTask:
    """One task with its data open: which docs this run asks for, and what is sent to a model for each."""

    def __init__(self, task: Task, settings: Settings, source: DataSource) -> None:
        self.task = task
        self.settings = settings
        self.docs = open_docs(task, settings, source)
        self.asked: Sequence[int] = select(len(self.docs), settings)
        self._shots = Shots(task, self.docs, settings)

    def check_examples(self) -> None:
        """Raise DataError if the examples that stand before every doc cannot be had."""
        self._shots.check()

    def render(self, index: int) -> RenderedDoc:
        return render_doc(self.task, index, self.docs[index])

    def instances(self, doc: RenderedDoc, chat: ChatTemplate | None) -> tuple[Instance, ...]:
        return instances_for(self.task, doc, self._shots.for_doc(doc.index), self.settings, chat)

    def prepare(
        self, index: int, chat: ChatTemplate | None, kept: BoundedCache[tuple[str, int], Rendered] | None
    ) -> Rendered:
        """A doc and its instances, which `kept` may hold from another model or keep for one.

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
        """Generating takes thousands of times longer than rendering; a function of the task's may change its doc."""
        return not OUTPUT_TYPES[self.task.output_type].generates and self.task.process_results is None


class Evaluation:
    """Everything that one run evaluates, for any number of models (variants)."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self.settings = settings
        self.registry = registry
        self.ledger = Ledger()
        #: Task name -> (docs asked for, docs of the data set), of every task opened here or in a worker.
        self.sizes: dict[str, tuple[int, int]] = {}
        #: variant -> what result files say of a model that answered, here or in a worker.
        self.described: dict[str, Mapping[str, Any]] = {}
        #: variant -> what the model says that its answers cost here, or in all workers.
        self.used: dict[str, Mapping[str, int]] = {}
        self._source = DataSource()
        self._open: dict[str, OpenTask] = {}
        self._wave = FIRST_WAVE
        #: (task name, doc) -> what is sent for it; None if nothing is kept for other models.
        self._rendered: BoundedCache[tuple[str, int], Rendered] | None = None
        #: Why the sandbox does not work here; empty if it does, None before it was tried (that takes a moment).
        self._no_sandbox: str | None = None
        self._summaries: dict[tuple[str, str], tuple[int, Summary]] = {}

    def open(self, task: Task) -> OpenTask:
        """The task with its data. Raises DataError if these cannot be had."""
        if task.name not in self._open:
            self._open[task.name] = opened = OpenTask(task, self.settings, self._source)
            self.sizes[task.name] = (len(opened.asked), len(opened.docs))
        return self._open[task.name]

    def expect_several_models(self) -> None:
        """Keep what is rendered for the models that come later; with one model nothing grows with the docs."""
        self._rendered = self._rendered or BoundedCache(CAPACITY)

    def refusal(self, task: Task) -> str | None:
        """Why the code that a model writes for this task is not run here; None if it is, or if there is none."""
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
        """The file in which an open task is written."""
        return self._open[task].task.path

    def score(self, lm: LM, variant: str, task: Task, indices: Iterable[int], progress: Progress | None = None) -> None:
        """Have those of the docs answered that are not in the ledger yet."""
        if reason := self.refusal(task):
            raise SandboxError(reason)
        opened, known = self.open(task), self.ledger.of(variant, task.name)
        opened.check_examples()
        missing = [index for index in indices if index not in known]
        done, before = 0, usage_of(lm).get("tokens", 0)

        def tokens() -> int:
            return usage_of(lm).get("tokens", 0) - before

        while done < len(missing):
            wave = missing[done : done + self._wave]
            with watched(lm, progress, done, len(wave), len(missing), tokens):
                self.ledger.add(variant, task.name, self._timed_wave(opened, lm, wave))
            done += len(wave)
            if progress:
                progress(done, len(missing), tokens())
            if variant not in self.described:
                self.described[variant] = facts_of(lm, identify=self.settings.identify)
        self.used[variant] = usage_of(lm)

    def add_usage(self, variant: str, used: Mapping[str, int]) -> None:
        """Count what a model took in a worker: its process had memory of its own."""
        known = self.used.get(variant, {})
        self.used[variant] = {name: known.get(name, 0) + value for name, value in used.items()}

    def wave_size(self) -> int:
        """How many docs the next wave should hold, judged by how long the last ones took."""
        return self._wave

    def _timed_wave(self, opened: OpenTask, lm: LM, wave: list[int]) -> list[DocResult]:
        started = time.perf_counter()
        results = answer(opened, lm, wave, self._rendered)
        seconds = max(time.perf_counter() - started, 1e-6)
        # Only a full wave tells how fast docs are; grow at most fourfold, one odd wave must not decide alone.
        if len(wave) == self._wave:
            fitting = int(len(wave) * WAVE_SECONDS / seconds)
            self._wave = max(1, min(fitting, self._wave * 4, LARGEST_WAVE))
        return results

    def missing(self, variant: str, tasks: Iterable[Task]) -> str | None:
        """What keeps a verdict on these tasks from being complete, in words; None if nothing does."""
        short = []
        for task in tasks:
            asked = self.sizes.get(task.name, (0, 0))[0]
            have = len(self.ledger.of(variant, task.name))
            if have < asked or not asked:
                short.append(f"{task.name}: {have} of {asked} docs have a result")
        return f"incomplete: {', '.join(short)}" if short else None

    def summary(self, variant: str, task: Task) -> Summary:
        """The task's numbers over the docs known so far."""
        results = self.ledger.of(variant, task.name)
        cached = self._summaries.get((variant, task.name))
        if cached is None or cached[0] != len(results):
            summary = summarize_task(
                task,
                [results[index] for index in sorted(results)],
                n_total=self.sizes.get(task.name, (0, len(results)))[1],
                num_fewshot=num_fewshot(task, self.settings),
                bootstrap_iters=self.settings.bootstrap_iters,
            )
            self._summaries[variant, task.name] = cached = (len(results), summary)
        return cached[1]

    def group_summary(self, variant: str, group: Group) -> Summary:
        """The group's numbers over its leaf tasks that have results."""
        leaves = self.registry.leaves(group)
        return summarize_group(group, [(task, self.summary(variant, task)) for task in leaves])


def answer(
    opened: OpenTask, lm: LM, indices: Sequence[int], kept: BoundedCache[tuple[str, int], Rendered] | None = None
) -> list[DocResult]:
    """Docs to results through one model: render, ask, score. A doc that cannot be had is an error of its own."""
    chat = chat_of(lm) if opened.settings.chat_template else None
    results: dict[int, DocResult] = {}
    asked: dict[int, Rendered] = {}
    for index in indices:
        try:
            asked[index] = opened.prepare(index, chat, kept)
        except LLMEvalError as error:
            results[index] = DocResult(index, {}, error=str(error))
    responses = ask_docs(lm, {index: instances for index, (_, instances) in asked.items()})
    with _sandbox.Worker() if opened.task.unsafe_code else nullcontext() as worker:
        for index, (given, refused) in responses.items():
            if refused is not None:
                results[index] = DocResult(index, {}, error=refused)
            else:
                results[index] = _score(opened, *asked[index], given, worker.run if worker else None)
    return [results[index] for index in indices]


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
    if opened.settings.keep_keys or opened.task.cluster is not None:
        result = _with_key(result, opened.task, doc, instances, answers)
    if result.sample is None:
        return result
    arguments = [_arguments(opened, instance) for instance in instances if instance.repeat == 0]
    return replace(result, sample={**result.sample, "doc": plain_or_text(dict(doc.data)), "arguments": arguments})


def _with_key(
    result: DocResult, task: Task, doc: RenderedDoc, instances: Sequence[Instance], answers: Sequence[Sequence[Any]]
) -> DocResult:
    """The result with what a baseline needs to find the doc again and to tell how sure the model was."""
    sent = [instance.texts for instance in instances if instance.repeat == 0]
    try:
        key = doc_key(task, doc.index, doc.data, sent)
    except LLMEvalError as error:
        return DocResult(doc.index, {}, error=str(error))
    return replace(result, key=key, pick=pick_of(task, doc, answers) if result.error is None else None)


def _arguments(opened: OpenTask, instance: Instance) -> list[Any]:
    """What a sample file says was sent: generation settings as the task and the user wrote them."""
    if instance.kind != "generate_until":
        return list(instance.arguments)
    return [instance.arguments[0], written_kwargs(opened.task, opened.settings)]


def evaluate(paths: Iterable[str | Path], lm: LM, settings: Settings | None = None) -> dict[str, Summary]:
    """Evaluate task or group files with a model and return the summaries by task and group name.

    ::

        summaries = evaluate(["benchmarks/arc_easy.yaml"], my_model, Settings(limit=100))
        print(summaries["arc_easy"].find("acc")[0].value)

    Raises the errors of `pytest_llmeval.LLMEvalError` for files, data and models that cannot be used.
    """
    evaluation = Evaluation(settings or Settings(), Registry())
    summaries: dict[str, Summary] = {}
    for path in paths:
        found = evaluation.registry.load(Path(path).resolve())
        tasks = (found,) if isinstance(found, Task) else evaluation.registry.leaves(found)
        for task in tasks:
            evaluation.score(lm, "", task, evaluation.open(task).asked)
            summaries[task.name] = evaluation.summary("", task)
        if isinstance(found, Group):
            summaries[found.name] = evaluation.group_summary("", found)
    return summaries
