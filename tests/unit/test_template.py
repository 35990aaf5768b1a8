"""Templates: the text they give, the fields they take, and what they may not do. Cases B24 and B17."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval import _template
from pytest_llmeval._errors import TemplateError
from pytest_llmeval._template import evaluate
from pytest_llmeval._template import fields
from pytest_llmeval._template import render


PLACE = "task t, doc_to_text (t.yaml:7)"
DOC = {"q": "1+1", "a": "2", "options": ["x", "y"], "nested": {"text": "deep"}, "n": 3}


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("Answer the question.\n\n", "Answer the question.\n\n"),
        ("{{q}}\n", "1+1\n"),
        ("Q: {{q}}\nA:", "Q: 1+1\nA:"),
        ("Q: {q}\nA:", "Q: {q}\nA:"),
        ("{{options[0]}} {{options.1}} {{nested.text}} {{nested['text']}}", "x y deep deep"),
        ("{% for o in options %}\n{{loop.index}}{{o}}\n{% endfor %}\n", "\n1x\n\n2y\n\n"),
        ("{%- if n > 2 -%} big {%- else -%} small {%- endif -%}", "big"),
        ("{{'ABCD'[n]}}{{n - 1}}{{ n * 2 }}{{ 2 ** n }}{{ 'ab' * n }}", "D268ababab"),
        ("{{q|regex_replace('[+]', ' plus ')}}", "1 plus 1"),
        ("{{q|regex_replace('1', 'x', 1)}}", "x+1"),
        ("a\r\nb", "a\nb"),
        ("{{missing is defined}} {{missing|default('none')}}", "False none"),
        ("", ""),
    ],
)
def test_text(template: str, text: str) -> None:
    assert render(template, DOC, place=PLACE) == text


def test_values_are_not_rendered_again() -> None:
    assert render("{{q}}", {"q": "{{7*7}} {x} {% if %}"}, place=PLACE) == "{{7*7}} {x} {% if %}"


@settings(deadline=None)
@given(st.text())
def test_any_value_is_put_in_as_it_is(value: str) -> None:
    assert render("<{{q}}>", {"q": value}, place=PLACE) == f"<{value}>"


def test_a_missing_field_is_named_with_those_that_are_there() -> None:
    with pytest.raises(TemplateError) as failure:
        render("Q: {{qq}}\nA:", {"q": "1+1", "a": "2"}, place=PLACE)
    assert str(failure.value) == f"{PLACE}: field 'qq' is not in the doc (it has: q, a)"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{nested.nothing}}", "'dict object' has no attribute 'nothing'"),
        ("{{options[9]}}", "has no element 9"),
        ("{{n / 0}}", "ZeroDivisionError"),
        ("{{q + n}}", "TypeError"),
        ("{{q|regex_replace('(', '')}}", "unterminated subpattern"),
        ("{% include 'other' %}", "no loader"),
        ("\n\n{% if %}", "template line 3: Expected an expression"),
        ("{{q|nosuchfilter}}", "template line 1: No filter named 'nosuchfilter'"),
    ],
)
def test_what_fails_says_where_and_why(template: str, reason: str) -> None:
    with pytest.raises(TemplateError) as failure:
        render(template, DOC, place=PLACE)
    assert str(failure.value).startswith(f"{PLACE}: ")
    assert reason in str(failure.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{q.__class__.__mro__}}",
        "{{options.append(1)}}",
        "{{nested.update({'text': 1})}}",
        "{{cycler.__init__.__globals__}}",
    ],
)
def test_a_template_reaches_no_internals_and_changes_no_doc(template: str) -> None:
    doc = {"q": "x", "options": [], "nested": {}}
    with pytest.raises(TemplateError):
        render(template, doc, place=PLACE)
    assert doc == {"q": "x", "options": [], "nested": {}}


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{'a' * 99999999}}", "more than 10,000,000 elements"),
        ("{{99999999 * [1]}}", "more than 10,000,000 elements"),
        ("{{9 ** (9 ** 9)}}", "more than 100,000 bits"),
        ("{% for i in range(99999) %}{{'a' * 999}}{% endfor %}", "more than 10,000,000 characters"),
        ("{% for i in range(999999999) %}{% endfor %}", "Range too big"),
        ("{% macro f() %}{{f()}}{% endmacro %}{{f()}}", "RecursionError"),
    ],
)
def test_output_and_memory_are_bounded(template: str, reason: str) -> None:
    with pytest.raises(TemplateError, match=reason):
        render(template, DOC, place=PLACE)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no processor-time signal")
@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{slow|regex_replace('(a+)+$', '')}}",
        "{{'" + "a" * 60 + "b'|regex_replace('(a+)+$', '')}}",
    ],
)
def test_time_is_bounded(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = _template.limited
    monkeypatch.setattr(_template, "limited", lambda call: limited(call, 0.05))
    with pytest.raises(TemplateError, match=r"stopped after 0\.05 s"):
        render(template, {"slow": "a" * 60 + "b"}, place=PLACE)


@pytest.mark.parametrize(
    ("template", "names"),
    [
        ("Q: {{q}} {{options[i]}}", {"q", "options", "i"}),
        ("{% for o in options %}{{o}}{{loop.index}}{% endfor %}{{range(3)}}", {"options"}),
        ("{% set x = a %}{{x}}", {"a"}),
        ("Q: {q}", set()),
    ],
)
def test_fields(template: str, names: set[str]) -> None:
    assert fields(template, place=PLACE) == names


def test_fields_of_what_is_no_template() -> None:
    with pytest.raises(TemplateError, match=r"^task t.*template line 1: unexpected end of template"):
        fields("{{q", place=PLACE)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("{{n}}", 3),
        ("{{options}}", ["x", "y"]),
        ("{{n}} ", "3 "),
        ("{{n}}{{n}}", "33"),
        ("{{n > 2}}", True),
        ("{{'3'}}", "3"),
        ("3", "3"),
        ("{{literal}}", "[1, 2, 3]"),
        ("{% set i = n - 2 %}{{options[i]}}", "y"),
        ("", ""),
    ],
)
def test_a_single_value_keeps_its_type(template: str, value: object) -> None:
    found = evaluate(template, {**DOC, "literal": "[1, 2, 3]"}, place=PLACE)
    assert found == value
    assert type(found) is type(value)


def test_evaluate_names_a_missing_field_too() -> None:
    with pytest.raises(TemplateError, match="field 'qq' is not in the doc"):
        evaluate("{{qq}}", DOC, place=PLACE)
