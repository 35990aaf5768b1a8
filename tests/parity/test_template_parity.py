"""Templates render as lm_eval's `apply_template` does, on made-up templates and on those of its own tasks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._errors import TemplateError
from pytest_llmeval._template import render


pytest.importorskip("lm_eval")

import lm_eval.utils


pytestmark = pytest.mark.filterwarnings("ignore")

TASKS = Path(lm_eval.utils.__file__).parent / "tasks"

DOC = {
    "q": " What? ",
    "options": ["a", "b\n", "{{x}}"],
    "label": 1,
    "nested": {"text": ["t0", "t1"], "label": ["A", "B"]},
    "none": None,
    "flag": False,
    "ratio": 0.5,
}

PIECES = st.sampled_from(
    [
        "{{q}}",
        "{{ q.strip() }}",
        "{{- q -}}",
        "{{options[label]}}",
        "{{options|join(', ')}}",
        "{{nested.text[0]}}{{nested['label']}}",
        "{{none}}{{flag}}{{ratio}}",
        "{% for o in options %}{{loop.index0}}{{o}}{% endfor %}",
        "{%- for o in options %}\n{{o}}\n{%- endfor -%}",
        "{% for o in options -%}\n  {{o}}\n{% endfor %}",
        "{% if flag %}yes{% elif label == 1 %}one{% else %}no{% endif %}",
        "{% set x = q.upper() %}{{x}}",
        "{{q|regex_replace('\\\\s+', '_')}}",
        "{{'ABC'[label]}}{{['A', 'B'].index('B')}}",
        "{{label + 1}}{{label * 3}}{{2 ** 10}}{{'ab' * 2}}",
        "{{q.replace('?', '!')|lower|length}}",
        "{{'%s-%d' % (q, label)}}{{'{}'.format(q)}}",
        "{# a comment #}",
        "{q}",
        "\n",
        " ",
        "\t\n ",
        "text",
        "ж",
    ]
)


@settings(deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join))
def test_the_text_is_the_same(template: str) -> None:
    assert render(template, DOC, place="") == lm_eval.utils.apply_template(template, DOC)


@settings(deadline=None)
@given(st.text(alphabet="{}%#-q \n\"'[]|x", max_size=12))
def test_what_renders_there_renders_here(template: str) -> None:
    try:
        expected = lm_eval.utils.apply_template(template, DOC)
    except jinja2.TemplateError:
        with pytest.raises(TemplateError):
            render(template, DOC, place="")
    else:
        assert render(template, DOC, place="") == expected


@settings(deadline=None)
@given(
    st.text(alphabet="ab1 \nж", max_size=20),
    st.sampled_from([r"\s+", "a*", r"(a)(b)?", r"\w", r"^a", r"\d$", "(?i)A"]),
    st.sampled_from(["", "x", r"\\g<0>!", "[]"]),
    st.integers(0, 2),
)
def test_regex_replace(text: str, pattern: str, repl: str, count: int) -> None:
    escaped = pattern.replace("\\", "\\\\")
    template = f"{{{{t|regex_replace('{escaped}', '{repl}', {count})}}}}"
    assert render(template, {"t": text}, place="") == lm_eval.utils.apply_template(template, {"t": text})


class AnyField(dict[str, Any]):
    """A doc in which every field is there and has every part."""

    def __missing__(self, key: str) -> Any:
        return AnyField()

    def __str__(self) -> str:
        return "<value>"


WRITTEN = re.compile(r"""^ *doc_to_(?:text|target|choice): *"(?P<text>(?:[^"\\]|\\.)*)" *$""", re.MULTILINE)


@pytest.mark.parametrize("folder", ["arc", "mmlu", "gsm8k", "super_glue", "bbh", "afrimmlu", "agieval", "ceval"])
def test_templates_of_its_tasks(folder: str) -> None:
    doc = {name: value for name, value in DOC.items() if name != "none"}
    fields = (
        "question",
        "choices",
        "answer",
        "answerKey",
        "input",
        "target",
        "premise",
        "hypothesis",
        "subject",
        "goal",
    )
    doc |= {name: AnyField(text=["t"], label=["l"]) for name in fields}
    compared = 0
    for path in sorted((TASKS / folder).rglob("*.yaml"))[:150]:
        for match in WRITTEN.finditer(path.read_text("utf-8")):
            template = match["text"].encode("latin-1", "backslashreplace").decode("unicode-escape", "replace")
            try:
                expected = lm_eval.utils.apply_template(template, doc)
            except Exception:
                continue
            assert render(template, doc, place="") == expected
            compared += 1
    if folder in ("arc", "gsm8k"):
        assert compared
