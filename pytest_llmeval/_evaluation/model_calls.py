"""A model, which may be anybody's object of three methods, is asked and says what it knows of itself."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any
from typing import TypeAlias

from pytest_llmeval._doc import ChatTemplate
from pytest_llmeval._doc import Instance
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import LLMEvalWarning
from pytest_llmeval._errors import ModelError
from pytest_llmeval._journal import DeferredLM
from pytest_llmeval._journal import KnownAnswers
from pytest_llmeval._lm import LM
from pytest_llmeval._lm import ThoughtMarks
from pytest_llmeval._lm import Tracked
from pytest_llmeval._plain import plain_or_text


#: Called as (answered, asked for, tokens read) while docs are being answered; tokens are 0 if the model does not count.
Progress = Callable[[int, int, int], None]


#: Docs in a row, the first of a wave, after whose failure no other doc is asked for.
BROKEN = 3

#: Doc -> (responses, None) or ([], why the model refused the doc).
Responses: TypeAlias = dict[int, tuple[list[Any], str | None]]


def ask_docs(
    lm: LM,
    asked: Mapping[int, Sequence[Instance]],
    tracked: Mapping[int, Sequence[Tracked]] | None = None,
    known: KnownAnswers | None = None,
) -> Responses:
    """Return the responses of some docs: those that are known, and those of the model, which are then kept.

    `tracked`: doc -> the token ids to report at the positions of each of its requests. Raises ModelError if the model
    is needed and cannot be loaded.
    """
    flat = [(doc, instance) for doc, instances in asked.items() for instance in instances]
    recalled = known.recall([instance for _, instance in flat]) if known else [None] * len(flat)
    missing: dict[int, list[Instance]] = {}
    for (doc, instance), answer in zip(flat, recalled, strict=True):
        if answer is None:
            missing.setdefault(doc, []).append(instance)
    if missing and isinstance(lm, DeferredLM):
        lm.load()
    fresh = _ask_docs(lm, missing, tracked or {}) if missing else {}
    if known:
        known.keep(pair for doc, (answers, _) in fresh.items() for pair in zip(missing[doc], answers, strict=False))
    responses: Responses = {doc: ([], fresh.get(doc, ([], None))[1]) for doc in asked}
    rest = {doc: iter(answers) for doc, (answers, _) in fresh.items()}
    for (doc, _), answer in zip(flat, recalled, strict=True):
        if responses[doc][1] is None:
            responses[doc][0].append(next(rest[doc]) if answer is None else answer)
    return responses


def _ask_docs(lm: LM, asked: Mapping[int, Sequence[Instance]], tracked: Mapping[int, Sequence[Tracked]]) -> Responses:
    """Return all requests of some docs in one call per method.

    A model that refuses one request (a continuation longer than its window, say) refuses the whole call, and so does
    one whose code fails on it: the docs are then asked one by one, and only those that fail alone are lost. Where the
    first `BROKEN` of them fail, the model is broken, and its exception is raised.
    """
    flat = [(doc, instance) for doc, instances in asked.items() for instance in instances]
    wanted = [ids for doc, instances in asked.items() for ids in tracked.get(doc) or [()] * len(instances)]
    try:
        responses = ask_model(lm, [instance for _, instance in flat], wanted if any(wanted) else ())
    except LLMEvalError as error:
        if len(asked) == 1:
            return {next(iter(asked)): ([], str(error))}
        return {doc: _ask_docs(lm, {doc: instances}, tracked)[doc] for doc, instances in asked.items()}
    except Exception as error:  # a model of the user's may raise anything
        if len(asked) == 1 or _ends_run(error):
            raise
        found: Responses = {}
        for doc, instances in asked.items():
            try:
                found |= _ask_docs(lm, {doc: instances}, tracked)
            except Exception as of_doc:
                if _ends_run(of_doc):
                    raise
                found[doc] = [], _as_reason(of_doc)
            if len(found) == min(BROKEN, len(asked)) and all(reason for _, reason in found.values()):
                raise error
        return found
    answers: Responses = {doc: ([], None) for doc in asked}
    for (doc, _), response in zip(flat, responses, strict=True):
        answers[doc][0].append(response)
    return answers


def _ends_run(error: Exception) -> bool:
    """Return True for what `pytest.exit` raises, which is an `Exception` and not about a doc."""
    return type(error).__module__ == "_pytest.outcomes"


def _as_reason(error: Exception) -> str:
    """Return an exception of a model's code in words, with the place that raised it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"


