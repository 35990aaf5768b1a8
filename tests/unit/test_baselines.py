"""Baseline files: what they hold, that they come back as they were, what pairs with what, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval._baselines import Baseline
from pytest_llmeval._baselines import Entry
from pytest_llmeval._baselines import Record
from pytest_llmeval._baselines import doc_key
from pytest_llmeval._baselines import entry_of
from pytest_llmeval._baselines import pair
from pytest_llmeval._baselines import read_item
from pytest_llmeval._baselines import read_record
from pytest_llmeval._baselines import record_text
from pytest_llmeval._baselines import updated
from pytest_llmeval._baselines import write_item
from pytest_llmeval._errors import BaselineError
from pytest_llmeval._errors import DataError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Pick
from pytest_llmeval._scoring import resolve_metrics
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Field
from pytest_llmeval._task import MetricSpec
from pytest_llmeval._task import Task


PATH = Path("b/t.txt")


def task(output_type: str = "multiple_choice", *metrics: str, **more: Any) -> Task:
    text = Field("doc_to_text", text="{{q}}")
    specs = tuple(MetricSpec(name) for name in metrics or ("acc",))
    resolved = resolve_metrics(specs, output_type, processed="process_results" in more)
    return Task("t", Path("t.yaml"), output_type, text, text, metrics=resolved, test_split="test", version=1.0, **more)


def result(doc: int, score: Any = 1.0, *, key: str = "", prompt: str = "p", **more: Any) -> DocResult:
    scores = score if isinstance(score, dict) else {"none": {"acc": score}}
    return DocResult(doc, scores, key=DocKey(key or f"doc{doc}", prompt), **more)


def entry(doc: int, key: str, prompt: str = "p") -> Entry:
    return Entry(doc, DocKey(key, prompt), {"acc,none": 1})


def update(
    results: list[DocResult],
    old: Record | None = None,
    *,
    n_total: int | None = None,
    own: Task | None = None,
    settings: Settings | None = None,
    model: str = "m",
) -> Record:
    own, settings = own or task(), settings or Settings()
    total = len(results) if n_total is None else n_total
    summary = summarize_task(own, results, n_total=total, num_fewshot=None, bootstrap_iters=0)
    return updated(
        old, PATH, own, settings, results, summary, {"name": model, "fingerprint": "abc", "dtype": None}
    ).record


class TestText:
    def test_a_file(self) -> None:
        scored = [
            result(0, {"none": {"acc": 1.0, "acc_norm": 0.0}}, pick=Pick(1, (1,), 1.30721)),
            result(1, {"none": {"acc": 0.0, "acc_norm": 1.0}}, pick=Pick(0, (1, 26), 0.0012345)),
        ]
        text = record_text(update(scored, own=task("multiple_choice", "acc", "acc_norm")))
        lines = text.splitlines()
        assert lines[0] == "llmeval baseline, format 1"
        assert lines[1].startswith('digest: "')
        assert 'task: "t"' in lines
        assert "settings.version: 1.0" in lines
        assert 'settings.split: "test"' in lines
        assert "settings.num_fewshot: 0" in lines
        assert 'models: [{"dtype": null, "fingerprint": "abc", "name": "m"}]' in lines
        assert 'values: {"acc,none": 0.5, "acc_norm,none": 0.5}' in lines
        assert lines[-3:] == ["", "0 doc0 p B B 1.31 1 0", "1 doc1 p A B(26) 0.00123 0 1"]

    def test_it_comes_back_as_it_was(self) -> None:
        record = update([result(3, pick=Pick(1, (0,), math.inf)), result(5, 0.25), result(9, {"none": {}})])
        text = record_text(record)
        again = read_record(text, PATH)
        assert again.entries[0] == record.entries[0]
        assert again.entries[2].scores == {"acc,none": None}
        assert record_text(again) == text

    def test_equal_runs_write_equal_files(self) -> None:
        assert record_text(update([result(0)])) == record_text(update([result(0)]))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda text: "", "b/t.txt:1: expected 'llmeval baseline, format 1', found ''"),
            (lambda text: "x" + text, "this is not a baseline"),
            (lambda text: text.replace("format 1", "format 2", 1), "b/t.txt:1: has format 2, and this version reads"),
            (lambda text: text.replace("1 doc1 p - - - 1", "1 doc1 p - - - 0"), "b/t.txt:2: digest: the file was dam"),
            (lambda text: text[:-4], "(line 21: expected 7 fields, found 6)"),
            (lambda text: text.replace("- - - 1\n", "- - - nan\n"), "(line 20: a score is NaN"),
            (lambda text: text.replace("1 doc1 p - - - 1\n", ""), "(expected 2 docs, found 1)"),
            (lambda text: text.replace("docs: 2", "dogs: 2"), "digest: the file was damaged, merged or edited by hand"),
            (
                lambda text: text.replace("digest: ", "dig: ", 1),
                "b/t.txt:2: digest: the file was damaged, merged or edited by hand (found 'dig: ",
            ),
            (lambda text: text.replace("settings.split", "<<<<<<<"), "damaged, merged or edited"),
        ],
    )
    def test_what_was_changed_is_refused(self, change: Any, message: str) -> None:
        text = change(record_text(update([result(0), result(1)])))
        with pytest.raises(BaselineError) as caught:
            read_record(text, PATH)
        assert message in str(caught.value)

    @pytest.mark.parametrize(
        ("item", "text", "read"),
        [
            (1.0, "1", 1),
            (True, "1", 1),
            (0, "0", 0),
            (0.5, "0.5", 0.5),
            (-12.345678901, "-12.34568", -12.34568),
            (1e300, "1e+300", 1e300),
            (-math.inf, "-inf", -math.inf),
            ([-20.5, 7], "-20.5/7", [-20.5, 7]),
            ([1, [0.25, 0.75]], "1:0.25/0.75", [1, [0.25, 0.75]]),
            ("text", None, None),
            (["a", "b"], None, None),
            ({"a": 1}, None, None),
            ([1], None, None),
            (list(range(11)), None, None),
            (None, None, None),
        ],
    )
    def test_scores(self, item: Any, text: str | None, read: Any) -> None:
        assert write_item(item) == text
        if text is not None:
            assert read_item(text) == read

    @given(
        st.one_of(
            st.integers(-(10**6), 10**6), st.floats(allow_nan=False), st.lists(st.floats(-9, 9), min_size=2, max_size=9)
        )
    )
    def test_a_score_that_was_read_is_written_the_same(self, item: Any) -> None:
        text = write_item(item)
        assert text is not None
        assert write_item(read_item(text)) == text


class TestKeys:
    def test_columns_and_texts_decide(self) -> None:
        def of(data: dict[str, Any], *sent: tuple[str, ...]) -> DocKey:
            return doc_key(task(), 0, data, sent)

        one = of({"q": "x", "a": 1}, ("context", " yes"))
        assert (len(one.doc), len(one.prompt), one.cluster) == (10, 6, None)
        assert of({"a": 1, "q": "x"}, ("context", " yes")) == one
        assert of({"q": "x", "a": 2}, ("context", " yes")).doc != one.doc
        assert of({"q": "x", "a": 1}, ("context", " no")).prompt != one.prompt
        assert of({"q": "x", "a": 1}, ("contex", "t yes")).prompt != one.prompt

    def test_clusters(self) -> None:
        own = task(metadata={"cluster": "passage"})
        keys = [doc_key(own, i, {"q": i, "passage": passage}, []) for i, passage in enumerate("aab")]
        assert keys[0].cluster == keys[1].cluster != keys[2].cluster
        with pytest.raises(DataError, match=r"doc 4 of task t has no column 'passage' \(it has: q\)"):
            doc_key(own, 4, {"q": 1}, [])

    def test_many_docs_have_keys_of_their_own(self) -> None:
        keys = {doc_key(task(), 0, {"q": i}, [(str(i),)]) for i in range(5_000)}
        assert len({key.doc for key in keys}) == 5_000

    def test_a_result_travels_with_its_key(self) -> None:
        sent = result(3, pick=Pick(1, (0, 2), 0.5))
        assert DocResult.from_list(sent.to_list()) == sent


class TestPairing:
    def test_by_content_never_by_number(self) -> None:
        pairing = pair([entry(0, "a"), entry(1, "b")], [entry(0, "b"), entry(1, "a")])
        assert [(old.doc, new.doc) for old, new in pairing.pairs] == [(1, 0), (0, 1)]

    def test_what_has_no_partner(self) -> None:
        before = [entry(0, "a"), entry(1, "b"), entry(2, "gone")]
        now = [entry(0, "a"), entry(1, "b", "other"), entry(2, "new")]
        pairing = pair(before, now)
        assert [old.key.doc for old, _ in pairing.pairs] == ["a"]
        assert [found.key.doc for found in pairing.changed] == ["b"]
        assert [found.key.doc for found in pairing.unknown] == ["new"]
        assert [found.key.doc for found in pairing.unused] == ["b", "gone"]

    def test_copies_of_a_doc(self) -> None:
        """Those of the same number belong together, the others in their order."""
        before = [entry(0, "a"), entry(1, "a"), entry(2, "a")]
        assert [(o.doc, n.doc) for o, n in pair(before, [entry(2, "a")]).pairs] == [(2, 2)]
        moved = pair(before, [entry(1, "a"), entry(7, "a"), entry(8, "a")])
        assert [(o.doc, n.doc) for o, n in moved.pairs] == [(1, 1), (0, 7), (2, 8)]
        assert [n.doc for n in pair(before[:1], [entry(5, "a"), entry(6, "a")]).unknown] == [6]

    @given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
    def test_every_doc_has_one_place(self, before: list[str], now: list[str]) -> None:
        old, new = ([entry(i, key) for i, key in enumerate(side)] for side in (before, now))
        pairing = pair(old, new)
        assert all(first.key == second.key for first, second in pairing.pairs)
        assert sorted(n.doc for n in [*(n for _, n in pairing.pairs), *pairing.unknown]) == [n.doc for n in new]
        assert sorted(o.doc for o in [*(o for o, _ in pairing.pairs), *pairing.unused]) == [o.doc for o in old]
        # As many as can be.
        assert len(pairing.pairs) == sum(min(before.count(key), now.count(key)) for key in "abc")


class TestComparing:
    def compared(self, tmp_path: Path, now: list[DocResult], **more: Any) -> list[str]:
        baseline = Baseline("main", tmp_path, more.get("settings") or Settings())
        baseline.write(update([result(i) for i in range(4)]))
        comparison = baseline.compare(more.get("own") or task(), now)
        return comparison.problems(whole=more.get("whole", True), ignore_unpaired=more.get("ignore", False))

    def test_the_same_docs(self, tmp_path: Path) -> None:
        assert self.compared(tmp_path, [result(i, 0.0) for i in range(4)]) == []

    @pytest.mark.parametrize(
        ("own", "settings", "reason"),
        [
            (task(), Settings(num_fewshot=5), "num_fewshot was 0 and is 5"),
            (replace(task(), version=2.0), Settings(), "version was 1.0 and is 2.0"),
            (replace(task(), test_split="dev"), Settings(), 'split was "test" and is "dev"'),
            (task(), Settings(system="Be brief."), 'system was null and is "Be brief."'),
            (task(), Settings(chat_template=True), "chat_template was false and is true"),
        ],
    )
    def test_other_settings(self, tmp_path: Path, own: Task, settings: Settings, reason: str) -> None:
        assert reason in self.compared(tmp_path, [result(i) for i in range(4)], own=own, settings=settings)

    def test_what_does_not_pair(self, tmp_path: Path) -> None:
        docs = [result(i) for i in range(4)]
        changed = [replace(one, key=DocKey(f"doc{one.doc}", "q")) for one in docs]
        assert self.compared(tmp_path, changed) == ["the prompt of 4 docs (doc[0], doc[1] and 2 more) changed"]
        assert self.compared(tmp_path, changed, ignore=True) == [
            "the prompt of 4 docs (doc[0], doc[1] and 2 more) changed"
        ]
        assert self.compared(tmp_path, [*docs, result(9)]) == ["it lacks 1 doc (doc[9]) of the run"]
        assert self.compared(tmp_path, [*docs, result(9)], ignore=True) == []
        assert self.compared(tmp_path, docs[:3]) == ["the data no longer has 1 doc (doc[3]) of it"]
        assert self.compared(tmp_path, docs[:3], whole=False) == []
        assert self.compared(tmp_path, [result(0, key="x")], ignore=True) == ["it has none of the docs that were run"]
        assert self.compared(tmp_path, []) == ["it has none of the docs that were run"]

    def test_filters_and_metrics(self, tmp_path: Path) -> None:
        baseline = Baseline("main", tmp_path, Settings())
        baseline.write(update([result(0)]))
        own = task("multiple_choice", "acc", "acc_norm")
        comparison = baseline.compare(own, [result(0)])
        assert comparison.column_problems("acc", "none") == []
        assert comparison.column_problems("acc_norm", "none") == ["it has no metric acc_norm (it has: acc)"]
        assert comparison.column_problems("acc", "strict") == ["it has no filter strict (it has: none)"]
        median = replace(own, metrics=resolve_metrics((MetricSpec("acc", aggregation="median"),), "multiple_choice"))
        (reason,) = baseline.compare(median, [result(0)]).column_problems("acc", "none")
        assert reason.startswith('metric acc was {"aggregation": "mean"')


class TestUpdating:
    def test_a_part_replaces_what_was_run(self) -> None:
        old = update([result(i, 0.0) for i in range(4)])
        new = update([result(2, 1.0)], old, n_total=4)
        assert [(one.doc, one.scores["acc,none"]) for one in new.entries] == [(0, 0), (1, 0), (2, 1), (3, 0)]
        assert (new.header.docs, new.header.docs_total, new.header.values) == (4, 4, {"acc,none": 0.25})

    def test_a_part_may_come_first(self) -> None:
        new = update([result(3)], n_total=9)
        assert (new.header.docs, new.header.docs_total) == (1, 9)
        more = update([result(1)], new, n_total=9)
        assert [one.doc for one in more.entries] == [1, 3]

    def test_a_whole_run_replaces_everything(self) -> None:
        old = update([result(i, 0.0, prompt="old") for i in range(9)], settings=Settings(num_fewshot=5))
        assert update([result(0)], old) == update([result(0)])

    def test_parts_of_other_prompts_do_not_mix(self) -> None:
        old = update([result(0), result(1)], n_total=3)
        with pytest.raises(BaselineError, match=r"not updated: the prompt of 1 doc \(doc\[1\]\) changed; .* all docs"):
            update([result(1, prompt="q")], old, n_total=3)
        new = update([result(0, prompt="q"), result(1, prompt="q")], old, n_total=3)
        assert [one.key.prompt for one in new.entries] == ["q", "q"]

    def test_parts_of_other_settings_do_not_mix(self) -> None:
        old = update([result(0), result(1)])
        with pytest.raises(BaselineError, match="not updated: num_fewshot was 0 and is 5; this affects all docs"):
            update([result(0)], old, n_total=2, settings=Settings(num_fewshot=5))

    def test_parts_of_other_models_are_told(self) -> None:
        old = update([result(0), result(1)])
        new = update([result(0)], old, n_total=2, model="other")
        assert [one["name"] for one in new.header.models] == ["m", "other"]
        assert [one["name"] for one in update([result(1)], new, n_total=2).header.models] == ["m", "other"]

    @pytest.mark.parametrize(
        ("wrong", "what", "reason"),
        [
            (DocResult(1, {}, error="gold is 7"), "could not be evaluated", " (task t, doc 1: gold is 7)"),
            (result(1, nonfinite="inf"), "got no usable number (inf)", ""),
            (result(1, math.nan), "got no usable number (NaN)", ""),
            (result(1, -math.inf), "got no usable number (-inf)", ""),
            (result(1, [-math.inf, 3]), "got no usable number (-inf)", ""),
        ],
    )
    def test_unsound_answers_are_not_written(self, wrong: DocResult, what: str, reason: str) -> None:
        with pytest.raises(BaselineError) as error:
            update([result(0), wrong])
        assert str(error.value) == (
            f"b/t.txt: not written: 1 doc (doc[1]) {what}; a baseline contains only usable answers{reason}"
        )

    def test_what_changed_is_counted(self) -> None:
        old = update([result(i) for i in range(3)])
        results = [result(0, 0.0), result(1)]
        summary = summarize_task(task(), results, n_total=3, num_fewshot=None, bootstrap_iters=0)
        made = updated(old, PATH, task(), Settings(), results, summary, {"name": "n"})
        assert str(made) == "2 docs written, 1 kept, 1 with other scores; it now contains answers of 2 models"


class TestBaseline:
    def test_names_and_paths(self, tmp_path: Path) -> None:
        root, base = tmp_path / "root", tmp_path / "base"
        assert Baseline.named("main", root, base, Settings()).path == root / ".llmeval" / "baselines" / "main"
        assert Baseline.named("./main", root, base, Settings()).path == base / "main"
        assert Baseline.named("a/b", root, base, Settings()).path == base / "a" / "b"
        assert Baseline.named(str(tmp_path / "x"), root, base, Settings()).path == tmp_path / "x"
        assert Baseline.named("..", root, base, Settings()).path == base / ".."

    def test_an_unknown_name_tells_those_there_are(self, tmp_path: Path) -> None:
        with pytest.raises(SettingError, match=r"there is no baseline 'main' \(.*\); --llmeval-update-baseline writes"):
            Baseline.named("main", tmp_path, tmp_path, Settings()).check("--llmeval-baseline")
        for name in ("main", "old"):
            Baseline.named(name, tmp_path, tmp_path, Settings()).write(update([result(0)]))
        with pytest.raises(SettingError) as caught:
            Baseline.named("mian", tmp_path, tmp_path, Settings()).check("--llmeval-baseline")
        assert "; there are: main, old; did you mean 'main'?; --llmeval-update-baseline writes one" in str(caught.value)
        Baseline.named("main", tmp_path, tmp_path, Settings()).check("--llmeval-baseline")

    def test_a_folder_without_files_and_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        (tmp_path / "file").write_text("")
        with pytest.raises(SettingError, match="holds no baseline"):
            Baseline("e", tmp_path / "empty", Settings()).check("x")
        with pytest.raises(SettingError, match="is not a folder"):
            Baseline("f", tmp_path / "file", Settings()).check("x")
        with pytest.raises(SettingError, match=r"baseline 'f': cannot write .*: "):
            Baseline("f", tmp_path / "file", Settings()).write(update([result(0)]))

    def test_a_task_has_a_file_and_no_other_is_there(self, tmp_path: Path) -> None:
        baseline = Baseline("b", tmp_path / "b", Settings())
        record = update([result(0)])
        odd = replace(record, header=replace(record.header, task="a/b:c%"))
        assert baseline.write(odd).name == "a%2Fb%3Ac%25.txt"
        assert baseline.read("a/b:c%") == read_record(record_text(odd), PATH)
        assert baseline.read("a") is None
        assert [path.name for path in baseline.path.iterdir()] == ["a%2Fb%3Ac%25.txt"]
        assert (baseline.path / "a%2Fb%3Ac%25.txt").stat().st_mode & 0o444 == 0o444

    def test_a_run_is_written_with_what_the_model_says_of_itself(self, tmp_path: Path) -> None:
        baseline, results = Baseline("b", tmp_path, Settings()), [result(0)]
        summary = summarize_task(task(), results, n_total=1, num_fewshot=None, bootstrap_iters=0)
        facts = {"fingerprint": "abc", "model": {"model_dtype": "float32"}}
        assert str(baseline.update(task(), results, summary, "m", facts)) == "1 docs written"
        record = baseline.read("t")
        assert record is not None
        assert record.header.models == [{"dtype": "float32", "fingerprint": "abc", "name": "m"}]
        assert str(baseline.update(task(), results, summary, "m", {})) == "1 docs written, 0 with other scores"

    def test_a_renamed_file_is_refused(self, tmp_path: Path) -> None:
        baseline = Baseline("b", tmp_path, Settings())
        baseline.write(update([result(0)])).rename(tmp_path / "u.txt")
        with pytest.raises(BaselineError, match="is the baseline of 't': was the file renamed"):
            baseline.read("u")


def test_an_entry_needs_a_key() -> None:
    with pytest.raises(ValueError, match="doc 3 has no key"):
        entry_of(DocResult(3, {}))


def test_an_entry_as_a_result() -> None:
    kept = entry_of(result(3, {"none": {"f1": [0, 1], "bleu": ["a", "b"]}, "strict": {"acc": 1.0}}))
    assert kept.as_result(["none", "strict"]).scores == {"none": {"f1": [0, 1]}, "strict": {"acc": 1}}
