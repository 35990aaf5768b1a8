"""What reaches the model: from task file and data to texts, tokens and log-likelihoods."""

from __future__ import annotations

from typing import Any

import pytest
from faultsuite import CHECKPOINTS
from faultsuite import CHOICE
from faultsuite import DRAWN
from faultsuite import GENERATE
from faultsuite import ROLLING
from faultsuite import FaultSuite
from faultsuite import add_draws
from faultsuite import priced
from faultsuite import prompts


pytest_plugins = ["pytester"]

LN_YES, LN_NO = -0.693147, -1.203973


def near(*values: float) -> Any:
    return pytest.approx(list(values), abs=1e-4)


class TestStartOfText:
    """B01: one BOS, in front, and never a token to be predicted."""

    def test_in_a_chat(self, faults: FaultSuite) -> None:
        faults.add("t", CHOICE, test=[{"q": "Q x", "label": 0}])
        template = "<s> {{ messages[0]['content'] }} A{{ '\\n' }}"
        model = faults.checkpoint("bigram-bos-chat", CHECKPOINTS["bigram-bos"], chat_template=template)
        run = faults.run("--llmeval-chat-template", model=model)
        assert run.asked("t") == [("<s> Q x A\n", "yes"), ("<s> Q x A\n", "no")]
        assert run.lls("t") == near(LN_YES, LN_NO)

    def test_without_a_chat(self, faults: FaultSuite) -> None:
        faults.add("t", CHOICE, test=[{"q": "Q x A", "label": 0}])
        faults.add("r", ROLLING, test=[{"q": "Q x A"}])
        run = faults.run(model="bigram-bos")
        assert run.lls("t") == near(LN_YES, LN_NO)
        assert run.samples["r"][0]["word_perplexity"] == near(-2.813411, 3)


class TestBorder:
    """B02, B03, B04: where a context ends and its continuation begins."""

    def test_sentencepiece(self, faults: FaultSuite) -> None:
        faults.add("t", CHOICE, test=[{"q": "Q A", "label": 0}])
        faults.add("bare", CHOICE, {"doc_to_text": "", "target_delimiter": ""}, test=[{"label": 0}])
        run = faults.run(model="uniform-18")
        assert run.lls("t") == near(-2.890372, -2.890372)
        assert run.lls("bare") == near(-2.890372, -2.890372)

    def test_tokens_that_span_it(self, faults: FaultSuite) -> None:
        own = {**CHOICE, "doc_to_choice": "{{c}}", "target_delimiter": ""}
        docs = [
            {"q": "An", "c": [" x", "swer"], "label": 0},
            {"q": "Ans", "c": ["wer", " x"], "label": 0},
            {"q": "An", "c": ["swer x"], "label": 0},
        ]
        faults.add("t", own, test=docs)
        run = faults.run(model="uniform-16")
        assert run.lls("t", 0) == near(-2.772589, -5.545177)
        assert run.lls("t", 1) == near(-2.772589, -2.772589)
        assert run.lls("t", 2) == near(-8.317766)
        assert run.value("t", "acc,none") == 1.0

    def test_white_space(self, faults: FaultSuite) -> None:
        splits = {"train": [{"q": "a", "label": 0}], "test": [{"q": "b", "label": 1}]}
        shots = {**CHOICE, "training_split": "train", "fewshot_split": "train", "num_fewshot": 1}
        faults.add("a", shots, {"doc_to_text": "Q: {{q}}\nA:", "target_delimiter": " "}, **splits)
        faults.add("b", shots, {"doc_to_text": "Q: {{q}}\nA: ", "target_delimiter": ""}, **splits)
        faults.add("plain", CHOICE, test=[{"q": "Q x A", "label": 0}])
        for name, space in (("blank", " "), ("newline", "\n"), ("tab", "\t")):
            moved = {"doc_to_text": "{{q}}" + space, "target_delimiter": ""}
            faults.add(name, CHOICE, moved, test=[{"q": "Q x A", "label": 0}])
        run = faults.run()
        assert run.asked("a") == [("Q: a\nA: yes\n\nQ: b\nA:", " yes"), ("Q: a\nA: yes\n\nQ: b\nA:", " no")]
        assert run.asked("b") == [("Q: a\nA: yes\n\nQ: b\nA: ", "yes"), ("Q: a\nA: yes\n\nQ: b\nA: ", "no")]
        assert run.asked("tab")[0] == ("Q x A\t", "yes")
        for name in ("plain", "blank", "newline", "tab"):
            assert run.lls(name) == near(LN_YES, LN_NO)

    def test_white_space_of_a_choice(self, faults: FaultSuite) -> None:
        """Lengths 2 and 4: pick b if its price is less than twice that of a. Stripped they are 1 and 3, with
        the delimiter 3 and 5.
        """
        spaced = {**CHOICE, "doc_to_choice": [" a", " bbb"]}
        faults.add("t", spaced, test=[{"q": "near", "label": 1}, {"q": "far", "label": 0}])
        prices = {"near": {"a": -1.0, "bbb": -1.8}, "far": {"a": -1.0, "bbb": -2.2}}
        run = faults.run(model=faults.checkpoint("spaced", lambda: priced(prices)))
        assert run.asked("t") == [("near", "  a"), ("near", "  bbb")]
        assert run.lls("t", 1) == near(-1.0, -2.2)
        assert (run.value("t", "acc,none"), run.value("t", "acc_norm,none")) == (0.5, 1.0)
        run.printed.stdout.fnmatch_lines(["*t.yaml:*: doc_to_choice: ' a' begins with white space and *"])


