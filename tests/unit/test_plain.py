"""What crosses a process border is plain."""

from __future__ import annotations

import datetime
import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._plain import listed
from pytest_llmeval._plain import plain
from pytest_llmeval._plain import plain_or_text
from pytest_llmeval._plain import version_of
from pytest_llmeval._plain import write_whole


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.float64(0.5), 0.5),
        (np.int32(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2]]), [[1, 2]]),
        ((1, (2.5, "x")), [1, [2.5, "x"]]),
        (Loglikelihood(-1.0, True), [-1.0, True]),
        (Generation("text"), "text"),
        (MappingProxyType({1: (np.float32(0.5),)}), {"1": [0.5]}),
    ],
)
def test_plain(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert type(found) is type(expected)


def test_torch_scalars() -> None:
    torch = pytest.importorskip("torch")
    assert plain({"a": torch.tensor(0.5), "b": torch.tensor([1, 2])}) == {"a": 0.5, "b": [1, 2]}


@pytest.mark.parametrize("value", [{1, 2}, object(), b"x", [datetime.date(2024, 1, 2)]])
def test_what_has_no_plain_form(value: Any) -> None:
    with pytest.raises(TypeError, match="is not a plain value"):
        plain(value)


def test_it_can_be_shown_all_the_same() -> None:
    assert plain_or_text(datetime.date(2024, 1, 2)) == "2024-01-02"
    assert plain_or_text((1,)) == [1]


@pytest.mark.parametrize(
    ("names", "options", "expected"),
    [
        ([], {}, ""),
        ("ab", {}, "a, b"),
        ("abc", {"most": 3}, "a, b, c"),
        ("abcdefghij", {"most": 3}, "a, b, c and 7 more"),
        (range(2000), {"most": 2}, "0, 1 and 1,998 more"),
        ("abcde", {"most": 3, "separator": "; ", "noun": "tasks"}, "a; b; c; and 2 more tasks"),
    ],
)
def test_lists_of_names(names: Any, options: dict[str, Any], expected: str) -> None:
    assert listed(iter(names), **options) == expected


def test_did_you_mean() -> None:
    assert did_you_mean("acuracy", ["acc", "accuracy"]) == "; did you mean 'accuracy'?"
    assert did_you_mean("acc", ["acc", "f1"]) == ""
    assert did_you_mean("x", ["acc"], otherwise=".") == "."


def test_version_of() -> None:
    assert version_of("pytest") == pytest.__version__
    assert version_of("no-such-package-is-installed") is None


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "folder" / ("x" * 240)
    mask = os.umask(0o022)
    try:
        write_whole(path, ["one\n", "two\n"])
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o644

    def failing() -> Iterator[str]:
        yield "half"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        write_whole(path, failing())
    assert path.read_bytes() == b"one\ntwo\n"
    assert list(path.parent.iterdir()) == [path]


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    write_whole(path, ["old\n"])

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, ["new\n"])
    assert (path.read_text(), list(tmp_path.iterdir())) == ("old\n", [path])


def test_what_killed_processes_left_is_removed_after_a_day(tmp_path: Path) -> None:
    old, young = tmp_path / ".writing-1", tmp_path / ".writing-2"
    for part, age in ((old, 90_000), (young, 3_600)):
        part.touch()
        os.utime(part, (time.time() - age,) * 2)
    write_whole(tmp_path / "x", [])
    assert sorted(tmp_path.iterdir()) == [young, tmp_path / "x"]
