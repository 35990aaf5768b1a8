"""Templates render as lm_eval's `apply_template` does, on made-up templates and on those of its own tasks."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._errors import TemplateError
from pytest_llmeval._template import fields
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


class Loader(yaml.CSafeLoader):
    """Reads the task files of lm_eval without running their functions."""


Loader.add_multi_constructor("!", lambda loader, suffix, node: None)

#: What every field of a template is set to, in turn; a template is compared on those it can work with.
VALUES = ["a text. (B) ", ["x", "y", " z", "w", "v"], 1, {"text": ["t", "u"], "label": ["A", "B"]}, [{"text": "t"}]]


def templates_of(folder: str) -> set[str]:
    keys = ("doc_to_text", "doc_to_target", "doc_to_choice", "description", "gen_prefix")
    paths = sorted((TASKS / folder).rglob("*.y*ml"))[:60]
    configs = [yaml.load(path.read_text("utf-8"), Loader) for path in paths]
    values = [config.get(key) for config in configs if isinstance(config, dict) for key in keys]
    return {value for value in values if isinstance(value, str) and "{" in value}


@pytest.mark.parametrize(
    "folder", ["arc", "gsm8k", "super_glue", "bbh", "agieval", "glue", "portuguese_bench", "noreval", "kmmlu"]
)
def test_templates_of_its_tasks(folder: str) -> None:
    compared = 0
    for template in templates_of(folder):
        for value in VALUES:
            doc = dict.fromkeys(fields(template, place=""), value)
            try:
                expected = lm_eval.utils.apply_template(template, doc)
            except Exception:
                with pytest.raises(TemplateError):
                    render(template, doc, place="")
            else:
                assert render(template, doc, place="") == expected
                compared += 1
    assert compared > 3
