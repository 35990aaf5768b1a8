"""Models that think before they answer: the thought is generated and kept, but not scored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tablemodels as tables

from pytest_llmeval import Settings
from pytest_llmeval._doc import Instance
from pytest_llmeval._errors import LLMEvalWarning
from pytest_llmeval._errors import ModelError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import ask_model
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import ThoughtMarks
from pytest_llmeval._models import ModelArgs
from pytest_llmeval._models import wrap_model
from pytest_llmeval._models.arguments import read_model_args
from pytest_llmeval._registry import Registry


MARKS = ThoughtMarks("<think>", "</think>")
VOCABULARY = ["<pad>", "<s>", "</s>", "<think>", "</think>", "Q", "R", "no", "x", "yes", "4"]
#: After Q the model writes `<think> no x yes </think> 4 x no ...`; after R it thinks without end.
CHAIN = {"Q": "<think>", "<think>": "no", "no": "x", "x": "yes", "yes": "</think>", "</think>": "4", "4": "</s>"}
ENDLESS = {"R": "<think>", "<think>": "no", "no": "no"}
TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }} {% endfor %}"
    "{% if enable_thinking is defined and not enable_thinking %}<think> </think> {% else %}<think> {% endif %}"
)


def model(following: dict[str, str], *, template: str | None = TEMPLATE, special: bool = False, **args: Any) -> Any:
    tokenizer = tables.words(vocabulary=VOCABULARY)
    tokenizer.chat_template = template
    if special:
        tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    return wrap_model(tables.chain(following, VOCABULARY), tokenizer, **args)


def written(lm: Any, context: str = "Q", **kwargs: Any) -> str:
    settings = GenerationKwargs(**{"until": ("x",), "max_gen_toks": 9, **kwargs})
    return str(lm.generate_until([(context, settings)])[0])


@pytest.mark.parametrize(
    ("text", "prompt", "answer", "reason"),
    [
        ("<think>no</think> 4", "Q", "4", "stop"),
        (" <think> a </think> b </think>  4 ", "Q", "4 ", "stop"),
        ("no </think> 4", "Q <think>\n", "4", "stop"),
        ("4", "Q", "4", "stop"),
        # Thinking is turned off by a finished thought in the prompt: marks in an answer are a part of it.
        (" 4", "Q <think></think>", " 4", "stop"),
        ("4 </think> 5", "Q", "4 </think> 5", "stop"),
        ("<think> no", "Q", "", "thought"),
        ("no", "Q <think>", "", "thought"),
        ("", "Q <think>", "", "thought"),
    ],
)
def test_the_thought_is_removed(text: str, prompt: str, answer: str, reason: str) -> None:
    found = MARKS.removed(text, prompt)
    assert (str(found), found.finish_reason, found.raw) == (answer, reason, text)


def test_without_a_start_mark_everything_before_the_end_is_a_thought() -> None:
    marks = ThoughtMarks("", "<final>")
    assert str(marks.removed("a b <final> 4", "Q")) == "4"
    assert marks.removed(Generation("a b", "length", truncated=True), "Q").truncated
    assert marks.removed(Generation("a b", "length"), "Q").finish_reason == "thought"


class TestStops:
    def test_a_stop_string_within_a_thought_stops_nothing(self) -> None:
        assert written(model(CHAIN)) == "<think> no x yes </think> 4"

    def test_nor_if_the_prompt_opens_the_thought(self) -> None:
        assert written(model(CHAIN), "Q <think>") == "no x yes </think> 4"

    def test_the_answer_ends_at_its_stop_string(self) -> None:
        assert written(model(CHAIN), until=("4",)) == "<think> no x yes </think> "

    def test_without_marks_it_ends_in_the_thought(self) -> None:
        assert written(model(CHAIN, template=None)) == "<think> no "
        assert written(model(CHAIN, think_end_token="")) == "<think> no "

    def test_marks_by_argument(self) -> None:
        assert written(model(CHAIN, template=None, think_end_token="</think>")) == "<think> no x yes </think> 4"

    def test_the_mark_may_be_named_by_its_token(self) -> None:
        lm = model(CHAIN, template=None, think_end_token=str(VOCABULARY.index("</think>")))
        assert lm.thought_marks == MARKS
        with pytest.raises(ModelError, match="the tokenizer has 11 tokens, none with number 99"):
            model(CHAIN, think_end_token="99")

    def test_marks_that_are_special_tokens_are_kept_in_the_text(self) -> None:
        assert written(model(CHAIN, special=True)).replace(" ", "") == "<think>noxyes</think>4"

    def test_two_prompts_that_differ_by_the_thought_alone(self) -> None:
        lm = model(CHAIN)
        both = lm.generate_until([(text, GenerationKwargs(until=("x",), max_gen_toks=9)) for text in ("no", "<think>")])
        assert list(map(str, both)) == ["", "no x yes </think> 4"]


class TestTemplate:
    def test_its_variables(self) -> None:
        messages = [{"role": "user", "content": "Q"}]
        assert model(CHAIN).apply_chat_template(messages) == "Q <think> "
        assert model(CHAIN, enable_thinking=False).apply_chat_template(messages) == "Q <think> </think> "
        other = model(CHAIN, template="{{ effort }}", chat_template_args={"effort": "low"})
        assert other.apply_chat_template(messages) == "low"

    def test_a_variable_that_it_does_not_have(self) -> None:
        lm = model(CHAIN, template="{{ messages }}", enable_thinking=True)
        with pytest.raises(ModelError, match="has no variable 'enable_thinking': omit it"):
            lm.apply_chat_template([{"role": "user", "content": "Q"}])

    def test_arguments_on_the_command_line(self) -> None:
        given = {"chat_template_args": '{"effort": "low", "tools": [1, 2]}', "think_end_token": ""}
        args = read_model_args(given, ModelArgs)
        assert (args.chat_template_args, args.think_end_token) == ({"effort": "low", "tools": [1, 2]}, "")
        with pytest.raises(SettingError, match="chat_template_args: expected a JSON object, got '\\[1\\]'"):
            read_model_args({"chat_template_args": "[1]"}, ModelArgs)

    def test_choices_within_a_thought(self) -> None:
        lm = model(CHAIN)
        asked = Instance("loglikelihood", "t", 0, 0, 0, ("Q <think>", " yes"))
        with pytest.warns(LLMEvalWarning, match="the prompts end within a thought .*enable_thinking=false"):
            ask_model(lm, [asked])


TASK = """
task: think
output_type: generate_until
dataset_path: json
dataset_kwargs: {data_files: {test: docs.jsonl}}
test_split: test
doc_to_text: "{{q}}"
doc_to_target: "4"
generation_kwargs: {until: ["x"], max_gen_toks: 9}
metric_list: [{metric: exact_match}]
"""


def test_only_the_answer_is_scored(tmp_path: Path) -> None:
    """The doc after which the model thinks without end has no answer, and is counted apart from those cut off."""
    (tmp_path / "docs.jsonl").write_text('{"q": "Q"}\n{"q": "R"}\n')
    (tmp_path / "think.yaml").write_text(TASK)
    evaluation = Evaluation(Settings(keep_samples=True), Registry())
    task = evaluation.registry.load(tmp_path / "think.yaml")
    run = ModelRun(evaluation)
    run.score(model(CHAIN | {"R": "R"}), task, evaluation.open(task).asked)
    assert [run.results("think")[doc].scores["none"]["exact_match"] for doc in (0, 1)] == [1.0, 0.0]
    assert run.results("think")[0].sample["resps"] == [["<think> no x yes </think> 4"]]
    assert run.results("think")[0].sample["filtered_resps"] == {"none": ["4"]}
    endless = ModelRun(evaluation)
    endless.score(model(ENDLESS | {"Q": "4", "4": "</s>"}), task, evaluation.open(task).asked)
    summary = endless.summary(task)
    assert (summary.metrics["exact_match"], summary.thoughts, summary.cut_off) == (0.5, 1, 0)
    assert "generations that ended within their thought, which leaves no answer: 1" in summary.notes
