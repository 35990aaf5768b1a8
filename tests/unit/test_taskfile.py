"""A task file as a Task: every key typed, texts as written, defaults as the format has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._scoring import filter_step
from pytest_llmeval._task import TAKE_FIRST
from pytest_llmeval._task import FewshotSpec
from pytest_llmeval._task import Field
from pytest_llmeval._task import Group
from pytest_llmeval._task import Pipeline
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import TaskFiles
from pytest_llmeval._taskfile import generation_settings
from pytest_llmeval._taskfile import looks_like_task


CHOICE = """\
task: t
dataset_path: some/set
test_split: test
output_type: multiple_choice
doc_to_text: "{{q}}"
doc_to_choice: [a, b]
doc_to_target: label
"""
GENERATE = """\
task: t
dataset_path: some/set
test_split: test
doc_to_text: "{{q}}"
doc_to_target: answer
"""


def task(folder: Path, text: str) -> Task:
    path = folder / "t.yaml"
    path.write_text(text, encoding="utf-8")
    found = TaskFiles().read(path)
    assert isinstance(found, Task)
    return found


def complaint(folder: Path, text: str) -> str:
    """The message about a file, without its folder."""
    with pytest.raises(TaskFileError) as caught:
        task(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_task_of_every_key(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("def f(x):\n    return x\ndef score(doc, results):\n    return {'em': 1}\n")
    found = task(
        tmp_path,
        """\
task: capitals
task_alias: Capitals
tag: [geo, facts]
dataset_path: some/set
dataset_name: main
dataset_kwargs: {data_files: {test: a.jsonl}, revision: abc}
training_split: train
validation_split: val
test_split: test
fewshot_split: dev
process_docs: !function utils.f
doc_to_text: question
doc_to_target: "{{answer}}"
description: "Answer.\\n\\n"
gen_prefix: "The answer is"
fewshot_config:
  sampler: first_n
  doc_to_text: !function utils.f
  target_delimiter: ""
num_fewshot: 3
fewshot_delimiter: "\\n"
target_delimiter: " -> "
generation_kwargs: {until: "\\n", max_gen_toks: 7, temperature: 0.5, do_sample: true, num_beams: 2}
filter_list:
  - name: strict
    filter:
      - {function: regex, regex_pattern: '(\\d+)', group_select: -1}
      - function: take_first
repeats: 2
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
    ignore_case: true
  - metric: bleu
    higher_is_better: false
should_decontaminate: true
doc_to_decontamination_query: question
unsafe_code: false
metadata:
  version: 2
  gates: [exact_match >= 0.1]
