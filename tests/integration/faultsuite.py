"""Tasks and checkpoints written into a folder, run by pytest as a user runs them, and what came out of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tablemodels
import torch
import yaml

from pytest_llmeval import _models


CHOICE = {"output_type": "multiple_choice", "doc_to_choice": ["yes", "no"], "doc_to_target": "label"}
GENERATE = {
    "output_type": "generate_until",
    "doc_to_target": "a",
    "generation_kwargs": {"until": ["\n"], "max_gen_toks": 2},
}
ROLLING = {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{q}}"}

#: Log-probabilities after a context, by continuation.
Prices = Mapping[str, float]


def priced(prices: Mapping[str, Prices]) -> tuple[Any, Any]:
    """A checkpoint whose log P(word | last word of the context) is as given; one filler word takes the rest.

    The context ``<s>`` is the empty one.
    """
    words = dict.fromkeys(word for row in prices.values() for word in row)
    vocabulary = [*dict.fromkeys(["<pad>", "<s>", "</s>", *prices, *words]), "filler"]
    table = torch.full((len(vocabulary), len(vocabulary)), -60.0)
    table[:, -1] = 0.0
    for context, row in prices.items():
        place = vocabulary.index(context)
        for word, price in row.items():
            table[place, vocabulary.index(word)] = price
        table[place, -1] = math.log(1.0 - sum(math.exp(price) for price in row.values()))
    return tablemodels.table_lm(table), tablemodels.words(vocabulary=vocabulary)


def broken() -> tuple[Any, Any]:
    """Every logit is NaN."""
    model = tablemodels.bigram()
    model.lm_head.weight.data.fill_(float("nan"))
    return model, tablemodels.words()


def half_precise() -> tuple[Any, Any]:
    """After `d` the logits of `a`, `b`, `c`, `d` are 1, 1.0078125, 9 and 0, all exact in bfloat16."""
    table = torch.zeros(4, 4)
    table[3] = torch.tensor([1.0, 1.0078125, 9.0, 0.0])
    return tablemodels.table_lm(table), tablemodels.words(vocabulary="abcd")


TINY_WORDS = ("<pad>", "<s>", "</s>", *(f"w{i}" for i in range(3, 64)))

#: Makes a model and its tokenizer.
Maker = Callable[[], tuple[Any, Any]]
CHECKPOINTS: dict[str, Maker] = {
    "bigram": lambda: (tablemodels.bigram(), tablemodels.words()),
    "bigram-bos": lambda: (tablemodels.bigram(), tablemodels.words(auto_bos=True)),
    "chain": lambda: (tablemodels.chain(), tablemodels.words()),
    "uniform-18": lambda: (tablemodels.uniform(18), tablemodels.sentencepiece_like()),
    "uniform-16": lambda: (tablemodels.uniform(16), tablemodels.merging()),
    "tiny": lambda: (tablemodels.tiny_gpt2(), tablemodels.words(vocabulary=TINY_WORDS)),
    "broken": broken,
    "half": half_precise,
}

#: A model that writes what stands in its prompt, each of its repeats the next part.
ECHO = """
import pytest
from pytest_llmeval import FakeLM

@pytest.fixture(scope="session")
def llmeval_model():
    return FakeLM(text_of=lambda context, kwargs: context.split(" || ")[kwargs.repeat])
"""

#: A model that always finds ``yes`` the likeliest; what a doc's label says is then a hit or not.
YES = """
import pytest
from pytest_llmeval import FakeLM

@pytest.fixture(scope="session")
def llmeval_model():
    return FakeLM(loglikelihood_of={" yes": -1.0, " no": -2.0})
