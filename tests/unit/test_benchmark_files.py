"""The task files under benchmarks/: complete, of unique names, citing their sources, and scoring as they say."""

from __future__ import annotations

import itertools
import re
import runpy
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._prompts import render_doc
from pytest_llmeval._registry import Registry
from pytest_llmeval._scoring import score_doc
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TEMPLATE = "_template.yaml"
FILES = sorted(
    path.relative_to(BENCHMARKS).as_posix()
    for path in BENCHMARKS.rglob("*.yaml")
    if path.name != TEMPLATE and path.relative_to(BENCHMARKS).parts[0] != "starter"
)
SUBJECT_FILES = runpy.run_path(str(BENCHMARKS / "subject_files.py"))["subject_files"]()

MMLU = ["mmlu", "mmlu_continuation", "mmlu_generative", "mmlu_zh"]
MMLU_CATEGORIES = {"stem": 19, "other": 13, "social_sciences": 12, "humanities": 13}
GROUPS = {**dict.fromkeys(MMLU, 57), "mmlu_pro": 14, "hendrycks_math": 7}


@pytest.fixture(scope="module")
def registry() -> Registry:
    return Registry()


@pytest.fixture
def task(registry: Registry, request: pytest.FixtureRequest) -> Task:
    """The task of the file that the test is parametrized with, by indirection."""
    found = registry.load(BENCHMARKS / request.param)
    assert isinstance(found, Task)
    return found