""",
    )
    function = found.process_docs
    assert function is not None
    assert function(5) == 5
    assert (found.name, found.alias, found.display_name, found.tags) == (
        "capitals",
        "Capitals",
        "Capitals",
        ("geo", "facts"),
    )
    assert (found.dataset_path, found.dataset_name) == ("some/set", "main")
    assert found.dataset_kwargs == {"data_files": {"test": "a.jsonl"}, "revision": "abc"}
    assert (found.training_split, found.validation_split, found.test_split) == ("train", "val", "test")
    assert found.evaluated_split == "test"
    assert found.doc_to_text == Field("doc_to_text", text="question", line=12)
    assert found.doc_to_target == Field("doc_to_target", text="{{answer}}", line=13)
    assert found.description == Field("description", text="Answer.\n\n", line=14)
    assert found.gen_prefix == Field("gen_prefix", text="The answer is", line=15)
    assert found.fewshot == FewshotSpec(
        sampler="first_n",
        split="dev",
        doc_to_text=Field("fewshot_config.doc_to_text", function=function, line=18),
        target_delimiter="",
    )
    assert (found.num_fewshot, found.fewshot_delimiter, found.target_delimiter) == (3, "\n", " -> ")
    assert found.generation_kwargs == {
        "until": ["\n"],
        "max_gen_toks": 7,
        "temperature": 0.5,
        "do_sample": True,
        "num_beams": 2,
    }
    steps = (filter_step("regex", {"regex_pattern": r"(\d+)", "group_select": -1}), filter_step("take_first"))
    assert found.filters == (Pipeline("strict", steps),)
    assert found.repeats == 2
    assert [(m.name, m.aggregation.name, m.higher_is_better, dict(m.options)) for m in found.metrics] == [
        ("exact_match", "mean", True, {"ignore_case": True}),
        ("bleu", "bleu", False, {}),
    ]
    assert found.unsafe_code is False
    assert (found.version, found.metadata, found.gates) == (2, {"version": 2}, (("exact_match >= 0.1", 42),))
    assert found.line_of("metric_list") == 30
    assert found.path == tmp_path / "t.yaml"


def test_defaults_are_those_of_the_format(tmp_path: Path) -> None:
    found = task(tmp_path, GENERATE)
    assert found.output_type == "generate_until"
    assert found.generation_kwargs == {"until": ["\n\n"], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}
    assert (found.fewshot_delimiter, found.target_delimiter, found.num_fewshot, found.repeats) == ("\n\n", " ", None, 1)
    assert (found.filters, found.fewshot, found.description, found.tags) == ((TAKE_FIRST,), FewshotSpec(), None, ())
    assert [metric.name for metric in found.metrics] == ["exact_match"]
    assert (found.version, found.gates, found.unsafe_code, found.alias) == (None, (), False, None)
    assert found.display_name == "t"


@pytest.mark.parametrize(
    ("output_type", "extra", "names"),
    [
        ("multiple_choice", "doc_to_choice: [a]\n", ["acc", "acc_norm"]),
        ("loglikelihood", "", ["perplexity", "acc"]),
        ("loglikelihood_rolling", "", ["word_perplexity", "byte_perplexity", "bits_per_byte"]),
    ],
)
def test_default_metrics_of_the_other_output_types(
    tmp_path: Path, output_type: str, extra: str, names: list[str]
) -> None:
    found = task(tmp_path, f"{GENERATE}output_type: {output_type}\n{extra}")
    assert [metric.name for metric in found.metrics] == names
    assert found.generation_kwargs == {}


def test_b38_a_task_may_be_called_like_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").mkdir()
    assert task(tmp_path, GENERATE).name == "t"


def test_validation_is_evaluated_where_there_is_no_test_split(tmp_path: Path) -> None:
    found = task(tmp_path, CHOICE.replace("test_split: test", "test_split: null\nvalidation_split: val"))
    assert (found.test_split, found.evaluated_split) == (None, "val")


# B20: texts as written ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "choices"),
    [
        ("[no, yes]", ("no", "yes")),
        ("[0, 1]", ("0", "1")),
        ("[on, 12:30, 3.10, 1_000, 2024-01-02]", ("on", "12:30", "3.10", "1_000", "2024-01-02")),
        ("[True, ' x', \"\\n\", 0x1F, 1e3, .inf]", ("True", " x", "\n", "0x1F", "1e3", ".inf")),
        ("{A: no, B: 07}", ("no", "07")),
    ],
)
def test_b20_choices_are_texts_as_written(tmp_path: Path, written: str, choices: tuple[str, ...]) -> None:
    found = task(tmp_path, CHOICE.replace("[a, b]", written))
    assert found.doc_to_choice == Field("doc_to_choice", choices=choices, line=6)


def test_b20_every_text_is_as_written(tmp_path: Path) -> None:
    found = task(
        tmp_path,
        """\
