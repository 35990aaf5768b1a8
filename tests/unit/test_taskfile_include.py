"""`include`: chains, diamonds, cycles, and what wins over what (B38)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._task import Field
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import TaskFiles


BASE = {"task": "t", "dataset_path": "some/set", "test_split": "test", "doc_to_text": "{{q}}", "doc_to_target": "a"}


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def task(path: Path) -> Task:
    found = TaskFiles().read(path)
    assert isinstance(found, Task)
    return found


def complaint(path: Path) -> str:
    with pytest.raises(TaskFileError) as caught:
        TaskFiles().read(path)
    return str(caught.value)


def test_b38_b_a_diamond_is_no_cycle_and_values_are_replaced(tmp_path: Path) -> None:
    write(
        tmp_path,
        base=yaml.safe_dump({**BASE, "fewshot_delimiter": "\n\n", "dataset_kwargs": {"a": 1, "b": 2}}),
        b1="include: base.yaml\ndoc_to_text: B\n",
        c1="include: base.yaml\ndoc_to_text: C\ndataset_kwargs: {c: 3}\n",
        d="include: [b1.yaml, c1.yaml]\n",
    )
    found = task(tmp_path / "d.yaml")
    assert found.doc_to_text == Field("doc_to_text", text="C")
    assert found.dataset_kwargs == {"c": 3}
    assert found.path == tmp_path / "d.yaml"


def test_b38_c_a_cycle_is_printed(tmp_path: Path) -> None:
    write(tmp_path, x="include: y.yaml\ntask: t\n", y="doc_to_text: a\ninclude: x.yaml\n")
    assert complaint(tmp_path / "x.yaml") == (
        f"{tmp_path}/y.yaml:2: include: the files include each other: x.yaml -> y.yaml -> x.yaml"
    )


def test_a_cycle_further_down_is_printed_from_where_it_closes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    write(tmp_path, a="task: t\ninclude: sub/b.yaml\n", c="include: sub/b.yaml\n")
    write(tmp_path / "sub", b="include: ../c.yaml\n")
    assert complaint(tmp_path / "a.yaml") == (
        f"{tmp_path}/c.yaml:1: include: the files include each other: sub/b.yaml -> c.yaml -> sub/b.yaml"
    )
    write(tmp_path, self="task: t\ninclude: ./self.yaml\n")
    assert complaint(tmp_path / "self.yaml").endswith("the files include each other: self.yaml -> self.yaml")


def test_b38_g_paths_are_relative_to_the_including_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("default", "other", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "default" / "_base_yaml").write_text("include: deeper\nnum_fewshot: 2\n")
    (tmp_path / "default" / "deeper").write_text(yaml.safe_dump(BASE))
    write(
        tmp_path / "other", t="include: ../default/_base_yaml\ntask: mine\n", u=f"include: {tmp_path}/default/deeper\n"
    )
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = task(tmp_path / "other" / "t.yaml")
    assert (found.name, found.num_fewshot, found.dataset_path) == ("mine", 2, "some/set")
    assert task(Path("../other/t.yaml")).path == tmp_path / "other" / "t.yaml"
    assert task(tmp_path / "other" / "u.yaml").name == "t"


def test_an_absent_include_is_named_with_its_line(tmp_path: Path) -> None:
    write(tmp_path, t="task: t\ninclude: absent_yaml\n")
    assert complaint(tmp_path / "t.yaml") == f"{tmp_path}/t.yaml:2: include: there is no file {tmp_path}/absent_yaml"
    write(tmp_path, t="task: t\ninclude: {a: b}\n")
    assert complaint(tmp_path / "t.yaml") == f"{tmp_path}/t.yaml:2: include: expects a text, got the mapping {{a: b}}"


def test_lines_belong_to_the_file_that_is_read_and_errors_to_the_one_that_is_wrong(tmp_path: Path) -> None:
    write(tmp_path, base=yaml.safe_dump(BASE, sort_keys=False), t="\ninclude: base.yaml\ndoc_to_text: mine\n")
    found = task(tmp_path / "t.yaml")
    assert found.lines == {"doc_to_text": 3}
    assert (found.line_of("doc_to_text"), found.line_of("doc_to_target")) == (3, 1)
    assert found.doc_to_text == Field("doc_to_text", text="mine", line=3)
    assert found.doc_to_target == Field("doc_to_target", text="a")
    write(tmp_path, base=yaml.safe_dump(BASE, sort_keys=False) + "repeats: many\n")
    assert complaint(tmp_path / "t.yaml").startswith(f"{tmp_path}/base.yaml:6: repeats: ")


def test_null_takes_back_what_an_include_says(tmp_path: Path) -> None:
    write(tmp_path, base=yaml.safe_dump({**BASE, "num_fewshot": 5, "validation_split": "val"}))
    write(tmp_path, t="include: base.yaml\nnum_fewshot: null\ntest_split: ~\n")
    found = task(tmp_path / "t.yaml")
    assert (found.num_fewshot, found.test_split, found.evaluated_split) == (None, None, "val")


def test_include_may_be_null(tmp_path: Path) -> None:
    write(tmp_path, t=yaml.safe_dump({**BASE, "include": None}))
    assert task(tmp_path / "t.yaml").name == "t"


KEYS = st.sampled_from(["doc_to_text", "doc_to_target", "dataset_name", "description"])
LAYER = st.dictionaries(KEYS, st.sampled_from(["x", "y", "z"]))


@given(st.lists(LAYER, max_size=4), LAYER, LAYER)
def test_local_over_later_over_earlier_over_deeper(
    tmp_path_factory: pytest.TempPathFactory,
    included: list[Mapping[str, str]],
    local: Mapping[str, str],
    deeper: Mapping[str, str],
) -> None:
    folder = tmp_path_factory.getbasetemp()
    write(folder, deeper=yaml.safe_dump({**BASE, **deeper}))
    names = []
    for position, layer in enumerate(included):
        names.append(f"layer{position}.yaml")
        write(folder, **{f"layer{position}": yaml.safe_dump({**layer, "include": "deeper.yaml"})})
    write(folder, t=yaml.safe_dump({**local, "include": names or "deeper.yaml"}))
    expected = {**BASE, **deeper}
    for layer in included:
        # What a layer includes counts as its own, so it covers the layers before it.
        expected |= {**BASE, **deeper, **layer}
    expected |= local
    found = task(folder / "t.yaml").config
    assert {key: found[key] for key in expected} == expected
