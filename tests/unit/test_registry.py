"""Names: near first, tags opened up, groups without loops, and one home for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._registry import Registry
from pytest_llmeval._task import Group
from pytest_llmeval._task import GroupMetric
from pytest_llmeval._task import Task


TASK = """\
task: {0}
dataset_path: some/set
test_split: test
doc_to_text: "{{{{q}}}}"
doc_to_target: a
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def add(folder: Path, *names: str, extra: str = "") -> None:
    for name in names:
        write(folder / f"{name}.yaml", TASK.format(name) + extra)


def group(registry: Registry, path: Path) -> Group:
    found = registry.load(path)
    assert isinstance(found, Group)
    return found


def leaves(folder: Path, name: str = "g") -> list[str]:
    registry = Registry(root=folder)
    return [task.name for task in registry.leaves(group(registry, folder / f"{name}.yaml"))]


def complaint(call: object, *args: object) -> str:
    assert callable(call)
    with pytest.raises(TaskFileError) as caught:
        call(*args)
    return str(caught.value)


@pytest.fixture
def mmlu(tmp_path: Path) -> Path:
    """A benchmark in the shape of MMLU: a group of groups, each a tag."""
    folder = tmp_path / "benchmarks" / "mmlu"
    write(folder / "_base", TASK.format("base").replace("task: base\n", "tag: [mmlu_all, shared]\n"))
    for subject, tag in (("anatomy", "mmlu_stem_tasks"), ("algebra", "mmlu_stem_tasks"), ("law", "mmlu_law_tasks")):
        write(folder / f"mmlu_{subject}.yaml", f'"include": "_base"\n"tag": "{tag}"\n"task": "mmlu_{subject}"\n')
    write(folder / "mmlu_plain.yaml", "task: mmlu_plain\ntask_alias: plain\ninclude: _base\n")
    write(folder / "_mmlu.yaml", "group: mmlu\ngroup_alias: MMLU\ntask: [mmlu_stem, mmlu_humanities]\n")
    write(folder / "_mmlu_stem.yaml", "group: mmlu_stem\ngroup_alias: stem\ntask:\n  - mmlu_stem_tasks\n")
    write(folder / "_mmlu_humanities.yaml", "group: mmlu_humanities\ntask: [mmlu_law_tasks, mmlu_plain]\n")
    return folder


def test_a_group_file_alone_finds_its_tasks_through_groups_and_tags(mmlu: Path) -> None:
    registry = Registry()
    top = group(registry, mmlu / "_mmlu.yaml")
    assert [str(member) for member in top.members] == ["mmlu_stem", "mmlu_humanities"]
    assert [task.name for task in registry.leaves(top)] == ["mmlu_algebra", "mmlu_anatomy", "mmlu_law", "mmlu_plain"]
    assert [one.name for one in registry.groups()] == ["mmlu", "mmlu_stem", "mmlu_humanities"]


def test_find_gives_a_task_a_group_or_the_tasks_of_a_tag(mmlu: Path) -> None:
    registry = Registry()
    task = registry.find("mmlu_law", mmlu)
    assert isinstance(task, Task)
    assert task is registry.load(mmlu / "mmlu_law.yaml")
    assert registry.find("mmlu", mmlu / "mmlu_law.yaml") is registry.load(mmlu / "_mmlu.yaml")
    tagged = registry.find("mmlu_stem_tasks", mmlu)
    assert isinstance(tagged, tuple)
    assert [one.name for one in tagged] == ["mmlu_algebra", "mmlu_anatomy"]


def test_tags_of_an_included_file_count_where_a_task_has_none_of_its_own(mmlu: Path) -> None:
    tagged = Registry().find("shared", mmlu)
    assert isinstance(tagged, tuple)
    assert [one.name for one in tagged] == ["mmlu_plain"]