"""


def hits(*right: int) -> list[dict[str, Any]]:
    """Docs of `CHOICE` that a model which says yes gets right (1) or wrong (0)."""
    return [{"q": f"Q {i} x A", "label": 1 - hit} for i, hit in enumerate(right)]


@dataclass(frozen=True)
class Run:
    """A finished run: what it printed, and its result files."""

    printed: pytest.RunResult
    results: Mapping[str, Any]
    samples: Mapping[str, Sequence[Mapping[str, Any]]]

    def value(self, task: str, key: str) -> Any:
        """A number of the results file: ``value("t", "acc,none")``."""
        return self.results["results"][task][key]

    def asked(self, task: str, doc: int = 0) -> list[tuple[str, ...]]:
        """The texts that were sent to the model for a doc, request by request."""
        arguments = self._row(task, doc)["arguments"]
        return [tuple(text for text in request.values() if isinstance(text, str)) for request in arguments.values()]

    def lls(self, task: str, doc: int = 0) -> list[float]:
        return [float(answers[0][0]) for answers in self._row(task, doc)["resps"]]

    def texts(self, task: str) -> list[str]:
        return [row["resps"][0][0] for row in self.samples[task]]

    def _row(self, task: str, doc: int) -> Mapping[str, Any]:
        return next(row for row in self.samples[task] if row["doc_id"] == doc)


class FaultSuite:
    """The folder ``tasks`` of a pytester run, and the checkpoints."""

    def __init__(self, pytester: pytest.Pytester, checkpoints: Path) -> None:
        self.pytester = pytester
        self.folder = pytester.mkdir("tasks")
        self._checkpoints = checkpoints

    def add(self, name: str, *parts: Mapping[str, Any] | str, **splits: Sequence[Mapping[str, Any]]) -> Path:
        """Write ``NAME.yaml`` of mappings and YAML text, and a file of docs for each split; `test` is evaluated."""
        path = self.folder / f"{name}.yaml"
        head: dict[str, Any] = {"task": path.stem, "dataset_path": "json", "doc_to_text": "{{q}}"}
        head["dataset_kwargs"] = {"data_files": {split: f"{path.stem}.{split}.jsonl" for split in splits}}
        head |= {"test_split": "test"} if "test" in splits else {}
        keys = [part for part in parts if isinstance(part, Mapping)]
        path.parent.mkdir(parents=True, exist_ok=True)
        text = yaml.safe_dump({**head, **{key: value for part in keys for key, value in part.items()}})
        path.write_text(text + "".join(part for part in parts if isinstance(part, str)), encoding="utf-8")
        for split, rows in splits.items():
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (path.parent / f"{path.stem}.{split}.jsonl").write_text(lines, encoding="utf-8")
        return path

    def checkpoint(self, name: str, make: Maker | None = None, chat_template: str | None = None) -> Path:
        """The folder of a saved checkpoint, one of `CHECKPOINTS` or made otherwise; written when first asked for."""
        folder = self._checkpoints / name
        if not folder.exists():
            model, tokenizer = (make or CHECKPOINTS[name])()
            tokenizer.chat_template = chat_template
            tablemodels.save(folder, model, tokenizer)
        return folder

    def run(
        self,
        *options: str,
        model: str | Path | None = "bigram",
        args: str = "dtype=float32",
        paths: Sequence[str] = ("tasks",),
    ) -> Run:
        """Run the tasks in this process on a checkpoint, if one is named, and read the result files."""
        chosen: list[str] = []
        if model is not None:
            folder = model if isinstance(model, Path) else self.checkpoint(model)
            chosen = [f"--llmeval-model={folder}", f"--llmeval-model-args=device=cpu,{args}"]
        output = self.pytester.path / "output"
        before = set(output.rglob("*"))
        # -W: warnings are errors in this repository, and not where users run their tasks.
        asked = [*paths, *chosen, f"--llmeval-output={output}", "-Wdefault", *options]
        printed = self.pytester.runpytest_inprocess(*asked)
        written = sorted(set(output.rglob("*.json*")) - before)
        results = [json.loads(path.read_text()) for path in written if path.name.startswith("results_")]
        samples: dict[str, list[dict[str, Any]]] = {}
        for path in written:
            if path.name.startswith("samples_"):
                name = path.name.removeprefix("samples_").rpartition("_")[0]
                samples[name] = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        return Run(printed, results[0] if results else {}, samples)


#: Doc -> its prompt in B23: two of five examples, drawn with seed 1234.
DRAWN = {0: "p3 3\n\np0 0\n\nq0", 1: "p0 0\n\np4 4\n\nq1", 2: "p4 4\n\np0 0\n\nq2", 3: "p0 0\n\np4 4\n\nq3"}


def add_draws(suite: FaultSuite) -> None:
    """The task ``t`` of B23."""
    keys = {**GENERATE, "doc_to_target": "{{a}}", "fewshot_split": "train", "num_fewshot": 2}
    train = [{"q": f"p{i}", "a": str(i)} for i in range(5)]
    suite.add("t", keys, train=train, test=[{"q": f"q{i}", "a": "x"} for i in range(4)])


def prompts(run: Run) -> dict[int, str]:
    """Doc -> prompt of that task, in the order of the sample file."""
    return {row["doc_id"]: row["arguments"]["gen_args_0"]["arg_0"] for row in run.samples["t"]}


def prepared(folder: Path) -> Path:
    """A folder for checkpoints. One is loaded here: what transformers imports for that is there for all runs."""
    path = tablemodels.save(folder / "bigram", *CHECKPOINTS["bigram"]())
    spec = _models.parse_spec(str(path), {"dtype": "float32", "device": "cpu"})
    _models.load_model(spec).loglikelihood([("Q", " A")])
    return folder
