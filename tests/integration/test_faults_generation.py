"""Written answers: where they end, what the filters of the task file leave of them, and what that is worth."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import tablemodels
import yaml
from faultsuite import ECHO
from faultsuite import FaultSuite
from faultsuite import Run
from tokenizers import Regex
from tokenizers import Tokenizer
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from transformers import PreTrainedTokenizerFast

from pytest_llmeval import _sandbox


pytest_plugins = ["pytester"]


def writes(doc_to_target: str = "a", **generation: Any) -> dict[str, Any]:
    return {"output_type": "generate_until", "doc_to_target": doc_to_target, "generation_kwargs": generation}


ANYTHING = writes(until=[])


def pieces() -> tuple[Any, Any]:
    """A checkpoint that goes from one piece of text to the next; two line ends are one piece."""
    chains = [
        ["B", "Quick: 5 ", "Q:", "!"],
        ["C", "a", "\n", "b", ".", "c"],
        ["D", "x", "y", "z"],
        ["E", "u", "\n\n", "v"],
    ]
    following = {piece: then for chain in chains for piece, then in pairwise([*chain, "</s>"])}
    vocabulary = list(dict.fromkeys(["<pad>", "<s>", "</s>", *following, *following.values()]))
    tokenizer = Tokenizer(models.WordLevel({piece: i for i, piece in enumerate(vocabulary)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n\n|[\s\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    return tablemodels.chain(following, vocabulary), fast


class TestEnd:
    """B28: after `A` the model goes on `no x no x ...` without end, after `Q` it writes `yes` and ends."""

    def test_stops_and_limits(self, faults: FaultSuite) -> None:
        faults.add("a", writes(until="x", max_gen_toks=5), test=[{"q": "A", "a": "no "}])
        for name in ("max_gen_toks", "max_new_tokens", "max_tokens"):
            faults.add(name, writes(**{"until": [], name: 3}), test=[{"q": "A", "a": "no x no"}])
        faults.add("g", ANYTHING, test=[{"q": "A", "a": " ".join(["no", "x"] * 128)}, {"q": "Q", "a": "yes"}])
        faults.add("h1", writes(until=["x"]), test=[{"q": "x A", "a": "no "}])
        faults.add("h2", writes(until=["no x"]), test=[{"q": "A x", "a": ""}])
        faults.add("i", writes(until=["x"], temperature=0.0), test=[{"q": "A", "a": "no "}])
        run = faults.run(model="chain")
        for name in ("a", "max_gen_toks", "max_new_tokens", "max_tokens", "g", "h1", "h2", "i"):
            assert (name, run.value(name, "exact_match,none")) == (name, 1.0)
        long = "answers that ended at their length limit: g 1, max_gen_toks 1, max_new_tokens 1, max_tokens 1"
        run.printed.stdout.fnmatch_lines([long])

    def test_where_a_text_is_cut(self, faults: FaultSuite) -> None:
        faults.add("b", writes(until="Q:"), test=[{"q": "B", "a": "Quick: 5 "}])
        faults.add("c", writes(until=[".", "\n"]), test=[{"q": "C", "a": "a"}])
        faults.add("d", writes(until=[""]), test=[{"q": "D", "a": "xyz"}])
        faults.add("e", {**ANYTHING, "generation_kwargs": None}, test=[{"q": "E", "a": "u"}])
        run = faults.run(model=faults.checkpoint("pieces", pieces))
        assert {name: run.texts(name)[0] for name in "bcde"} == {"b": "Quick: 5 ", "c": "a", "d": "xyz", "e": "u"}
        assert [run.value(name, "exact_match,none") for name in "bcde"] == [1.0] * 4


class TestTargets:
    """B17, B18: the type of the field decides what is right, and each doc for itself."""

    def test_texts_that_look_like_lists(self, faults: FaultSuite) -> None:
        faults.pytester.makeconftest(ECHO)
        cases = {
            "a": ("{{a}}", [{"q": "[1, 2, 3]", "a": "[1, 2, 3]"}], 1.0),
            "b": ("a", [{"q": "[1, 2, 3]", "a": "[1, 2, 3]"}], 1.0),
            "c": ("{{a}}", [{"q": "v", "a": ["u", "v"]}], 1.0),
            "d": ("a", [{"q": "v", "a": ["u", "v"]}], 1.0),
            "e": ("a", [{"q": "7", "a": 7}, {"q": "07", "a": 7}], 0.5),
            "e2": ("{{a}}", [{"q": "7", "a": 7}, {"q": "07", "a": 7}], 0.5),
        }
        for name, (target, docs, _) in cases.items():
            faults.add(name, {**ANYTHING, "doc_to_target": target}, test=docs)
        run = faults.run(model=None)
        found = {name: run.value(name, "exact_match,none") for name in cases}
        assert found == {name: right for name, (_, _, right) in cases.items()}

    def test_several_references(self, faults: FaultSuite) -> None:
        faults.pytester.makeconftest(ECHO)
        (faults.folder / "own.py").write_text(
            """
