"""From log-likelihoods to the numbers of tasks and groups, as they stand in the report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from faultsuite import CHOICE
from faultsuite import GENERATE
from faultsuite import ROLLING
from faultsuite import FaultSuite
from faultsuite import priced


pytest_plugins = ["pytester"]


def near(value: Any) -> Any:
    return pytest.approx(value, abs=1e-4)


class TestRolling:
    """B07."""

    def test_windows(self, faults: FaultSuite) -> None:
        faults.add("t", ROLLING, test=[{"q": "Q x A yes no Q"}])
        for args in ("dtype=float32,max_length=4", "dtype=float32"):
            run = faults.run(args=args)
            assert run.samples["t"][0]["byte_perplexity"] == near([-7.195437, 14])
            assert run.value("t", "word_perplexity,none") == near(math.exp(7.195437 / 6))

    def test_denominators(self, faults: FaultSuite) -> None:
        """-4 over "a b" and -6 over "c d e f"; -3 over "g h" and a line end, which counts a word and a byte."""
        prices = {"<s>": {"a": -1.0, "c": -1.5, "g": -1.0}, "a": {"b": -3.0}, "g": {"h": -2.0}}
        prices |= {"c": {"d": -1.5}, "d": {"e": -1.5}, "e": {"f": -1.5}}
        faults.add("b", ROLLING, test=[{"q": "a b"}, {"q": "c d e f"}])
        faults.add("c", ROLLING, test=[{"q": "g h\n"}])
        run = faults.run(model=faults.checkpoint("rolling", lambda: priced(prices)))
        assert run.value("b", "word_perplexity,none") == near(5.294490)
        assert run.value("b", "byte_perplexity,none") == near(2.718282)
        assert run.value("b", "bits_per_byte,none") == near(1.442695)
        assert run.value("c", "word_perplexity,none") == near(2.718282)
        run.printed.stdout.fnmatch_lines(
            ["|b *", "|*|word_perplexity|*|5.2945|*", "|c *", "|*|word_perplexity|*|2.7183|*"]
        )


def test_batches_change_nothing(faults: FaultSuite) -> None:
    """B09: lengths 2 to 13, prompts of 4, 1 and 3 words, and the padding is a word too; in any order."""
    texts = [" ".join(f"w{(7 * i + 5 * j) % 60 + 3}" for j in range(i + 1)) for i in range(12)]
    scored = {"output_type": "loglikelihood", "doc_to_target": "{{a}}"}
    faults.add("lls", scored, test=[{"q": text, "a": f" w{i + 20}"} for i, text in enumerate(texts)])
    prompts = ["w10 w11 w12 w13", "w20", "w5 <pad> w7"]
    limited = {**GENERATE, "generation_kwargs": {"until": [], "max_gen_toks": 8}}
    faults.add("texts", limited, test=[{"q": prompt, "a": "x"} for prompt in prompts])
    reverse = tuple(f"tasks/lls.yaml::doc[{i}]" for i in reversed(range(12)))
    alone = faults.run(model="tiny", args="dtype=float32,batch_size=1")
    several = faults.run(model="tiny", args="dtype=float32,batch_size=5")
    reversed_ = faults.run(model="tiny", args="dtype=float32,batch_size=12", paths=(*reverse, "tasks/texts.yaml"))
    expected = [run_ll(alone, doc) for doc in range(12)]
    assert len({round(value, 2) for value in expected}) == 12
    for run in (several, reversed_):
        assert [run_ll(run, doc) for doc in range(12)] == near(expected)
        assert run.texts("texts") == alone.texts("texts")


def run_ll(run: Any, doc: int) -> float:
    return float(run.lls("lls", doc)[0])


def test_half_precision_makes_no_ties(faults: FaultSuite) -> None:
    """B10."""
    faults.add("t", {**CHOICE, "doc_to_choice": ["a", "b"]}, test=[{"q": "d", "label": 1}])
    run = faults.run(model="half", args="dtype=bfloat16")
    assert run.lls("t") == pytest.approx([-8.000797, -7.992984], abs=1e-6)
    assert run.value("t", "acc,none") == 1.0


NEVER_RIGHT = "docs without a usable loglikelihood ({}), none of them right: {}"


class TestNotANumber:
    """B11."""

    def test_a_broken_model_is_right_nowhere(self, faults: FaultSuite) -> None:
        """The right choice is the first one, which is the argmax of anything with NaN in front."""
        gates = {"metadata": {"gates": ["acc >= 0", "acc_norm <= 1"]}}
        faults.add("a", CHOICE, gates, test=[{"q": "Q x A", "label": 0}] * 3)
        run = faults.run(model="broken")
        assert (run.value("a", "acc,none"), run.value("a", "acc_norm,none")) == (0.0, 0.0)
        run.printed.stdout.fnmatch_lines(
            [
                "gate failed: *gate[[]acc[]]: a: acc 0.0000 *; 3 docs got no usable number from the model (NaN)",
                "gate failed: *gate[[]acc_norm[]]: *; 3 docs got no usable number from the model (NaN)",
                NEVER_RIGHT.format("NaN", "a 3"),
                "*2 failed, 3 wrong*",
            ]
        )
        assert run.printed.ret == 1

    def test_single_answers(self, faults: FaultSuite) -> None:
        faults.pytester.makeconftest(
            """
            import pytest
            from pytest_llmeval import FakeLM

            @pytest.fixture(scope="session")
            def llmeval_model():
                return FakeLM(loglikelihood_of=lambda context, continuation: float(continuation))
            """
        )
        self.add_choices(faults, "b", ["-3.2", "nan", "-1.0"], 1)
        self.add_choices(faults, "c", ["-inf", "-2.0"], 1)
        self.add_choices(faults, "d", ["-inf", "-inf"], 0)
        scored = {
            "output_type": "loglikelihood",
            "doc_to_target": "{{' ' ~ a}}",
            "metric_list": [{"metric": "perplexity"}],
        }
        for name, lls in {"e": ["-1", "nan"], "f": ["-1", "-inf"], "g": ["-800"]}.items():
            gates = {"metadata": {"gates": ["perplexity <= 1e300"]}}
            faults.add(name, scored, gates, test=[{"q": "q", "a": ll} for ll in lls])
        run = faults.run(model=None)
        assert [run.value(name, "acc,none") for name in "bcd"] == [0.0, 1.0, 0.0]
        assert math.isnan(run.value("e", "perplexity,none"))
        assert [run.value(name, "perplexity,none") for name in "fg"] == [math.inf, math.inf]
        run.printed.stdout.fnmatch_lines(
            [
                "gate failed: tasks/e.yaml*; 1 doc got no usable number from the model (NaN)",
                "gate failed: tasks/f.yaml*; perplexity is inf: doc[[]1[]] has -inf",
                "gate failed: tasks/g.yaml*; perplexity is inf, not a finite number",
                NEVER_RIGHT.format("NaN", "b 1, e 1"),
                NEVER_RIGHT.format("-inf for every choice", "d 1"),
                "f: perplexity,none is inf: doc[[]1[]] has -inf",
            ]
        )

    def add_choices(self, faults: FaultSuite, name: str, lls: Sequence[str], gold: int) -> None:
        faults.add(name, {**CHOICE, "doc_to_choice": list(lls)}, test=[{"q": "q", "label": gold}])


class TestChoices:
    def test_lengths(self, faults: FaultSuite) -> None:
        """B13: code points, bytes, and neither delimiter nor Unicode normalisation."""
        own = {"output_type": "multiple_choice", "doc_to_choice": "{{c}}", "doc_to_target": "label"}
        own |= {"metric_list": [{"metric": metric} for metric in ("acc", "acc_norm", "acc_bytes")]}
        cases = {
            "a": (["ж", "zz"], (-3.0, -3.5), 0, (1, 0, 1)),
            "b": (["e\u0301", "ab"], (-2.0, -2.5), 0, (1, 1, 1)),
            "composed": (["\u00e9", "ab"], (-2.0, -2.5), 0, (1, 0, 1)),
            "c": (["a", "bbb"], (-1.0, -2.2), 1, (0, 1, 1)),
        }
        for name, (choices, _, gold, _) in cases.items():
            faults.add(name, own, test=[{"q": name, "c": choices, "label": gold}])
        faults.add(
            "empty", own, test=[{"q": "a", "c": ["ж", "zz"], "label": 0}, {"q": "a", "c": ["ж", ""], "label": 0}]
        )
        prices = {name: dict(zip(choices, lls, strict=True)) for name, (choices, lls, _, _) in cases.items()}
        run = faults.run(model=faults.checkpoint("lengths", lambda: priced(prices)))
        for name, (_, lls, _, scores) in cases.items():
            assert run.lls(name) == near(list(lls))
            found = [run.value(name, f"{metric},none") for metric in ("acc", "acc_norm", "acc_bytes")]
            assert (name, *found) == (name, *scores)
        run.printed.stdout.fnmatch_lines(["empty doc 1: *doc_to_choice (*empty.yaml:*): choice 1 is empty"])
        assert run.value("empty", "acc_norm,none") == 0.0

    def test_mutual_information(self, faults: FaultSuite) -> None:
        """B14: its requests come after the others, and change no other metric."""
        choices = ["w", "x", "y", "z"]
        own = {"output_type": "multiple_choice", "doc_to_choice": choices, "doc_to_target": "label"}
        plain, with_it = (
            {"metric_list": [{"metric": metric} for metric in metrics]}
            for metrics in (("acc", "acc_norm"), ("acc", "acc_norm", "acc_mutual_info"))
        )
        faults.add("plain", own, plain, test=[{"q": "c", "label": 1}])
        faults.add("one", own, with_it, test=[{"q": "c", "label": 1}])
        faults.add("several", own, with_it, test=[{"q": "c", "label": [1, 3]}])
        conditional, unconditional = (-1.0, -2.0, -3.0, -4.0), (-0.5, -3.5, -2.0, -4.5)
        prices = {"c": dict(zip(choices, conditional, strict=True))}
        prices["<s>"] = dict(zip(choices, unconditional, strict=True))
        run = faults.run(model=faults.checkpoint("information", lambda: priced(prices)))
        assert run.asked("one") == [(context, f" {choice}") for context in ("c", "") for choice in choices]
        assert run.lls("one") == near([*conditional, *unconditional])
        for name in ("plain", "one", "several"):
            assert (run.value(name, "acc,none"), run.value(name, "acc_norm,none")) == (0.0, 0.0)
        assert run.value("one", "acc_mutual_info,none") == run.value("several", "acc_mutual_info,none") == 1.0


class TestGroups:
    """B30."""

    def test_values_and_error_bars(self, faults: FaultSuite) -> None:
        self.add_hits(faults, "t1", [1, 1, 1, 0])
        self.add_hits(faults, "t2", [1] * 4 + [0] * 12)
        self.add_hits(faults, "t3", [1, 1], metric="acc_norm")
        self.add_hits(faults, "shared", [0] * 100)
        self.add_hits(faults, "other", [1] * 200)
        weighted, plain = "[{metric: acc, weight_by_size: true}]", "[{metric: acc, weight_by_size: false}]"
        self.add_group(faults, "a", "[t1, t2]", weighted)
        self.add_group(faults, "b", "[t1, t2]", plain)
        self.add_group(faults, "c", "[sub_a, sub_b]", weighted)
        self.add_group(faults, "sub_a", "[shared]", weighted)
        self.add_group(faults, "sub_b", "[shared, other]", weighted)
        self.add_group(faults, "d", "[t1, t2, t3]", weighted)
        # Of the leaves .75, .25 and 0, each once; the mean of the means of its groups is .25.
        self.add_group(faults, "e", "[b, sub_a, t2]", plain)
        run = faults.run(paths=[f"tasks/{name}.yaml" for name in ("a", "b", "c", "d", "e")])
        assert self.of(run, "a") == near([0.35, 0.102062])
        assert self.of(run, "b") == near([0.5, 0.136931])
        assert self.of(run, "c")[0] == near(0.666667)
        assert run.value("c", "sample_len") == 300
        assert self.of(run, "d") == near([0.35, 0.102062])
        assert self.of(run, "e")[0] == near((0.75 + 0.25 + 0) / 3)
        run.printed.stdout.fnmatch_lines(
            [
                "|a *|acc *|0.3500|±  |0.1021|",
                "|c *|acc *|0.6667|±  |*|",
                "| - b *|acc *|0.5000|±  |0.1369|",
                "d: metric acc,none is missing in t3; the value is that of 20 docs",
            ]
        )
        assert run.printed.ret == 0

    def of(self, run: Any, group: str) -> list[float]:
        return [run.value(group, "acc,none"), run.value(group, "acc_stderr,none")]

    def add_hits(self, faults: FaultSuite, name: str, hits: Sequence[int], metric: str = "acc") -> None:
        docs = [{"q": "Q x A", "label": 1 - hit} for hit in hits]
        faults.add(name, CHOICE, {"metric_list": [{"metric": metric}]}, test=docs)

    def add_group(self, faults: FaultSuite, name: str, members: str, metrics: str) -> None:
        text = f"group: {name}\ntask: {members}\naggregate_metric_list: {metrics}\n"
        (faults.folder / f"{name}.yaml").write_text(text)