class TestWindow:
    """B05: what does not fit the window."""

    def test_a_long_context_loses_its_left_end_and_the_report_says_so(self, faults: FaultSuite) -> None:
        faults.add(
            "t",
            CHOICE,
            {"doc_to_choice": ["yes no", "no"]},
            test=[{"q": "Q x A", "label": 0}, {"q": "A", "label": 0}],
        )
        run = faults.run(args="dtype=float32,max_length=3")
        assert run.lls("t", 0) == near(-2.995732, LN_NO)
        assert run.lls("t", 1) == near(-2.995732, LN_NO)
        run.printed.stdout.fnmatch_lines(["requests whose context was cut on the left to fit the model: t 1"])

    def test_a_doc_whose_continuation_does_not_fit_is_an_error(self, faults: FaultSuite) -> None:
        own = {**CHOICE, "doc_to_choice": "{{c}}", "metadata": {"gates": ["acc >= 0.1"]}}
        docs = [
            {"q": "Q x A", "c": ["yes", "no"], "label": 0},
            {"q": "Q", "c": ["A yes no x", "no"], "label": 0},
            {"q": "Q x A", "c": ["no", "yes"], "label": 0},
        ]
        faults.add("t", own, test=docs)
        run = faults.run(args="dtype=float32,max_length=3")
        run.printed.stdout.fnmatch_lines(["*t doc 1: *continuation of 4 tokens*"])
        # The other docs are scored, and the gate does not pass over the lost one.
        run.printed.stdout.fnmatch_lines(["*1 failed, 1 passed, 1 error, 1 wrong*"])
        run.printed.stdout.fnmatch_lines(["gate failed: *1 doc could not be evaluated: *doc 1: *of 4 tokens*"])
        assert run.value("t", "acc,none") == 0.5
        assert run.printed.ret == 1

    def test_a_prompt_keeps_its_end(self, faults: FaultSuite) -> None:
        limited = {**GENERATE, "generation_kwargs": {"until": [], "max_gen_toks": 3}}
        faults.add("t", limited, test=[{"q": "x x x x x x x x Q", "a": "yes"}])
        run = faults.run(model="chain", args="dtype=float32,max_length=6")
        assert run.texts("t") == ["yes"]
        run.printed.stdout.fnmatch_lines(["requests whose context was cut on the left to fit the model: t 1"])


