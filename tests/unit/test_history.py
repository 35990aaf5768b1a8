"""Which checkpoints lie between two, in which order, and how few of them a search asks about."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._errors import SettingError
from pytest_llmeval._models import first_bad
from pytest_llmeval._models import history_between


def saved(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)


def between(folder: Path, good: str, bad: str) -> list[str]:
    return [Path(spec).name for _, spec in history_between((None, str(folder / good)), (None, str(folder / bad)))]


@given(st.integers(2, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))))
def test_the_first_bad_is_found_with_few_questions(case: tuple[int, int]) -> None:
    count, place = case
    asked: list[int] = []
    assert first_bad(count, lambda i: bool(asked.append(i)) or i >= place) == (place - 1, place)
    assert len(asked) <= math.ceil(math.log2(count - 1))
    assert len(set(asked)) == len(asked)
    assert all(0 < i < count - 1 for i in asked)


@given(st.integers(2, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1), st.sets(st.integers(1, n)))))
def test_those_that_cannot_be_judged_are_left_out(case: tuple[int, int, set[int]]) -> None:
    """What is found is what the others alone say."""
    count, place, broken = case
    broken -= {count - 1}
    asked: list[int] = []
    found = first_bad(count, lambda i: None if asked.append(i) or i in broken else i >= place)
    judged = [i for i in range(count) if i not in broken]
    assert found == (max(i for i in judged if i < place), min(i for i in judged if i >= place))
    assert len(asked) <= math.ceil(math.log2(count - 1)) + len(broken)
    assert len(set(asked)) == len(asked)


def test_saved_checkpoints_are_ordered_by_number(tmp_path: Path) -> None:
    saved(tmp_path, "ckpt-900", "ckpt-1000", "ckpt-10000", "ckpt-2000", "ckpt-800", "ckpt-1500-old", "other-1200")
    assert between(tmp_path, "ckpt-900", "ckpt-10000") == ["ckpt-900", "ckpt-1000", "ckpt-2000", "ckpt-10000"]
    assert between(tmp_path, "ckpt-1000", "ckpt-2000") == ["ckpt-1000", "ckpt-2000"]


def test_several_numbers_count_from_the_left(tmp_path: Path) -> None:
    saved(tmp_path, "e1-s50", "e1-s200", "e2-s5", "e10-s1", "e0-s999")
    assert between(tmp_path, "e1-s50", "e10-s1") == ["e1-s50", "e1-s200", "e2-s5", "e10-s1"]


def test_names_that_were_given_stay(tmp_path: Path) -> None:
    saved(tmp_path, "c1", "c2", "c3")
    paths = [str(tmp_path / name) for name in ("c1", "c2", "c3")]
    assert history_between(("old", paths[0]), (None, paths[2])) == [
        ("old", paths[0]),
        (None, paths[1]),
        (None, paths[2]),
    ]


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("c-1", "c-1", "are both"),
        ("c-2", "c-1", "GOOD 'c-2' is not older than BAD 'c-1': name the older one first"),
        ("good", "bad", "'good' and 'bad' do not differ in numbers only; name the checkpoints between them"),
        ("c-1", "d-2", "do not differ in numbers only"),
        ("c-1", "c-7", "c-7': there is no such folder or file"),
        ("c-1", "sub/c-2", "are in different folders"),
    ],
)
def test_no_order_to_be_seen(tmp_path: Path, good: str, bad: str, message: str) -> None:
    saved(tmp_path, "c-1", "c-2", "d-2", "good", "bad", "sub/c-2")
    with pytest.raises(SettingError, match=message):
        between(tmp_path, good, bad)


LISTED = [(None, "b"), ("mid", "c"), (None, "d")]


def test_listed_models_come_between_the_two() -> None:
    assert history_between((None, "a"), ("new", "e"), LISTED) == [(None, "a"), *LISTED, ("new", "e")]


@pytest.mark.parametrize("bad", ["d", "mid"])
def test_the_two_may_be_among_the_listed_by_spec_or_name(bad: str) -> None:
    listed = LISTED if bad == "d" else LISTED[:2]
    assert history_between((None, "b"), (None, bad), listed) == listed


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("d", "b", "GOOD 'd' is listed after BAD 'b'"),
        ("mid", "d", "the model 'b' is not between GOOD 'mid' and BAD 'd'"),
        ("b", "mid", "the model 'd' is not between GOOD 'b' and BAD 'mid'"),
    ],
)
def test_listed_models_that_are_not_between(good: str, bad: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        history_between((None, good), (None, bad), LISTED)