def partly(references, predictions):
    return 0.5 if references == ["u"] else 0.25

def some(doc):
    return doc["a"][0] if doc["q"] == "a" else doc["a"]
"""
        )
        metric = "metric_list: [{metric: !function own.partly, aggregation: mean, higher_is_better: true}]\n"
        faults.add("a", ANYTHING, metric, test=[{"q": "z", "a": ["u", "v"]}])
        docs = [{"q": "a", "a": ["a"]}, {"q": "c", "a": ["b", "c"]}]
        function = writes(until=[]) | {"doc_to_target": None}
        del function["doc_to_target"]
        for name, rows in (("forth", docs), ("back", docs[::-1])):
            faults.add(f"b_{name}", ANYTHING, test=rows)
            faults.add(f"c_{name}", function, "doc_to_target: !function own.some\n", test=rows)
        run = faults.run(model=None)
        assert run.value("a", "partly,none") == 0.5
        names = [f"{case}_{order}" for case in "bc" for order in ("forth", "back")]
        assert {name: run.value(name, "exact_match,none") for name in names} == dict.fromkeys(names, 1.0)


GSM8K = r"""
filter_list:
  - name: strict-match
    filter:
      - {function: regex, regex_pattern: '#### (\-?[0-9\.\,]+)'}
      - {function: take_first}
  - name: flexible-extract
    filter:
      - {function: regex, regex_pattern: "(-?[$0-9.,]{2,})|(-?[0-9]+)", group_select: -1}
      - {function: take_first}
metric_list:
  - metric: exact_match
    ignore_case: true
    ignore_punctuation: false
    regexes_to_ignore: [",", "\\$", "(?s).*#### ", "\\.$"]
"""


def test_gsm8k(faults: FaultSuite) -> None:
    """B25: response, gold, then what the strict and the flexible filter leave, and whether that is right."""
    cases = [
        ("He made 70,000.\n#### 70,000", 70000, "70,000", 1, "70,000", 1),
        ("The total is $1,234.", 1234, "[invalid]", 0, "$1,234.", 1),
        ("The total is 72 clips, altogether.", 72, "[invalid]", 0, "72", 1),
        ("It costs 5 dollars", 5, "[invalid]", 0, "5", 1),
        ("#### -3", -3, "-3", 1, "-3", 1),
        ("#### 12 apples, not #### 13", 12, "12", 1, "13", 0),
        ("#### 29.00", 29, "29.00", 0, "29.00", 0),
        ("So the answer is 12. Hmm...", 12, "[invalid]", 0, "...", 0),
        ("答えは７２", 72, "[invalid]", 0, "[invalid]", 0),
    ]
    faults.pytester.makeconftest(ECHO)
    docs = [{"q": response, "a": f"48 / 2 = 24\n#### {gold}"} for response, gold, *_ in cases]
    faults.add("t", ANYTHING, GSM8K, test=docs)
    run = faults.run(model=None)
    strict, flexible = (filtered(run, name) for name in ("strict-match", "flexible-extract"))
    found = [(*strict[doc], *flexible[doc]) for doc in range(len(cases))]
    assert found == [tuple(case[2:]) for case in cases]
    assert run.value("t", "exact_match,strict-match") == pytest.approx(3 / 9)
    assert run.value("t", "exact_match,flexible-extract") == pytest.approx(5 / 9)


def filtered(run: Run, name: str) -> dict[int, tuple[Any, float]]:
    return {
        row["doc_id"]: (row["filtered_resps"][0], row["exact_match"])
        for row in run.samples["t"]
        if row["filter"] == name
    }


def test_regex(faults: FaultSuite) -> None:
    """B26: one task a pattern; and the same pattern in both of YAML's quotes."""
    cases = [
        ("(?i)answer is (yes)|answer is (no)", 0, "Answer is no", "no"),
        ("x(foo)?(bar)?", 0, "x", "[invalid]"),
        (r"#### (\d+)", 1, "#### 42", "[invalid]"),
        (r"\d+", -1, "3 then 7", "7"),
        ("Answer: (.*)", 0, "Reason\nAnswer: 4 \nBye", "4"),
        ("(?s)<ans>(.*?)</ans>", 0, "<ans>\n4\n</ans>", "4"),
        ("<ans>(.*?)</ans>", 0, "<ans>\n4\n</ans>", "[invalid]"),
        (r"^Answer: (\d+)", 0, "Hi\nAnswer: 4", "[invalid]"),
        (r"(?m)^Answer: (\d+)", 0, "Hi\nAnswer: 4", "4"),
        (r"(\d+)", 0, "", "[invalid]"),
    ]
    faults.pytester.makeconftest(ECHO)
    for number, (pattern, group, response, result) in enumerate(cases):
        step = {"function": "regex", "regex_pattern": pattern, "group_select": group}
        spec = {"filter_list": [{"name": "own", "filter": [step, {"function": "take_first"}]}]}
        faults.add(f"t{number}", ANYTHING, spec, test=[{"q": response, "a": result}])
    for name, written in (("double", r'"#### (\\-?\\d+)"'), ("single", r"'#### (\-?\d+)'")):
        text = f"filter_list: [{{name: own, filter: [{{function: regex, regex_pattern: {written}}}]}}]\n"
        assert yaml.safe_load(text)["filter_list"][0]["filter"][0]["regex_pattern"] == r"#### (\-?\d+)"
        text = text.replace("}]}]", "}, {function: take_first}]}]")
        faults.add(name, ANYTHING, text, test=[{"q": "so #### -42", "a": "-42"}])
    run = faults.run(model=None)
    found = {name: run.value(name, "exact_match,own") for name in run.results["results"]}
    assert found == dict.fromkeys([*(f"t{number}" for number in range(len(cases))), "double", "single"], 1.0)