def test_markers_are_names_tags_and_groups_of_the_same_folder(mmlu: Path) -> None:
    registry = Registry()
    markers = registry.names_of(registry.load(mmlu / "mmlu_anatomy.yaml"))
    assert markers == ("mmlu_anatomy", "mmlu_stem_tasks", "mmlu", "MMLU", "mmlu_stem", "stem")
    assert registry.names_of(registry.load(mmlu / "mmlu_plain.yaml")) == (
        "mmlu_plain",
        "plain",
        "mmlu_all",
        "shared",
        "mmlu",
        "MMLU",
        "mmlu_humanities",
    )
    assert registry.names_of(group(registry, mmlu / "_mmlu_stem.yaml")) == ("mmlu_stem", "stem", "mmlu", "MMLU")
    # Being listed near is no reason to be reported.
    assert [one.name for one in registry.groups()] == ["mmlu_stem"]


def test_markers_of_groups_elsewhere_come_with_their_loading(mmlu: Path) -> None:
    write(mmlu.parent / "suite" / "all.yaml", "group: suite\ntask: [mmlu, mmlu_plain]\n")
    registry = Registry()
    task = registry.load(mmlu / "mmlu_law.yaml")
    assert "suite" not in registry.names_of(task)
    registry.load(mmlu.parent / "suite" / "all.yaml")
    assert "suite" in registry.names_of(task)


def test_a_broken_group_nearby_takes_no_marker_away(mmlu: Path) -> None:
    write(mmlu / "_broken.yaml", "group: broken\ntask: [mmlu_law, nothing_of_that_name]\nzzz: 1\n")
    write(mmlu / "_half.yaml", "group: half\ntask: [mmlu_law, nothing_of_that_name]\n")
    registry = Registry()
    markers = registry.names_of(registry.load(mmlu / "mmlu_law.yaml"))
    assert "half" in markers
    assert "broken" not in markers


# Near first -----------------------------------------------------------------------------------------------------


def test_two_trees_of_equal_names_stand_side_by_side(tmp_path: Path) -> None:
    for tree in ("one", "two"):
        add(tmp_path / tree, "t", extra=f"dataset_name: {tree}\n")
        write(tmp_path / tree / "groups" / "g.yaml", f"group: g_{tree}\ntask: [t]\n")
    registry = Registry()
    for tree in ("one", "two"):
        found = Registry().leaves(group(registry, tmp_path / tree / "groups" / "g.yaml"))
        assert [task.dataset_name for task in found] == [tree]


def test_names_are_looked_up_no_higher_than_the_root(tmp_path: Path) -> None:
    add(tmp_path, "t")
    write(tmp_path / "project" / "g.yaml", "group: g\ntask:\n  - x\n  - t\n")
    add(tmp_path / "project", "x")
    root = tmp_path / "project"
    registry = Registry(root=root)
    assert complaint(registry.leaves, group(registry, root / "g.yaml")) == (
        f"{root}/g.yaml:4: task: no task, group or tag is called 't'. Looked in {root}."
    )
    assert [task.name for task in Registry().leaves(group(Registry(), root / "g.yaml"))] == ["x", "t"]
    write(root / "pyproject.toml", "")
    assert complaint(Registry().leaves, group(Registry(), root / "g.yaml")).endswith(f"Looked in {root}.")


def test_search_folders_come_last(tmp_path: Path) -> None:
    add(tmp_path / "library" / "deep", "t", "u", extra="dataset_name: library\n")
    add(tmp_path / "mine", "t", extra="dataset_name: mine\n")
    write(tmp_path / "mine" / "g.yaml", "group: g\ntask: [t, u]\n")
    registry = Registry([tmp_path / "library"], root=tmp_path / "mine")
    found = registry.leaves(group(registry, tmp_path / "mine" / "g.yaml"))
    assert [task.dataset_name for task in found] == ["mine", "library"]


def test_strangers_yaml_and_strangers_folders_hold_no_names(tmp_path: Path) -> None:
    write(tmp_path / "ci.yaml", "task: t\nsteps: [run]\n")
    write(tmp_path / "bytes.yaml", "").write_bytes(b"task: \xff\n")
    for folder in (".hidden", "__pycache__", "node_modules/x", "env"):
        add(tmp_path / folder, "t")
    write(tmp_path / "env" / "pyvenv.cfg", "")
    message = complaint(Registry(root=tmp_path).find, "t", tmp_path)
    assert message == f"{tmp_path}: no task, group or tag is called 't'. Looked in {tmp_path}."


