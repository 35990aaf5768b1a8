"""Where the docs of a task come from, and which of them a run asks for."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import handmade
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._docs import DataSource
from pytest_llmeval._docs import open_docs
from pytest_llmeval._docs import select
from pytest_llmeval._errors import DataError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task


ROWS = [{"q": f"q{i}", "a": i} for i in range(5)]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever these tests open lies on this disk."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)


def write_parquet(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path)


def write_lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def rows_of(task: Any, settings: Settings | None = None) -> list[Any]:
    docs = open_docs(task, settings or Settings())
    return [dict(docs[i]) for i in range(len(docs))]


README = """---
configs:
- config_name: one
  data_files:
  - split: test
    path: one/test-*
  - split: dev
    path: one/dev-*
- config_name: two
  data_files:
  - split: test
    path: two/test-*
---

A data set.
"""


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """``org/name`` with the configs one (test of two shards, dev) and two (test)."""
    folder = tmp_path / "mirror" / "org" / "name"
    write_parquet(folder / "one" / "test-00000-of-00002.parquet", ROWS[:3])
    write_parquet(folder / "one" / "test-00001-of-00002.parquet", ROWS[3:])
    write_parquet(folder / "one" / "dev-00000-of-00001.parquet", [{"q": "d", "a": 9}])
    write_parquet(folder / "two" / "test-00000-of-00001.parquet", [{"q": "two", "a": 2}])
    (folder / "README.md").write_text(README, encoding="utf-8")
    return tmp_path / "mirror"


class TestMirror:
    def test_config_of_the_readme(self, mirror: Path) -> None:
        task = handmade.make_task(dataset_path="org/name", dataset_name="one")
        assert rows_of(task, Settings(data_dir=mirror)) == ROWS

    def test_only_the_evaluated_split_is_opened(self, mirror: Path) -> None:
        (mirror / "org" / "name" / "one" / "dev-00000-of-00001.parquet").write_bytes(b"broken")
        task = handmade.make_task(
            dataset_path="org/name",
            dataset_name="one",
            training_split="train",
            fewshot=handmade.make_fewshot(split="dev"),
        )
        docs = open_docs(task, Settings(data_dir=mirror))
        assert len(docs) == 5
        with pytest.raises(DataError, match=r"split 'dev'.*cannot be read as parquet"):
            docs.fewshot_pool()

    def test_absent_split(self, mirror: Path) -> None:
        task = handmade.make_task(
            dataset_path="org/name", dataset_name="one", test_split="tset", lines={"test_split": 4}
        )
        with pytest.raises(DataError) as caught:
            open_docs(task, Settings(data_dir=mirror))
        assert str(caught.value) == (
            f"task t: data set org/name (config one), split 'tset': {mirror}/org/name has no such split "
            "(it has: test, dev); correct test_split in /tasks/t.yaml:4, or add the split's files"
        )

    def test_split_of_the_readme_without_files(self, mirror: Path) -> None:
        for shard in (mirror / "org" / "name" / "one").glob("dev-*"):
            shard.unlink()
        task = handmade.make_task(dataset_path="org/name", dataset_name="one", test_split="dev")
        with pytest.raises(DataError, match=r"split 'dev': .* \(it has: test\)"):
            open_docs(task, Settings(data_dir=mirror))

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("three", r"config three\).*has no config 'three' \(its README.md has: one, two\)"),
            (None, r"has several configs: name one as dataset_name \(its README.md has: one, two\)"),
        ],
    )
    def test_absent_config(self, mirror: Path, name: str | None, message: str) -> None:
        task = handmade.make_task(dataset_path="org/name", dataset_name=name)
        with pytest.raises(DataError, match=message):
            open_docs(task, Settings(data_dir=mirror))

    def test_default_config(self, mirror: Path) -> None:
        readme = mirror / "org" / "name" / "README.md"
        readme.write_text(README.replace("    path: two/test-*\n", "    path: two/test-*\n  default: true\n"))
        task = handmade.make_task(dataset_path="org/name")
        assert rows_of(task, Settings(data_dir=mirror)) == [{"q": "two", "a": 2}]

    def test_absent_data_set_says_where_it_was_looked_for(
        self, mirror: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("datasets.load_dataset", _offline)
        monkeypatch.chdir(tmp_path)
        task = handmade.make_task(dataset_path="org/nothing", dataset_name="one", path=tmp_path / "tasks" / "t.yaml")
        with pytest.raises(DataError) as caught:
            open_docs(task, Settings(data_dir=mirror))
        message = str(caught.value)
        assert message.startswith(
            "task t: data set org/nothing (config one), split 'test': cannot be loaded. Looked for "
        )
        for place in (mirror, tmp_path / "tasks", tmp_path):
            assert f"{place / 'org/nothing'} (no such folder)" in message
        assert "(ConnectionError: Couldn't reach the Hub)" in message
        assert "Put it at DIR/org/nothing, laid out as on the hub, and give --llmeval-data DIR" in message

    @pytest.mark.parametrize("write", [write_lines, write_parquet])
    def test_types_declared_by_the_readme(self, tmp_path: Path, write: Any) -> None:
        folder = tmp_path / "org" / "name"
        write(folder / ("test.jsonl" if write is write_lines else "test.parquet"), [{"n": 1, "label": 1}])
        (folder / "README.md").write_text(
            "---\ndataset_info:\n  features:\n  - name: n\n    dtype: float64\n  - name: label\n    dtype:\n"
            "      class_label:\n        names:\n          '0': 'a'\n          '1': 'b'\n---\n"
        )
        (row,) = rows_of(handmade.make_task(dataset_path="org/name"), Settings(data_dir=tmp_path))
        assert row == {"n": 1.0, "label": 1}
        assert isinstance(row["n"], float)

    @pytest.mark.parametrize(
        "config",
        [
            "data_files: a/b/part-*",
            "data_files: [a/b/part-0.parquet, a/b/part-1.parquet]",
            "data_files: [{split: train, path: a/b/part-*}]",
            "data_files: {train: '**/part-*.parquet'}",
            "data_files: a/**",
            "data_dir: a\n  data_files: b/*",
        ],
    )
    def test_spellings_of_data_files(self, tmp_path: Path, config: str) -> None:
        write_parquet(tmp_path / "x" / "a" / "b" / "part-0.parquet", ROWS[:3])
        write_parquet(tmp_path / "x" / "a" / "b" / "part-1.parquet", ROWS[3:])
        (tmp_path / "x" / "README.md").write_text(f"---\nconfigs:\n- config_name: x\n  {config}\n---\n")
        task = handmade.make_task(dataset_path="x", test_split="train")
        assert rows_of(task, Settings(data_dir=tmp_path)) == ROWS

    def test_config_of_a_folder(self, mirror: Path) -> None:
        readme = "---\nconfigs:\n- config_name: x\n  data_dir: two\n---\n"
        (mirror / "org" / "name" / "README.md").write_text(readme)
        task = handmade.make_task(dataset_path="org/name", dataset_name="x")
        assert rows_of(task, Settings(data_dir=mirror)) == [{"q": "two", "a": 2}]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("---\nconfigs: [\n---\n", r"README.md: the front matter is not YAML"),
            ("---\ndataset_info:\n  features:\n  - name: n\n    dtype: nonsense\n---\n", "dataset_info cannot be read"),
        ],
    )
    def test_unreadable_readme(self, mirror: Path, text: str, message: str) -> None:
        (mirror / "org" / "name" / "README.md").write_text(text)
        task = handmade.make_task(dataset_path="org/name", dataset_name="one")
        with pytest.raises(DataError, match=rf"^task t: data set org/name \(config one\): .*{message}"):
            open_docs(task, Settings(data_dir=mirror))


def _offline(*args: object, **kwargs: object) -> None:
    raise ConnectionError("Couldn't reach\n the Hub")


class TestFolderWithoutReadme:
    """The splits are those that the names of files and folders tell."""

    @pytest.mark.parametrize(
        ("file", "split"),
        [
            ("test-00000-of-00001.parquet", "test"),
            ("data/test-00000-of-00001.parquet", "test"),
            ("test/0000.parquet", "test"),
            ("data/dev-00000-of-00001.parquet", "validation"),
            ("my_eval.parquet", "test"),
            ("challenge-00000-of-00001.parquet", "challenge"),
            ("anything.parquet", "train"),
        ],
    )
    def test_split_names(self, tmp_path: Path, file: str, split: str) -> None:
        write_parquet(tmp_path / "org" / "name" / file, ROWS)
        task = handmade.make_task(dataset_path="org/name", test_split=split)
        assert rows_of(task, Settings(data_dir=tmp_path)) == ROWS

    def test_config_is_a_folder(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "org" / "name" / "one" / "test-00000-of-00001.parquet", ROWS)
        write_parquet(tmp_path / "org" / "name" / "two" / "test-00000-of-00001.parquet", ROWS[:1])
        settings = Settings(data_dir=tmp_path)
        assert len(rows_of(handmade.make_task(dataset_path="org/name", dataset_name="two"), settings)) == 1
        with pytest.raises(
            DataError, match=r"several configs: name one as dataset_name \(folders with data: one, two\)"
        ):
            open_docs(handmade.make_task(dataset_path="org/name"), settings)
        with pytest.raises(DataError, match=r"has no config 'three'"):
            open_docs(handmade.make_task(dataset_path="org/name", dataset_name="three"), settings)

    def test_the_default_config_is_the_folder_itself(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "org" / "name" / "test.parquet", ROWS)
        (tmp_path / "org" / "name" / "README.md").write_text("# Some data\n\n---\n\nNo front matter.\n")
        task = handmade.make_task(dataset_path="org/name", dataset_name="default")
        assert rows_of(task, Settings(data_dir=tmp_path)) == ROWS

    def test_lines_of_a_text(self, tmp_path: Path) -> None:
        (tmp_path / "test.txt").write_text("one\n\ntwo\n")
        rows = rows_of(handmade.make_task(dataset_path=str(tmp_path)))
        assert rows == [{"text": "one"}, {"text": ""}, {"text": "two"}]

    def test_a_format_that_is_not_read(self, tmp_path: Path) -> None:
        (tmp_path / "test.xml").write_text("<x/>")
        (tmp_path / "README.md").write_text("---\nconfigs:\n- config_name: x\n  data_files: test.xml\n---\n")
        task = handmade.make_task(dataset_path=str(tmp_path), test_split="train")
        with pytest.raises(DataError, match=r"test.xml has an unsupported format; convert it to .parquet"):
            open_docs(task, Settings())

    def test_a_split_of_two_meanings_is_not_guessed(self, tmp_path: Path) -> None:
        write_parquet(tmp_path / "org" / "name" / "validation_matched-00000-of-00001.parquet", ROWS)
        write_parquet(tmp_path / "org" / "name" / "validation_mismatched-00000-of-00001.parquet", ROWS)
        task = handmade.make_task(dataset_path="org/name", test_split="validation")
        with pytest.raises(DataError, match=r"it has: validation_matched, validation_mismatched"):
            open_docs(task, Settings(data_dir=tmp_path))

    def test_other_files_are_no_data(self, tmp_path: Path) -> None:
        folder = tmp_path / "org" / "name"
        write_parquet(folder / "test.parquet", ROWS)
        for other in ("LICENSE.txt", "dataset_infos.json", ".cache/test.parquet", "test.md"):
            (folder / other).parent.mkdir(exist_ok=True)
            (folder / other).write_text("{}")
        assert rows_of(handmade.make_task(dataset_path="org/name"), Settings(data_dir=tmp_path)) == ROWS

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            ("test.jsonl", '{"q": "x", "a": 1}\n{"q": "y", "a": 2}\n'),
            ("test.json", '[{"q": "x", "a": 1}, {"q": "y", "a": 2}]'),
            ("test.csv", "q,a\nx,1\ny,2\n"),
            ("test.tsv", "q\ta\nx\t1\ny\t2\n"),
        ],
    )
    def test_formats(self, tmp_path: Path, file: str, text: str) -> None:
        (tmp_path / "org").mkdir()
        (tmp_path / "org" / file).write_text(text)
        task = handmade.make_task(dataset_path="org")
        assert rows_of(task, Settings(data_dir=tmp_path)) == [{"q": "x", "a": 1}, {"q": "y", "a": 2}]


class TestNamedFiles:
    """``dataset_path: json`` and ``dataset_kwargs: {data_files: ...}``."""

    def make(self, folder: Path, data_files: Any, **keys: Any) -> Any:
        kwargs = {"data_files": data_files, **keys.pop("kwargs", {})}
        return handmade.make_task(dataset_path="json", dataset_kwargs=kwargs, path=folder / "t.yaml", **keys)

    def test_beside_the_task_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_lines(tmp_path / "tasks" / "data" / "x.jsonl", ROWS)
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert rows_of(self.make(tmp_path / "tasks", {"test": "data/x.jsonl"})) == ROWS

    def test_in_the_working_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_lines(tmp_path / "data" / "x.jsonl", ROWS)
        monkeypatch.chdir(tmp_path)
        assert rows_of(self.make(tmp_path / "tasks", {"test": "data/x.jsonl"})) == ROWS

    def test_the_task_file_comes_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_lines(tmp_path / "x.jsonl", ROWS)
        write_lines(tmp_path / "tasks" / "x.jsonl", ROWS[:1])
        monkeypatch.chdir(tmp_path)
        assert rows_of(self.make(tmp_path / "tasks", {"test": "x.jsonl"})) == ROWS[:1]

    def test_spellings(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "a.jsonl", ROWS[:2])
        write_lines(tmp_path / "b.jsonl", ROWS[2:])
        assert rows_of(self.make(tmp_path, {"test": ["a.jsonl", "b.jsonl"]})) == ROWS
        assert rows_of(self.make(tmp_path, "*.jsonl", test_split="train")) == ROWS
        assert rows_of(self.make(tmp_path, {"test": str(tmp_path / "a.jsonl")})) == ROWS[:2]
        assert rows_of(self.make(tmp_path.parent, {"test": "a.jsonl"}, kwargs={"data_dir": tmp_path.name})) == ROWS[:2]

    def test_reader_options_pass_through(self, tmp_path: Path) -> None:
        (tmp_path / "x.json").write_text(json.dumps({"version": 1, "rows": ROWS}))
        assert rows_of(self.make(tmp_path, {"test": "x.json"}, kwargs={"field": "rows"})) == ROWS

    def test_a_folder_of_the_name_of_the_format_is_no_data_set(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_lines(tmp_path / "x.jsonl", ROWS)
        write_lines(tmp_path / "json" / "test.jsonl", ROWS[:1])
        monkeypatch.chdir(tmp_path)
        assert rows_of(self.make(tmp_path, {"test": "x.jsonl"}), Settings(data_dir=tmp_path)) == ROWS

    @pytest.mark.parametrize("url", ["https://example.org/x.jsonl", "s3://bucket/x.jsonl", "file:///etc/passwd"])
    @pytest.mark.parametrize("path", ["json", "org/name"])
    def test_addresses_are_refused(self, mirror: Path, path: str, url: str) -> None:
        for kwargs in ({"data_files": {"test": url}}, {"data_files": ["x.jsonl", url]}, {"data_dir": url}):
            task = handmade.make_task(dataset_path=path, dataset_kwargs=kwargs)
            with pytest.raises(DataError, match=rf"{url}: a task file does not fetch .*name the local path instead"):
                open_docs(task, Settings(data_dir=mirror))

    def test_hub_addresses_are_read_from_the_mirror(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "mirror" / "org" / "name" / "data" / "x.jsonl", ROWS)
        task = self.make(tmp_path, {"test": "hf://datasets/org/name/data/x.jsonl"})
        assert rows_of(task, Settings(data_dir=tmp_path / "mirror")) == ROWS
        with pytest.raises(DataError, match=r"put it at DIR/org/name/data/x.jsonl and give --llmeval-data DIR"):
            open_docs(task, Settings())

    def test_an_address_as_dataset_path_is_refused(self) -> None:
        with pytest.raises(DataError, match="does not fetch from an address"):
            open_docs(handmade.make_task(dataset_path="https://example.org/data"), Settings())

    def test_absent_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(DataError) as caught:
            open_docs(self.make(tmp_path / "tasks", {"test": "x.jsonl"}), Settings())
        assert str(caught.value) == (
            f"task t: data set json, split 'test': no such file; looked for {tmp_path}/tasks/x.jsonl and "
            f"{tmp_path}/x.jsonl. Correct data_files in {tmp_path}/tasks/t.yaml"
        )

    def test_absent_split(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"data_files has no such split \(it has: train\); correct test_split"):
            open_docs(self.make(tmp_path, {"train": "x.jsonl"}), Settings())

    def test_no_files_named(self) -> None:
        with pytest.raises(DataError, match=r"dataset_path csv needs dataset_kwargs: \{data_files: \{test: FILE\}\}"):
            open_docs(handmade.make_task(dataset_path="csv"), Settings())

    def test_unreadable_file(self, tmp_path: Path) -> None:
        (tmp_path / "x.jsonl").write_text('{"q": ')
        with pytest.raises(DataError, match=r"x\.jsonl cannot be read as json \("):
            open_docs(self.make(tmp_path, {"test": "x.jsonl"}), Settings())

    @pytest.mark.parametrize("text", ["", "q,a\n"])
    def test_empty_file(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "x.csv").write_text(text)
        task = handmade.make_task(
            dataset_path="csv", dataset_kwargs={"data_files": {"test": "x.csv"}}, path=tmp_path / "t.yaml"
        )
        with pytest.raises(DataError, match=r"split 'test': it has no docs; add some, or name another split"):
            open_docs(task, Settings())


def test_a_local_folder_beside_the_task_file(tmp_path: Path) -> None:
    write_lines(tmp_path / "data" / "test.jsonl", ROWS)
    assert rows_of(handmade.make_task(dataset_path="data", path=tmp_path / "t.yaml")) == ROWS
    assert rows_of(handmade.make_task(dataset_path=str(tmp_path / "data"))) == ROWS


def test_data_files_of_a_mirrored_data_set(mirror: Path) -> None:
    kwargs = {"data_files": {"test": "two/*.parquet"}}
    task = handmade.make_task(dataset_path="org/name", dataset_kwargs=kwargs)
    assert rows_of(task, Settings(data_dir=mirror)) == [{"q": "two", "a": 2}]


def test_the_hub_is_asked_for_one_split(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load(path: str, name: str | None, *, split: str, **kwargs: object) -> list[Any]:
        asked.append((path, name, split, kwargs))
        return ROWS

    monkeypatch.setattr("datasets.load_dataset", load)
    kwargs = {"revision": "v1", "streaming": True}
    task = handmade.make_task(dataset_path="org/name", dataset_name="one", dataset_kwargs=kwargs)
    assert rows_of(task) == ROWS
    assert asked == [("org/name", "one", "test", {"revision": "v1"})]


class TestFunctions:
    def test_custom_dataset_gets_metadata_and_kwargs(self) -> None:
        def make(**kwargs: Any) -> dict[str, Any]:
            return {"test": [{"q": key, "a": value} for key, value in kwargs.items()]}

        task = handmade.make_task(
            custom_dataset=make, metadata={"version": 2, "gates": ["acc >= 1"]}, dataset_kwargs={"lengths": [1, 2]}
        )
        assert rows_of(task) == [{"q": "version", "a": 2}, {"q": "lengths", "a": [1, 2]}]

    def test_custom_dataset_is_called_once(self) -> None:
        calls = []

        def make() -> dict[str, Any]:
            calls.append(1)
            return {"test": ROWS, "train": ROWS[:1]}

        task = handmade.make_task(custom_dataset=make, training_split="train")
        source = DataSource()
        docs = open_docs(task, Settings(), source)
        assert len(docs.fewshot_pool()) == 1
        open_docs(task, Settings(), source)
        assert calls == [1]

    def test_process_docs_gets_a_data_set(self, tmp_path: Path) -> None:
        import datasets

        def process(data: datasets.Dataset) -> datasets.Dataset:
            return data.filter(lambda row: row["a"] % 2 == 0).map(lambda row: {"q": row["q"] + "!"})

        write_lines(tmp_path / "test.jsonl", ROWS)
        task = handmade.make_task(dataset_path=str(tmp_path), process_docs=process)
        assert rows_of(task) == [{"q": "q0!", "a": 0}, {"q": "q2!", "a": 2}, {"q": "q4!", "a": 4}]

    def test_process_docs_may_return_a_list(self, tmp_path: Path) -> None:
        write_lines(tmp_path / "test.jsonl", ROWS)
        task = handmade.make_task(dataset_path=str(tmp_path), process_docs=lambda data: [{"n": len(data)}])
        docs = open_docs(task, Settings())
        assert (len(docs), docs.columns, docs[0]) == (1, ("n",), {"n": 5})

    def test_shuffling_functions_give_the_same_docs_every_time(self) -> None:
        import numpy as np

        def process(data: Any) -> list[Any]:
            rows = [dict(row, b=float(np.random.random())) for row in data]
            random.shuffle(rows)
            return rows

        task = handmade.make_task({"test": ROWS}, process_docs=process)
        random.seed(5)
        before = random.getstate(), np.random.get_state()[1].tolist()
        first = rows_of(task)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == before
        random.seed(6)
        assert rows_of(task) == first

    @pytest.mark.parametrize(
        ("keys", "message"),
        [
            (
                {"process_docs": lambda data: data[99]},
                r"test_docs\.py:\d+: task t: .*, split 'test', process_docs \(.*t.yaml:1\): <lambda> raised Index",
            ),
            (
                {"process_docs": lambda data: [1]},
                r"process_docs .*returned docs of type int, expected a data set or a list",
            ),
            ({"process_docs": lambda data: None}, r"process_docs .*returned docs of type NoneType"),
            ({"process_docs": lambda data: []}, r"it has no docs after process_docs"),
            (
                {"custom_dataset": lambda: 1 / 0},
                r"test_docs\.py:\d+: task t: data set of its custom_dataset, .*raised ZeroDivisionError",
            ),
            ({"custom_dataset": lambda: ROWS}, r"custom_dataset returned list, expected splits by name"),
            ({"custom_dataset": lambda: {"train": ROWS}}, r"custom_dataset has no such split \(it has: train\)"),
        ],
    )
    def test_what_goes_wrong_is_named(self, keys: dict[str, Any], message: str) -> None:
        with pytest.raises(TaskFileError if "raised" in message else DataError, match=message):
            open_docs(
                handmade.make_task({"test": ROWS}, **keys) if "process_docs" in keys else handmade.make_task(**keys),
                Settings(),
            )


def test_no_split_to_evaluate() -> None:
    task = handmade.make_task({"train": ROWS}, test_split=None, training_split="train")
    with pytest.raises(DataError, match="neither test_split nor validation_split is given"):
        open_docs(task, Settings())


def test_no_dataset_path() -> None:
    with pytest.raises(DataError, match="no dataset_path is given"):
        open_docs(handmade.make_task(), Settings())


def test_validation_is_evaluated_without_a_test_split() -> None:
    task = handmade.make_task({"validation": ROWS[:2], "train": ROWS}, validation_split="validation")
    docs = open_docs(task, Settings())
    assert (docs.split, len(docs)) == ("validation", 2)


def test_tables_are_shared(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    read, read_table = [], pq.read_table
    monkeypatch.setattr(pq, "read_table", lambda files, **rest: (read.append(len(files)), read_table(files, **rest))[1])
    source, settings = DataSource(), Settings(data_dir=mirror)
    for name in ("a", "b"):
        task = handmade.make_task(name=name, dataset_path="org/name", dataset_name="one")
        assert len(open_docs(task, settings, source)) == 5
    assert read == [2]


def test_long_tables_are_read_in_blocks(tmp_path: Path) -> None:
    rows = [{"i": i, "texts": [str(i), None], "nested": {"a": i / 2}} for i in range(100)]
    write_parquet(tmp_path / "test.parquet", rows)
    docs = open_docs(handmade.make_task(dataset_path=str(tmp_path)), Settings())
    assert [docs[i] for i in (99, 0, 31, 32, 64)] == [rows[i] for i in (99, 0, 31, 32, 64)]
    assert docs[5] is docs[5]
    pool = docs.fewshot_pool()
    assert list(pool) == rows
    assert pool[30:34] == rows[30:34]
    assert docs[-1] == rows[99]
    with pytest.raises(IndexError):
        docs[100]


class TestSelect:
    @pytest.mark.parametrize(
        ("n", "limit", "count"),
        [
            (10, 0.1, 1),
            (100, 0.1, 10),
            (15, 0.1, 2),
            (100, 0.07, 7),
            (3, 1, 1),
            (3, 1.0, 1),
            (3, 0.5, 2),
            (3, 10, 3),
            (3, None, 3),
            (1, 0.001, 1),
            (1000, 1e-3, 1),
        ],
    )
    def test_counts(self, n: int, limit: float | None, count: int) -> None:
        assert list(select(n, Settings(limit=limit))) == list(range(count))

    def test_limit_counts_after_process_docs(self) -> None:
        rows = [{"q": str(i), "a": i} for i in range(10)]
        task = handmade.make_task({"test": rows}, process_docs=lambda data: [row for row in data if row["a"] % 2 == 0])
        docs = open_docs(task, Settings())
        assert [docs[i]["a"] for i in select(len(docs), Settings(limit=2))] == [0, 2]

    @pytest.mark.parametrize("limit", [0, -1, 2.5, float("nan"), float("inf")])
    def test_wrong_limits(self, limit: float) -> None:
        with pytest.raises(SettingError, match="expected a number of docs"):
            select(10, Settings(limit=limit))

    @given(n=st.integers(1, 300), a=st.integers(1, 300), b=st.integers(1, 300), seed=st.integers(0, 2**32))
    def test_samples(self, n: int, a: int, b: int, seed: int) -> None:
        small, large = (select(n, Settings(limit=limit, sample_seed=seed)) for limit in sorted((a, b)))
        assert list(small) == sorted(set(small))
        assert len(small) == min(n, a, b)
        assert set(small) <= set(large) <= set(range(n))
        assert list(small) == list(select(n, Settings(limit=min(a, b), sample_seed=seed)))

    def test_seeds_differ(self) -> None:
        samples = {tuple(select(1000, Settings(limit=20, sample_seed=seed))) for seed in range(10)}
        assert len(samples) == 10

    @given(n=st.integers(1, 10**6), percent=st.integers(1, 99))
    def test_shares_are_exact(self, n: int, percent: int) -> None:
        assert len(select(n, Settings(limit=percent / 100))) == -(-n * percent // 100)


def test_an_unreachable_hub_is_tried_once_per_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def unreachable(path: str, name: str | None, **kwargs: object) -> None:
        asked.append(f"{path} {name}")
        raise ConnectionError("no route")

    monkeypatch.setattr("datasets.load_dataset", unreachable)
    monkeypatch.chdir(tmp_path)
    source = DataSource()
    for path, name in (("org/set", "a"), ("org/set", "b"), ("org/other", None)):
        task = Task(
            name or "x",
            tmp_path / "t.yaml",
            "generate_until",
            None,
            None,
            dataset_path=path,
            dataset_name=name,
            test_split="test",
        )
        with pytest.raises(DataError, match="no route"):
            open_docs(task, Settings(), source)
    assert asked == ["org/set a", "org/other None"]
