"""The end of a run: tables equal to the peer's, gates, notes, how much of it at which verbosity."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_llmeval._errors import SettingError
from pytest_llmeval._report import GateLine
from pytest_llmeval._report import GroupReport
from pytest_llmeval._report import ModelComparison
from pytest_llmeval._report import ModelReport
from pytest_llmeval._report import TaskReport
from pytest_llmeval._report import Trend
from pytest_llmeval._report import append_step_summary
from pytest_llmeval._report import comparison_notes
from pytest_llmeval._report import comparison_table
from pytest_llmeval._report import markdown_table
from pytest_llmeval._report import model_lines
from pytest_llmeval._report import result_table
from pytest_llmeval._report import step_summary
from pytest_llmeval._report import write_report
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import MetricValue
from pytest_llmeval._results import Summary
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Fact
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import Verdict


def summary(name: str, *values: MetricValue, n: int = 10, n_total: int = 10, **more: Any) -> Summary:
    shape = {"display_name": name, "version": 1.0, "num_fewshot": 0, **more}
    return Summary(name, n=n, n_total=n_total, values=values, **shape)


def value(
    number: float, stderr: float | None = 0.1, metric: str = "acc", filter: str = "none", better: bool | None = True
) -> MetricValue:
    return MetricValue(metric, filter, number, stderr, better, 10)


ANATOMY = summary("anatomy", value(0.4), value(0.5, 0.25, "acc_norm"), display_name="the anatomy ")
SUMS = summary(
    "sums",
    value(0.125, None, "exact_match", "strict-match"),
    value(0.3333333, 0.2, "exact_match", "flexible"),
    version=None,
    num_fewshot=5,
)
STORIES = summary("stories", value(12345.67891, None, "word_perplexity", better=False), version=2)
STEM = summary("stem", value(0.4), tasks=("anatomy",), version=3)
ALL = summary("all", value(0.35, None, better=None), tasks=("anatomy", "sums"), version=None, num_fewshot=None)
CHILDREN = {"all": ["stem", "sums"], "stem": ["anatomy"], "plain": ["stories"]}


def report(
    name: str, *summaries: Summary, gates: Sequence[GateLine] = (), correct: Sequence[bool | None] = (), **more: Any
) -> ModelReport:
    """A report of tasks and groups by their numbers; the docs of the first task are `correct` or not."""
    results = [DocResult(doc, {}, right) for doc, right in enumerate(correct)]
    tasks = [
        TaskReport(TaskData(Task(one.name, Path(), "multiple_choice", None, None), results if i == 0 else [], 9), one)
        for i, one in enumerate(one for one in summaries if not one.tasks)
    ]
    groups = [GroupReport(Group(one.name, Path(), ()), one, one.tasks) for one in summaries if one.tasks]
    return ModelReport(name, tasks, groups, gates, **more)


class Paper:
    """A writer that keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.markup: dict[str, Mapping[str, bool]] = {}

    def write_line(self, line: str, **markup: bool) -> None:
        self.lines.append(line)
        self.markup[line] = markup

    def write_sep(self, sep: str, title: str | None = None, **markup: bool) -> None:
        self.lines.append(f"{sep * 3} {title} {sep * 3}")


def written(shown: ModelReport, verbosity: int = 0) -> list[str]:
    paper = Paper()
    write_report(paper, [shown], verbosity)
    return paper.lines


# ---- tables -------------------------------------------------------------------------------------


def test_one_task() -> None:
    table = result_table([summary("a", value(0.25, 0.034))], {})
    assert table.split("\n") == [
        "|Tasks|Version|Filter|n-shot|Metric|   | Value|   |Stderr|",
        "|-----|------:|------|-----:|------|---|-----:|---|-----:|",
        "|a    |      1|none  |     0|acc   |↑  |0.2500|±  |0.0340|",
    ]


