"""From a doc to what a model is asked: typed fields, turns, prompts, requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import handmade
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._doc import Instance
from pytest_llmeval._doc import RenderedDoc
from pytest_llmeval._errors import DataError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._errors import TemplateError
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._prompts import generation_kwargs
from pytest_llmeval._prompts import instances_for
from pytest_llmeval._prompts import render_doc
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Task


def chat(messages: list[dict[str, str]], add_generation_prompt: bool) -> str:
    """``<role>text</role>`` a message, ``<assistant>`` where a reply is asked for; else the last one stays open."""
    text = "".join(f"<{m['role']}>{m['content']}</{m['role']}>" for m in messages)
    return f"{text}<assistant>" if add_generation_prompt else text.removesuffix(f"</{messages[-1]['role']}>")


def ask(
    task: Task, doc: DocData, shots: Sequence[DocData] = (), settings: Settings | None = None, template: Any = None
) -> tuple[Instance, ...]:
    return instances_for(task, render_doc(task, 0, doc), shots, settings or Settings(), template)


def prompt(task: Task, doc: DocData, shots: Sequence[DocData] = (), **settings: Any) -> str:
    return str(ask(task, doc, shots, Settings(**settings))[0].arguments[0])


def choice_task(**keys: Any) -> Task:
    keys = {"doc_to_choice": ["yes", "no"], "doc_to_target": "label", **keys}
    return handmade.make_task(output_type="multiple_choice", **keys)


def render(doc: DocData, **keys: Any) -> RenderedDoc:
    return render_doc(handmade.make_task(**keys), 3, doc)


class TestOutputTypes:
    def test_multiple_choice(self) -> None:
        task = choice_task(doc_to_text="Q: {{q}}\nA:")
        found = ask(task, {"q": "b", "label": 1})
        assert found == (
            Instance("loglikelihood", "t", 0, 0, 0, ("Q: b\nA:", " yes")),
            Instance("loglikelihood", "t", 0, 1, 0, ("Q: b\nA:", " no")),
        )
        assert found[0].arguments[0] is found[1].arguments[0]

    def test_loglikelihood_has_no_delimiter_of_its_own(self) -> None:
        task = handmade.make_task(output_type="loglikelihood", doc_to_text="{{t[:1]}}", doc_to_target="{{' ' + t[1:]}}")
        assert ask(task, {"t": "abc"}) == (Instance("loglikelihood", "t", 0, 0, 0, ("a", " bc")),)

    def test_rolling_scores_the_whole_target(self) -> None:
        task = handmade.make_task(output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{t}}")
        assert ask(task, {"t": "abc"}) == (Instance("loglikelihood_rolling", "t", 0, 0, 0, ("abc",)),)

    def test_generate_until_repeats(self) -> None:
        task = handmade.make_task(repeats=3, generation_kwargs={"until": ["\n"], "temperature": 0.5})
        found = ask(task, {"q": "b", "a": "c"})
        assert [(i.index, i.repeat) for i in found] == [(0, 0), (0, 1), (0, 2)]
        assert [i.arguments for i in found] == [
            ("b", GenerationKwargs(until=("\n",), do_sample=True, temperature=0.5, repeat=repeat))
            for repeat in range(3)
        ]

    def test_mutual_information(self) -> None:
        """B14: the unconditional requests come after all others, with the same delimiter."""
        doc = {"q": "b", "label": 1}
        plain = ask(choice_task(metrics=["acc", "acc_norm"]), doc)
        found = ask(choice_task(metrics=["acc", "acc_norm", "acc_mutual_info"]), doc)
        assert found[:2] == plain
        assert [(i.index, i.arguments) for i in found[2:]] == [(2, ("", " yes")), (3, ("", " no"))]


class TestDelimiters:
    """B04."""

    def test_the_delimiter_is_in_the_shots_too(self) -> None:
        task = choice_task(doc_to_text="Q: {{q}}\nA:")
        found = ask(task, {"q": "b", "label": 1}, [{"q": "a", "label": 0}])
        assert [i.arguments for i in found] == [
            ("Q: a\nA: yes\n\nQ: b\nA:", " yes"),
            ("Q: a\nA: yes\n\nQ: b\nA:", " no"),
        ]

    def test_white_space_of_the_text_stays(self) -> None:
        task = choice_task(doc_to_text="Q: {{q}}\nA: ", target_delimiter="")
        found = ask(task, {"q": "b", "label": 1}, [{"q": "a", "label": 0}])
        assert found[0].arguments == ("Q: a\nA: yes\n\nQ: b\nA: ", "yes")

    def test_white_space_of_the_choice_stays(self) -> None:
        task = choice_task(doc_to_choice=[" yes", " no"])
        assert ask(task, {"q": "b", "label": 1})[0].arguments == ("b", "  yes")
        assert render_doc(task, 0, {"q": "b", "label": 1}).choices == (" yes", " no")

    def test_shots_have_their_own(self) -> None:
        fewshot = handmade.make_fewshot(
            doc_to_text="{{q}}?", doc_to_target="{{a}}!", fewshot_delimiter="|", target_delimiter="="
        )
        task = handmade.make_task(fewshot=fewshot, fewshot_delimiter="\n")
        shots = [{"q": "p", "a": "1"}, {"q": "r", "a": "2"}]
        assert prompt(task, {"q": "q", "a": "3"}, shots) == "p?=1!|r?=2!|q"

    def test_a_shot_without_an_answer(self) -> None:
        assert prompt(handmade.make_task(), {"q": "q", "a": "x"}, [{"q": "p", "a": ""}]) == "pq"


class TestChat:
    """B19: the seven rows, and what else a chat changes."""

    doc, shot = {"q": "q", "label": 0}, {"q": "p", "label": 1}

    def ask(self, *, in_chat: bool = True, shots: int = 0, gen_prefix: Any = None, **settings: Any) -> tuple[str, str]:
        task = choice_task(
            doc_to_text="{{q}}\nAnswer:", doc_to_choice=["A", "B"], description="Pick one.", gen_prefix=gen_prefix
        )
        found = ask(task, self.doc, [self.shot][:shots], Settings(**settings), chat if in_chat else None)
        assert render_doc(task, 0, self.doc).choices == ("A", "B")
        context, continuation = found[0].arguments
        return context, continuation

    def test_no_template(self) -> None:
        assert self.ask(in_chat=False) == ("Pick one.q\nAnswer:", " A")

    def test_template(self) -> None:
        assert self.ask() == ("<system>Pick one.</system><user>q\nAnswer:</user><assistant>", "A")

    @pytest.mark.parametrize(("prefix", "continuation"), [("The answer is", " A"), ("The answer is ", "A")])
    def test_prefix(self, prefix: str, continuation: str) -> None:
        expected = f"<system>Pick one.</system><user>q\nAnswer:</user><assistant>{prefix}"
        assert self.ask(gen_prefix=prefix) == (expected, continuation)
        # However the prefix is had.
        assert self.ask(gen_prefix=f"{{{{ '{prefix}' }}}}") == (expected, continuation)
        assert self.ask(gen_prefix=lambda doc: prefix) == (expected, continuation)

    def test_prefix_without_template(self) -> None:
        expected = "Pick one.p\nAnswer: The answer is B\n\nq\nAnswer: The answer is"
        assert self.ask(in_chat=False, shots=1, gen_prefix="The answer is") == (expected, " A")

    def test_multiturn(self) -> None:
        assert self.ask(shots=1, fewshot_multiturn=True, system="Be brief.") == (
            "<system>Be brief.\n\nPick one.</system><user>p\nAnswer:</user><assistant>B</assistant>"
            "<user>q\nAnswer:</user><assistant>",
            "A",
        )

    def test_one_turn(self) -> None:
        assert self.ask(shots=1, system="Be brief.") == (
            "<system>Be brief.\n\nPick one.</system><user>p\nAnswer: B\n\nq\nAnswer:</user><assistant>",
            "A",
        )

    def test_one_turn_with_prefix(self) -> None:
        context, _ = self.ask(shots=1, gen_prefix="It is")
        assert context == ("<system>Pick one.</system><user>p\nAnswer: It is B\n\nq\nAnswer:</user><assistant>It is")

    def test_multiturn_with_prefix(self) -> None:
        context, _ = self.ask(shots=1, gen_prefix="It is", fewshot_multiturn=True)
        assert context == (
            "<system>Pick one.</system><user>p\nAnswer:</user><assistant>It is B</assistant>"
            "<user>q\nAnswer:</user><assistant>It is"
        )

    def test_no_system_turn_without_text(self) -> None:
        task = handmade.make_task()
        found = ask(task, {"q": "q", "a": "x"}, template=chat)
        assert found[0].arguments[0] == "<user>q</user><assistant>"

    @pytest.mark.parametrize(
        ("system", "description", "expected"),
        [("S", "D", "S\n\nDq"), ("S\n", "D", "S\nDq"), ("S", " D", "S Dq"), ("S", None, "Sq"), (None, "D", "Dq")],
    )
    def test_system_without_template(self, system: str | None, description: str | None, expected: str) -> None:
        assert prompt(handmade.make_task(description=description), {"q": "q", "a": "x"}, system=system) == expected

    def test_a_prefix_from_a_column(self) -> None:
        task = handmade.make_task(gen_prefix="p")
        assert prompt(task, {"q": "q", "a": "x", "p": "P:"}, [{"q": "s", "a": "y", "p": "S:"}]) == "s S: y\n\nq P:"
        assert prompt(task, {"q": "q", "a": "x", "p": ""}) == "q"


class TestTemplates:
    """B24."""

    def test_a_trailing_newline_is_kept(self) -> None:
        task = handmade.make_task(description="Answer the question.\n\n", doc_to_text="Q: {{q}}\nA:")
        assert prompt(task, {"q": "1+1", "a": "2"}) == "Answer the question.\n\nQ: 1+1\nA:"
        assert prompt(handmade.make_task(doc_to_text="{{q}}\n"), {"q": "1+1", "a": "2"}) == "1+1\n"

    def test_single_braces_are_plain_text(self) -> None:
        assert prompt(handmade.make_task(doc_to_text="Q: {q}\nA:"), {"q": "1+1", "a": "2"}) == "Q: {q}\nA:"

    def test_values_are_not_rendered_again(self) -> None:
        doc = {"q": "{{7*7}} {x}", "a": "{{a}}"}
        assert prompt(handmade.make_task(), doc, [doc]) == "{{7*7}} {x} {{a}}\n\n{{7*7}} {x}"

    def test_a_missing_field_is_named(self) -> None:
        with pytest.raises(TemplateError) as caught:
            render({"q": "x", "a": "y"}, doc_to_text="Q: {{qq}}\nA:")
        assert str(caught.value) == (
            "task t, doc 3, doc_to_text (/tasks/t.yaml:7): field 'qq' is not in the doc (it has: q, a)"
        )

    def test_the_description_may_use_the_doc(self) -> None:
        task = handmade.make_task(description="About {{s}}.\n")
        assert prompt(task, {"q": "q", "a": "x", "s": "birds"}) == "About birds.\nq"

    def test_a_failing_function_is_named(self) -> None:
        with pytest.raises(
            TaskFileError,
            match=r"instances\.py:\d+: task t, doc 3, doc_to_target \(/tasks/t.yaml:7\): <lambda> raised KeyError: 'z'",
        ):
            render({"q": "x"}, doc_to_target=lambda doc: doc["z"])

    def test_functions_cannot_change_the_doc(self) -> None:
        doc = {"q": "x", "a": "y"}
        assert render(doc, doc_to_text=lambda doc: doc.pop("q"), doc_to_target=lambda doc: doc["q"]).text == "x"
        assert doc == {"q": "x", "a": "y"}


class TestTargets:
    """B17, B18: the type of the value decides what it means, and each doc for itself."""

    @pytest.mark.parametrize("target", ["t", "{{t}}", "{% set x = t %}{{x}}", lambda doc: doc["t"]])
    @pytest.mark.parametrize(
        ("value", "references"),
        [
            ("[1, 2, 3]", ("[1, 2, 3]",)),
            ("['u', 'v']", ("['u', 'v']",)),
            (["u", "v"], ("u", "v")),
            (["u"], ("u",)),
            ([1, 2], ("1", "2")),
            (7, ("7",)),
            ("07", ("07",)),
            (0.5, ("0.5",)),
            (True, ("True",)),
            ("", ("",)),
        ],
    )
    def test_spellings_agree(self, target: Any, value: Any, references: tuple[str, ...]) -> None:
        doc = render({"q": "x", "t": value}, doc_to_target=target)
        assert (doc.references, doc.target, doc.problem) == (references, value, None)

    @pytest.mark.parametrize(
        ("template", "references"),
        [
            ("{{n}}{{n}}", ("77",)),
            (" {{n}}", (" 7",)),
            ("[{{n}}]", ("[7]",)),
            ("{{[n, n + 1]}}", ("7", "8")),
            ("{{['one', 'two']}}", ("one", "two")),
            ("{% if n > 3 %}{{['high']}}{% else %}low{% endif %}", ("high",)),
        ],
    )
    def test_templates(self, template: str, references: tuple[str, ...]) -> None:
        assert render({"q": "x", "n": 7}, doc_to_target=template).references == references

    @pytest.mark.parametrize("value", [None, []])
    def test_no_answer_is_a_problem(self, value: Any) -> None:
        doc = render({"q": "x", "a": value})
        assert doc.problem == "task t, doc 3, doc_to_target (/tasks/t.yaml:7): it gives no right answer"
        assert render({"q": "x", "a": value}, process_results=lambda doc, results: {}).problem is None

    def test_texts_written_in_the_task_file(self) -> None:
        assert render({"q": "x"}, doc_to_target=["u", "v"]).references == ("u", "v")

    @pytest.mark.parametrize(
        ("target", "references"), [(1, ("no",)), ("{{n}}", ("no",)), ("n", ("no",)), ("{{w}}", ("maybe",))]
    )
    def test_generation_with_choices(self, target: Any, references: tuple[str, ...]) -> None:
        doc = render({"q": "x", "n": 1, "w": "maybe"}, doc_to_target=target, doc_to_choice=["yes", "no"])
        assert doc.references == references

    def test_a_number_beyond_the_choices(self) -> None:
        doc = render({"q": "x", "a": 2}, doc_to_choice=["yes", "no"])
        assert doc.problem == (
            "task t, doc 3, doc_to_target (/tasks/t.yaml:7): 2 is out of range: there are 2 choices, counted from 0"
        )

    def test_likelihood_of_several_texts_is_a_problem(self) -> None:
        doc = render({"q": "x", "a": ["u", "v"]}, output_type="loglikelihood")
        assert doc.problem == "task t, doc 3, doc_to_target (/tasks/t.yaml:7): expected one text, got several"


class TestGold:
    def gold(self, doc: DocData, **keys: Any) -> RenderedDoc:
        return render_doc(choice_task(**{"doc_to_choice": ["a", "b", "c"], **keys}), 3, {"q": "x", **doc})

    @pytest.mark.parametrize(
        ("target", "doc", "gold"),
        [
            ("label", {"label": 2}, (2,)),
            ("label", {"label": 0}, (0,)),
            ("{{label}}", {"label": 2}, (2,)),
            ("{{label - 1}}", {"label": 2}, (1,)),
            ("{{label|int - 1}}", {"label": "2"}, (1,)),
            ("{{['A', 'B', 'C'].index(key)}}", {"key": "C"}, (2,)),
            ("{{label}}", {"label": "2"}, (2,)),
            ("{% if good %}0{% else %}1{% endif %}", {"good": False}, (1,)),
            ("label", {"label": "b"}, (1,)),
            ("{{label}}", {"label": "b"}, (1,)),
            ("label", {"label": [0, 2]}, (0, 2)),
            ("{{label}}", {"label": [0, 2]}, (0, 2)),
            ("label", {"label": ["c", "a", "c"]}, (2, 0)),
            ("label", {"label": True}, (1,)),
            ("label", {"label": 1.0}, (1,)),
            (1, {}, (1,)),
            ([1, 2], {}, (1, 2)),
            (lambda doc: 2, {}, (2,)),
            (lambda doc: "b", {}, (1,)),
        ],
    )
    def test_spellings(self, target: Any, doc: DocData, gold: tuple[int, ...]) -> None:
        rendered = self.gold(doc, doc_to_target=target)
        assert (rendered.gold, rendered.problem) == (gold, None)
        assert rendered.references == tuple("abc"[index] for index in gold)

    def test_a_text_is_the_choice_that_reads_like_it(self) -> None:
        """Digits are an index only where no choice is called so, whatever the spelling."""
        for target in ("n", "{{n}}", lambda doc: doc["n"]):
            assert self.gold({"n": "2"}, doc_to_target=target, doc_to_choice=["1", "2", "3"]).gold == (1,)
            assert self.gold({"n": 2}, doc_to_target=target, doc_to_choice=["1", "2", "3"]).gold == (2,)
        assert self.gold({"n": True}, doc_to_target="{{n}}", doc_to_choice=["True", "False"]).gold == (0,)

    @pytest.mark.parametrize(
        ("target", "doc", "problem"),
        [
            ("label", {"label": 3}, "3 is out of range: there are 3 choices, counted from 0"),
            ("label", {"label": -1}, "-1 is out of range: there are 3 choices, counted from 0"),
            ("{{label}}", {"label": "7"}, "7 is out of range: there are 3 choices, counted from 0"),
            ("label", {"label": [0, 9]}, "9 is out of range: there are 3 choices, counted from 0"),
            ("label", {"label": "d"}, "'d' is not one of the 3 choices"),
            ("label", {"label": "1"}, "'1' is not one of the 3 choices"),
            ("label", {"label": 0.5}, "0.5 is not one of the 3 choices"),
            ("label", {"label": None}, "None is not one of the 3 choices"),
            ("label", {"label": []}, "it gives no right choice"),
        ],
    )
    def test_an_invalid_gold_is_an_error_of_the_doc(self, target: str, doc: DocData, problem: str) -> None:
        rendered = self.gold(doc, doc_to_target=target)
        assert rendered.problem == f"task t, doc 3, doc_to_target (/tasks/t.yaml:7): {problem}"
        assert rendered.gold == ()
        judged = self.gold(doc, doc_to_target=target, process_results=lambda doc, results: {})
        assert judged.problem is None

    @given(label=st.integers(-3, 6))
    def test_in_range_or_a_problem(self, label: int) -> None:
        rendered = self.gold({"label": label})
        assert (rendered.problem is None) == (0 <= label < 3)
        assert rendered.gold == ((label,) if 0 <= label < 3 else ())


class TestChoices:
    @pytest.mark.parametrize(
        ("field", "doc", "choices"),
        [
            ("c", {"c": ["a", "b"]}, ("a", "b")),
            ("{{c}}", {"c": ["a", "b"]}, ("a", "b")),
            ("{{c.text}}", {"c": {"text": ["a", "b"], "label": ["A", "B"]}}, ("a", "b")),
            ("{{[c, d]}}", {"c": "it's", "d": '"so"'}, ("it's", '"so"')),
            ("{{[c, d]}}", {"c": 1, "d": 2.5}, ("1", "2.5")),
            ("['{{c}} is true', '{{c}} is false']", {"c": "It"}, ("It is true", "It is false")),
            ("{% set s = c[:1] %}{{[s + '1', s + '2']}}", {"c": "xyz"}, ("x1", "x2")),
            ("c", {"c": {"A": "a", "B": "b"}}, ("a", "b")),
            (["no", "yes"], {}, ("no", "yes")),
            (["0", "1"], {}, ("0", "1")),
            (lambda doc: ["a", "b"], {}, ("a", "b")),
            (lambda doc: ("a", "b"), {}, ("a", "b")),
        ],
    )
    def test_spellings(self, field: Any, doc: DocData, choices: tuple[str, ...]) -> None:
        assert render_doc(choice_task(doc_to_choice=field), 0, {"q": "x", "label": 0, **doc}).choices == choices

    @pytest.mark.parametrize(
        ("field", "doc"),
        [
            ("c", {"c": "['a', 'b']"}),
            ("{{c}}", {"c": "a, b"}),
            ("c", {"c": 3}),
            ("c", {"c": ["a", None]}),
            ("c", {"c": None}),
        ],
    )
    def test_anything_but_a_list_of_texts(self, field: str, doc: DocData) -> None:
        message = r"task t, doc 3, doc_to_choice \(/tasks/t.yaml:7\): expected a list of texts, got "
        with pytest.raises(DataError, match=message):
            render_doc(choice_task(doc_to_choice=field), 3, {"q": "x", "label": 0, **doc})

    @pytest.mark.parametrize(("choices", "problem"), [(["a", ""], "choice 1 is empty"), ([], "there are no choices")])
    def test_unusable_choices_are_an_error_of_the_doc(self, choices: list[str], problem: str) -> None:
        """B13: no division by an empty length."""
        rendered = render_doc(choice_task(doc_to_choice="c"), 3, {"q": "x", "label": 0, "c": choices})
        assert rendered.problem == f"task t, doc 3, doc_to_choice (/tasks/t.yaml:7): {problem}"


class TestOptionsInThePrompt:
    """As in WinoGrande: doc_to_text gives an index, the choices are prompts, one continuation follows each."""

    doc = {"q": 1, "c": ["He did", "She did"], "a": "not."}  # noqa: RUF012

    @pytest.mark.parametrize("text", ["q", "{{q}}", lambda doc: 1, "{% if a %}1{% else %}0{% endif %}", 1])
    def test_an_index_as_text(self, text: Any) -> None:
        task = choice_task(doc_to_text=text, doc_to_choice="c", doc_to_target="a")
        rendered = render_doc(task, 0, self.doc)
        assert (rendered.gold, rendered.inputs, rendered.references) == ((1,), ("He did", "She did"), ("not.",))
        assert [i.arguments for i in ask(task, self.doc)] == [("He did", " not."), ("She did", " not.")]

    def test_shots_show_the_right_one(self) -> None:
        task = choice_task(doc_to_text="q", doc_to_choice="c", doc_to_target="a", description="Fill in: ")
        contexts = [i.arguments[0] for i in ask(task, self.doc, [{"q": 0, "c": ["Up", "Down"], "a": "we go."}])]
        assert contexts == ["Fill in: Up we go.\n\nHe did", "Fill in: Up we go.\n\nShe did"]

    def test_in_a_chat(self) -> None:
        task = choice_task(doc_to_text="q", doc_to_choice="c", doc_to_target="a")
        assert ask(task, self.doc, template=chat)[1].arguments == ("<user>She did</user><assistant>", "not.")

    def test_out_of_range(self) -> None:
        task = choice_task(doc_to_text="q", doc_to_choice="c", doc_to_target="a")
        assert render_doc(task, 3, {**self.doc, "q": 2}).problem == (
            "task t, doc 3, doc_to_text (/tasks/t.yaml:7): 2 is out of range: there are 2 choices, counted from 0"
        )

    def test_no_continuation(self) -> None:
        task = choice_task(doc_to_text="q", doc_to_choice="c", doc_to_target="a", process_results=lambda *_: {})
        assert str(render_doc(task, 3, {**self.doc, "a": None}).problem).endswith("it gives no continuation")

    @pytest.mark.parametrize("text", ["q", "{{q}}", "{{q[:1]}}{{q[1:]}}", lambda doc: doc["q"]])
    def test_a_text_of_digits_is_a_prompt(self, text: Any) -> None:
        """B20 (d)."""
        task = choice_task(doc_to_text=text, doc_to_choice="c")
        rendered = render_doc(task, 0, {"q": "12", "c": ["a", "b"], "label": 1})
        assert (rendered.text, rendered.gold, rendered.inputs) == ("12", (1,), None)
        found = ask(task, {"q": "12", "c": ["a", "b"], "label": 1})
        assert [i.arguments for i in found] == [("12", " a"), ("12", " b")]

    def test_no_text_is_an_empty_prompt(self) -> None:
        task = choice_task(doc_to_text=None)
        assert ask(task, {"label": 0})[1].arguments == ("", " no")

    def test_a_number_is_a_prompt_without_choices(self) -> None:
        assert render({"q": 12, "a": "x"}).text == "12"
        assert render({"q": 12, "a": 0}, doc_to_choice=["x"]).text == "12"

    @pytest.mark.parametrize("value", [None, ["a"], {"a": 1}])
    def test_anything_else_is_an_error(self, value: Any) -> None:
        with pytest.raises(DataError, match=r"doc_to_text \(/tasks/t.yaml:7\): expected a text, got "):
            render({"q": value, "a": "x"}, doc_to_text="q")


def test_multiple_answers_show_the_first_in_a_shot() -> None:
    assert prompt(handmade.make_task(), {"q": "q", "a": "x"}, [{"q": "p", "a": ["one", "two"]}]) == "p one\n\nq"
    task = choice_task()
    found = ask(task, {"q": "q", "label": [0, 1]}, [{"q": "p", "label": [1, 0]}])
    assert found[0].arguments[0] == "p no\n\nq"


def test_a_shot_with_an_unusable_answer_is_an_error() -> None:
    with pytest.raises(DataError, match=r"task t, an example, doc_to_target .*5 is out of range.*in the example"):
        ask(choice_task(), {"q": "q", "label": 0}, [{"q": "p", "label": 5}])


class TestGenerationKwargs:
    """B28, as far as it is decided before a model is asked."""

    def of(self, kwargs: dict[str, Any] | None = None, **overrides: Any) -> GenerationKwargs:
        task = handmade.make_task(**({} if kwargs is None else {"generation_kwargs": kwargs}))
        return generation_kwargs(task, Settings(gen_kwargs=overrides))

    @pytest.mark.parametrize(
        ("kwargs", "until"),
        [
            (None, ("\n\n",)),
            ({"max_gen_toks": 3}, ("\n\n",)),
            ({"until": "Q:"}, ("Q:",)),
            ({"until": [".", "\n"]}, (".", "\n")),
            ({"until": [""]}, ()),
            ({"until": []}, ()),
        ],
    )
    def test_until(self, kwargs: dict[str, Any] | None, until: tuple[str, ...]) -> None:
        assert self.of(kwargs).until == until

    def test_the_default_stop_is_the_task_s_own_delimiter(self) -> None:
        assert generation_kwargs(handmade.make_task(fewshot_delimiter="###"), Settings()).until == ("###",)

    def test_the_limit(self) -> None:
        assert self.of().max_gen_toks == 256
        assert self.of({"max_gen_toks": 3}).max_gen_toks == 3
        for name in ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"):
            assert self.of({"max_gen_toks": 7}, **{name: "3"}).max_gen_toks == 3

    @pytest.mark.parametrize(
        ("kwargs", "overrides", "expected"),
        [
            ({}, {}, (False, 0.0)),
            ({"temperature": 0.0}, {}, (False, 0.0)),
            ({"temperature": 0.7}, {}, (True, 0.7)),
            ({"temperature": 0.7, "do_sample": False}, {}, (False, 0.0)),
            ({"temperature": 0.0, "do_sample": True}, {}, (False, 0.0)),
            ({"do_sample": True}, {}, (True, 1.0)),
            ({}, {"temperature": "0.7"}, (True, 0.7)),
            ({"temperature": 0.7}, {"temperature": "0"}, (False, 0.0)),
            ({"temperature": 0.7}, {"do_sample": "false"}, (False, 0.0)),
            ({"do_sample": False, "temperature": 0.0}, {"do_sample": "true", "temperature": "0.5"}, (True, 0.5)),
        ],
    )
    def test_sampling(self, kwargs: dict[str, Any], overrides: dict[str, str], expected: tuple[bool, float]) -> None:
        found = self.of(kwargs, **overrides)
        assert (found.do_sample, found.temperature) == expected

    def test_overrides_are_texts(self) -> None:
        found = self.of(
            {"until": ["a"]}, until='["\\n", "Q:"]', top_p="0.9", top_k="5", seed="3", num_beams="2", flag="true", x="y"
        )
        assert found == GenerationKwargs(
            until=("\n", "Q:"), top_p=0.9, top_k=5, seed=3, extra={"num_beams": 2, "flag": True, "x": "y"}
        )
        assert self.of(until="Q: [x]").until == ("Q: [x]",)
        assert self.of(until=["a", "b"], penalty="none").until == ("a", "b")

    @pytest.mark.parametrize(
        ("name", "value", "what"),
        [
            ("temperature", "hot", "a number"),
            ("max_tokens", "1.5", "a whole number"),
            ("do_sample", "maybe", "true or false"),
            ("until", "[1]", "a text or a list of texts"),
            ("until", "[x]", "a text or a list of texts"),
        ],
    )
    def test_wrong_overrides(self, name: str, value: str, what: str) -> None:
        with pytest.raises(SettingError, match=rf"--llmeval-gen-kwargs: {name}: expected {what}, got "):
            self.of(**{name: value})
