"""Verdicts: which side of a bound, on which docs, and what never passes."""

from __future__ import annotations

from typing import Any

import pytest
from faultsuite import CHOICE
from faultsuite import YES
from faultsuite import FaultSuite
from faultsuite import Run
from faultsuite import hits


pytest_plugins = ["pytester"]

SEVEN_OF_20 = hits(*[1] * 7, *[0] * 13)


def gates(*lines: Any) -> dict[str, Any]:
    return {"metadata": {"gates": list(lines)}}


def verdicts(run: Run) -> dict[str, str]:
    """``t.yaml::gate[acc]`` -> the word that pytest prints with ``-v``."""
    lines = [line.split() for line in run.printed.outlines if "::gate[" in line and "%]" in line]
    return {words[0].removeprefix("tasks/"): words[1] for words in lines}


class TestBounds:
    """B40, as far as there are floors and ceilings."""

    def test_on_the_bound(self, faults: FaultSuite) -> None:
        """k: 7 of 20, and (3 + 4) of 4 + 16, are .35 whatever floating point makes of it."""
        faults.pytester.makeconftest(YES)
        own = gates(
            "acc >= 0.35",
            "acc > 0.35 as above",
            "acc <= 0.35 as ceiling",
            {"metric": "acc", "min": 0.36, "name": "high"},
        )
        faults.add("t", CHOICE, own, test=SEVEN_OF_20)
        faults.add("t1", CHOICE, test=hits(1, 1, 1, 0))
        faults.add("t2", CHOICE, test=hits(*[1] * 4, *[0] * 12))
        text = "group: g\ntask: [t1, t2]\naggregate_metric_list: [{metric: acc}]\nmetadata: {gates: ['acc >= 0.35']}\n"
        (faults.folder / "g.yaml").write_text(text)
        run = faults.run("-v", "-k", "gate", model=None)
        assert verdicts(run) == {
            "t.yaml::gate[acc]": "PASSED",
            "t.yaml::gate[above]": "FAILED",
            "t.yaml::gate[ceiling]": "PASSED",
            "t.yaml::gate[high]": "FAILED",
            "g.yaml::gate[acc]": "PASSED",
        }
        run.printed.stdout.fnmatch_lines(
            ["gate failed: *high*: t: acc 0.3500 +- 0.1094 over 20 docs, required >= 0.36; most informative docs: *"]
        )
        assert run.printed.ret == 1

    def test_a_metric_of_which_less_is_better(self, faults: FaultSuite) -> None:
        """n, and e and d: the bound says which side is meant, and the table which way is better."""
        faults.pytester.makeconftest(YES.replace("loglikelihood_of={", "text_of='no', loglikelihood_of={"))
        (faults.folder / "own.py").write_text(
            "def err(references, predictions):\n    return float(references != predictions)\n"
        )
        metric = "metric_list: [{metric: !function own.err, aggregation: mean, higher_is_better: false}]\n"
        own = {"output_type": "generate_until", "doc_to_target": "a", "generation_kwargs": {"until": []}}
        own |= gates("err <= 0.4", "err <= 0.3 as strict", "err < 0.5 as loose")
        faults.add("t", own, metric, test=[{"q": "q", "a": answer} for answer in ("no", "x", "no", "x", "no")])
        run = faults.run("-v", model=None)
        assert run.value("t", "err,none") == 0.4
        assert verdicts(run) == {
            "t.yaml::gate[err]": "PASSED",
            "t.yaml::gate[strict]": "FAILED",
            "t.yaml::gate[loose]": "PASSED",
        }
        # Each doc with an error is a wrong one.
        run.printed.stdout.fnmatch_lines(["|t *|err *|↓ *|*0.4000|*", "*1 failed, 5 passed, 2 wrong*"])

    def test_a_part_of_the_docs(self, faults: FaultSuite) -> None:
        """l: judged on what was asked for, which the sentence says; the bound holds for no others."""
        faults.pytester.makeconftest(YES)
        faults.add("t", CHOICE, gates("acc >= 0.9"), test=SEVEN_OF_20)
        run = faults.run("-v", "--llmeval-limit=7", model=None)
        assert verdicts(run) == {"t.yaml::gate[acc]": "PASSED"}
        run.printed.stdout.fnmatch_lines(["gate passed: *t: acc 1.0000 +- 0.0000 on 7 of 20 docs, required >= 0.9"])
        run.printed.stdout.fnmatch_lines(["evaluated on a part of the docs: t 7 of 20"])

    def test_bounds_that_mean_nothing(self, faults: FaultSuite) -> None:
        """o: a configuration error, and neither green nor red."""
        cases: list[tuple[Any, str]] = [
            ("acc >= nan", "'acc >= nan': expected a finite number, got 'nan'"),
            ("acc >= -inf", "'acc >= -inf': expected a finite number, got '-inf'"),
            ({"metric": "acc", "min": float("nan")}, "'{metric: acc, min: nan}': expected a finite number, got nan*"),
            ("acc >= 35", "'acc >= 35': acc lies between 0 and 1, and the bound is 35*"),
            ("acc >= -0.02", "'acc >= -0.02': acc lies between 0 and 1, and the bound is -0.02"),
            ({"metric": "acc", "max_drop": -0.02}, "*max_drop: expected a number of 0 or more, got -0.02*"),
        ]
        faults.pytester.makeconftest(YES)
        for number, (gate, _) in enumerate(cases):
            faults.add(f"t{number}", CHOICE, gates(gate), test=SEVEN_OF_20)
        faults.add("other", CHOICE, test=hits(1))
        run = faults.run(model=None)
        run.printed.stdout.fnmatch_lines(
            [f"*t{number}.yaml:*: metadata.gates: {why}" for number, (_, why) in enumerate(cases)]
        )
        run.printed.stdout.fnmatch_lines(["*1 passed, 6 errors*"])
        assert run.printed.ret == 1

    def test_what_is_missing_never_passes(self, faults: FaultSuite) -> None:
        """i, j: a group of which one task has no data fails and says why, and once."""
        self.add_group_without_data(faults)
        run = faults.run("-v", model=None)
        assert verdicts(run) == dict.fromkeys(["gone.yaml::gate[acc]", "sub/g.yaml::gate[acc]"], "FAILED")
        # The item data and two gates fail; the docs of the other task are right.
        run.printed.stdout.fnmatch_lines(["*3 failed, 2 passed*"])
        run.printed.stdout.no_fnmatch_line("*During handling*")
        for name in ("gone", "sub/g"):
            run.printed.stdout.fnmatch_lines([f"gate failed: tasks/{name}.yaml::gate[[]acc[]]: *gone.test.jsonl*"])

    @pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["plain", "n2"])
    def test_what_only_a_gate_misses(self, faults: FaultSuite, workers: list[str]) -> None:
        """The task without data is not collected: nothing but the gate of the group asks for it."""
        if workers:
            pytest.importorskip("xdist")
        self.add_group_without_data(faults)
        run = faults.run(*workers, model=None, paths=["tasks/sub/g.yaml"])
        headline, reason = (
            "g: acc 1.0000 +- 0.0000 over 2 docs in 2 tasks, required >= 0",
            "task gone: *gone.test.jsonl*",
        )
        run.printed.stdout.fnmatch_lines(
            [
                headline,
                f"  reason    {reason}",
                f"gate failed: tasks/sub/g.yaml::gate[[]acc[]]: {headline}; {reason}",
                "*1 failed in*",
            ]
        )
        assert run.printed.ret == 1

    def test_what_a_model_cannot_be_asked(self, faults: FaultSuite) -> None:
        """Doc items fail with the reason, and the gates say it too."""
        faults.pytester.makeconftest(
            """
            import pytest

            class WithoutTemplate:
                def loglikelihood(self, requests):
                    return [(-1.0, False) for _ in requests]

            @pytest.fixture(scope="session")
            def llmeval_model():
                return WithoutTemplate()
            """
        )
        faults.add("t", CHOICE, gates("acc >= 0"), test=hits(1, 1))
        (faults.folder / "g.yaml").write_text("group: g\ntask: [t]\n")
        run = faults.run("--llmeval-chat-template", model=None)
        reason = "--llmeval-chat-template: WithoutTemplate has no method apply_chat_template(*"
        run.printed.stdout.fnmatch_lines([reason, reason, f"t: {reason}", f"g: {reason}", "*4 failed*"])

    def add_group_without_data(self, faults: FaultSuite) -> None:
        faults.pytester.makeconftest(YES)
        faults.add("here", CHOICE, test=hits(1, 1))
        faults.add("gone", CHOICE, gates("acc >= 0"), test=hits(1, 1))
        (faults.folder / "gone.test.jsonl").unlink()
        (faults.folder / "sub").mkdir()
        (faults.folder / "sub" / "g.yaml").write_text(
            "group: g\ntask: [here, gone]\naggregate_metric_list: [{metric: acc}]\nmetadata: {gates: ['acc >= 0']}\n"
        )