def test_an_unknown_name_comes_with_the_nearest_one(mmlu: Path) -> None:
    registry = Registry(root=mmlu)
    write(mmlu / "g.yaml", "group: g\ntask:\n  - mmlu_plain\n  - mmlu_anatomi\n")
    assert complaint(registry.leaves, group(registry, mmlu / "g.yaml")) == (
        f"{mmlu}/g.yaml:4: task: no task, group or tag is called 'mmlu_anatomi'; did you mean 'mmlu_anatomy'? "
        f"Looked in {mmlu}."
    )


def test_order_does_not_depend_on_the_file_system(tmp_path: Path) -> None:
    for name in ("b", "a", "C", "_d", "a1"):
        add(tmp_path / name, f"t_{name}", extra="tag: all\n")
    write(tmp_path / "g.yaml", "group: g\ntask: all\n")
    assert leaves(tmp_path) == ["t_C", "t__d", "t_a", "t_a1", "t_b"]


# One home for each name ------------------------------------------------------------------------------------------


def test_b38_a_one_task_name_in_two_files_is_an_error_that_names_both(tmp_path: Path) -> None:
    add(tmp_path / "a", "t")
    add(tmp_path / "b", "t", extra="dataset_name: other\n")
    registry = Registry()
    registry.load(tmp_path / "a" / "t.yaml")
    assert complaint(registry.load, tmp_path / "b" / "t.yaml") == (
        f"{tmp_path}/b/t.yaml:1: task: 't' is already defined in {tmp_path}/a/t.yaml; results are known by these names"
    )
    assert registry.load(tmp_path / "a" / "t.yaml").name == "t"


def test_an_ambiguous_member_is_an_error_that_names_both(tmp_path: Path) -> None:
    add(tmp_path / "a", "t")
    add(tmp_path / "b", "t")
    write(tmp_path / "g.yaml", "group: g\ntask: [t]\n")
    assert complaint(leaves, tmp_path) == (
        f"{tmp_path}/g.yaml:2: task: 't' is defined in two files: {tmp_path}/a/t.yaml and {tmp_path}/b/t.yaml"
    )


def test_a_group_and_a_task_cannot_share_a_name(tmp_path: Path) -> None:
    add(tmp_path, "x")
    write(tmp_path / "g.yaml", "group: x\ntask: [y]\n")
    registry = Registry()
    registry.load(tmp_path / "x.yaml")
    assert complaint(registry.load, tmp_path / "g.yaml").startswith(
        f"{tmp_path}/g.yaml:1: group: 'x' is already defined"
    )
    assert registry.groups() == ()


def test_the_same_file_is_the_same_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "t")
    monkeypatch.chdir(tmp_path)
    registry = Registry()
    assert registry.load(Path("t.yaml")) is registry.load(tmp_path / "t.yaml")
    assert registry.load(tmp_path / "x" / ".." / "t.yaml") is registry.load(tmp_path / "t.yaml")


# Groups ----------------------------------------------------------------------------------------------------------


def test_b38_d_groups_that_list_each_other_are_printed(tmp_path: Path) -> None:
    write(tmp_path / "g1.yaml", "group: g1\ntask: [g2]\n")
    write(tmp_path / "g2.yaml", "group: g2\ntask:\n  - g1\n")
    write(tmp_path / "top.yaml", "group: top\ntask: [g1]\n")
    chain = f"{tmp_path}/g1.yaml:2: task: the groups list each other: g1 -> g2 -> g1"
    assert complaint(leaves, tmp_path, "g1") == chain
    assert complaint(leaves, tmp_path, "top") == chain
    write(tmp_path / "self.yaml", "group: self\ntask: [self]\n")
    assert complaint(leaves, tmp_path, "self").endswith("task: the groups list each other: self -> self")


def test_groups_that_change_each_other_are_printed_too(tmp_path: Path) -> None:
    write(tmp_path / "g1.yaml", "group: g1\ntask: [{task: g2, num_fewshot: 1}]\n")
    write(tmp_path / "g2.yaml", "group: g2\ntask: [{task: g1, num_fewshot: 2}]\n")
    assert complaint(leaves, tmp_path, "g1").endswith("the groups list each other: g1 -> g2 -> g1")


