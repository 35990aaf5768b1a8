"""The file of the journal: shared, checked, bounded, and never a reason for a run to fail."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pytest_llmeval import FakeLM
from pytest_llmeval import Generation
from pytest_llmeval import GenerationKwargs
from pytest_llmeval import Loglikelihood
from pytest_llmeval._doc import Instance
from pytest_llmeval._errors import ModelError
from pytest_llmeval._evaluation.model_calls import ask_docs
from pytest_llmeval._journal import DeferredLM
from pytest_llmeval._journal import Identity
from pytest_llmeval._journal import Journal
from pytest_llmeval._journal import known_answers
from pytest_llmeval._journal.answers import decoded
from pytest_llmeval._journal.answers import encoded
from pytest_llmeval._journal.journal import ASIDE
from pytest_llmeval._journal.journal import NAME


@pytest.fixture
def journals() -> Iterator[list[Journal]]:
    """Journals to close at the end of the test."""
    opened: list[Journal] = []
    yield opened
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(tmp_path: Path, journals: list[Journal]) -> Journal:
    journals.append(Journal(lambda: tmp_path))
    return journals[-1]


def reopened(journal: Journal, journals: list[Journal], path: Path) -> Journal:
    journal.close()
    journals.append(Journal(lambda: path))
    return journals[-1]


def entries(n: int, size: int = 100) -> dict[bytes, bytes]:
    return {b"key %012d" % i: b"%d" % i * size for i in range(n)}


class TestFile:
    def test_entries_are_there_for_others_at_once(
        self, journal: Journal, journals: list[Journal], tmp_path: Path
    ) -> None:
        journals.append(other := Journal(lambda: tmp_path))
        journal.put({b"a": b"1", b"b": b""})
        assert other.get([b"a", b"b", b"c", b"a"]) == {b"a": b"1", b"b": b""}
        other.put({b"a": b"2"})
        assert journal.get([b"a"]) == {b"a": b"2"}
        assert journal.messages == other.messages == []

    @pytest.mark.parametrize("place", [0, 40, 100, 3000, 4096, 6000, 20000])
    def test_flipped_bytes(self, journal: Journal, journals: list[Journal], tmp_path: Path, place: int) -> None:
        journal.put(entries(500))
        journal.close()
        content = bytearray((tmp_path / NAME).read_bytes())
        content[place : place + 16] = bytes(byte ^ 0xFF for byte in content[place : place + 16])
        (tmp_path / NAME).write_bytes(content)
        again = reopened(journal, journals, tmp_path)
        found = again.get(entries(500))
        assert found.items() <= entries(500).items()
        again.put(entries(500))
        assert again.get(entries(500)) == entries(500)
        assert len(again.messages) == (len(found) < 500 or (tmp_path / ASIDE).exists())
        assert all("set aside as" in message for message in again.messages)

    def test_what_is_intact_is_kept(self, journal: Journal, journals: list[Journal], tmp_path: Path) -> None:
        journal.put(entries(2000))
        journal.close()
        content = (tmp_path / NAME).read_bytes()
        # The value of one entry.
        (tmp_path / NAME).write_bytes(content.replace(b"1234" * 100, b"1235" * 100))
        again = reopened(journal, journals, tmp_path)
        expected = entries(2000)
        del expected[b"key %012d" % 1234]
        assert again.get(entries(2000)) == expected
        assert again.messages == [
            f"journal {tmp_path / NAME}: some entries differ from their checksums; set aside as {ASIDE}, and its 1,999 "
            "intact entries are kept"
        ]
        assert reopened(again, journals, tmp_path).get(entries(2000)) == expected

    @pytest.mark.parametrize("length", [0, 1, 50, 1000, 5000, 50_000])
    def test_a_torn_file(self, journal: Journal, journals: list[Journal], tmp_path: Path, length: int) -> None:
        journal.put(entries(500))
        journal.close()
        with (tmp_path / NAME).open("r+b") as file:
            file.truncate(length)
        again = reopened(journal, journals, tmp_path)
        assert again.get(entries(500)).items() <= entries(500).items()
        again.put({b"new": b"1"})
        assert again.get([b"new"]) == {b"new": b"1"}

    def test_another_version(self, journal: Journal, journals: list[Journal], tmp_path: Path) -> None:
        journal.put({b"a": b"1"})
        journal.close()
        connection = sqlite3.connect(tmp_path / NAME)
        connection.execute("PRAGMA user_version = 7")
        connection.close()
        again = reopened(journal, journals, tmp_path)
        assert again.get([b"a"]) == {}
        assert "it has format 7, and this version of the plugin writes 1" in again.messages[0]
        assert (tmp_path / ASIDE).exists()

    def test_a_text_file_in_its_place(self, journal: Journal, tmp_path: Path) -> None:
        (tmp_path / NAME).write_text("not a database " * 100)
        journal.put({b"a": b"1"})
        assert journal.get([b"a"]) == {b"a": b"1"}
        assert (tmp_path / ASIDE).read_text().startswith("not a database")
        assert "file is not a database; set aside as" in journal.messages[0]

    def test_a_full_disk_ends_the_writing_only(self, journal: Journal) -> None:
        journal.put({b"a": b"1"})
        connection: Any = journal._connection
        connection.execute("PRAGMA max_page_count = 3")
        journal.put(entries(1000))
        journal.put({b"b": b"1"})
        assert journal.get([b"a", b"b"]) == {b"a": b"1"}
        assert [message.partition(": ")[2] for message in journal.messages] == [
            "cannot be written (database or disk is full): answers are taken from it, and no longer kept"
        ]

    def test_a_folder_that_cannot_be_made(self, journals: list[Journal], tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        journals.append(journal := Journal(lambda: tmp_path / "file" / "folder"))
        journal.put({b"a": b"1"})
        assert journal.get([b"a"]) == {}
        assert len(journal.messages) == 1
        assert "cannot be used (Not a directory)" in journal.messages[0]

    def test_another_process_removes_or_replaces_the_file(
        self, journal: Journal, journals: list[Journal], tmp_path: Path
    ) -> None:
        journal.put({b"a": b"1"})
        for path in tmp_path.iterdir():
            path.unlink()
        journal.put({b"b": b"1"})
        assert reopened(journal, journals, tmp_path).get([b"a", b"b"]) == {b"b": b"1"}
        assert journal.messages == []

    def test_it_is_bounded_and_loses_what_was_not_used(
        self, tmp_path: Path, journals: list[Journal], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = 1_000_000.0
        monkeypatch.setattr(time, "time", lambda: now)
        journals.append(journal := Journal(lambda: tmp_path, capacity=500_000))
        for day in range(12):
            now += 90_000
            journal.put({b"%d %d" % (day, i): b"x" * 1000 for i in range(40)})
            assert journal.get([b"0 %d" % i for i in range(40)]).keys() == {b"0 %d" % i for i in range(40)}
        journal.close()
        assert (tmp_path / NAME).stat().st_size <= 500_000
        kept = {day for day in range(12) if journal.get([b"%d 0" % day])}
        assert {0, 10, 11} <= kept
        assert not {1, 2} & kept


@pytest.mark.parametrize(
    "answer",
    [
        Loglikelihood(-0.1, True, True),
        Loglikelihood(float("-inf"), False),
        -1 / 3,
        "plain",
        Generation("42\ud800 é", "length", True),
        Generation("", "eos"),
        Generation("42 é", "stop", False, "<think>é</think> 42 é"),
        Generation("", "thought", True, "<think> no"),
    ],
)
def test_answers_are_the_same_again(answer: Any) -> None:
    value = encoded(answer)
    assert value is not None
    again = decoded(value)
    assert (type(again), again, vars(again) if hasattr(again, "__dict__") else None) == (
        type(answer),
        answer,
        vars(answer) if hasattr(answer, "__dict__") else None,
    )


def test_a_pair_is_named_and_equal() -> None:
    assert decoded(encoded((-1.5, False)) or b"") == (-1.5, False)


@pytest.mark.parametrize("answer", [None, float("nan"), (float("nan"), True), (1.0,), [-1.0, True], (-1, True), 3])
def test_answers_that_would_change_are_not_kept(answer: Any) -> None:
    assert encoded(answer) is None


def asked(*pairs: tuple[str, str], task: str = "t") -> dict[int, list[Instance]]:
    return {doc: [Instance("loglikelihood", task, doc, 0, 0, pair)] for doc, pair in enumerate(pairs)}


class TestAnswers:
    def test_the_model_is_asked_for_the_rest_only(self, journal: Journal) -> None:
        lm = FakeLM(fingerprint="a")
        known = known_answers(journal, lm)
        assert known is not None
        first = ask_docs(lm, asked(("x", "1"), ("x", "22")), known=known)
        assert first == {0: ([(-1.0, False)], None), 1: ([(-2.0, False)], None)}
        # Another task, in another order, with a new request between the known ones.
        again = ask_docs(lm, asked(("x", "22"), ("y", "333"), ("x", "1"), task="u"), known=known)
        assert [responses for responses, _ in again.values()] == [[(-2.0, False)], [(-3.0, False)], [(-1.0, False)]]
        assert [request for _, request in lm.calls] == [("x", "1"), ("x", "22"), ("y", "333")]
        assert (known.recalled, known.asked) == (2, 5)

    def test_a_doc_that_is_refused_is_asked_again(self, journal: Journal) -> None:
        lm = FakeLM(loglikelihood_of={"1": -0.5}, fingerprint="a")
        known = known_answers(journal, lm)
        answers = ask_docs(lm, asked(("x", "1"), ("x", "2")), known=known)
        assert answers[0] == ([(-0.5, False)], None)
        assert "FakeLM has no answer to ('x', '2')" in str(answers[1][1])
        lm.loglikelihood_of = {"2": -0.7}
        assert ask_docs(lm, asked(("x", "1"), ("x", "2")), known=known) == {
            0: ([(-0.5, False)], None),
            1: ([(-0.7, False)], None),
        }

    def test_samples_are_kept_by_seed_and_repeat(self, journal: Journal) -> None:
        lm = FakeLM(text_of=lambda context, kwargs: f"{context} {kwargs.seed} {kwargs.repeat}", fingerprint="a")
        settings = [GenerationKwargs(do_sample=True, temperature=0.7, seed=s, repeat=r) for s in (0, 1) for r in (0, 1)]
        docs = {0: [Instance("generate_until", "t", 0, 0, one.repeat, ("x", one)) for one in settings]}
        for _ in range(2):
            answers = ask_docs(lm, docs, known=known_answers(journal, lm))
            assert answers == {0: (["x 0 0", "x 0 1", "x 1 0", "x 1 1"], None)}
        assert len(lm.calls) == 4
        other = GenerationKwargs(do_sample=True, temperature=0.7, extra=MappingProxyType({"penalty": 1}))
        ask_docs(lm, {0: [Instance("generate_until", "t", 0, 0, 0, ("x", other))]}, known=known_answers(journal, lm))
        assert len(lm.calls) == 5

    @pytest.mark.parametrize("fingerprint", [None, "", 7])
    def test_without_an_identity_nothing_is_kept(self, journal: Journal, fingerprint: Any) -> None:
        assert known_answers(journal, FakeLM(fingerprint=fingerprint)) is None
        assert known_answers(None, FakeLM(fingerprint="a")) is None

    def test_models_share_nothing(self, journal: Journal) -> None:
        for fingerprint, logprob in (("a", -1.0), ("b", -2.0), ("a", -1.0)):
            lm = FakeLM(loglikelihood_of={"1": logprob}, fingerprint=fingerprint)
            answers = ask_docs(lm, asked(("x", "1")), known=known_answers(journal, lm))
            assert answers == {0: ([(logprob, False)], None)}


class TestDeferredModel:
    @staticmethod
    def model(journal: Journal, opened: list[str], error: ModelError | None = None) -> DeferredLM:
        class Loaded(FakeLM):
            def prepare(self) -> None:
                opened.append("loaded")
                if error:
                    raise error

            def close(self) -> None:
                opened.append("closed")

        def open_model() -> FakeLM:
            opened.append("opened")
            return Loaded()

        return DeferredLM("m", journal, open_model, lambda lm: Identity("answers", "facts"))

    def test_it_is_loaded_for_what_is_not_known(self, journal: Journal) -> None:
        steps: list[str] = []
        lm = self.model(journal, steps)
        lm.prepare()
        assert steps == ["opened", "loaded"]
        ask_docs(lm, asked(("x", "1")), known=known_answers(journal, lm))
        again = self.model(journal, later := [])
        again.prepare()
        known = known_answers(journal, again)
        assert ask_docs(again, asked(("x", "1")), known=known) == {0: ([(-1.0, False)], None)}
        assert (later, again.is_loaded, again.usage(), again.engine_choice) == ([], False, {}, None)
        again.close()
        assert later == []
        ask_docs(again, asked(("x", "1"), ("x", "2")), known=known)
        again.close()
        assert later == ["opened", "loaded", "closed"]

    def test_a_failure_to_load_is_not_tried_again(self, journal: Journal) -> None:
        steps: list[str] = []
        lm = self.model(journal, steps, ModelError("no weights"))
        for _ in range(3):
            with pytest.raises(ModelError, match="no weights"):
                ask_docs(lm, asked(("x", "1"), ("x", "2")), known=known_answers(journal, lm))
        assert steps == ["opened", "loaded"]