class TestChat:
    """B19: the delimiter and the prefix of an answer, in and out of a chat."""

    SHOWS_ROLES = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</{{ m['role'] }}>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    TURN = "<system>Pick one.</system><user>q\nAnswer:</user><assistant>"
    BRIEF = "<system>Be brief.\n\nPick one.</system><user>p\nAnswer:"

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            (
                [],
                {
                    "plain": ("Pick one.q\nAnswer:", " A"),
                    "shot-prefix": ("Pick one.p\nAnswer: The answer is B\n\nq\nAnswer: The answer is", " A"),
                },
            ),
            (
                ["--llmeval-chat-template"],
                {
                    "plain": (TURN, "A"),
                    "prefix": (f"{TURN}The answer is", " A"),
                    "prefix-blank": (f"{TURN}The answer is ", "A"),
                },
            ),
            (
                ["--llmeval-chat-template", "--llmeval-system=Be brief."],
                {"shot": (f"{BRIEF} B\n\nq\nAnswer:</user><assistant>", "A")},
            ),
            (
                ["--llmeval-chat-template", "--llmeval-system=Be brief.", "--llmeval-fewshot-multiturn"],
                {"shot": (f"{BRIEF}</user><assistant>B</assistant><user>q\nAnswer:</user><assistant>", "A")},
            ),
        ],
        ids=["none", "template", "one turn", "multiturn"],
    )
    def test_rows(self, faults: FaultSuite, options: list[str], expected: dict[str, tuple[str, str]]) -> None:
        own = {**CHOICE, "doc_to_text": "{{q}}\nAnswer:", "doc_to_choice": ["A", "B"], "description": "Pick one."}
        changes: dict[str, dict[str, Any]] = {
            "plain": {},
            "prefix": {"gen_prefix": "The answer is"},
            "prefix-blank": {"gen_prefix": "The answer is "},
            "shot": {"num_fewshot": 1},
            "shot-prefix": {"num_fewshot": 1, "gen_prefix": "The answer is"},
        }
        splits = {"train": [{"q": "p", "label": 1}], "test": [{"q": "q", "label": 0}]}
        for name in expected:
            faults.add(name, own, {"training_split": "train"}, changes[name], **splits)
        model = faults.checkpoint("uniform-roles", CHECKPOINTS["uniform-16"], chat_template=self.SHOWS_ROLES)
        run = faults.run(*options, model=model)
        assert {name: run.asked(name)[0] for name in expected} == expected


class TestTextsAsWritten:
    """B20: YAML's truth values, numbers and dates are texts where texts are meant."""

    def test_choices_and_prompts(self, faults: FaultSuite) -> None:
        own = {"output_type": "multiple_choice", "doc_to_target": "label"}
        faults.add("words", own, "doc_to_choice: [no, yes]\n", test=[{"q": "Q x A", "label": 1}])
        faults.add("numbers", own, "doc_to_choice: [0, 1]\n", test=[{"q": "a", "label": 1}])
        written = "doc_to_choice: [on, 12:30, 3.10, 1_000, 2024-01-02]\n"
        faults.add("odd", own, written, test=[{"q": "a", "label": 4}])
        faults.add("digits", own, "doc_to_choice: c\n", test=[{"q": "12", "c": ["a", "b"], "label": 1}])
        run = faults.run()
        assert run.asked("words") == [("Q x A", " no"), ("Q x A", " yes")]
        assert run.lls("words") == near(LN_NO, LN_YES)
        assert run.value("words", "acc,none") == 1.0
        assert run.asked("numbers") == [("a", " 0"), ("a", " 1")]
        assert [text for _, text in run.asked("odd")] == [" on", " 12:30", " 3.10", " 1_000", " 2024-01-02"]
        assert run.asked("digits") == [("12", " a"), ("12", " b")]
        assert run.samples["digits"][0]["target"] == "1"

    def test_model_arguments(self, faults: FaultSuite) -> None:
        faults.pytester.makeconftest(
            """
            from pytest_llmeval import FakeLM

            def pytest_llmeval_register_models(register):
                register("asked", lambda rest, args: FakeLM(text_of=f"{rest} {args['revision']}"))
            """
        )
        faults.add("t", GENERATE, test=[{"q": "a", "a": "x"}])
        run = faults.run("--llmeval-model=asked:0007", "--llmeval-model-args=revision=0001", model=None)
        assert run.texts("t") == ["0007 0001"]


SHOTS = {"doc_to_target": "{{a}}", "num_fewshot": 2}
QA = [{"q": f"Q{i}", "a": f"A{i}"} for i in range(3)]