def test_b30_a_task_reached_twice_is_one_leaf(tmp_path: Path) -> None:
    add(tmp_path, "shared", "other", extra="tag: both\n")
    write(tmp_path / "a.yaml", "group: sub_a\ntask: [shared]\n")
    write(tmp_path / "b.yaml", "group: sub_b\ntask: [shared, other]\n")
    write(tmp_path / "g.yaml", "group: g\ntask: [sub_a, sub_b, both, other]\n")
    assert leaves(tmp_path) == ["shared", "other"]


def test_a_group_of_every_key(tmp_path: Path) -> None:
    write(tmp_path / "metrics.py", "def worst(values):\n    return min(values)\n")
    text = """\
group: g
group_alias: The group
tag: ignored
task: t
aggregate_metric_list:
  - {metric: acc, aggregation: mean, weight_by_size: no, filter_list: strict}
  - {metric: f1, filter_list: [a, b], aggregation: !function metrics.worst}
  - metric: !function metrics.worst
metadata: {version: 3, gates: ["acc >= 0.5"]}
"""
    found = group(Registry(), write(tmp_path / "g.yaml", text))
    assert (found.name, found.display_name, list(found.members), found.version) == ("g", "The group", ["t"], 3)
    weighted, by_function, named = found.metrics
    assert weighted == GroupMetric("acc", ("strict",), weight_by_size=False)
    assert (by_function.metric, by_function.filters, by_function.weight_by_size) == ("f1", ("a", "b"), True)
    assert by_function.aggregation is not None
    assert by_function.aggregation([2, 1]) == 1
    assert named == GroupMetric("worst")
    assert found.gates == (("acc >= 0.5", 9),)
    assert found.line_of("aggregate_metric_list") == 5


def test_one_aggregate_needs_no_list(tmp_path: Path) -> None:
    text = "group: g\ntask: [t]\naggregate_metric_list: {metric: acc, weight_by_size: true}\n"
    assert group(Registry(), write(tmp_path / "g.yaml", text)).metrics == (GroupMetric("acc"),)


def test_groups_and_tasks_written_in_a_group(tmp_path: Path) -> None:
    write(tmp_path / "_base", TASK.format("base"))
    text = """\
group: g
task:
  - task: first
    include: _base
    num_fewshot: 1
  - group: inner
    group_alias: Inner
    aggregate_metric_list: [{metric: exact_match}]
    task:
      - task: second
        task_alias: Second
        dataset_path: x
        test_split: test
        doc_to_text: q
        doc_to_target: a
      - outside
"""
    write(tmp_path / "g.yaml", text)
    add(tmp_path, "outside")
    registry = Registry()
    found = group(registry, tmp_path / "g.yaml")
    first, inner = found.members
    assert isinstance(first, Task)
    assert isinstance(inner, Group)
    assert (first.name, first.num_fewshot, first.path, first.line_of("task")) == ("g::first", 1, found.path, 3)
    assert (inner.name, inner.display_name, inner.metrics) == ("g::inner", "Inner", (GroupMetric("exact_match"),))
    second, outside = registry.leaves(inner)
    assert (second.name, second.display_name, outside.name) == ("g::inner::second", "Second", "outside")
    assert [one.name for one in registry.groups()] == ["g", "g::inner"]
    assert registry.names_of(second) == ("g::inner::second", "second", "Second", "g", "g::inner", "inner", "Inner")
    assert registry.names_of(outside) == ("outside", "g", "g::inner", "inner", "Inner")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("group: g\n", "g.yaml:1: task: missing: the names of the tasks in the group"),
        ("group: g\ntask: []\n", "g.yaml:2: task: the list is empty"),
        ("group: g\ntask:\n  - [a]\n", "g.yaml:3: task[0]: expects a mapping, got the list [a]"),
        ("group: g\ntask:\n  - a\n  - {num_fewshot: 5}\n", "g.yaml:4: task[1]: has neither 'task' nor 'group'"),
        ("group: [g]\ntask: [a]\n", "g.yaml:1: group: expects a text, got the list [g]"),
        (
            "group: g\ntask:\n  - {task: t, num_fewshots: 5}\n",
            "g.yaml:3: num_fewshots: unknown key; did you mean 'num_fewshot'? ",
        ),
        ("group: g\ntask: [a]\ngroup_alais: x\n", "g.yaml:3: group_alais: unknown key; did you mean 'group_alias'? "),
        (
            "group: g\ntask: [a]\naggregate_metric_list:\n  - {metric: acc, weight_by_sise: true}\n",
            "g.yaml:4: aggregate_metric_list[0].weight_by_sise: unknown key; did you mean 'weight_by_size'? "
            "Known are aggregation, filter_list, metric, weight_by_size.",
        ),
        (
            "group: g\ntask: [a]\naggregate_metric_list:\n  - {metric: acc, weight_by_size: truez}\n",
            "g.yaml:4: aggregate_metric_list[0].weight_by_size: expects true or false, got the text 'truez'",
        ),
        (
            "group: g\ntask: [a]\naggregate_metric_list:\n  - {metric: acc, aggregation: median}\n",
            "g.yaml:4: aggregate_metric_list[0].aggregation: 'median' is not known; did you mean 'mean'? "
            "Known are mean.",
        ),
        (
            "group: g\ntask: [a]\naggregate_metric_list:\n  - {weight_by_size: true}\n",
            "g.yaml:4: aggregate_metric_list[0]: has no 'metric'",
        ),
    ],
)
def test_what_a_bad_group_prints(tmp_path: Path, text: str, message: str) -> None:
    found = complaint(Registry().load, write(tmp_path / "g.yaml", text)).replace(f"{tmp_path}/", "")
    assert found == message or (message.endswith(" ") and found.startswith(message))


