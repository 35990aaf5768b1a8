"""The examples in front of a doc: the peer's draws, whatever is selected, and never the doc itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import handmade
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from pytest_llmeval._docs import open_docs
from pytest_llmeval._errors import DataError
from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._prompts import Shots
from pytest_llmeval._prompts import num_fewshot
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import DocData
from pytest_llmeval._task import Task


def rows(letter: str, n: int) -> list[DocData]:
    return [{"q": f"{letter}{i}", "a": str(i)} for i in range(n)]


def shots_of(task: Task, settings: Settings | None = None) -> Shots:
    settings = settings or Settings()
    return Shots(task, open_docs(task, settings), settings)


def drawn(shots: Shots, index: int) -> list[str]:
    return [str(doc["q"]) for doc in shots.for_doc(index)]


class TestNoMatterWhatIsSelected:
    """B23: the draws of one full run of the peer, seed 1234."""

    expected = (["p3", "p0"], ["p0", "p4"], ["p4", "p0"], ["p0", "p4"])

    def make(self, settings: Settings | None = None) -> Shots:
        docs = {"train": rows("p", 5), "test": rows("q", 4)}
        task = handmade.make_task(docs, fewshot=handmade.make_fewshot(split="train"), num_fewshot=2)
        return shots_of(task, settings)

    @pytest.mark.parametrize(
        "order", [[0, 1, 2, 3], [3], [0, 2], [1, 3], [3, 2, 1, 0], [0, 1], [2, 2, 0]], ids=lambda order: str(order)
    )
    def test_any_docs_in_any_order(self, order: Sequence[int]) -> None:
        shots = self.make()
        assert [drawn(shots, index) for index in order] == [self.expected[index] for index in order]

    def test_another_seed_changes_them(self) -> None:
        seeds = {tuple(tuple(drawn(self.make(Settings(fewshot_seed=seed)), i)) for i in range(4)) for seed in range(9)}
        assert len(seeds) == 9

    def test_the_global_generator_is_neither_read_nor_changed(self) -> None:
        random.seed(1)
        before = random.getstate()
        assert drawn(self.make(), 3) == self.expected[3]
        assert random.getstate() == before
        random.seed(2)
        assert drawn(self.make(), 3) == self.expected[3]

    @given(order=st.permutations(range(4)))
    @hypothesis_settings(max_examples=20)
    def test_selection_law(self, order: list[int]) -> None:
        shots = self.make()
        for index in order:
            assert drawn(shots, index) == self.expected[index]


def marked(docs: Sequence[DocData]) -> list[DocData]:
    return [{**doc, "is_fewshot": True} for doc in docs]


QA = [{"q": f"Q{i}", "a": f"A{i}"} for i in range(3)]


class TestNeverTheDocItself:
    """B21."""

    @pytest.mark.parametrize(
        "keys",
        [
            {"test_split": "s"},
            {"validation_split": "s"},
            {"validation_split": "s", "fewshot": handmade.make_fewshot(split="s")},
            {"test_split": "s", "fewshot": handmade.make_fewshot(split="s")},
            {"test_split": "s", "fewshot": handmade.make_fewshot(split="s", sampler="first_n")},
            {"test_split": "s", "fewshot": handmade.make_fewshot(sampler="first_n")},
            {"test_split": "s", "training_split": "s"},
            {"test_split": "s", "fewshot": handmade.make_fewshot(split="s", indices=(0, 1, 2))},
            {
                "test_split": "s",
                "fewshot": handmade.make_fewshot(split="s", process_docs=lambda docs: [dict(d) for d in docs]),
            },
            {
                "test_split": "s",
                "fewshot": handmade.make_fewshot(process_docs=lambda docs: [{**d, "x": 1} for d in docs]),
            },
        ],
    )
    @pytest.mark.parametrize("seed", range(6))
    def test_the_shots_of_each_doc_are_the_other_two(self, keys: dict[str, Any], seed: int) -> None:
        task = handmade.make_task({"s": QA}, num_fewshot=2, **keys)
        shots = shots_of(task, Settings(fewshot_seed=seed))
        for index, others in enumerate([["Q1", "Q2"], ["Q0", "Q2"], ["Q0", "Q1"]]):
            assert sorted(drawn(shots, index)) == others

    @pytest.mark.parametrize("n", [3, 4])
    @pytest.mark.parametrize("sampler", ["default", "first_n"])
    def test_too_few_besides_the_doc(self, sampler: Any, n: int) -> None:
        task = handmade.make_task({"test": QA}, num_fewshot=n, fewshot=handmade.make_fewshot(sampler=sampler))
        with pytest.raises(DataError) as caught:
            shots_of(task).for_doc(0)
        assert str(caught.value) == (
            f"task t: {n} examples are needed, but split 'test' has 2 besides the evaluated doc (of 3); lower "
            "num_fewshot (/tasks/t.yaml:1) or draw them from another split (fewshot_split)"
        )

    @pytest.mark.parametrize(
        ("keys", "enough"),
        [
            ({}, 2),
            ({"fewshot": handmade.make_fewshot(sampler="first_n")}, 2),
            ({"training_split": "train"}, 3),
            ({"fewshot": handmade.make_fewshot(indices=(0, 2))}, 2),
        ],
    )
    def test_a_pool_too_small_for_all_docs_is_known_at_once(self, keys: dict[str, Any], enough: int) -> None:
        for n in (0, enough):
            shots_of(handmade.make_task({"train": QA, "test": QA}, num_fewshot=n, **keys)).check()
        task = handmade.make_task({"train": QA, "test": QA}, num_fewshot=enough + 1, **keys)
        with pytest.raises(DataError, match=rf"{enough + 1} examples are needed, but split .* has {enough}"):
            shots_of(task).check()

    def test_an_absent_pool_is_known_at_once(self) -> None:
        task = handmade.make_task({"test": QA}, num_fewshot=1, fewshot=handmade.make_fewshot(split="absent"))
        with pytest.raises(DataError, match="split 'absent': custom_dataset has no such split"):
            shots_of(task).check()

    def test_too_few_in_another_split(self) -> None:
        task = handmade.make_task({"train": QA, "test": QA}, num_fewshot=4, training_split="train")
        with pytest.raises(DataError, match=r"4 examples are needed, but split 'train' has 3; lower num_fewshot"):
            shots_of(task).for_doc(0)

    def test_too_few_for_what_the_command_line_asks(self) -> None:
        task = handmade.make_task({"train": QA, "test": QA}, num_fewshot=1, training_split="train")
        with pytest.raises(DataError, match=r"split 'train' has 3; lower --llmeval-fewshot or draw them from another"):
            shots_of(task, Settings(num_fewshot=4)).for_doc(0)

    def test_too_few_written_samples(self) -> None:
        task = handmade.make_task(
            {"test": QA}, fewshot=handmade.make_fewshot(samples=({"q": "w", "a": "x"},)), num_fewshot=2
        )
        with pytest.raises(DataError, match=r"2 examples are needed, but fewshot_config samples has 1; lower"):
            shots_of(task).for_doc(0)

    def test_a_pool_of_just_as_many_as_asked_for(self) -> None:
        """No test split and no few-shot split: the peer takes None == None for "same split" and draws one too many."""
        docs = {"train": rows("p", 2), "validation": rows("q", 3)}
        task = handmade.make_task(docs, training_split="train", validation_split="validation", num_fewshot=2)
        shots = shots_of(task)
        for index in range(3):
            assert sorted(drawn(shots, index)) == ["p0", "p1"]

    def test_copies_of_the_doc_are_left_out_too(self) -> None:
        docs = [QA[0], QA[0], QA[1], QA[2]]
        task = handmade.make_task({"test": docs}, num_fewshot=2)
        for seed in range(20):
            assert sorted(drawn(shots_of(task, Settings(fewshot_seed=seed)), 0)) == ["Q1", "Q2"]

    def test_copies_drawn_together_are_drawn_again(self) -> None:
        """As the peer does, from the same generator, where it excludes the doc at all."""
        docs = [QA[0], QA[0], QA[0], QA[1], QA[2]]
        task = handmade.make_task({"test": docs}, num_fewshot=2, fewshot=handmade.make_fewshot(split="test"))
        for seed in range(20):
            assert sorted(drawn(shots_of(task, Settings(fewshot_seed=seed)), 0)) == ["Q1", "Q2"]

    def test_copies_may_leave_too_few(self) -> None:
        task = handmade.make_task({"test": [QA[0], QA[0], QA[1]]}, num_fewshot=2)
        shots = shots_of(task)
        for _ in range(2):
            assert drawn(shots, 2) == ["Q0", "Q0"]
            with pytest.raises(DataError, match=r"2 examples are needed, but split 'test' has 1 besides the"):
                shots.for_doc(0)

    def test_other_docs_keep_their_draws(self) -> None:
        """A doc that drew itself gets another example; the draws of all others are those of the plain stream."""
        docs = rows("q", 9)
        shots = shots_of(handmade.make_task({"test": docs}, num_fewshot=3))
        rng = random.Random(1234)
        kept = 0
        for index in range(9):
            plain = [docs[i]["q"] for i in rng.sample(range(9), 3)]
            if f"q{index}" in plain:
                assert [q for q in plain if q != f"q{index}"] == drawn(shots, index)[:2]
                assert f"q{index}" not in drawn(shots, index)
            else:
                kept += 1
                assert drawn(shots, index) == plain
        assert 0 < kept < 9


class TestPool:
    def make(self, num: int = 2, **keys: Any) -> Task:
        docs = {"train": rows("t", 6), "validation": rows("v", 6), "test": rows("q", 2), "dev": rows("d", 6)}
        return handmade.make_task(docs, num_fewshot=num, test_split="test", **keys)

    @pytest.mark.parametrize(
        ("keys", "letter"),
        [
            ({"training_split": "train", "validation_split": "validation"}, "t"),
            ({"validation_split": "validation"}, "v"),
            ({}, "q"),
            ({"training_split": "train", "fewshot": handmade.make_fewshot(split="dev")}, "d"),
        ],
    )
    def test_which_split(self, keys: dict[str, Any], letter: str) -> None:
        (doc,) = shots_of(self.make(1, **keys)).for_doc(0)
        assert doc["q"][0] == letter

    def test_first_n(self) -> None:
        shots = shots_of(self.make(fewshot=handmade.make_fewshot(split="dev", sampler="first_n")))
        assert [drawn(shots, 1), drawn(shots, 0)] == [["d0", "d1"], ["d0", "d1"]]

    def test_indices(self) -> None:
        first = handmade.make_fewshot(split="dev", sampler="first_n", indices=(4, 2))
        assert drawn(shots_of(self.make(fewshot=first)), 0) == ["d4", "d2"]
        default = handmade.make_fewshot(split="dev", indices=(4, 2))
        assert sorted(drawn(shots_of(self.make(fewshot=default)), 0)) == ["d2", "d4"]

    def test_indices_out_of_range(self) -> None:
        task = self.make(fewshot=handmade.make_fewshot(split="dev", indices=(1, 6, -1)))
        with pytest.raises(
            DataError, match=r"fewshot_indices \[6, -1\] are not in the pool of 6 examples \(split 'dev'\)"
        ):
            shots_of(task).for_doc(0)

    def test_written_samples(self) -> None:
        samples = ({"q": "w0", "a": "x"}, {"q": "w1", "a": "y"})
        task = self.make(fewshot=handmade.make_fewshot(samples=samples, sampler="first_n"))
        assert shots_of(task).for_doc(0) == samples
        made = self.make(fewshot=handmade.make_fewshot(samples=lambda: list(samples), sampler="first_n"))
        assert shots_of(made).for_doc(0) == samples

    def test_a_split_comes_before_written_samples(self) -> None:
        fewshot = handmade.make_fewshot(split="dev", samples=({"q": "w0", "a": "x"},), sampler="first_n")
        assert drawn(shots_of(self.make(fewshot=fewshot)), 0) == ["d0", "d1"]

    def test_samples_that_cannot_be_made(self) -> None:
        task = self.make(fewshot=handmade.make_fewshot(samples=lambda: 1 / 0))
        with pytest.raises(
            TaskFileError,
            match=r"fewshot\.py:\d+: task t: fewshot_config samples \(/tasks/t.yaml:1\): <lambda> raised ZeroDivision",
        ):
            shots_of(task).for_doc(0)

    def test_process_docs_reaches_the_shots(self) -> None:
        """B21 (e)."""

        def shout(docs: Sequence[DocData]) -> list[DocData]:
            return [{**doc, "q": f"{doc['q']}!"} for doc in docs]

        task = self.make(process_docs=shout, fewshot=handmade.make_fewshot(split="train", sampler="first_n"))
        assert drawn(shots_of(task), 0) == ["t0!", "t1!"]
        own = handmade.make_fewshot(split="train", sampler="first_n", process_docs=lambda docs: docs[2:])
        assert drawn(shots_of(self.make(process_docs=shout, fewshot=own)), 0) == ["t2", "t3"]

    def test_nothing_is_opened_for_no_shots(self) -> None:
        task = self.make(0, fewshot=handmade.make_fewshot(split="absent"))
        assert shots_of(task).for_doc(1) == ()
        with pytest.raises(
            DataError, match=r"split 'absent': custom_dataset has no such split .*correct fewshot_split"
        ):
            shots_of(task, Settings(num_fewshot=1)).for_doc(1)


@pytest.mark.parametrize(
    ("written", "asked", "n"), [(None, None, 0), (5, None, 5), (5, 2, 2), (5, 0, 0), (None, 3, 3), (0, 3, 3)]
)
def test_num_fewshot(written: int | None, asked: int | None, n: int) -> None:
    assert num_fewshot(handmade.make_task(num_fewshot=written), Settings(num_fewshot=asked)) == n


def test_a_long_task_draws_quickly() -> None:
    """Every doc is drawn for once, however often and in whatever order it is asked for."""
    docs = {"train": rows("p", 50), "test": rows("q", 5000)}
    task = handmade.make_task(docs, training_split="train", num_fewshot=5)
    shots = shots_of(task)
    last = drawn(shots, 4999)
    state = shots._rng.getstate()
    assert [drawn(shots, i) for i in range(5000)][-1] == last
    assert shots._rng.getstate() == state