def test_tasks_groups_filters_and_directions() -> None:
    table = result_table([ANATOMY, SUMS, STORIES, STEM, ALL], CHILDREN)
    assert table.split("\n") == [
        "|Tasks           |Version|Filter      |n-shot|Metric         |   |     Value|   |Stderr|",
        "|----------------|------:|------------|-----:|---------------|---|---------:|---|-----:|",
        "|all             |    N/A|none        |      |acc            |   |    0.3500|±  |   N/A|",
        "| - stem         |      3|none        |     0|acc            |↑  |    0.4000|±  |0.1000|",
        "|  - the anatomy |      1|none        |     0|acc            |↑  |    0.4000|±  |0.1000|",
        "|                |       |none        |     0|acc_norm       |↑  |    0.5000|±  |0.2500|",
        "| - sums         |   Yaml|flexible    |     5|exact_match    |↑  |    0.3333|±  |0.2000|",
        "|                |       |strict-match|     5|exact_match    |↑  |    0.1250|±  |   N/A|",
        "| - stories      |      2|none        |     0|word_perplexity|↓  |12345.6789|±  |   N/A|",
    ]


def test_the_table_of_groups() -> None:
    table = result_table([ANATOMY, SUMS, STEM, ALL, summary("plain", tasks=("stories",))], CHILDREN, groups_only=True)
    assert table.split("\n") == [
        "|Groups |Version|Filter|n-shot|Metric|   | Value|   |Stderr|",
        "|-------|------:|------|-----:|------|---|-----:|---|-----:|",
        "|all    |    N/A|none  |      |acc   |   |0.3500|±  |   N/A|",
        "| - stem|      3|none  |     0|acc   |↑  |0.4000|±  |0.1000|",
    ]


