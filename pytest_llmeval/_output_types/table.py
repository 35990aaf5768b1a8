"""One record per output type, in one table.

A new output type is one entry here; the metrics that serve it have an entry for it in `_scoring.METRICS`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from typing import TypeAlias

from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._doc import RequestKind
from pytest_llmeval._output_types import responses
from pytest_llmeval._output_types import targets


#: (doc, prompts, delimiter between prompt and continuation, whether metrics need the choices without a context) ->
#: the arguments of each request; for a generation, without its settings.
Requests: TypeAlias = Callable[[RenderedDoc, Sequence[str], str, bool], list[tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class OutputType:
    """All facts of one output type.

    `method`: the method of an `LM` that answers. `needed`: the keys that a task cannot omit, and their meaning.
    `metrics`: those of a task without a `metric_list`.

    `read_target` gives the right answers of a doc, `requests` the requests of a doc. `read_response` returns a
    response as a plain value, or raises TypeError, ValueError or IndexError if it is not as `expected` says. `answered`
    takes one filtered answer per request and returns the argument of `Metric.item`; None for texts, which
    `Metric.score` takes. `unusable` says which number of a doc is unusable, empty if none is.

    `has_choices`: a doc has choices, of which the model picks one. `sends_target`: the model is sent the right
    answer, so every doc must have one, even if `process_results` judges. `has_margins`: a doc's score may change
    with the rounding of another way of computing, which `--llmeval-noise` measures.
    """

    method: RequestKind
    needed: Mapping[str, str]
    metrics: tuple[str, ...]
    read_target: targets.TargetReader
    requests: Requests
    read_response: Callable[[Any], Any]
    expected: str
    answered: Callable[[RenderedDoc, Sequence[Any]], Any] | None
    unusable: Callable[[RenderedDoc, Sequence[Sequence[Any]]], str]
    has_choices: bool = False
    sends_target: bool = False
    has_margins: bool = False

    @property
    def generates(self) -> bool:
        """True if the model writes texts: only then `generation_kwargs` and `repeats` have a meaning."""
        return self.method == "generate_until"

    def read(self, response: Any) -> Any:
        """Return a response as a plain value. Raises ValueError if a model answers something else."""
        try:
            return self.read_response(response)
        except (TypeError, ValueError, IndexError):
            raise ValueError(f"the model answered {response!r:.80}, expected {self.expected}") from None


def _choice_requests(
    doc: RenderedDoc, prompts: Sequence[str], delimiter: str, unconditional: bool
) -> list[tuple[str, ...]]:
    """Return one request per choice: its text after the prompt, or the shared continuation after its own prompt."""
    choices = doc.choices or ()
    if doc.inputs is None:
        pairs = [(prompts[0], delimiter + choice) for choice in choices]
    else:
        pairs = [(prompt, delimiter + doc.references[0]) for prompt in prompts]
    return [*pairs, *(("", delimiter + choice) for choice in choices if unconditional)]


#: The output type of a task that names none.
DEFAULT = "generate_until"

OUTPUT_TYPES: Mapping[str, OutputType] = MappingProxyType(
    {
        "loglikelihood": OutputType(
            method="loglikelihood",
            needed={"doc_to_text": "the context of a doc", "doc_to_target": "the text to be scored after it"},
            metrics=("perplexity", "acc"),
            read_target=targets.one_text,
            requests=lambda doc, prompts, delimiter, unconditional: [(prompts[0], doc.references[0])],
            read_response=responses.read_pair,
            expected="(logprob of 0 or less, is_greedy)",
            answered=responses.pairs_answered,
            unusable=responses.unusable_number,
            sends_target=True,
            has_margins=True,
        ),
        "loglikelihood_rolling": OutputType(
            method="loglikelihood_rolling",
            needed={"doc_to_target": "the text to be scored"},
            metrics=("word_perplexity", "byte_perplexity", "bits_per_byte"),
            read_target=targets.one_text,
            requests=lambda doc, prompts, delimiter, unconditional: [(doc.references[0],)],
            read_response=responses.read_logprob,
            expected="a logprob of 0 or less",
            answered=responses.text_answered,
            unusable=responses.unusable_number,
            sends_target=True,
        ),
        "multiple_choice": OutputType(
            method="loglikelihood",
            needed={
                "doc_to_text": "the prompt of a doc",
                "doc_to_choice": "the options of a doc",
                "doc_to_target": "the index or the text of the right option",
            },
            metrics=("acc", "acc_norm"),
            read_target=targets.right_choices,
            requests=_choice_requests,
            read_response=responses.read_pair,
            expected="(logprob of 0 or less, is_greedy)",
            answered=responses.choices_answered,
            unusable=responses.unusable_choices,
            has_choices=True,
            has_margins=True,
        ),
        "generate_until": OutputType(
            method="generate_until",
            needed={"doc_to_text": "the prompt of a doc", "doc_to_target": "the right answer"},
            metrics=("exact_match",),
            read_target=targets.right_texts,
            requests=lambda doc, prompts, delimiter, unconditional: [(prompts[0],)],
            read_response=responses.read_text,
            expected="a text",
            answered=None,
            unusable=lambda doc, given: "",
        ),
    }
)
