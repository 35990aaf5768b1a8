"""The end of a run, line by line: tables, gates, notes, the baseline and files, with and without workers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


pytest_plugins = ["pytester"]

#: Models `fake:ANSWER` always prefer that answer.
MODELS = """
class Stubborn:
    def __init__(self, answer):
        self.answer = answer

    def loglikelihood(self, requests):
        return [(-1.0 if text.strip() == self.answer else -2.0, False) for _, text in requests]

    def describe(self):
        return {"model": {"model_dtype": "bfloat16" if self.answer == "no" else "float32"}}

    def usage(self):
        return {"tokens": 1000, "peak_memory": 2**30}


def pytest_llmeval_register_models(register):
    register("fake", lambda rest, arguments: Stubborn(rest))
"""

YES, NO = "--llmeval-model=first=fake:yes", "--llmeval-model=second=fake:no"
BASELINE = "--llmeval-baseline=main"
CHANGE_GATE = "--llmeval-fail-on=*.acc >= baseline - 0.1"


@pytest.fixture
def written(pytester: pytest.Pytester, suite: Path) -> Path:
    """The suite, a baseline of the model that says yes, and a rule of the ini file that selects nothing."""
    pytester.makeconftest(MODELS)
    pytester.makeini("[pytest]\nllmeval_gates =\n    nothing.acc >= 0.5\n")
    (suite / "hard.jsonl").write_text("".join(f'{{"q": "hard {i}?", "label": 0}}\n' for i in range(6)))
    pytester.runpytest("tasks", YES, BASELINE, "--llmeval-update-baseline")
    return suite


def closing(result: pytest.RunResult) -> list[str]:
    """The lines from the plugin's first section to pytest's own: rules without width, verdicts without their text,
    paths of files from the output folder on, without the time.
    """
    lines = [line for line in result.outlines if line]
    start = next(number for number, line in enumerate(lines) if re.fullmatch(r"=+ llmeval\b.*", line))
    end = next(number for number, line in enumerate(lines) if re.match("=+ short test summary", line))
    return [shortened(line) for line in lines[start:end]]


def shortened(line: str) -> str:
    line = re.sub(r"^=+ (.*?) =+$", r"= \1 =", line)
    line = re.sub(r"^(gate [a-z ]+: \S+): .*", r"\1", line)
    return re.sub(r"^written: .*/(out/.*)_\d{4}-.*(\.jsonl?)$", r"written: \1\2", line)


def table_of_one(all_of: str, hard: str) -> list[str]:
    return [
        "|Tasks  |Version|Filter|n-shot|Metric|   | Value|   |Stderr|",
        "|-------|------:|------|-----:|------|---|-----:|---|-----:|",
        f"|all    |      1|none  |     0|acc   |↑  |{all_of}|±  |0.1056|",
        "| - even|      1|none  |     0|acc   |↑  |0.5000|±  |0.1667|",
        f"| - hard|      1|none  |     0|acc   |↑  |{hard}|±  |0.0000|",
        "|Groups|Version|Filter|n-shot|Metric|   | Value|   |Stderr|",
        "|------|------:|------|-----:|------|---|-----:|---|-----:|",
        f"|all   |      1|none  |     0|acc   |↑  |{all_of}|±  |0.1056|",
    ]


def gates(outcome: str, *ids: str) -> list[str]:
    return [f"gate {outcome}: tasks/{name}.yaml::gate[{gate}]" for name, gate in (one.split(":") for one in ids)]


RULE = "llmeval_gates: 1 of 2 select nothing of this run: 'nothing.acc >= 0.5'"
NEXT = "next: pytest 'tasks/hard.yaml::doc[0]' --llmeval-show prints the prompt"
FAILED = ["hard:second-acc", "hard:second-acc.drop", "all:second-acc", "all:second-acc.drop"]
CHANGES = [
    "baseline main, first: 0 lost, 0 gained of 16 docs",
    "baseline main, second: 11 lost, 5 gained of 16 docs (even -5 +5, hard -6 +0)",
    "baseline main, second: answers were computed in float32, now in bfloat16: close calls flip "
    "(--llmeval-noise estimates how many)",
]


def test_two_models(pytester: pytest.Pytester, written: Path, workers: list[str]) -> None:
    result = pytester.runpytest("tasks", YES, NO, BASELINE, CHANGE_GATE, "--llmeval-output=out", *workers)
    assert closing(result) == [
        "= llmeval: 2 models =",
        "|Tasks|Metric|   | first|second| Change|   |Stderr|   |",
        "|-----|------|---|-----:|-----:|------:|---|-----:|---|",
        "|all  |acc   |↑  |0.6875|0.3125|-0.3750|±  |0.2083|   |",
        "change: from first to second, doc by doc; *: more than chance explains (sign test, 5 % over all rows)",
        "not shown: 2 tasks without a significant change (-v shows all)",
        *gates("failed", *FAILED),
        NEXT,
        "first: gates: 6 passed",
        "first: wrong answers: 5 of 16",
        "second: gates: 4 failed, 2 passed",
        "second: wrong answers: 11 of 16",
        RULE,
        *CHANGES,
        "written: out/fake__yes/results.json",
        "written: out/fake__no/results.json",
    ]


def test_two_models_verbose(pytester: pytest.Pytester, written: Path, workers: list[str]) -> None:
    result = pytester.runpytest("tasks", YES, NO, BASELINE, CHANGE_GATE, "--llmeval-output=out", "-v", *workers)
    lines = closing(result)
    usage = [line for line in lines if "tokens read" in line]
    assert [re.sub(r"\d[\d,.]*", "N", line) for line in usage] == [
        "first: N tokens read, peak memory N GiB",
        "second: N tokens read, peak memory N GiB",
    ]
    assert lines[-6:] == [
        f"written: out/fake__{model}/{name}"
        for model in ("yes", "no")
        for name in ("results.json", "samples_even.jsonl", "samples_hard.jsonl")
    ]
    start = lines.index(usage[0])
    assert lines[start + 2 : -6] == [RULE, *CHANGES]
    assert lines[:start] == [
        "= llmeval: 2 models =",
        "|Tasks  |Metric|   | first|second| Change|   |Stderr|   |",
        "|-------|------|---|-----:|-----:|------:|---|-----:|---|",
        "|all    |acc   |↑  |0.6875|0.3125|-0.3750|±  |0.2083|   |",
        "| - even|acc   |↑  |0.5000|0.5000|+0.0000|±  |0.3333|   |",
        "| - hard|acc   |↑  |1.0000|0.0000|-1.0000|±  |0.0000|   |",
        "change: from first to second, doc by doc; *: more than chance explains (sign test, 5 % over all rows)",
        "= llmeval: first =",
        *table_of_one("0.6875", "1.0000"),
        *gates("passed", *(f"{name}:first-{gate}" for name in ("even", "hard", "all") for gate in ("acc", "acc.drop"))),
        "gates: 6 passed",
        "wrong answers: 5 of 16",
        "= llmeval: second =",
        *table_of_one("0.3125", "0.0000"),
        *gates("failed", *FAILED),
        *gates("passed", "even:second-acc", "even:second-acc.drop"),
        "gates: 4 failed, 2 passed",
        "wrong answers: 11 of 16",
    ]


def test_one_model(pytester: pytest.Pytester, written: Path, workers: list[str]) -> None:
    result = pytester.runpytest("tasks", NO, BASELINE, CHANGE_GATE, "--llmeval-output=out", *workers)
    assert closing(result) == [
        "= llmeval: second =",
        *table_of_one("0.3125", "0.0000"),
        *gates("failed", "hard:acc", "hard:acc.drop", "all:acc", "all:acc.drop"),
        NEXT,
        "gates: 4 failed, 2 passed",
        "wrong answers: 11 of 16",
        RULE,
        *(line.replace(", second", "") for line in CHANGES[1:]),
        "written: out/fake__no/results.json",
    ]