def of_file(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("task", [name], indirect=True, ids=[name])


def test_every_file_is_a_task_or_a_group_of_its_own_name(registry: Registry) -> None:
    names = Counter(registry.load(BENCHMARKS / name).name for name in FILES)
    assert [name for name, count in names.items() if count > 1] == []
    assert names.keys() >= {
        *("commonsense_qa", "gsm8k", "gsm8k_cot", "gsm8k_zh", "hellaswag", "arc_easy", "arc_challenge", "piqa"),
        *("winogrande", "lambada_openai", "openbookqa", "boolq", "triviaqa", "truthfulqa_mc1", "truthfulqa_mc2"),
        *("humaneval", "wikitext", "mmlu_anatomy", "mmlu_stem", *GROUPS),
    }


def test_subject_files_are_those_that_the_tables_give() -> None:
    """After a change of the tables: python benchmarks/subject_files.py."""
    folders = {name.split("/")[0] for name in SUBJECT_FILES}
    there = {name: (BENCHMARKS / name).read_text(encoding="utf-8") for name in FILES if name.split("/")[0] in folders}
    assert there == SUBJECT_FILES


@pytest.mark.parametrize(("name", "size"), GROUPS.items())
def test_groups_are_complete_and_weighted_by_size(registry: Registry, name: str, size: int) -> None:
    group = registry.load(BENCHMARKS / name / f"{name}.yaml")
    assert isinstance(group, Group)
    leaves = registry.leaves(group)
    assert len({leaf.name for leaf in leaves}) == len(leaves) == size
    (metric,) = group.metrics
    assert metric.weight_by_size
    assert all(metric.metric in [spec.name for spec in leaf.metrics] for leaf in leaves)
    filters = {spec.name for leaf in leaves for spec in leaf.filters}
    assert set(metric.filters or filters) == filters


@pytest.mark.parametrize("folder", MMLU)
@pytest.mark.parametrize(("category", "size"), MMLU_CATEGORIES.items())
def test_mmlu_has_its_four_categories(registry: Registry, folder: str, category: str, size: int) -> None:
    group = registry.load(BENCHMARKS / folder / f"{category}.yaml")
    assert isinstance(group, Group)
    leaves = registry.leaves(group)
    assert len(leaves) == size
    assert all(category in leaf.tags for leaf in leaves)


def test_subjects_can_be_selected_by_category_name_and_group(registry: Registry) -> None:
    task = registry.load(BENCHMARKS / "mmlu/college_physics.yaml")
    assert isinstance(task, Task)
    assert {"mmlu_college_physics", "college_physics", "stem", "mmlu_stem", "mmlu"} <= set(registry.names_of(task))


def _header(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return " ".join(itertools.takewhile(lambda line: line.startswith("#"), lines))


def _cites(name: str) -> bool:
    path = BENCHMARKS / name
    header = _header(path)
    cited = header + "".join(_header(path.parent / other) for other in re.findall(r"\w+\.yaml", header))
    return "arXiv:" in cited and re.search(r"[Ll]icence|Apache|CC BY|belong to", cited) is not None


def test_files_cite_paper_and_licence_or_the_file_that_does() -> None:
    assert [name for name in FILES if not _cites(name)] == []


def test_files_carry_a_version_and_no_gate(registry: Registry) -> None:
    """Which floor is right depends on the model: it is for those who train one to say."""
    found = {name: registry.load(BENCHMARKS / name) for name in FILES}
    assert [name for name, one in found.items() if one.version is None or one.gates] == []


@of_file("commonsense_qa.yaml")
def test_commonsense_qa_is_evaluated_on_validation(task: Task) -> None:
    assert task.evaluated_split == "validation"


def _score(task: Task, data: Mapping[str, Any], response: Any) -> Mapping[str, Mapping[str, Any]]:
    responses = response if isinstance(response, list) else [response]
    return score_doc(task, 0, render_doc(task, 0, data), [[each] for each in responses]).scores


@of_file("mmlu_zh/anatomy.yaml")
def test_mmlu_in_chinese_asks_for_a_letter(task: Task) -> None:
    data = {
        "question": " What is a lentiform nucleus? ",
        "choices": ["w", "x", "y", "z"],
        "answer": 2,
        "subject": "anatomy",
    }
    doc = render_doc(task, 0, data)
    assert doc.text == (
        "以下是一道单项选择题，四个选项中只有一个是正确的。请选出正确的选项，只回答它的字母。\n\n"
        "题目: What is a lentiform nucleus?\nA. w\nB. x\nC. y\nD. z\n答案:"
    )
    assert doc.choices == ("A", "B", "C", "D")
    assert doc.gold == (2,)
    assert _score(task, data, [(-3.0, False), (-2.0, False), (-1.0, False), (-4.0, False)])["none"]["acc"] == 1.0


@of_file("gsm8k/gsm8k_zh.yaml")
def test_gsm8k_in_chinese_asks_for_steps_and_a_number(task: Task) -> None:
    doc = render_doc(task, 0, {"question": "How many?", "answer": "2 * 500 = <<2*500=1000>>1000\n#### 1,000"})
    assert doc.text == (
        "请解答下面的数学应用题。先一步一步地推理，写出计算过程；最后另起一行，按“#### 数值”的格式写出答案，"
        "数值只写数字，不带单位。\n\n题目: How many?\n解答:"
    )
    assert doc.references == ("1,000",)


@of_file("gsm8k/gsm8k_zh.yaml")
@pytest.mark.parametrize(
    ("response", "strict", "flexible"),
    [
        (" 2 * 500 = 1000\n#### 1000", 1, 1),
        ("#### 1,000", 1, 1),
        ("#### 1000.00", 1, 1),
        ("####1000。", 1, 1),
        ("#### 1000.005", 1, 1),  # within 1e-5 of 1000
        ("#### 1000.02", 0, 0),
        ("答案是1000元。", 0, 1),
        ("每天500，两天共1,000个", 0, 1),
        ("先算 #### 500，再算 #### 1000", 1, 1),
        ("#### -1000", 0, 0),
        ("1500-500=1000", 0, 1),
        ("1500-1000", 0, 1),  # a subtraction, not a negative number
        ("#### １０００", 1, 1),
        ("不知道", 0, 0),
        ("", 0, 0),
    ],
)
def test_gsm8k_in_chinese_compares_numbers(task: Task, response: str, strict: float, flexible: float) -> None:
    scores = _score(task, {"question": "?", "answer": "#### 1,000"}, response)
    assert scores["strict-match"] == {"numeric_match": strict}
    assert scores["flexible-extract"] == {"numeric_match": flexible}


@of_file("winogrande/winogrande.yaml")
def test_winogrande_fills_the_blank_of_the_context(task: Task) -> None:
    data = {"sentence": "Ann thanked Eve since _ had helped.", "option1": "Ann", "option2": "Eve", "answer": "2"}
    doc = render_doc(task, 0, data)
    assert doc.inputs == ("Ann thanked Eve since Ann", "Ann thanked Eve since Eve")
    assert doc.references == ("had helped.",)
    assert doc.gold == (1,)
    assert _score(task, data, [(-5.0, False), (-4.0, False)])["none"] == {"acc": 1.0}


@of_file("truthfulqa/truthfulqa_mc2.yaml")
def test_truthfulqa_mc2_is_the_share_of_true_choices(task: Task) -> None:
    """Masses 0.1, 0.2 and 0.1, of which the first and the last are true. At -1000 they must not underflow."""
    data = {"question": "?", "mc2_targets": {"choices": ["a", "b", "c"], "labels": [1, 0, 1]}}
    lls = [(-1000.0, False), (-1000.0 + 0.6931471805599453, False), (-1000.0, False)]
    assert _score(task, data, lls)["none"]["acc"] == pytest.approx(0.5)


@of_file("hellaswag.yaml")
def test_hellaswag_drops_the_marks_of_wikihow(task: Task) -> None:
    data = {
        "activity_label": "Baking",
        "ctx_a": "[header] How to bake [title] Heat it.",
        "ctx_b": "the oven Is",
        "endings": [" hot [step] now ", "cold", "a [title] b", "[substeps] c  d"],
        "label": "3",
    }
    doc = render_doc(task, 0, data)
    assert doc.text == "Baking: How to bake. Heat it. The oven is"
    assert doc.choices == ("hot now", "cold", "a. b", " c d")
    assert doc.gold == (3,)


@of_file("wikitext/wikitext.yaml")
def test_wikitext_scores_the_page_as_typed_and_counts_it_as_published(task: Task) -> None:
    data = {"page": ' = A = \n 1 @,@ 000 m ( about " 1 @.@ 1 km " ) . \n'}
    assert render_doc(task, 0, data).references == (' = A =\n1,000 m (about "1.1 km").\n',)
    scores = _score(task, data, -12.5)["none"]
    # The page ends in white space, after which an empty word is counted.
    assert {name: list(item) for name, item in scores.items()} == {
        "word_perplexity": [-12.5, 19],
        "byte_perplexity": [-12.5, 49],
        "bits_per_byte": [-12.5, 49],
    }


@of_file("hendrycks_math/algebra.yaml")
@pytest.mark.parametrize(
    ("solution", "response", "score"),
    [
        (r"so $x = \boxed{\frac{1}{2}}$", r" $\tfrac12$", 1),
        (r"so $x = \boxed{\frac{1}{2}}$", "1/2", 1),
        (r"so $x = \boxed{\frac{1}{2}}$", "$x=0.5$", 1),
        (r"so $x = \boxed{\frac{1}{2}}$", "2/4", 0),
        (r"so $x = \boxed{\frac{1}{2}}$", "The answer is 1/2", 0),
        (r"\boxed{3}, no: $\boxed{12\text{ cm}}$", "$12$", 1),
        (r"$\boxed{\sqrt{3}}$", r"$\sqrt3$", 1),
        (r"$\boxed{90^\circ}$", "$90$", 1),
        (r"$\boxed{(-\infty, 2)}$", r"$\left(-\infty,2\right)$", 1),
        (r"$\boxed 7$ of them", "7", 1),
        (r"$\boxed{[0,25]}$", "[0, 25]", 1),
        (r"$\boxed{50\%}$", "50", 1),
    ],
)
def test_math_answers_are_compared_by_the_rules_of_the_data_set(
    task: Task, solution: str, response: str, score: int
) -> None:
    assert _score(task, {"problem": "?", "solution": solution}, response)["none"] == {"exact_match": score}