class TestSamples:
    """B32: several answers to one doc."""

    def test_votes(self, faults: FaultSuite) -> None:
        faults.pytester.makeconftest(ECHO)
        number = {"function": "regex", "regex_pattern": r"(\d+)"}
        voted = [{"function": "majority_vote"}, {"function": "take_first"}]
        sampled = writes(until=[], do_sample=True, temperature=1.0)
        faults.add(
            "e",
            sampled,
            {"repeats": 3, "filter_list": [{"name": "maj", "filter": [number, *voted]}]},
            test=[{"q": "so 4 || it is 4 || 5", "a": "4"}],
        )
        faults.add(
            "f",
            sampled,
            {"repeats": 2, "filter_list": [{"name": "maj", "filter": voted}]},
            test=[{"q": "5 || 4", "a": "5"}],
        )
        faults.add("g", sampled, {"repeats": 3}, test=[{"q": "a || b || c", "a": "a"}])
        faults.add("greedy", writes(until=[]), {"repeats": 2}, test=[{"q": "a || b", "a": "a"}])
        run = faults.run(model=None)
        assert [run.value(name, "exact_match,maj") for name in "ef"] == [1.0, 1.0]
        assert run.samples["e"][0]["resps"] == [["so 4", "it is 4", "5"]]
        assert run.samples["e"][0]["filtered_resps"] == ["4"]
        assert [run.value(name, "exact_match,none") for name in ("g", "greedy")] == [1.0, 1.0]
        run.printed.stdout.fnmatch_lines_random(
            [
                "*g.yaml:*: repeats: of 3 responses to a doc one is scored; use filter_list to combine*",
                "g: filter none scores 1 of 3 responses; the others are not used",
                "*greedy.yaml:*: repeats: greedy decoding gives the same text 2 times; set do_sample: true",
                "greedy: the 2 repeats of a doc are equal: decoding is greedy; set do_sample: true",
            ]
        )

    def test_pass_at_k(self, faults: FaultSuite) -> None:
        if reason := _sandbox.available():
            pytest.skip(reason)
        faults.pytester.makeconftest(ECHO)
        self.add_programs(faults, "a", 5, [2], [1, 2, 5])
        self.add_programs(faults, "b", 10, [3], [5])
        self.add_programs(faults, "c", 4, [1, 4], [2])
        self.add_programs(faults, "d", 3, [0, 1], [5])
        run = faults.run("--llmeval-allow-code", model=None)
        assert [run.value("a", f"pass@{k},none") for k in (1, 2, 5)] == pytest.approx([0.4, 0.7, 1.0])
        assert run.value("b", "pass@5,none") == pytest.approx(0.916667, abs=1e-6)
        assert run.value("c", "pass@2,none") == pytest.approx(0.75)
        # Never a number: known from the file alone.
        assert "d" not in run.results["results"]
        message = "*d.yaml:*: metric_list: pass@5 is not defined for the 3 samples that filter *"
        run.printed.stdout.fnmatch_lines([message])
        run.printed.stdout.fnmatch_lines(["*4 passed, 1 error*"])

    def add_programs(self, faults: FaultSuite, name: str, n: int, passes: list[int], k: list[int]) -> None:
        """Docs with n programs each, of which so many pass."""
        metric = {"metric": "pass_at_k", "k": k, "program": "{{completion}}\n{{target}}"}
        keys = {"unsafe_code": True, "repeats": n, "metric_list": [metric]}
        keys["filter_list"] = [{"name": "none", "filter": [{"function": "take_first_k", "k": n}]}]
        docs = [{"q": " || ".join(["ok = 1"] * c + ["ok = 0"] * (n - c)), "a": "assert ok"} for c in passes]
        faults.add(name, writes(until=[], do_sample=True, temperature=0.8), keys, test=docs)
