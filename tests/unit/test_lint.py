"""What is odd about a task, told with file, line and key before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import Finding
from pytest_llmeval._taskfile import TaskFiles
from pytest_llmeval._taskfile import lint
from pytest_llmeval._taskfile import needed_fields


NO_INDEX = "error t.yaml:7: doc_to_target: {} is not an index of the 2 options of doc_to_choice"
SCORED = "warning t.yaml:7: repeats: of {} responses to a doc {} scored; use filter_list to combine or score all"
VOTE = "[{name: vote, filter: [{function: majority_vote}, {function: take_first}]}]"
CHOICE = {
    "task": "t",
    "dataset_path": "some/set",
    "test_split": "test",
    "output_type": "multiple_choice",
    "doc_to_text": '"Q: {{q}}"',
    "doc_to_choice": "[yes, no]",
    "doc_to_target": "label",
}
GENERATE = {
    "task": "t",
    "dataset_path": "some/set",
    "test_split": "test",
    "doc_to_text": '"Q: {{q}}"',
    "doc_to_target": "a",
    "generation_kwargs": "{until: [x]}",
}
COLUMNS = ("q", "a", "label")


def read(folder: Path, keys: dict[str, str]) -> Task:
    path = folder / "t.yaml"
    path.write_text("".join(f"{key}: {value}\n" for key, value in keys.items()), encoding="utf-8")
    found = TaskFiles().read(path)
    assert isinstance(found, Task)
    return found


def lines(folder: Path, keys: dict[str, str], columns: tuple[str, ...] | None = None) -> list[str]:
    """The findings as printed, each with its severity, without the folder."""
    return [f"{f.severity} {f}".replace(f"{folder}/", "") for f in lint(read(folder, keys), columns)]


@pytest.mark.parametrize("columns", [None, COLUMNS])
@pytest.mark.parametrize("keys", [CHOICE, GENERATE])
def test_nothing_is_odd_about_a_plain_task(
    tmp_path: Path, keys: dict[str, str], columns: tuple[str, ...] | None
) -> None:
    assert lines(tmp_path, keys, columns) == []


def test_a_finding_prints_as_a_line(tmp_path: Path) -> None:
    assert str(Finding(tmp_path / "t.yaml", 3, "k", "odd", "warning")) == f"{tmp_path}/t.yaml:3: k: odd"
    assert str(Finding(tmp_path / "t.yaml", None, "k", "odd", "warning")) == f"{tmp_path}/t.yaml: k: odd"


# Templates (B24) -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "columns", "expected"),
    [
        (
            {"doc_to_text": '"Q: {q}\\nA:"'},
            None,
            ["warning t.yaml:4: doc_to_text: no field is used, and {q} is plain text; a field is written {{q}}"],
        ),
        (
            {"doc_to_text": '"Q: {q}\\nA:"'},
            COLUMNS,
            ["warning t.yaml:4: doc_to_text: no field is used, and {q} is plain text; a field is written {{q}}"],
        ),
        ({"doc_to_text": '"Q: {x}\\nA:"'}, COLUMNS, []),
        ({"doc_to_text": '"{{q}} in {braces}"'}, None, []),
        ({"description": "'Use \\text{R}.'"}, None, []),
        (
            {"doc_to_text": '"Q: {{qq}}\\nA:"'},
            COLUMNS,
            ["error t.yaml:4: doc_to_text: field 'qq' is not in the data; did you mean 'q'? It has: q, a, label."],
        ),
        ({"doc_to_text": '"Q: {{qq}}\\nA:"'}, None, []),
        (
            {"doc_to_target": '"{{other.text}}"', "description": '"{{topic}}"'},
            COLUMNS,
            [
                "error t.yaml:7: description: field 'topic' is not in the data. It has: q, a, label.",
                "error t.yaml:5: doc_to_target: field 'other' is not in the data. It has: q, a, label.",
            ],
        ),
        (
            {"doc_to_text": '"{{q"'},
            None,
            [
                "error t.yaml:4: doc_to_text: template line 1: unexpected end of template, "
                "expected 'end of print statement'."
            ],
        ),
        (
            {"doc_to_text": "quetsion"},
            ("question", "a"),
            [
                "warning t.yaml:4: doc_to_text: 'quetsion' is not a column of the data; did you mean 'question'? "
                "Every doc has this text as its prompt."
            ],
        ),
        ({"doc_to_text": "quetsion"}, None, []),
        (
            {"fewshot_config": "{doc_to_text: '{{q}'}"},
            COLUMNS,
            ["error t.yaml:7: fewshot_config.doc_to_text: template line 1: unexpected '}'"],
        ),
        ({"fewshot_config": "{doc_to_text: '{{elsewhere}}'}"}, COLUMNS, []),
        ({"doc_to_text": "'{% for i in range(2) %}{{q}}{{loop.index}}{% endfor %}'"}, COLUMNS, []),
        ({"doc_to_text": "'{% set x = q %}{{x}}{{ dict(y=x) }}'"}, COLUMNS, []),
    ],
)
def test_b24_templates(
    tmp_path: Path, changes: dict[str, str], columns: tuple[str, ...] | None, expected: list[str]
) -> None:
    assert lines(tmp_path, {**GENERATE, **changes}, columns) == expected


def test_a_field_of_an_included_file_has_no_line_here(tmp_path: Path) -> None:
    read(tmp_path, {**GENERATE, "doc_to_text": '"{{qq}}"'}).path.rename(tmp_path / "base.yaml")
    path = tmp_path / "t.yaml"
    path.write_text("include: base.yaml\n")
    task = TaskFiles().read(path)
    assert isinstance(task, Task)
    (found,) = lint(task, COLUMNS)
    assert (found.path, found.line, found.key) == (path, None, "doc_to_text")


@pytest.mark.parametrize(
    ("template", "needed"),
    [
        ("{{a}} {{b.c}} {{d[e]}}", {"a", "b", "d", "e"}),
        ("{{a if b is defined else c}}", set()),
        ("{{a}}{% if b is defined and b|length > 4 %}{{b[4]}}{% endif %}", {"a"}),
        ("{{a if b else c}}", {"a", "b", "c"}),
        ("{{a | default('')}}{{b | d(c)}}", set()),
        ("{% if a is not defined %}x{% endif %}{{a}}", {"a"}),
        ("{% for x in items %}{{x}}{% endfor %}", {"items"}),
    ],
)
def test_which_fields_a_template_cannot_do_without(template: str, needed: set[str]) -> None:
    assert needed_fields(template) == needed


def test_choices_that_are_no_column(tmp_path: Path) -> None:
    assert lines(tmp_path, {**CHOICE, "doc_to_choice": "chioces"}, ("q", "choices", "label")) == [
        "error t.yaml:6: doc_to_choice: 'chioces' is not a column of the data; did you mean 'choices'? "
        "It is not a list of options either."
    ]


# Choices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"doc_to_choice": "[' yes', ' no']"},
            [
                "warning t.yaml:6: doc_to_choice: ' yes' begins with white space and target_delimiter ends with it: "
                "the model sees both"
            ],
        ),
        ({"doc_to_choice": "[' yes', ' no']", "target_delimiter": "''"}, []),
        ({"doc_to_target": "2"}, [NO_INDEX.format(2)]),
        (
            {"doc_to_target": "[0, 5]"},
            [NO_INDEX.format(5)],
        ),
        (
            {"doc_to_target": "[yes, maybe]"},
            ["error t.yaml:7: doc_to_target: 'maybe' is not among the options of doc_to_choice"],
        ),
        ({"doc_to_target": "1"}, []),
    ],
)
def test_b04_choices_and_targets(tmp_path: Path, changes: dict[str, str], expected: list[str]) -> None:
    assert lines(tmp_path, {**CHOICE, **changes}, COLUMNS) == expected


# Generation, repeats, shots, metrics, data -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"generation_kwargs": "{max_gen_toks: 5}"},
            ["warning t.yaml:6: generation_kwargs: no 'until': a text ends at the few-shot delimiter '\\n\\n'"],
        ),
        (
            {"repeats": "3"},
            [
                SCORED.format(3, "one is"),
                "warning t.yaml:7: repeats: greedy decoding gives the same text 3 times; set do_sample: true",
            ],
        ),
        (
            {
                "repeats": "4",
                "generation_kwargs": "{until: [x], do_sample: true}",
                "filter_list": "[{name: k, filter: [{function: take_first_k, k: 2}]}]",
            },
            [SCORED.format(4, "2 are")],
        ),
        (
            {
                "repeats": "3",
                "generation_kwargs": "{until: [x], temperature: 0.5}",
                "filter_list": VOTE,
            },
            [],
        ),
        (
            {"num_fewshot": "2"},
            [
                "warning t.yaml:7: num_fewshot: the examples come from the evaluated split 'test', "
                "without the doc itself; "
                "name a fewshot_split"
            ],
        ),
        ({"num_fewshot": "2", "training_split": "train"}, []),
        ({"num_fewshot": "2", "validation_split": "val"}, []),
        ({"num_fewshot": "2", "fewshot_split": "test"}, []),
        (
            {"num_fewshot": "2", "fewshot_split": "dev", "fewshot_config": "{samples: [{q: a, a: b}]}"},
            ["warning t.yaml:9: fewshot_config: samples are not used: the examples come from split 'dev'"],
        ),
        (
            {"num_fewshot": "2", "fewshot_config": "{samples: [{q: x, a: y}]}"},
            ["warning t.yaml:8: fewshot_config: num_fewshot is 2, more than the number of samples (1)"],
        ),
        (
            {"num_fewshot": "1", "fewshot_config": "{samples: [{q: x, a: y}, {a: z}]}"},
            ["error t.yaml:8: fewshot_config: doc_to_text uses field 'q', which some samples do not have"],
        ),
        ({"num_fewshot": "1", "fewshot_config": "{samples: [{z: x, a: y}], doc_to_text: z}"}, []),
        (
            {"dataset_kwargs": "{trust_remote_code: true}"},
            [
                "warning t.yaml:7: dataset_kwargs: trust_remote_code is not used: "
                "data sets no longer run code of their own"
            ],
        ),
        (
            {"metric_list": "[{metric: !function u.f, aggregation: mean}]"},
            [
                "warning t.yaml:7: metric_list[0]: no 'higher_is_better' for f: "
                "a comparison cannot tell better from worse"
            ],
        ),
        (
            {
                "process_results": "!function u.f",
                "metric_list": "[{metric: f, aggregation: mean, higher_is_better: true, x: 1}]",
            },
            ["warning t.yaml:8: metric_list[0]: not used, since process_results scores: x"],
        ),
        ({"metric_list": "[{metric: exact_match}]"}, []),
        ({"unsafe_code": "true"}, []),
    ],
)
def test_generated_texts(tmp_path: Path, changes: dict[str, str], expected: list[str]) -> None:
    (tmp_path / "u.py").write_text("def f(*args):\n    return 0\n")
    assert lines(tmp_path, {**GENERATE, **changes}) == expected


SAMPLED = {"generation_kwargs": "{until: [x], do_sample: true}", "unsafe_code": "true"}
FIRST_3 = "[{name: none, filter: [{function: take_first_k, k: 3}]}]"
NO_PASS = (
    "error t.yaml:{}: metric_list: pass@{} is not defined for the {} samples that filter {} leaves; raise repeats, {}"
)
AND_END = "and end the filter with take_first_k"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"repeats": "3", "filter_list": FIRST_3, "metric_list": "[{metric: pass_at_k, k: [1, 3]}]"}, []),
        (
            {"repeats": "3", "filter_list": FIRST_3, "metric_list": "[{metric: pass_at_k, k: [1, 5]}]"},
            [NO_PASS.format(10, 5, 3, "none", AND_END)],
        ),
        ({"metric_list": "[{metric: pass_at_k, k: 2}]"}, [NO_PASS.format(8, 2, 1, "none", AND_END)]),
        (
            {"repeats": "3", "filter_list": VOTE, "metric_list": "[{metric: pass_at_k, k: 2}]"},
            [NO_PASS.format(10, 2, 1, "vote", AND_END)],
        ),
        (
            {"repeats": "2", "filter_list": FIRST_3},
            ["error t.yaml:9: filter_list[0]: filter none takes the first 3 of 2 responses; raise repeats"],
        ),
        # What a function leaves, only the run can tell.
        (
            {
                "filter_list": "[{name: own, filter: [{function: custom, filter_fn: !function u.f}]}]",
                "metric_list": "[{metric: pass_at_k, k: 9}]",
            },
            [],
        ),
    ],
)
def test_b32_samples_that_are_never_there(tmp_path: Path, changes: dict[str, str], expected: list[str]) -> None:
    (tmp_path / "u.py").write_text("def f(*args):\n    return args[0]\n")
    assert lines(tmp_path, {**GENERATE, **SAMPLED, **changes}) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"generation_kwargs": "{until: [x]}"},
            ["warning t.yaml:8: generation_kwargs: not used: nothing is generated for output_type multiple_choice"],
        ),
        (
            {"unsafe_code": "true"},
            ["warning t.yaml:8: unsafe_code: not used: no code is generated for output_type multiple_choice"],
        ),
    ],
)
def test_what_only_generations_have(tmp_path: Path, changes: dict[str, str], expected: list[str]) -> None:
    assert lines(tmp_path, {**CHOICE, **changes}) == expected


def test_a_range_of_what_is_no_metric(tmp_path: Path) -> None:
    ranges = {"metadata": "{ranges: {acc_norm: [0, 1], acuracy: [0, 1]}}"}
    assert lines(tmp_path, {**CHOICE, **ranges}) == [
        "error t.yaml:8: metadata.ranges.acuracy: the task has no metric 'acuracy' that is the mean of its docs' "
        "scores (there are: acc, acc_norm)"
    ]


LOGLIKELIHOOD = {key: value for key, value in CHOICE.items() if key != "doc_to_choice"}


@pytest.mark.parametrize(
    ("keys", "metric", "message"),
    [
        (
            LOGLIKELIHOOD | {"output_type": "loglikelihood"},
            "perplexity",
            "perplexity is computed from log-probabilities without a lower bound; that it is 1 or more is known. "
            "A gate about this data set alone needs no range: 'perplexity <= ... @ 0.95 dataset'",
        ),
        (
            LOGLIKELIHOOD | {"output_type": "loglikelihood_rolling"},
            "bits_per_byte",
            "bits_per_byte is computed from log-probabilities without a lower bound; that it is 0 or more is known. "
            "A gate about this data set alone needs no range: 'bits_per_byte <= ... @ 0.95 dataset'",
        ),
        (
            CHOICE | {"metric_list": "[{metric: brier_score}]"},
            "brier_score",
            "the range of brier_score is known, [0, 2]",
        ),
        (
            CHOICE | {"metric_list": "[{metric: mcc}]"},
            "mcc",
            "mcc is not a mean over docs, so its bounds do not use a range",
        ),
    ],
)
def test_a_range_where_none_is_to_be_told(tmp_path: Path, keys: dict[str, str], metric: str, message: str) -> None:
    found = lines(tmp_path, keys | {"metadata": f"{{ranges: {{{metric}: [0, 9]}}}}"})
    (line,) = [line for line in found if "error" in line]
    assert f": metadata.ranges.{metric}: omit it: {message}" in line