def peer_results(summaries: Sequence[Summary], children: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The same numbers as the peer holds them."""
    rows: dict[str, dict[str, Any]] = {}
    for one in summaries:
        rows[one.name] = {"alias": one.display_name, "name": one.name, "sample_len": one.n}
        for v in one.values:
            rows[one.name][f"{v.metric},{v.filter}"] = v.value
            rows[one.name][f"{v.metric}_stderr,{v.filter}"] = "N/A" if v.stderr is None else v.stderr
    groups = {one.name: rows[one.name] for one in summaries if one.tasks and one.values}
    return {
        "results": rows,
        **({"groups": groups} if groups else {}),
        "group_subtasks": {name: list(members) for name, members in children.items()},
        "versions": {
            s.name: (
                ("N/A" if s.version is None else str(s.version))
                if s.tasks
                else "Yaml"
                if s.version is None
                else s.version
            )
            for s in summaries
        },
        "n-shot": {s.name: s.num_fewshot for s in summaries if s.num_fewshot is not None},
        "higher_is_better": {s.name: {v.metric: v.higher_is_better for v in s.values} for s in summaries},
    }


def cells(table: str) -> list[list[str]]:
    """The cells of all rows but the rule; numbers by their values, since lm_eval drops zeros at the end of a column."""
    head, _, *rows = (re.split(r"(?<!\\)\|", line)[1:-1] for line in table.strip("\n").split("\n"))
    return [[same_number(cell.strip()) for cell in row] for row in (head, *rows)]


def same_number(text: str) -> str:
    try:
        return str(float(text) + 0.0)
    except ValueError:
        return text


def peer_table(summaries: Sequence[Summary], children: Mapping[str, Sequence[str]], column: str = "results") -> str:
    make_table = pytest.importorskip("lm_eval.utils").make_table
    return str(make_table(peer_results(summaries, children), column))


@pytest.mark.parametrize("column", ["results", "groups"])
def test_tables_equal_the_peers(column: str) -> None:
    shown = [ANATOMY, SUMS, STORIES, STEM, ALL]
    ours = result_table(shown, CHILDREN, groups_only=column == "groups")
    assert cells(ours) == cells(peer_table(shown, CHILDREN, column))


def test_a_task_under_two_groups_has_two_rows_as_the_peers() -> None:
    shown = [ANATOMY, STEM, summary("other", value(0.4), tasks=("anatomy",)), summary("lone", value(1.0, 0.0))]
    children = {"stem": ["anatomy"], "other": ["anatomy"]}
    assert cells(result_table(shown, children)) == cells(peer_table(shown, children))


def test_no_results_at_all() -> None:
    assert cells(result_table([], {})) == cells(peer_table([], {}))


NUMBERS = st.one_of(
    st.floats(0, 1),
    st.floats(-1e6, 1e30),
    st.sampled_from([0.0, -0.0, 0.25, 0.5, 1.0, 2.0, 1e16, math.nan, math.inf]),
)
NAMES = st.sampled_from(["a", "mmlu_anatomy", "以下是", "a|b", "é", "two words"])
VALUES = st.builds(
    MetricValue,
    metric=st.sampled_from(["acc", "acc_norm", "bleu"]),
    filter=st.sampled_from(["none", "strict-match"]),
    value=NUMBERS,
    stderr=st.one_of(st.none(), NUMBERS),
    higher_is_better=st.sampled_from([True, False, None]),
    n=st.just(3),
)
SUMMARIES = st.builds(
    Summary,
    name=NAMES,
    display_name=NAMES,
    version=st.sampled_from([None, 0, 1, 2, 1.0, 1.5, 2.25, "N/A", "3", "2.0", "1.5", "v2"]),
    num_fewshot=st.sampled_from([None, 0, 5, 25]),
    n=st.just(3),
    n_total=st.just(3),
    values=st.lists(VALUES, max_size=4, unique_by=lambda v: v.key).map(
        # The peer keeps one direction a metric.
        lambda values: tuple({v.metric: v for v in values}.values())
    ),
    tasks=st.sampled_from([(), ("a",)]),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(SUMMARIES, max_size=6, unique_by=lambda s: s.name))
def test_any_numbers_are_those_of_the_peer(summaries: list[Summary]) -> None:
    children = {s.name: sorted(o.name for o in summaries if not o.tasks) for s in summaries if s.tasks}
    assert cells(result_table(summaries, children)) == cells(peer_table(summaries, children))


def test_a_negative_infinity_keeps_its_sign() -> None:
    """lm_eval prints it as Infinity."""
    assert "| -inf|" in result_table([summary("a", value(-math.inf))], {})


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (["0.2500", "1.0000"], ["|-----:|", "|0.2500|", "|1.0000|"]),
        (["N/A", "0.1000"], ["|-----:|", "|   N/A|", "|0.1000|"]),
        (["", "12"], ["|----:|", "|     |", "|   12|"]),
        (["two\nlines"], ["|--------:|", "|two lines|"]),
        (["a|b", "模型"], ["|----:|", r"| a\|b|", "| 模型|"]),
    ],
)
def test_columns_of_numbers(cells: list[str], shown: list[str]) -> None:
    table = markdown_table(["Value"], [[cell] for cell in cells], right={0})
    assert table.split("\n")[1:] == shown


def test_columns_of_texts() -> None:
    assert markdown_table(["Task"], [["12"], ["1.50"]]).split("\n")[1:] == ["|----|", "|12  |", "|1.50|"]
    assert markdown_table(["T"], [["模型"], ["a|b"]]).split("\n") == ["|T   |", "|----|", "|模型|", r"|a\|b|"]


# ---- lines --------------------------------------------------------------------------------------

PASSED = GateLine("t.yaml::gate[acc]", Verdict("passed", "anatomy: acc 0.4000 over 10 docs, required >= 0.3"))
FAILED = GateLine("t.yaml::gate[acc_norm]", Verdict("failed", "anatomy: acc_norm 0.5000 over 10 docs, required > 0.5"))
UNSURE = GateLine("t.yaml::gate[low]", Verdict("inconclusive", "anatomy: acc 0.4000, too few docs to tell"))
SKIPPED = GateLine("t.yaml::gate[late]", None)
EXCUSED = GateLine("t.yaml::gate[acc.drop]", None, "baseline 'main' is being written")
RIGHT = [True] * 12 + [False] * 8 + [None]
REPORT = report("ckpt-1000", ANATOMY, gates=[PASSED, FAILED, UNSURE, SKIPPED], correct=RIGHT)

HEAD = ["=== llmeval: ckpt-1000 ==="]
FAILURE = "gate failed: t.yaml::gate[acc_norm]: anatomy: acc_norm 0.5000 over 10 docs, required > 0.5"
OPEN = [
    "gate not judged: t.yaml::gate[late]: the run ended before it was judged",
    "gate inconclusive: t.yaml::gate[low]: anatomy: acc 0.4000, too few docs to tell",
]
PASS = "gate passed: t.yaml::gate[acc]: anatomy: acc 0.4000 over 10 docs, required >= 0.3"
COUNTS = ["gates: 1 failed, 1 not judged, 1 inconclusive, 1 passed", "wrong answers: 8 of 20"]


def test_the_usual_report() -> None:
    table = result_table([ANATOMY], {}).split("\n")
    assert written(REPORT) == [*HEAD, *table, "", FAILURE, *OPEN, *COUNTS]


def test_a_failure_says_what_to_do_next() -> None:
    told = Verdict("failed", "anatomy: acc 0.4000", facts=(Fact("next", "pytest t.yaml::doc[3] prints the prompt"),))
    gates = [PASSED, GateLine("t.yaml::gate[a]", told), GateLine("t.yaml::gate[b]", told)]
    assert written(report("m", gates=gates)) == [
        "gate failed: t.yaml::gate[a]: anatomy: acc 0.4000",
        "gate failed: t.yaml::gate[b]: anatomy: acc 0.4000",
        "next: pytest t.yaml::doc[3] prints the prompt",
        "gates: 2 failed, 1 passed",
    ]
    assert written(report("m", gates=gates[:2]), 1)[0] == (
        "gate failed: t.yaml::gate[a]: anatomy: acc 0.4000; next: pytest t.yaml::doc[3] prints the prompt"
    )


def test_why_a_gate_was_not_judged() -> None:
    line = "gate not judged: t.yaml::gate[acc.drop]: baseline 'main' is being written"
    assert written(report("m", gates=[EXCUSED])) == [line, "gates: 1 not judged"]


def test_verbose_adds_gates_that_passed() -> None:
    assert written(REPORT, 1)[6:] == [FAILURE, *OPEN, PASS, *COUNTS]


def test_quiet_leaves_out_notes_and_very_quiet_all_but_failures() -> None:
    assert written(REPORT, -1) == written(REPORT)[:-2]
    assert written(REPORT, -2) == [FAILURE]


def test_a_section_per_model_and_none_without_numbers() -> None:
    paper = Paper()
    write_report(paper, [report("", ANATOMY), report("new"), report("old", SUMS)])
    assert [line for line in paper.lines if line.startswith("===")] == ["=== llmeval ===", "=== llmeval: old ==="]


def test_groups_get_a_table_of_their_own_if_they_aggregate() -> None:
    both = written(report("m", ANATOMY, STEM))
    assert sum(line.startswith(("|Tasks", "|     Tasks")) or "Tasks" in line for line in both) == 1
    assert sum("|Groups|" in line for line in both) == 1
    plain = written(report("m", ANATOMY, summary("stem", tasks=("anatomy",))))
    assert not any("Groups" in line for line in plain)


def test_colours() -> None:
    paper = Paper()
    write_report(paper, [REPORT], 1)
    assert paper.markup[FAILURE] == {"red": True}
    assert paper.markup[OPEN[0]] == paper.markup[OPEN[1]] == {"yellow": True}
    assert paper.markup[PASS] == {"green": True}


def test_notes_say_what_qualifies_the_numbers() -> None:
    limited = summary("limited", n=100, n_total=1221)
    broken = summary("broken", n=8, errors=2, notes=("docs without a gold, left out: 2", "greedy repeats are equal"))
    cut = summary("cut", notes=("contexts that were cut: 1234", "greedy repeats are equal"))
    long = summary("long", notes=("contexts that were cut: 3",))
    group = summary("all", tasks=("limited", "broken", "cut"), notes=("acc is missing in cut; it rests on 8 docs",))
    lines = written(report("m", limited, broken, cut, long, group))
    assert lines[lines.index("") + 1 :] == [
        "evaluated on a part of the docs: limited 100 of 1,221",
        "docs without a gold, left out: broken 2",
        "contexts that were cut: cut 1,234, long 3",
        "broken, cut: greedy repeats are equal",
        "all: acc is missing in cut; it rests on 8 docs",
    ]


def test_a_note_on_many_tasks_names_the_first() -> None:
    many = [summary(f"t{i}", notes=(f"contexts that were cut: {i}",)) for i in range(9)]
    lines = written(report("m", *many))
    assert "contexts that were cut: t0 0, t1 1, t2 2, t3 3, t4 4 and 4 more" in lines


# ---- job summary --------------------------------------------------------------------------------


def test_the_job_summary_is_appended(tmp_path: Path) -> None:
    path = tmp_path / "summary.md"
    path.write_text("before\n", encoding="utf-8")
    append_step_summary([REPORT], {"GITHUB_STEP_SUMMARY": str(path)})
    text = path.read_text(encoding="utf-8")
    assert text == f"before\n{step_summary([REPORT])}"
    assert "## llmeval: ckpt-1000\n\n|" in text
    assert "|± " in text
    assert "- **failed** `t.yaml::gate[acc_norm]`: anatomy: acc_norm 0.5000 over 10 docs, required > 0.5\n" in text
    assert text.index("**failed**") < text.index("**not judged**") < text.index("**passed**")
    assert text.endswith("- wrong answers: 8 of 20\n")


def test_tables_in_the_job_summary_stand_between_blank_lines() -> None:
    lines = step_summary([report("m", ANATOMY, STEM)]).split("\n")
    for number, line in enumerate(lines):
        if line.startswith("|") and not lines[number - 1].startswith("|"):
            assert lines[number - 1] == ""


@pytest.mark.parametrize("environ", [{}, {"GITHUB_STEP_SUMMARY": ""}])
def test_no_job_no_summary(environ: dict[str, str]) -> None:
    append_step_summary([REPORT], environ)


def test_nothing_is_appended_for_an_empty_run(tmp_path: Path) -> None:
    append_step_summary([], {"GITHUB_STEP_SUMMARY": str(tmp_path / "none.md")})
    assert not (tmp_path / "none.md").exists()


def test_a_summary_that_cannot_be_written_says_which(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="environment variable GITHUB_STEP_SUMMARY: cannot write"):
        append_step_summary([REPORT], {"GITHUB_STEP_SUMMARY": str(tmp_path)})


def test_what_a_model_used_and_which_engines_served_it() -> None:
    engine = {"scoring": "tree", "generation": "padded", "refused": {"continuous": "other numbers in layer 3"}}
    shown = report("m", facts={"model": {"engine": engine}}, usage={"tokens": 12345, "peak_memory": 2**29})
    assert list(model_lines(shown)) == [
        "m: 12,345 tokens read, peak memory 0.50 GiB",
        "m: engine: tree for scoring, padded for generation",
        "m: engine: continuous refused: other numbers in layer 3",
    ]
    assert list(model_lines(report("m"))) == []


# ---- several models -----------------------------------------------------------------------------


def trend(name: str, *values: float, fell: int = 0, stderr: float | None = 0.01, **more: Any) -> Trend:
    return Trend(summary(name, **more), [value(number) for number in values], stderr, 0, fell)


STEM_TREND = trend("stem", 0.5, 0.4, tasks=("anatomy", "physics"))
COMPARED = ModelComparison(
    ["old", "new"],
    [
        trend("anatomy", 0.4, 0.4),
        trend("physics", 0.6, 0.35, fell=30),
        trend("alone", 1.0, 1.0, stderr=None),
        STEM_TREND,
    ],
    {"stem": ["anatomy", "physics"]},
)
HEADS = "|Tasks     |Metric|   |   old|   new| Change|   |Stderr|   |"


def test_groups_and_what_changed_side_by_side() -> None:
    assert comparison_table(COMPARED, everything=False).split("\n") == [
        HEADS,
        "|----------|------|---|-----:|-----:|------:|---|-----:|---|",
        "|stem      |acc   |↑  |0.5000|0.4000|-0.1000|±  |0.0100|   |",
        "| - physics|acc   |↑  |0.6000|0.3500|-0.2500|±  |0.0100|*  |",
        "|alone     |acc   |↑  |1.0000|1.0000|+0.0000|±  |   N/A|   |",
    ]
    assert list(comparison_notes(COMPARED, everything=False)) == [
        "change: from old to new, doc by doc; *: more than chance explains (sign test, 5 % over all rows)",
        "not shown: 1 task without a significant change (-v shows all)",
    ]


def test_everything_side_by_side() -> None:
    lines = comparison_table(COMPARED, everything=True).split("\n")
    assert "| - anatomy|acc   |↑  |0.4000|0.4000|+0.0000|±  |0.0100|   |" in lines
    assert len(list(comparison_notes(COMPARED, everything=True))) == 1


def test_tasks_with_other_docs_are_named() -> None:
    apart = ModelComparison(["old", "new"], COMPARED.trends, apart={"broken": [1000, 12]})
    lines = list(comparison_notes(apart, everything=True))
    assert lines[1:] == ["not compared, the models scored other docs: broken (old 1,000, new 12)"]


def test_ten_checkpoints_stay_readable() -> None:
    names = [f"run/checkpoint-{n}000" for n in range(1, 11)]
    table = comparison_table(ModelComparison(names, [trend("t", *[0.5] * 10)]), everything=False)
    head, *_ = table.split("\n")
    assert [cell.strip() for cell in head.split("|")[4:14]] == [f"…{n}000" for n in range(1, 11)]
    assert max(map(len, table.split("\n"))) < 120
    few = comparison_table(ModelComparison(names[:2], [trend("t", 0.5, 0.5)]), everything=False)
    assert "|run/checkpoint-1000|" in few


def test_many_names_without_a_common_beginning_stay_whole() -> None:
    names = ["alpha", "alps", "beta", "gamma"]
    table = comparison_table(ModelComparison(names, [trend("t", *[0.5] * 4)]), everything=False)
    assert [cell.strip() for cell in table.split("\n")[0].split("|")[4:8]] == names


OLD = report("old", ANATOMY, gates=[FAILED], correct=RIGHT)
NEW = report("new", ANATOMY, gates=[PASSED], correct=RIGHT)


def test_models_that_are_compared_share_a_section() -> None:
    paper = Paper()
    write_report(paper, [OLD, NEW], 0, COMPARED)
    assert [line for line in paper.lines if line.startswith("===")] == ["=== llmeval: 2 models ==="]
    assert paper.lines[-4:] == [
        FAILURE,
        "old: gates: 1 failed",
        "wrong answers: 8 of 20",
        "new: gates: 1 passed",
    ]


def test_verbose_adds_the_tables_of_each_model() -> None:
    paper = Paper()
    write_report(paper, [OLD, NEW], 1, COMPARED)
    heads = ["=== llmeval: 2 models ===", "=== llmeval: old ===", "=== llmeval: new ==="]
    assert [line for line in paper.lines if line.startswith("===")] == heads
    assert PASS in paper.lines


def test_quiet_keeps_the_comparison_and_very_quiet_the_failures() -> None:
    paper, silent = Paper(), Paper()
    write_report(paper, [OLD, NEW], -1, COMPARED)
    write_report(silent, [OLD, NEW], -2, COMPARED)
    assert HEADS in paper.lines
    assert paper.lines[-1] == FAILURE
    assert silent.lines == [FAILURE]


def test_the_job_summary_compares_and_folds_the_tables() -> None:
    text = step_summary([OLD, NEW], COMPARED)
    assert text.startswith("## llmeval: 2 models\n\n|Tasks")
    assert "- **failed** `t.yaml::gate[acc_norm]`" in text
    assert "<details><summary>old</summary>\n\n|" in text
    assert text.index("- wrong answers: 8 of 20") < text.index("<details>")
    assert "- anatomy|" not in text.split("<details>")[0]