class TestExamples:
    def test_a_doc_is_never_its_own(self, faults: FaultSuite) -> None:
        """B21 a, b: of three docs the examples are the other two."""
        for name, keys in {
            "a": {"test_split": "s"},
            "b": {"validation_split": "s", "test_split": None, "fewshot_split": "s"},
        }.items():
            faults.add(name, GENERATE, SHOTS, keys, s=QA)
        run = faults.run(model="chain")
        for name in ("a", "b"):
            for doc in range(3):
                *shots, asked = run.asked(name, doc)[0][0].split("\n\n")
                assert asked == f"Q{doc}"
                assert sorted(shots) == [f"Q{i} A{i}" for i in range(3) if i != doc]

    def test_pools(self, faults: FaultSuite) -> None:
        """B21 c, d, e: too few, just enough, and changed by process_docs."""
        faults.add("c", GENERATE, SHOTS, {"num_fewshot": 3}, test=QA)
        train = [{"q": "P0", "a": "0"}, {"q": "P1", "a": "1"}]
        null = {"validation_split": "val", "test_split": None, "training_split": "train"}
        faults.add("d", GENERATE, SHOTS, null, train=train, val=QA)
        (faults.folder / "own.py").write_text(
            "def shout(docs):\n    return docs.map(lambda doc: {'q': doc['q'] + '!'})\n"
        )
        shout = "fewshot_split: train\nprocess_docs: !function own.shout\n"
        faults.add("e", GENERATE, SHOTS, shout, train=train, test=QA)
        run = faults.run(model="chain")
        few = "task c: 3 examples are needed, but split 'test' has 2 besides the evaluated doc (of 3); lower *"
        run.printed.stdout.fnmatch_lines([few, "*1 failed, 6 wrong*"])
        for doc in range(3):
            *shots, asked = run.asked("d", doc)[0][0].split("\n\n")
            assert (sorted(shots), asked) == (["P0 0", "P1 1"], f"Q{doc}")
            *shots, asked = run.asked("e", doc)[0][0].split("\n\n")
            assert (sorted(shots), asked) == (["P0! 0", "P1! 1"], f"Q{doc}!")
        assert run.printed.ret == 1

    @pytest.mark.parametrize(
        ("options", "paths", "docs"),
        [
            ([], ("tasks",), [0, 1, 2, 3]),
            ([], ("tasks/t.yaml::doc[3]",), [3]),
            (["--llmeval-limit=2"], ("tasks",), [0, 1]),
            ([], tuple(f"tasks/t.yaml::doc[{i}]" for i in (3, 1, 0)), [0, 1, 3]),
        ],
        ids=["full", "one", "limit", "reversed"],
    )
    def test_they_are_those_of_the_full_run(
        self, faults: FaultSuite, options: list[str], paths: tuple[str, ...], docs: list[int]
    ) -> None:
        """B23; spread over workers in `test_faults_workers`."""
        add_draws(faults)
        run = faults.run(*options, paths=paths, model="chain")
        assert prompts(run) == {doc: DRAWN[doc] for doc in docs}

    def test_another_seed_draws_others(self, faults: FaultSuite) -> None:
        add_draws(faults)
        other = prompts(faults.run("--llmeval-fewshot-seed=7", model="chain"))
        assert other == prompts(faults.run("--llmeval-fewshot-seed=7", model="chain"))
        assert other != DRAWN


class TestTemplates:
    """B24."""

    def test_what_is_rendered(self, faults: FaultSuite) -> None:
        doc = {"q": "1+1", "a": "2"}
        described = {"description": "Answer the question.\n\n", "doc_to_text": "Q: {{q}}\nA:"}
        faults.add("a", GENERATE, described, test=[doc])
        faults.add("b", GENERATE, {"doc_to_text": "{{q}}\n"}, test=[doc])
        faults.add("c", GENERATE, {"doc_to_text": "Q: {q}\nA:"}, test=[doc])
        faults.add("e", GENERATE, test=[{"q": "{{7*7}} {x}", "a": "2"}])
        run = faults.run(model="chain")
        assert run.asked("a")[0][0] == "Answer the question.\n\nQ: 1+1\nA:"
        assert run.asked("b")[0][0] == "1+1\n"
        assert run.asked("c")[0][0] == "Q: {q}\nA:"
        assert run.asked("e")[0][0] == "{{7*7}} {x}"
        run.printed.stdout.fnmatch_lines(["*c.yaml:*doc_to_text: no field is used, and {q} is plain text*"])
