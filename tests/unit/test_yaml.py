"""YAML as written: scalars keep their text, nodes know their line, errors say where and what."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._taskfile import FunctionRef
from pytest_llmeval._taskfile import Items
from pytest_llmeval._taskfile import Scalar
from pytest_llmeval._taskfile import Table
from pytest_llmeval._taskfile import data
from pytest_llmeval._taskfile import read_yaml
from pytest_llmeval._taskfile import shown


def read(folder: Path, text: str | bytes) -> Table:
    path = folder / "x.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_yaml(path)


def scalar(folder: Path, text: str) -> Scalar:
    value = read(folder, f"k: {text}\n").entries["k"]
    assert isinstance(value, Scalar)
    return value


def complaint(folder: Path, text: str | bytes) -> str:
    """The message about a file, without its folder."""
    with pytest.raises(TaskFileError) as caught:
        read(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("written", "kind", "value"),
    [
        ("text", "text", "text"),
        ("'12'", "text", "12"),
        ('"no"', "text", "no"),
        ("!!str 12", "text", "12"),
        ("=", "text", "="),
        ("", "null", None),
        ("~", "null", None),
        ("null", "null", None),
        ("None", "text", "None"),
        ("true", "bool", True),
        ("FALSE", "bool", False),
        ("12", "int", 12),
        ("-3", "int", -3),
        ("0x1F", "int", 31),
        ("3.10", "float", 3.1),
        (".5", "float", 0.5),
        ("1.5e-3", "float", 0.0015),
        ("-.inf", "float", -math.inf),
        # What YAML 1.1 takes for something else than YAML 1.2 does:
        ("no", "unclear", "no"),
        ("Yes", "unclear", "Yes"),
        ("on", "unclear", "on"),
        ("12:30", "unclear", "12:30"),
        ("1_000", "unclear", "1_000"),
        ("010", "unclear", "010"),
        ("0b101", "unclear", "0b101"),
        ("2024-01-02", "unclear", "2024-01-02"),
        ("2024-01-02 10:00:00", "unclear", "2024-01-02 10:00:00"),
        # Numbers of YAML 1.2 alone, which the peer reads as texts:
        ("1e5", "text", "1e5"),
        ("0o17", "text", "0o17"),
        ("08", "text", "08"),
        ("-.5", "text", "-.5"),
    ],
)
def test_a_scalar_keeps_its_text_and_is_typed_where_both_versions_agree(
    tmp_path: Path, written: str, kind: str, value: object
) -> None:
    found = scalar(tmp_path, written)
    assert found.kind == kind
    assert found.text == re.sub(r"^!!str |['\"]", "", written)
    assert data(found) == value
    assert type(data(found)) is type(value)


def test_data_is_plain(tmp_path: Path) -> None:
    table = read(tmp_path, "a: [1, no, {b: 2.5}]\nc: {d: ~, 7: x}\n")
    assert data(table) == {"a": [1, "no", {"b": 2.5}], "c": {"d": None, "7": "x"}}


def test_every_value_has_the_line_of_its_key_or_of_its_own(tmp_path: Path) -> None:
    table = read(tmp_path, "# first\na:\n  b: 1\n  c:\n    - x\n    - y\nd: |\n  block\n  text\ne: !function m.f\n")
    a = table.entries["a"]
    assert isinstance(a, Table)
    items = a.entries["c"]
    assert isinstance(items, Items)
    lines = {key: value.line for key, value in table.entries.items()}
    assert lines == {"a": 2, "d": 7, "e": 10}
    assert {key: value.line for key, value in a.entries.items()} == {"b": 3, "c": 4}
    assert [value.line for value in items] == [5, 6]
    assert table.entries["d"] == Scalar(tmp_path / "x.yaml", 7, "block\ntext\n")
    assert table.entries["e"] == FunctionRef(tmp_path / "x.yaml", 10, "m.f")


def test_anchors_and_merge_keys(tmp_path: Path) -> None:
    text = "base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\nk:\n  <<: [*b, *o]\n  x: 9\nl: *b\n"
    table = data(read(tmp_path, text))
    assert table["k"] == {"y": 2, "z": 4, "x": 9}
    assert table["l"] == {"x": 1, "y": 2}


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    assert data(read(tmp_path, b"\xef\xbb\xbfa: |\r\n  x\r\n  y\r\nb: 2\r\n")) == {"a": "x\ny\n", "b": 2}


def test_a_key_written_twice_is_an_error_with_both_lines(tmp_path: Path) -> None:
    assert complaint(tmp_path, "a: 1\nb: 2\na: 3\n") == (
        "x.yaml:3: a: the key is written twice, in lines 1 and 3; remove one"
    )
    assert complaint(tmp_path, "k:\n  - a: [1]\n    a: [1]\n") == (
        "x.yaml:3: a: the key is written twice, in lines 2 and 3; remove one"
    )


def test_a_key_written_twice_with_one_value_loses_nothing(tmp_path: Path) -> None:
    assert data(read(tmp_path, "a: 1\nb: 2\na: 1\n")) == {"a": 1, "b": 2}
    assert "written twice" in complaint(tmp_path, "a: 1\na: '1'\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: [b\nc: d\n",
            "x.yaml:2:2: not readable as YAML: while parsing a flow sequence, expected ',' or ']', but got ':'",
        ),
        ("a: b: c\n", "x.yaml:1:5: not readable as YAML: mapping values are not allowed here"),
        (
            "a:\n\t- x\n",
            "x.yaml:2:1: not readable as YAML: while scanning for the next token, "
            "found character '\\t' that cannot start any token",
        ),
        (
            "a: 'x\n",
            "x.yaml:2:1: not readable as YAML: while scanning a quoted scalar, found unexpected end of stream",
        ),
        ("a: *b\n", "x.yaml:1:4: not readable as YAML: found undefined alias 'b'"),
        (
            "a: 1\n---\nb: 2\n",
            "x.yaml:2:1: not readable as YAML: expected a single document in the stream, but found another document",
        ),
        ("a: x\x00y\n", "x.yaml:1:5: not readable as YAML: character U+0000 is not allowed"),
        (b"a: 1\nb: \xff\n", "x.yaml:2: not UTF-8 text (byte 0xff); save the file as UTF-8"),
        ("a: 1\n".encode("utf-16"), "x.yaml:1: not UTF-8 text (byte 0xff); save the file as UTF-8"),
        ("", "x.yaml: the file is empty; a task file is a mapping of keys to values"),
        ("# nothing\n", "x.yaml: the file is empty; a task file is a mapping of keys to values"),
        ("- a\n", "x.yaml:1: expects a mapping of keys to values, got the list [a]"),
        ("just text\n", "x.yaml:1: expects a mapping of keys to values, got the text 'just text'"),
        ("a: " + "[" * 5000, "x.yaml: not readable as YAML: nested too deeply"),
        ("a: 1\nb: &x [*x]\n", "x.yaml:2:4: an alias refers to a value that contains it"),
        ("[a]: 1\n", "x.yaml:1:1: a key must be a plain text"),
        ("a: {<<: 1}\n", "x.yaml:1:9: << takes a mapping or a list of mappings"),
        ("a: !function [b, c]\n", "x.yaml:1:4: !function takes the text module.name"),
        ("a: !include b.yaml\n", "x.yaml:1:4: unknown tag !include; the only one known is !function"),
        (
            "a: !!python/name:os.system ''\n",
            "x.yaml:1:4: unknown tag tag:yaml.org,2002:python/name:os.system; the only one known is !function",
        ),
        ("a: !!set {b, c}\n", "x.yaml:1:4: unknown tag tag:yaml.org,2002:set; the only one known is !function"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_place(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert complaint(tmp_path, text) == message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(TaskFileError, match=re.escape(f"{tmp_path}/y.yaml: cannot be read: No such file or directory")):
        read_yaml(tmp_path / "y.yaml")


def test_a_function_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(TaskFileError, match=re.escape("x.yaml:2: !function m.f is not allowed here")):
        data(read(tmp_path, "a:\n  b: !function m.f\n"))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("x", "the text 'x'"),
        ("1_000", "1_000"),
        ("~", "nothing"),
        ("!function own.f", "!function own.f"),
        ("[1, 0]", "the list [1, 0]"),
        ("[]", "the list []"),
        ("{a: [b, {c: ~}], d: !function own.f}", "the mapping {a: [b, {c: ~}], d: !function own.f}"),
        ("[[[[x]]]]", "the list [[[[...]]]]"),
        ('["two\\nlines"]', "the list ['two\\nlines']"),
        (f"[{', '.join(['word'] * 20)}]", "the list [word, word, word, word, word, word, word, word, word, wo..."),
    ],
)
def test_a_message_shows_a_value_on_one_line(tmp_path: Path, written: str, message: str) -> None:
    assert shown(read(tmp_path, f"k: {written}\n").entries["k"]) == message


def test_aliases_that_multiply_each_other_end(tmp_path: Path) -> None:
    names = "abcdefgh"
    lines = [f"{names[0]}: &{names[0]} [x, x, x, x, x, x, x, x]"]
    lines += [f"{name}: &{name} [{', '.join([f'*{last}'] * 8)}]" for last, name in itertools.pairwise(names)]
    assert "aliases expand to more than 200,000 values" in complaint(tmp_path, "\n".join(lines))


@given(st.text(alphabet="0123456789abcdefxoyn_.:+-~TtrueFalsNl", min_size=1, max_size=8))
def test_plain_words_keep_their_text(tmp_path_factory: pytest.TempPathFactory, word: str) -> None:
    """Whatever a word without quotes may mean to YAML, its text is what was written."""
    text = f"k: [{word}]\n"
    try:
        node = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError:
        return
    (plain,) = node.value[0][1].value
    if isinstance(plain, yaml.ScalarNode):
        items = read(tmp_path_factory.getbasetemp(), text).entries["k"]
        assert isinstance(items, Items)
        assert items.values == (Scalar(items.path, 1, plain.value, items.values[0].kind),)  # type: ignore[union-attr]