task: 2024-01-02
task_alias: on
tag: [no, 12:30]
dataset_path: 1_000
dataset_name: no
test_split: off
training_split: 010
fewshot_split: yes
doc_to_text: 3.10
doc_to_target: no
description: 1.0
gen_prefix: true
fewshot_delimiter: 5
target_delimiter: no
generation_kwargs: {until: [no, 12:30, 1.0]}
filter_list: [{name: on, filter: [{function: take_first}]}]
""",
    )
    assert (found.name, found.alias, found.tags) == ("2024-01-02", "on", ("no", "12:30"))
    assert (found.dataset_path, found.dataset_name) == ("1_000", "no")
    assert (found.test_split, found.training_split, found.fewshot.split) == ("off", "010", "yes")
    fields = (found.doc_to_text, found.doc_to_target, found.description, found.gen_prefix)
    assert [field.text for field in fields if field] == ["3.10", "no", "1.0", "true"]
    assert (found.fewshot_delimiter, found.target_delimiter) == ("5", "no")
    assert found.generation_kwargs["until"] == ["no", "12:30", "1.0"]
    assert found.filters[0].name == "on"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(st.lists(TEXTS, min_size=1))
def test_choices_come_back_as_any_yaml_writer_wrote_them(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    dumped = yaml.safe_dump({"doc_to_choice": texts}, allow_unicode=True)
    # That writer does not quote U+0085, and gets a space back.
    assume(yaml.safe_load(dumped)["doc_to_choice"] == texts)
    found = task(tmp_path_factory.getbasetemp(), CHOICE.replace("doc_to_choice: [a, b]\n", dumped))
    assert found.doc_to_choice is not None
    assert found.doc_to_choice.choices == tuple(texts)


def test_the_field_of_a_doc_decides_not_its_look(tmp_path: Path) -> None:
    """B17, as far as YAML goes: a text stays a text, whatever it looks like."""
    kept = {}
    for written in ("'[1, 2, 3]'", '"{{t}}"', "t", "'7'", "7", "[u, v]", "['1', '3']"):
        found = task(tmp_path, GENERATE.replace("doc_to_target: answer", f"doc_to_target: {written}")).doc_to_target
        assert found is not None
        kept[written] = (found.text, found.index, found.choices)
    assert kept == {
        "'[1, 2, 3]'": ("[1, 2, 3]", None, None),
        '"{{t}}"': ("{{t}}", None, None),
        "t": ("t", None, None),
        "'7'": ("7", None, None),
        "7": (None, 7, None),
        "[u, v]": (None, None, ("u", "v")),
        "['1', '3']": (None, None, ("1", "3")),
    }


def test_several_right_choices_by_index(tmp_path: Path) -> None:
    found = task(tmp_path, CHOICE.replace("doc_to_target: label", "doc_to_target: [0, 1]")).doc_to_target
    assert found is not None
    assert found.function is not None
    assert found.function({"any": "doc"}) == [0, 1]


# Numbers and truth values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("num_fewshot: 1_0", "t.yaml:6: num_fewshot: expects a whole number, 0 or more, got 1_0"),
        ("num_fewshot: '5'", "t.yaml:6: num_fewshot: expects a whole number, 0 or more, got the text '5'"),
        ("num_fewshot: 010", "t.yaml:6: num_fewshot: expects a whole number, 0 or more, got 010"),
        ("num_fewshot: -1", "t.yaml:6: num_fewshot: expects a whole number, 0 or more, got -1"),
        ("num_fewshot: 2.0", "t.yaml:6: num_fewshot: expects a whole number, 0 or more, got 2.0"),
        ("repeats: 0", "t.yaml:6: repeats: expects a whole number, 1 or more, got 0"),
        ("unsafe_code: 1", "t.yaml:6: unsafe_code: expects true or false, got 1"),
        ("should_decontaminate: 'true'", "t.yaml:6: should_decontaminate: expects true or false, got the text 'true'"),
        ("tag: {a: b}", "t.yaml:6: tag: expects a text, got the mapping {a: b}"),
        ("tag: [a, [b]]", "t.yaml:6: tag[1]: expects a text, got the list [b]"),
        ("description: [a]", "t.yaml:6: description: expects a text, got the list [a]"),
        ("target_delimiter: {}", "t.yaml:6: target_delimiter: expects a text, got the mapping {}"),
        ("metadata: 1.0", "t.yaml:6: metadata: expects a mapping, got 1.0"),
        ("dataset_kwargs: [a]", "t.yaml:6: dataset_kwargs: expects a mapping, got the list [a]"),
        ("process_docs: utils.f", "t.yaml:6: process_docs: expects !function module.name, got the text 'utils.f'"),
        ("process_results: f", "t.yaml:6: process_results: expects !function module.name, got the text 'f'"),
        ("custom_dataset: f", "t.yaml:6: custom_dataset: expects !function module.name, got the text 'f'"),
        ("metric_list: acc", "t.yaml:6: metric_list: expects a list of mappings, got the text 'acc'"),
        ("metric_list:\n  - acc", "t.yaml:7: metric_list[0]: expects a mapping, got the text 'acc'"),
        ("metric_list:\n  - aggregation: mean", "t.yaml:7: metric_list[0]: has no 'metric'"),
        ("filter_list: []", "t.yaml:6: filter_list: the list is empty"),
        ("filter_list:\n  - name: x", "t.yaml:7: filter_list[0]: has no 'filter'"),
        ("filter_list: [{filter: []}]", "t.yaml:6: filter_list[0]: has no 'name'"),
        (
            "metric_list: [{metric: exact_match}, {metric: exact_match}]",
            "t.yaml:6: metric_list: metric 'exact_match' is listed twice; results are known by these names",
        ),
        ("generation_kwargs: {until: [[x]]}", "t.yaml:6: generation_kwargs.until[0]: expects a text, got the list [x]"),
        (
            "generation_kwargs: {max_gen_toks: many}",
            "t.yaml:6: generation_kwargs.max_gen_toks: expects a whole number, 1 or more, got the text 'many'",
        ),
        (
            "generation_kwargs:\n  temperature: hot",
            "t.yaml:7: generation_kwargs.temperature: expects a number, got the text 'hot'",
        ),
        (
            "generation_kwargs: {do_sample: maybe}",
            "t.yaml:6: generation_kwargs.do_sample: expects true or false, got the text 'maybe'",
        ),
        (
            "generation_kwargs: {max_gen_toks: 5, max_tokens: 6}",
            "t.yaml:6: generation_kwargs: max_gen_toks and max_tokens are names of one limit, with different values",
        ),
        ("fewshot_config: 5", "t.yaml:6: fewshot_config: expects a mapping, got 5"),
        ("fewshot_config: {samples: [a]}", "t.yaml:6: fewshot_config.samples[0]: expects a mapping, got the text 'a'"),
        (
            "fewshot_config: {fewshot_indices: [a]}",
            "t.yaml:6: fewshot_config.fewshot_indices[0]: expects a whole number, 0 or more, got the text 'a'",
        ),
        ("task_alias: ' '", "t.yaml:6: task_alias: expects a name of one line, got the text ' '"),
        ('task_alias: "a\\nb"', "t.yaml:6: task_alias: expects a name of one line, got the text 'a\\nb'"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_what_was_expected(tmp_path: Path, line: str, message: str) -> None:
    assert complaint(tmp_path, f"{GENERATE}{line}\n") == message


@pytest.mark.parametrize("written", ["true", "True", "yes", "on", "Yes", "ON"])
def test_where_a_truth_value_is_wanted_every_yaml_word_is_clear(tmp_path: Path, written: str) -> None:
    assert task(tmp_path, f"{GENERATE}unsafe_code: {written}\n").unsafe_code is True


@pytest.mark.parametrize("written", ["no", "010", "1_000", "2024-01-02", "12:30"])
def test_where_anything_may_stand_an_unclear_scalar_is_an_error(tmp_path: Path, written: str) -> None:
    assert complaint(tmp_path, f"{GENERATE}dataset_kwargs: {{revision: {written}}}\n") == (
        f"t.yaml:6: dataset_kwargs.revision: {written} means different things to YAML 1.1 and 1.2; "
        "quote it if it is a text, else write true, false or a plain decimal number"
    )


def test_versions_keep_their_digits(tmp_path: Path) -> None:
    found = {
        text: task(tmp_path, f"{GENERATE}metadata: {{version: {text}}}\n").version
        for text in ("1", "2.0", "3.10", "0.3.0")
    }
    assert found == {"1": 1, "2.0": 2.0, "3.10": "3.10", "0.3.0": "0.3.0"}


def test_gates_are_kept_as_written_with_their_lines(tmp_path: Path) -> None:
    text = "metadata:\n  version: 1\n  gates:\n    - acc >= 0.5\n    - {metric: acc, min: 0.3, name: low}\n"
    found = task(tmp_path, GENERATE + text)
    assert found.gates == (("acc >= 0.5", 9), ({"metric": "acc", "min": 0.3, "name": "low"}, 10))
    assert found.metadata == {"version": 1}


def test_samples_are_docs_with_typed_values(tmp_path: Path) -> None:
    text = "fewshot_config:\n  samples:\n    - {q: 'a', answer: no, n: 3}\n    - {q: b, answer: 2024-01-02, n: ~}\n"
    assert task(tmp_path, GENERATE + text).fewshot.samples == (
        {"q": "a", "answer": "no", "n": 3},
        {"q": "b", "answer": "2024-01-02", "n": None},
    )


def test_null_in_fewshot_config_takes_back_what_the_task_says(tmp_path: Path) -> None:
    text = "gen_prefix: So\nfewshot_split: dev\nfewshot_config: {gen_prefix: ~, process_docs: ~, split: ~}\n"
    shots = task(tmp_path, GENERATE + text).fewshot
    assert shots.gen_prefix == Field("fewshot_config.gen_prefix", text="")
    assert shots.split is None
    assert shots.process_docs is not None
    assert shots.process_docs(["doc"]) == ["doc"]


# Generation settings (B28) --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('{until: "Q:"}', {"until": ["Q:"], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}),
        ('{until: [".", "\\n"]}', {"until": [".", "\n"], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}),
        ('{until: [""]}', {"until": [""], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}),
        ("{until: []}", {"until": [], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}),
        ("{max_gen_toks: 3}", {"until": ["\n\n"], "max_gen_toks": 3, "do_sample": False, "temperature": 0.0}),
        ("{max_new_tokens: 3}", {"until": ["\n\n"], "max_gen_toks": 3, "do_sample": False, "temperature": 0.0}),
        ("{max_tokens: 3}", {"until": ["\n\n"], "max_gen_toks": 3, "do_sample": False, "temperature": 0.0}),
        ("{temperature: 0.0}", {"until": ["\n\n"], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}),
        ("{temperature: 1e-5}", {"until": ["\n\n"], "max_gen_toks": 256, "do_sample": True, "temperature": 1e-5}),
        ("{temperature: 1}", {"until": ["\n\n"], "max_gen_toks": 256, "do_sample": True, "temperature": 1.0}),
        ("{do_sample: true}", {"until": ["\n\n"], "max_gen_toks": 256, "do_sample": True, "temperature": 1.0}),
        (
            "{do_sample: false, temperature: 0.7}",
            {"until": ["\n\n"], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0},
        ),
        (
            "{do_sample: true, temperature: 0.0}",
            {"until": ["\n\n"], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0},
        ),
    ],
)
def test_b28_every_spelling_of_a_generation_means_one_thing(
    tmp_path: Path, written: str, expected: dict[str, Any]
) -> None:
    found = task(tmp_path, f"{GENERATE}generation_kwargs: {written}\n")
    assert generation_settings(found.generation_kwargs) == expected


def test_b28_the_default_stop_is_the_fewshot_delimiter(tmp_path: Path) -> None:
    found = task(tmp_path, f"{GENERATE}fewshot_delimiter: '###'\ngeneration_kwargs: {{max_gen_toks: 5}}\n")
    assert found.generation_kwargs == {"until": ["###"], "max_gen_toks": 5}


def test_overrides_win_key_by_key_whatever_the_limit_is_called() -> None:
    kwargs = {"until": ["x"], "max_gen_toks": 9, "num_beams": 2}
    assert generation_settings(kwargs, {"max_tokens": 3, "until": "y", "temperature": 0.5}) == {
        "until": ["y"],
        "max_gen_toks": 3,
        "num_beams": 2,
        "do_sample": True,
        "temperature": 0.5,
    }


# What is wrong with a file ---------------------------------------------------------------------------------------


KNOWN = (
    "custom_dataset, dataset_kwargs, dataset_name, dataset_path, description, doc_to_choice, "
    "doc_to_decontamination_query, doc_to_target, doc_to_text, fewshot_config, fewshot_delimiter, fewshot_split, "
    "filter_list, gen_prefix, generation_kwargs, group, include, metadata, metric_list, num_fewshot, output_type, "
    "process_docs, process_results, repeats, should_decontaminate, tag, target_delimiter, task, task_alias, "
    "test_split, training_split, unsafe_code, validation_split"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("doc_to_text: x\n", "t.yaml: is not a task file: it has neither 'task' nor 'group'"),
        ("task: ~\noutput_type: generate_until\n", "t.yaml: task: missing: the name of the task"),
        (GENERATE.replace('doc_to_text: "{{q}}"\n', ""), "t.yaml: doc_to_text: missing: the prompt of a doc"),
        (GENERATE.replace("doc_to_target: answer\n", ""), "t.yaml: doc_to_target: missing: the right answer"),
        (CHOICE.replace("doc_to_choice: [a, b]\n", ""), "t.yaml: doc_to_choice: missing: the options of a doc"),
        (
            GENERATE.replace("dataset_path: some/set\n", ""),
            "t.yaml: dataset_path: missing: a data set of the hub, "
            "or json, csv or parquet with dataset_kwargs.data_files",
        ),
        (
            GENERATE.replace("some/set", "''"),
            "t.yaml: dataset_path: missing: a data set of the hub, "
            "or json, csv or parquet with dataset_kwargs.data_files",
        ),
        (
            GENERATE.replace("test_split: test\n", "training_split: train\n"),
            "t.yaml: test_split: missing: the split to evaluate (or validation_split)",
        ),
        (
            f"{GENERATE}doc_to_txt: x\n",
            f"t.yaml:6: doc_to_txt: unknown key; did you mean 'doc_to_text'? Known are {KNOWN}.",
        ),
        (f"{GENERATE}zzz: x\n", f"t.yaml:6: zzz: unknown key. Known are {KNOWN}."),
        (
            f"{GENERATE}fewshot_config: {{sampeler: first_n}}\n",
            "t.yaml:6: fewshot_config.sampeler: unknown key; did you mean 'sampler'? Known are doc_to_choice, "
            "doc_to_target, doc_to_text, fewshot_delimiter, fewshot_indices, gen_prefix, process_docs, sampler, "
            "samples, split, target_delimiter.",
        ),
        (
            GENERATE + "output_type: generate\n",
            "t.yaml:6: output_type: 'generate' is not known; did you mean 'generate_until'? "
            "Known are generate_until, loglikelihood, loglikelihood_rolling, multiple_choice.",
        ),
        (
            f"{GENERATE}fewshot_config: {{sampler: balanced}}\n",
            "t.yaml:6: fewshot_config.sampler: 'balanced' is not known. Known are default, first_n.",
        ),
        (
            f"{GENERATE}fewshot_config: {{sampler: !function utils.Sampler}}\n",
            "t.yaml:6: fewshot_config.sampler: expects default or first_n, got !function utils.Sampler",
        ),
        (
            f"{GENERATE}metric_list:\n  - metric: exact_match\n    aggregation: men\n",
            "t.yaml:8: metric_list[0].aggregation: 'men' is not known; did you mean 'mean'? Known are ",
        ),
        (
            f"{GENERATE}metric_list:\n  - metric: exakt_match\n",
            "t.yaml:7: metric_list[0].metric: unknown metric 'exakt_match'; for generate_until there are ",
        ),
        (
            f"{CHOICE}metric_list:\n  - metric: perplexity\n",
            "t.yaml:9: metric_list[0].metric: metric 'perplexity' is for loglikelihood; for multiple_choice there are ",
        ),
        (
            f"{GENERATE}metric_list:\n  - {{metric: exact_match, hf_evaluate: true}}\n",
            "t.yaml:7: metric_list[0].hf_evaluate: metric scripts from a hub are not run; write a !function metric",
        ),
        (
            f"{GENERATE}filter_list:\n  - name: x\n    filter:\n      - function: take_frist\n",
            "t.yaml:9: filter_list[0].filter[0]: unknown filter 'take_frist'; known: ",
        ),
        (
            f"{GENERATE}filter_list:\n  - name: x\n    filter:\n      - {{function: regex, regex_pattern: '('}}\n",
            "t.yaml:9: filter_list[0].filter[0]: filter regex: '(' is not a regex: missing ), unterminated subpattern",
        ),
        (
            f"{GENERATE}class: !function task.MyTask\n",
            "t.yaml:6: class: tasks written as Python classes are not supported; "
            "write the task as YAML with !function fields",
        ),
        (f"{GENERATE}use_prompt: 'promptsource:*'\n", "t.yaml:6: use_prompt: promptsource prompts are not supported; "),
        (f"{GENERATE}doc_to_image: [image]\n", "t.yaml:6: doc_to_image: only text is evaluated; "),
        (f"{GENERATE}doc_to_audio: audio\n", "t.yaml:6: doc_to_audio: only text is evaluated; "),
        (CHOICE.replace("[a, b]", "[]"), "t.yaml:6: doc_to_choice: the list is empty"),
        (CHOICE.replace("[a, b]", "[a, '']"), "t.yaml:6: doc_to_choice: entry 2 is an empty text"),
        (CHOICE.replace("[a, b]", "[a, ~]"), "t.yaml:6: doc_to_choice[1]: expects a text, got nothing"),
        (CHOICE.replace("label", "-1"), "t.yaml:7: doc_to_target: expects a whole number, 0 or more, got -1"),
        (
            f"{GENERATE}metadata: {{ranges: {{f1: 1}}}}\n",
            "t.yaml:6: metadata.ranges.f1: expects the least and the greatest score of a doc, e.g. [0, 1], got 1",
        ),
        (
            f"{GENERATE}metadata: {{ranges: {{f1: [1, 0]}}}}\n",
            "t.yaml:6: metadata.ranges.f1: expects the least and the greatest score of a doc, e.g. [0, 1], got the "
            "list [1, 0]; did you mean [0, 1]?",
        ),
        (
            f"{GENERATE}metadata: {{ranges: {{f1: [0, 1, 2]}}}}\n",
            "t.yaml:6: metadata.ranges.f1: expects the least and the greatest score of a doc, e.g. [0, 1], got the "
            "list [0, 1, 2]",
        ),
        (
            f"{GENERATE}metadata: {{ranges: {{f1: [1, 1]}}}}\n",
            "t.yaml:6: metadata.ranges.f1: expects the least and the greatest score of a doc, e.g. [0, 1], got the "
            "list [1, 1]",
        ),
        (
            f"{GENERATE}metadata: {{ranges: {{f1: [0, 1e999]}}}}\n",
            "t.yaml:6: metadata.ranges.f1: expects a number, got the text '1e999'",
        ),
        (
            f"{GENERATE}metadata: {{ranges: [0, 1]}}\n",
            "t.yaml:6: metadata.ranges: expects a mapping, got the list [0, 1]",
        ),
        (
            f"{GENERATE}metadata: {{range: {{f1: [0, 1]}}}}\n",
            "t.yaml:6: metadata.range: unknown key; did you mean 'ranges'?",
        ),
    ],
)
def test_what_bad_input_prints(tmp_path: Path, text: str, message: str) -> None:
    """The whole message, or its begin where a list of everything known follows."""
    found = complaint(tmp_path, text)
    assert found == message or (message.endswith(" ") and found.startswith(message))


def test_a_task_with_process_results_names_its_numbers_freely(tmp_path: Path) -> None:
    (tmp_path / "utils.py").write_text("def score(doc, results):\n    return {'em': 1}\n")
    text = GENERATE.replace("doc_to_target: answer\n", "process_results: !function utils.score\n")
    found = task(tmp_path, f"{text}metric_list:\n  - {{metric: em, aggregation: mean, hf_evaluate: true}}\n")
    assert [metric.name for metric in found.metrics] == ["em"]
    assert [(metric.name, metric.listed) for metric in task(tmp_path, text).metrics] == [("exact_match", False)]
    assert found.doc_to_target is None
    assert complaint(tmp_path, f"{text}metric_list:\n  - metric: em\n") == (
        "t.yaml:7: metric_list[0]: metric 'em' comes from process_results, so it needs an aggregation, such as mean"
    )


def test_keys_that_mean_nothing_here_are_accepted(tmp_path: Path) -> None:
    text = (
        "doc_to_image: null\nuse_prompt: ~\nshould_decontaminate: true\ndoc_to_decontamination_query: !function x.y\n"
    )
    assert task(tmp_path, GENERATE + text.replace("!function x.y", "q")).name == "t"


def test_trust_remote_code_is_dropped_from_what_the_data_set_gets(tmp_path: Path) -> None:
    found = task(tmp_path, f"{GENERATE}dataset_kwargs: {{trust_remote_code: true, data_dir: x}}\n")
    assert found.dataset_kwargs == {"data_dir": "x"}


def test_the_old_group_key_of_a_task_is_a_tag(tmp_path: Path) -> None:
    assert task(tmp_path, f"{GENERATE}group: [old, style]\ntag: new\n").tags == ("new", "old", "style")


# The resolved mapping --------------------------------------------------------------------------------------------


def test_config_is_the_peers_mapping_with_functions_by_source(tmp_path: Path) -> None:
    source = "def prepare(docs):\n    return docs\n"
    (tmp_path / "utils.py").write_text(source)
    text = (
        "process_docs: !function utils.prepare\n"
        "num_fewshot: 2\n"
        "fewshot_config: {sampler: first_n}\n"
        "metadata: {version: 1.0}\n"
    )
    assert task(tmp_path, CHOICE.replace("[a, b]", "[no, 2]") + text).config == {
        "task": "t",
        "dataset_path": "some/set",
        "test_split": "test",
        "process_docs": source,
        "doc_to_text": "{{q}}",
        "doc_to_target": "label",
        "unsafe_code": False,
        "doc_to_choice": ["no", "2"],
        "description": "",
        "target_delimiter": " ",
        "fewshot_delimiter": "\n\n",
        "fewshot_config": {
            "sampler": "first_n",
            "split": None,
            "process_docs": source,
            "fewshot_indices": None,
            "samples": None,
            "doc_to_text": "{{q}}",
            "doc_to_choice": ["no", "2"],
            "doc_to_target": "label",
            "gen_prefix": None,
            "fewshot_delimiter": "\n\n",
            "target_delimiter": " ",
        },
        "num_fewshot": 2,
        "output_type": "multiple_choice",
        "repeats": 1,
        "should_decontaminate": False,
        "metadata": {"version": 1.0},
    }


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("{max_new_tokens: 5, until: Q}", {"max_new_tokens": 5, "until": "Q"}),
        ("{until: [no], num_beams: 2}", {"until": ["no"], "num_beams": 2}),
        ("{until: no, max_gen_toks: 5, max_tokens: 5}", {"until": "no", "max_gen_toks": 5, "max_tokens": 5}),
        ("{temperature: 0.5}", {"temperature": 0.5, "until": ["\n\n"]}),
        ("{until: ~}", {"until": ["\n\n"]}),
        ("~", {"until": ["\n\n"], "max_gen_toks": 256, "do_sample": False, "temperature": 0.0}),
    ],
)
def test_config_spells_generation_settings_as_the_file_does(
    written: str, shown: dict[str, Any], tmp_path: Path
) -> None:
    found = task(tmp_path, f"{GENERATE}generation_kwargs: {written}\n").config["generation_kwargs"]
    assert (found, list(found)) == (shown, list(shown))


# What a file is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "task_like"),
    [
        (CHOICE, True),
        ('"task": "t"\n"include": "_base"\n', True),
        ("'group': g\n'task':\n- a\n", True),
        ("group: g\ntask: [a]\naggregate_metric_list: []\n", True),
        ("class: !function t.T\ntask: t\n", True),
        ("dataset_path: x\ndoc_to_text: y\n", False),
        ("task: build\nsteps: [run]\n", False),
        ("jobs:\n  task: x\n  tag: y\n", False),
        ("name: CI\non: push\n", False),
        ("# task: t\n# tag: x\n", False),
        ("", False),
    ],
)
def test_a_task_file_is_told_from_its_text(tmp_path: Path, text: str, task_like: bool) -> None:
    (tmp_path / "x.yaml").write_text(text)
    assert looks_like_task(tmp_path / "x.yaml") is task_like


def test_a_task_file_of_another_encoding_is_not_overlooked(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(b"task: t\ntag: x\ndescription: \xdcberblick\n")
    assert looks_like_task(path) is True
    with pytest.raises(TaskFileError, match=r"x.yaml:3: not UTF-8 text \(byte 0xdc\); save the file as UTF-8"):
        TaskFiles().read(path)


def test_what_cannot_be_read_looks_like_nothing(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").mkdir()
    assert looks_like_task(tmp_path / "x.yaml") is False
    assert looks_like_task(tmp_path / "absent.yaml") is False


def test_a_group_file_is_a_group(tmp_path: Path) -> None:
    path = tmp_path / "g.yaml"
    path.write_text("group: g\ntask: [a, b]\n")
    assert isinstance(TaskFiles().read(path), Group)