# Members whose keys a group sets anew ----------------------------------------------------------------------------


def test_a_changed_member_is_a_task_of_its_own(tmp_path: Path) -> None:
    add(tmp_path, "t", "u", extra="num_fewshot: 0\n")
    write(tmp_path / "g.yaml", "group: g\ntask:\n  - {task: t, num_fewshot: 5}\n  - {task: u, num_fewshot: 0}\n  - t\n")
    registry = Registry()
    found = registry.leaves(group(registry, tmp_path / "g.yaml"))
    assert [(task.name, task.display_name, task.num_fewshot) for task in found] == [
        ("g::t", "t", 5),
        ("u", "u", 0),
        ("t", "t", 0),
    ]
    assert registry.names_of(found[0]) == ("g::t", "t", "g")


def test_an_alias_in_a_group_is_another_view_of_the_same_task(tmp_path: Path) -> None:
    add(tmp_path, "t", extra="task_alias: T\n")
    write(tmp_path / "g.yaml", "group: g\ntask: [{task: t, task_alias: t in g}]\n")
    registry = Registry()
    found = group(registry, tmp_path / "g.yaml")
    assert list(found.members) == ["t"]
    assert [(task.name, task.display_name) for task in registry.leaves(found)] == [("t", "t in g")]
    assert registry.load(tmp_path / "t.yaml").display_name == "T"


def test_keys_of_a_group_hold_for_all_its_members_and_deeper_ones(mmlu: Path) -> None:
    write(
        mmlu / "g.yaml",
        "group: five\nnum_fewshot: 5\ntask: [mmlu_plain, {task: mmlu_law, num_fewshot: 1}, mmlu_stem]\n",
    )
    registry = Registry()
    found = registry.leaves(group(registry, mmlu / "g.yaml"))
    assert [(task.name, task.num_fewshot) for task in found] == [
        ("five::mmlu_plain", 5),
        ("five::mmlu_law", 1),
        ("five::mmlu_algebra", 5),
        ("five::mmlu_anatomy", 5),
    ]
    assert [(one.name, one.display_name) for one in registry.groups()] == [
        ("five", "five"),
        ("five::mmlu_stem", "stem"),
    ]
    plain = registry.load(mmlu / "mmlu_plain.yaml")
    assert isinstance(plain, Task)
    assert plain.num_fewshot is None