def ask_model(lm: LM, instances: Sequence[Instance], tracked: Sequence[Tracked] = ()) -> list[Any]:
    """Return the responses in the order of the instances, from one call per method of the model.

    `tracked`: the token ids to report for each instance, of a model that has `LM.tracked`; empty for none.
    """
    responses: list[Any] = [None] * len(instances)
    for kind in ("loglikelihood", "loglikelihood_rolling", "generate_until"):
        places = [i for i, instance in enumerate(instances) if instance.kind == kind]
        if not places:
            continue
        requests = [instances[i].arguments for i in places]
        name = "tracked" if tracked and kind != "generate_until" else kind
        method = getattr(lm, name, None)
        if method is None:
            raise ModelError(f"{type(lm).__name__}, which llmeval_model gave, has no method {kind}: it is not a model")
        if name == "tracked":
            answers = method(requests, [tracked[i] for i in places])
        else:
            answers = method([text for (text,) in requests] if kind == "loglikelihood_rolling" else requests)
        if not isinstance(answers, Iterable) or isinstance(answers, str | bytes | AbstractSet | Mapping):
            raise ModelError(f"{type(lm).__name__}.{name} gave {answers!r}: it must return an answer for each request")
        answers = list(answers)
        if len(answers) != len(places):
            raise ModelError(f"{type(lm).__name__}.{name} gave {len(answers)} answers to {len(places)} requests")
        if marks := getattr(lm, "thought_marks", None):
            answers = list(_without_thoughts(marks, kind, requests, answers))
        for place, response in zip(places, answers, strict=True):
            responses[place] = response
    return responses


def _without_thoughts(
    marks: ThoughtMarks, kind: str, requests: Sequence[Sequence[Any]], answers: Sequence[Any]
) -> Iterator[Any]:
    """Yield generations without thoughts. Warn if choices are scored where the model would begin to think."""
    if kind == "loglikelihood" and marks.start and marks.opened_in(requests[0][0]):
        warnings.warn(
            f"the prompts end within a thought ({marks.start!r}), in which the choices are scored: turn thinking off, "
            "e.g. with --llmeval-model-args enable_thinking=false",
            LLMEvalWarning,
            stacklevel=2,
        )
    for request, answer in zip(requests, answers, strict=True):
        is_text = kind == "generate_until" and isinstance(answer, str)
        yield marks.removed(answer, request[0]) if is_text else answer


def grouped(instances: Sequence[Instance], responses: Sequence[Any]) -> list[list[Any]]:
    """Return the answers of one doc, those to the repeats of a request together."""
    found: dict[int, list[Any]] = {}
    for instance, response in zip(instances, responses, strict=True):
        found.setdefault(instance.index, []).append(response)
    return list(found.values())


@contextmanager
def watched(
    lm: Any, progress: Progress | None, done: int, size: int, total: int, tokens: Callable[[], int]
) -> Iterator[None]:
    """Lets a model that reports its own progress do so in docs: docs before, plus its share of this wave."""
    if progress is None or not hasattr(lm, "on_progress"):
        yield
        return
    lm.on_progress = lambda part, whole: progress(done + size * part // max(whole, 1), total, tokens())
    try:
        yield
    finally:
        lm.on_progress = None


def usage_of(lm: LM) -> Mapping[str, int]:
    """Return the `tokens` that a model has read and its `peak_memory`; nothing if it does not say."""
    usage: Callable[[], Mapping[str, int]] = getattr(lm, "usage", dict)
    return usage()


def facts_of(lm: LM, known: KnownAnswers | None, described: Sequence[str], *, identify: bool) -> dict[str, Any]:
    """Return the facts that the model gives about itself, as plain data; empty if it has no `describe`.

    `described`: the output types of the docs that it answered so far. A model is not loaded for facts that are known.
    """
    facts: Mapping[str, Any] | None = None
    if known is not None and isinstance(lm, DeferredLM) and not lm.is_loaded:
        facts = known.facts(lm.facts_identity, described[-1])
    if facts is None:
        describe: Callable[[], Mapping[str, Any]] = getattr(lm, "describe", dict)
        facts = {name: plain_or_text(value) for name, value in describe().items()}
        if known is not None and isinstance(lm, DeferredLM):
            known.keep_facts(lm.facts_identity, described[-1], facts, len(described))
    own = ("fingerprint", "vocabulary") if identify else ()
    return {**facts, **{name: plain_or_text(getattr(lm, name, None)) for name in own}}


def chat_of(lm: LM) -> ChatTemplate:
    """Return the model's chat template. Raises ModelError if it has none."""
    template = getattr(lm, "apply_chat_template", None)
    if template is None:
        raise ModelError(
            f"--llmeval-chat-template: {type(lm).__name__} has no method apply_chat_template(messages, "
            "add_generation_prompt); give it one, or omit the option"
        )
    chat: ChatTemplate = template
    return chat