class TestLimit:
    """B33."""

    @pytest.mark.parametrize(
        ("limit", "counts"),
        [
            ("0.1", {"n10": 1, "n100": 10, "n15": 2}),
            ("0.07", {"n100": 7}),
            ("1", {"n3": 1}),
            ("1.0", {"n3": 1}),
            ("0.5", {"n3": 2}),
            ("10", {"n3": 3}),
        ],
    )
    def test_counts(self, faults: FaultSuite, limit: str, counts: dict[str, int]) -> None:
        faults.pytester.makeconftest(YES)
        for name in counts:
            faults.add(name, CHOICE, test=hits(*[1] * int(name[1:])))
        run = faults.run(f"--llmeval-limit={limit}", model=None)
        assert {name: run.value(name, "sample_len") for name in counts} == counts
        assert {name: [row["doc_id"] for row in rows] for name, rows in run.samples.items()} == {
            name: list(range(count)) for name, count in counts.items()
        }

    def test_it_counts_after_process_docs(self, faults: FaultSuite) -> None:
        faults.pytester.makeconftest(YES)
        (faults.folder / "own.py").write_text("def even(docs):\n    return docs.select(range(0, len(docs), 2))\n")
        faults.add("t", CHOICE, "process_docs: !function own.even\n", test=hits(*[1] * 10))
        run = faults.run("--llmeval-limit=2", model=None)
        assert [row["doc"]["q"] for row in run.samples["t"]] == ["Q 0 x A", "Q 2 x A"]

    def test_chosen_docs_keep_their_ids(self, faults: FaultSuite) -> None:
        faults.pytester.makeconftest(YES)
        faults.add("t", CHOICE, test=hits(*[1] * 10))
        run = faults.run(model=None, paths=[f"tasks/t.yaml::doc[{i}]" for i in (5, 2, 9, 2)])
        assert [(row["doc_id"], row["doc"]["q"]) for row in run.samples["t"]] == [(i, f"Q {i} x A") for i in (2, 5, 9)]
        run.printed.stdout.fnmatch_lines(["evaluated on a part of the docs: t 3 of 10"])

    def test_one_doc_and_two(self, faults: FaultSuite) -> None:
        """g, h: no error bar over one doc; the median of 0 and 1."""
        faults.pytester.makeconftest(YES)
        faults.add("one", CHOICE, gates("acc >= 1"), test=hits(1, 0))
        median = {"metric_list": [{"metric": "acc", "aggregation": "median"}]}
        faults.add("two", CHOICE, median, test=hits(0, 1))
        first = faults.run("-v", "--llmeval-limit=1", model=None)
        assert first.value("one", "acc_stderr,none") == "N/A"
        first.printed.stdout.fnmatch_lines(
            ["|one *|acc *|   N/A|", "gate passed: *acc 1.0000 on 1 of 2 docs, required*"]
        )
        assert faults.run(model=None).value("two", "acc,none") == 0.5