def test_a_changed_group_takes_what_is_written_in_it_along(tmp_path: Path) -> None:
    write(tmp_path / "_base", TASK.format("base"))
    write(tmp_path / "inner.yaml", "group: inner\ntask: [{task: t, include: _base}, {group: deep, task: [u]}]\n")
    add(tmp_path, "u")
    write(tmp_path / "g.yaml", "group: g\ntask: [{group: inner, group_alias: Shown, num_fewshot: 2}]\n")
    registry = Registry()
    found = group(registry, tmp_path / "g.yaml")
    assert [(t.name, t.num_fewshot) for t in registry.leaves(found)] == [("g::inner::t", 2), ("g::u", 2)]
    (inner,) = found.members
    assert isinstance(inner, Group)
    assert (inner.name, inner.display_name) == ("g::inner", "Shown")
    plain = group(registry, tmp_path / "inner.yaml")
    assert [(t.name, t.num_fewshot) for t in registry.leaves(plain)] == [("inner::t", None), ("u", None)]


def test_two_settings_of_one_task_in_one_group_need_names(tmp_path: Path) -> None:
    add(tmp_path, "t")
    write(tmp_path / "g.yaml", "group: g\ntask: [{task: t, num_fewshot: 1}, {task: t, num_fewshot: 2}]\n")
    assert complaint(Registry().load, tmp_path / "g.yaml") == (
        f"{tmp_path}/g.yaml:2: task: 'g::t' is defined twice; give one of them a name of its own with 'include'"
    )


def test_two_settings_are_found_in_groups_of_the_group_too(mmlu: Path) -> None:
    write(
        mmlu / "g.yaml", "group: g\ntask: [{task: mmlu_stem, num_fewshot: 5}, {task: mmlu_algebra, num_fewshot: 3}]\n"
    )
    assert "'g::mmlu_algebra' is defined twice" in complaint(Registry().load, mmlu / "g.yaml")
    write(
        mmlu / "h.yaml", "group: h\ntask: [{task: mmlu_stem, num_fewshot: 5}, {task: mmlu_algebra, num_fewshot: 5}]\n"
    )
    assert leaves(mmlu, "h") == ["h::mmlu_algebra", "h::mmlu_anatomy"]


def test_a_task_written_twice_in_a_group(tmp_path: Path) -> None:
    write(tmp_path / "_base", TASK.format("base"))
    entry = "  - {task: t, include: _base, num_fewshot: %s}\n"
    write(tmp_path / "g.yaml", "group: g\ntask:\n" + entry % 1 + entry % 2)
    assert "'g::t' is defined twice" in complaint(Registry().load, tmp_path / "g.yaml")


def test_a_changed_member_must_exist(tmp_path: Path) -> None:
    write(tmp_path / "g.yaml", "group: g\ntask:\n  - {task: absent, num_fewshot: 1}\n")
    assert complaint(Registry(root=tmp_path).load, tmp_path / "g.yaml") == (
        f"{tmp_path}/g.yaml:3: task: no task, group or tag is called 'absent'. Looked in {tmp_path}."
    )


def test_a_broken_task_does_not_stop_others(tmp_path: Path) -> None:
    add(tmp_path, "good")
    write(tmp_path / "bad.yaml", "task: bad\noutput_type: x\n")
    registry = Registry()
    assert "output_type" in complaint(registry.load, tmp_path / "bad.yaml")
    assert registry.load(tmp_path / "good.yaml").name == "good"
    assert "output_type" in complaint(registry.find, "bad", tmp_path)


def test_a_rule_adds_a_metric_that_lm_eval_does_not_have(tmp_path: Path) -> None:
    choices = "output_type: multiple_choice\ndoc_to_choice: [a, b]\nmetric_list: [{metric: acc}]\n"
    add(tmp_path, "choices", extra=choices)
    add(tmp_path, "texts")
    inner = "task: [choices, texts]\naggregate_metric_list: [{metric: acc, weight_by_size: false}]\n"
    for name in ("named", "other"):
        write(tmp_path / f"{name}.yaml", f"group: {name}\n{inner}")
    asked = {"norm_correct_prob": {"named", "choices"}, "acc_norm": {"choices", "named"}}
    registry = Registry(root=tmp_path, asked=asked)
    found = {name: registry.load(tmp_path / f"{name}.yaml").metrics for name in ("choices", "texts", "named", "other")}
    assert [metric.name for metric in found["choices"]] == ["acc", "norm_correct_prob"]
    assert [metric.name for metric in found["texts"]] == ["exact_match"]
    acc, share = (GroupMetric(name, weight_by_size=False) for name in ("acc", "norm_correct_prob"))
    assert (found["named"], found["other"]) == ((acc, share), (acc,))
