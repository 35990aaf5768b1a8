"""Our benchmarks against lm_eval's task files of the same name: same docs, same shots, same requests, same scores.

Each of our files is read twice: by this package, and by lm_eval itself, whose format it is. The data is real where
LLMEVAL_SHARED names a folder with a `mirror` of the data sets; data sets that are not in it are stood in for by made-up
docs with the same columns. Fifty docs of a task are compared, spread over its split; LLMEVAL_FULL=1 compares them all.
"""

from __future__ import annotations

import functools
import os
import random
import re
import runpy
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


pytest.importorskip("lm_eval")

import datasets
import evaluate
import hypothesis
import hypothesis.strategies as st
import lm_eval.utils
import pyarrow.parquet
import synthetic_docs
from lm_eval.tasks import TaskManager
from lm_eval.tasks._index import TaskIndex
from lm_eval.tasks.hendrycks_math import utils as peer_math

from pytest_llmeval._docs import DataSource
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._registry import Registry
from pytest_llmeval._scoring import score_doc
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import lint


pytestmark = pytest.mark.filterwarnings("ignore")

OURS = Path(__file__).parents[2] / "benchmarks"
ANSWERS_OF_MATH = runpy.run_path(str(OURS / "hendrycks_math/answers.py"))
PEERS = Path(lm_eval.__file__).parent / "tasks"

DOCS = 10**9 if os.environ.get("LLMEVAL_FULL") == "1" else 50

MMLU_FOLDERS = {"mmlu": "default", "mmlu_continuation": "continuation", "mmlu_generative": "generative"}
SUBJECTS = [path.stem.removeprefix("mmlu_") for path in sorted((PEERS / "mmlu/default").glob("mmlu_*.yaml"))]
PRO_SUBJECTS = [path.stem.removeprefix("mmlu_pro_") for path in sorted((PEERS / "mmlu_pro").glob("mmlu_pro_*.yaml"))]
MATH = ["algebra", "counting_and_prob", "geometry", "intermediate_algebra", "num_theory", "prealgebra", "precalc"]

#: Our file -> lm_eval's, below the two roots, without suffix.
PAIRS = {
    "arc/arc_challenge": "arc/arc_challenge",
    "arc/arc_easy": "arc/arc_easy",
    "boolq": "super_glue/boolq/default",
    "commonsense_qa": "commonsense_qa/default",
    "gsm8k/gsm8k": "gsm8k/gsm8k",
    "gsm8k/gsm8k_cot": "gsm8k/gsm8k-cot",
    "hellaswag": "hellaswag/hellaswag",
    "lambada_openai": "lambada/lambada_openai",
    "openbookqa": "openbookqa/openbookqa",
    "piqa": "piqa/piqa",
    "triviaqa": "triviaqa/default",
    "truthfulqa/truthfulqa_mc1": "truthfulqa/truthfulqa_mc1",
    "truthfulqa/truthfulqa_mc2": "truthfulqa/truthfulqa_mc2",
    "wikitext/wikitext": "wikitext/wikitext",
    "winogrande/winogrande": "winogrande/default",
    **{f"hendrycks_math/{subject}": f"hendrycks_math/hendrycks_math_{subject}" for subject in MATH},
    **{f"mmlu_pro/{subject}": f"mmlu_pro/mmlu_pro_{subject}" for subject in PRO_SUBJECTS},
    **{f"{us}/{subject}": f"mmlu/{peer}/mmlu_{subject}" for us, peer in MMLU_FOLDERS.items() for subject in SUBJECTS},
}

#: Texts that a model may write, around the right answer and around a number of it.
ANSWERS = [
    "{right}",
    " {right}.",
    "{right} ",
    "The answer is {number}. Or is it?",
    "so {number} in all\n#### {number}",
    "about ${number}.00, no: {number}",
    "The answer is ({letter}).",
    "the answer is {letter}",
    " {letter}\nB",
    "it is $\\frac 12$, that is ${right}$",
    "$x={right}$",
    "{number} dollars, 12-5",
    "",
]


@dataclass
class Asked:
    """What a reader of a task file makes of one doc."""

    requests: list[tuple[Any, ...]]
    choices: list[str] | None
    right: list[Any]


class PeerTask:
    """A task file as lm_eval reads it, its shots drawn for all docs as in a full run."""

    def __init__(self, path: Path, num_fewshot: int | None = None) -> None:
        (self.task,) = TaskManager(include_defaults=False).load([str(path)])["tasks"].values()
        self.num_fewshot = num_fewshot = (self.task.config.num_fewshot or 0) if num_fewshot is None else num_fewshot
        self.task.set_config("num_fewshot", num_fewshot)
        self.task.set_fewshot_seed(Settings().fewshot_seed)
        self.docs = self.task.task_docs
        own = self.task.fewshot_cfg.split == self.task.config.test_split
        draw = self.task.sampler.sample
        self._shots = [draw(n=num_fewshot, eval_doc=doc if own else None) for doc in self.docs] if num_fewshot else []

    def __len__(self) -> int:
        return len(self.docs)

    def ask(self, index: int) -> Asked:
        task, doc = self.task, self.docs[index]
        instances = self._instances(index)
        choices = None if task.config.doc_to_choice is None else task.doc_to_choice(doc)
        requests = [tuple(map(_plain_request, instance.arguments)) for instance in instances]
        return Asked(requests, choices, self._right(doc, choices))

    def score(self, index: int, responses: Sequence[Any]) -> dict[str, dict[str, Any]]:
        instances, scores = self._instances(index), {}
        for instance, response in zip(instances, responses, strict=True):
            instance.resps = [response]
        for pipeline in self.task._filters:
            pipeline.apply(instances)
            filtered = [instance.filtered_resps[pipeline.name] for instance in instances]
            scores[pipeline.name] = self.task.process_results(self.docs[index], filtered)
        return scores

    def _instances(self, index: int) -> list[Any]:
        task, doc = self.task, self.docs[index]
        if self._shots:
            task.sampler = SimpleNamespace(sample=lambda n, eval_doc=None: self._shots[index])
        context = task.fewshot_context(doc, self.num_fewshot, gen_prefix=task.doc_to_prefix(doc))
        made = task.construct_requests(doc=doc, ctx=context, metadata=(task.config.task, index, 1))
        return made if isinstance(made, list) else [made]

    def _right(self, doc: Mapping[str, Any], choices: list[str] | None) -> list[Any]:
        target = self.task.doc_to_target(doc)
        if isinstance(target, list) and "answer" in doc and isinstance(doc["answer"], str):
            # MATH's "[-2,0]" is a text, though lm_eval reads it as a list of two numbers (and never uses it).
            target = doc["answer"]
        if self.task.multiple_input:
            return [self.task.doc_to_text(doc), target]
        if choices is not None and isinstance(target, str):
            target = choices.index(target)
        return target if isinstance(target, list) else [target]


class OurTask:
    """A task file as this package reads it."""

    def __init__(self, task: Task, num_fewshot: int, data: Path) -> None:
        self.task = task
        self.run_code: Callable[[str], bool] | None = None
        self.opened = OpenTask(task, Settings(data_dir=data, num_fewshot=num_fewshot), DataSource())

    def __len__(self) -> int:
        return len(self.opened.docs)

    def ask(self, index: int) -> Asked:
        doc = self.opened.render(index)
        assert doc.problem is None
        instances = self.opened.instances(doc, None)
        choices = None if doc.choices is None else list(doc.choices)
        right = list(doc.references) if choices is None else list(doc.gold)
        if doc.inputs is not None:
            right += doc.references
        return Asked([tuple(map(_plain_request, instance.arguments)) for instance in instances], choices, right)

    def score(self, index: int, responses: Sequence[Any]) -> dict[str, dict[str, Any]]:
        grouped = [[response] for response in responses]
        result = score_doc(self.task, index, self.opened.render(index), grouped, code_runner=self.run_code)
        assert result.error is None
        return {name: dict(metrics) for name, metrics in result.scores.items()}


def _plain_request(argument: Any) -> Any:
    if isinstance(argument, GenerationKwargs):
        plain = (argument.until, argument.max_gen_toks, argument.do_sample, argument.temperature)
        return (*plain, dict(argument.extra)) if argument.extra else plain
    if isinstance(argument, dict):
        rest = set(argument) - {"until", "max_gen_toks", "do_sample", "temperature"}
        assert not rest
        sampled = argument.get("do_sample", False), argument.get("temperature", 0.0)
        return (tuple(argument["until"]), argument.get("max_gen_toks", 256), *sampled)
    return argument


@pytest.fixture(scope="session")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_docs.write_mirror(tmp_path_factory.mktemp("synthetic"))


@pytest.fixture(scope="session")
def registry() -> Registry:
    return Registry()


@pytest.fixture
def data_of(synthetic: Path) -> Callable[[str | None], Path]:
    """The mirror that holds a data set."""

    def find(data_set: str | None) -> Path:
        assert data_set is not None
        if (synthetic / data_set).is_dir():
            return synthetic
        shared = os.environ.get("LLMEVAL_SHARED")
        if shared is None or not Path(shared, "mirror", data_set).is_dir():
            pytest.skip(f"LLMEVAL_SHARED names no folder that holds mirror/{data_set}")
        return Path(shared, "mirror")

    return find


@pytest.fixture(autouse=True)
def lm_eval_reads_mirror(monkeypatch: pytest.MonkeyPatch, data_of: Callable[[str | None], Path]) -> None:
    """lm_eval opens every split that a task names: a missing one is stood in for, as no shot is drawn from it."""

    def load_dataset(path: str, name: str | None = None, **_: Any) -> datasets.DatasetDict:
        files = sorted((data_of(path) / path).glob(f"{name or '*'}/*.parquet"))
        splits = {file.name.split("-")[0]: datasets.Dataset(pyarrow.parquet.read_table(file)) for file in files}
        some = next(iter(splits.values()))
        stand_ins = {split: some.select(range(min(20, len(some)))) for split in ("train", "validation", "test")}
        return datasets.DatasetDict(stand_ins | splits)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    # It compiles a template anew for each doc and field.
    compiled = functools.lru_cache(maxsize=1000)(lm_eval.utils.env.from_string)
    monkeypatch.setattr(lm_eval.utils.env, "from_string", compiled)


def _compare(ours: OurTask | PeerTask, peer: PeerTask, name: str) -> int:
    assert len(ours) == len(peer)
    compared = range(0, len(peer), max(1, len(peer) // DOCS))
    for index in compared:
        theirs = peer.ask(index)
        assert ours.ask(index) == theirs, f"{name}, doc {index}"
        responses = _responses(theirs, peer.task.OUTPUT_TYPE, random.Random(f"{name} {index}"))
        expected = _plain_scores(peer.score(index, responses), pytest.approx)
        assert _plain_scores(ours.score(index, responses)) == expected, f"{name}, doc {index}"
    return len(compared)


def _responses(asked: Asked, output_type: str, rng: random.Random) -> list[Any]:
    if output_type == "loglikelihood_rolling":
        return [rng.uniform(-3000, -1)]
    if output_type != "generate_until":
        return [(rng.uniform(-60, 0), rng.random() < 0.3) for _ in asked.requests]
    right = str(rng.choice(asked.right))
    numbers = re.findall(r"[0-9][0-9,.]*", right) or ["7"]
    return [rng.choice(ANSWERS).format(right=right, number=numbers[-1], letter=rng.choice("ABCDEFGHIJ" + right[:1]))]


def _plain_scores(scores: Any, number: Callable[[float], Any] = float) -> Any:
    if isinstance(scores, Mapping):
        return {key: _plain_scores(value, number) for key, value in scores.items()}
    if isinstance(scores, tuple | list):
        return [_plain_scores(value, number) for value in scores]
    return number(float(scores))


OWN_SHOTS = [(name, None) for name in PAIRS]
DRAWN_SHOTS = [("commonsense_qa", 5), ("hellaswag", 3), ("gsm8k/gsm8k", 8), ("mmlu_generative/anatomy", 2)]
TWO_SHOTS = [(name, 2) for name in PAIRS if not name.startswith("mmlu")]


@pytest.mark.parametrize(("name", "num_fewshot"), OWN_SHOTS + DRAWN_SHOTS)
def test_requests_and_scores_are_lm_evals(
    name: str,
    num_fewshot: int | None,
    registry: Registry,
    data_of: Callable[[str | None], Path],
    record_property: Callable[[str, object], None],
) -> None:
    task = registry.load(OURS / f"{name}.yaml")
    assert isinstance(task, Task)
    num_fewshot = (task.num_fewshot or 0) if num_fewshot is None else num_fewshot
    peer = PeerTask(PEERS / f"{PAIRS[name]}.yaml", num_fewshot)
    assert task.name == peer.task.config.task
    ours = OurTask(task, num_fewshot, data_of(task.dataset_path))
    assert lint(task, ours.opened.docs.columns) == []
    record_property("docs", _compare(ours, peer, name))


def test_humaneval_runs_the_programs_of_lm_eval(
    registry: Registry,
    data_of: Callable[[str | None], Path],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    """lm_eval fetches the metric code_eval from the hub: here it only keeps what it is given to run."""
    ran: list[str] = []

    def compute(references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int]) -> tuple[Any, None]:
        ran.extend(f"{program}\n{references[0]}" for program in predictions[0])
        return {f"pass@{n}": 1.0 for n in k}, None

    monkeypatch.setattr(evaluate, "load", lambda name: SimpleNamespace(compute=compute))
    peer = PeerTask(PEERS / "humaneval/humaneval.yaml")
    task = registry.load(OURS / "humaneval.yaml")
    assert isinstance(task, Task)
    ours = OurTask(task, 0, data_of(task.dataset_path))
    ours.run_code = lambda program: bool(ran.append(program)) or True
    ran.clear()  # lm_eval tries the metric when it loads the task
    for index in range(len(peer)):
        assert ours.ask(index) == peer.ask(index), f"doc {index}"
        assert ours.score(index, ["    return 1"]) == {"none": {"pass@1": 1.0}}
        assert peer.score(index, ["    return 1"]) == {"create_test": {"pass@1": 1.0}}
        assert ran[0] == ran[1], f"doc {index}"
        ran.clear()
    assert len(ours) == len(peer)
    record_property("docs", len(peer))


@pytest.mark.parametrize("folder", MMLU_FOLDERS)
@pytest.mark.parametrize("category", ["stem", "other", "social_sciences", "humanities"])
def test_categories_of_mmlu_are_lm_evals_tags(folder: str, category: str, registry: Registry) -> None:
    tags = TaskIndex.build([PEERS / "mmlu" / MMLU_FOLDERS[folder]])
    suffix = {"mmlu": "_tasks"}.get(folder, folder.removeprefix("mmlu"))
    group = registry.load(OURS / folder / f"{category}.yaml")
    assert isinstance(group, Group)
    assert {task.name for task in registry.leaves(group)} == tags[f"mmlu_{category}{suffix}"].tags


@pytest.mark.parametrize(("name", "num_fewshot"), OWN_SHOTS + TWO_SHOTS)
def test_lm_eval_reads_our_files_as_its_own(
    name: str, num_fewshot: int | None, record_property: Callable[[str, object], None]
) -> None:
    mine = PeerTask(OURS / f"{name}.yaml", num_fewshot)
    peer = PeerTask(PEERS / f"{PAIRS[name]}.yaml", mine.num_fewshot)
    assert mine.task.config.task == peer.task.config.task
    assert mine.task.OUTPUT_TYPE == peer.task.OUTPUT_TYPE
    assert mine.task.config.repeats == peer.task.config.repeats
    assert mine.task.aggregation() == peer.task.aggregation()
    assert mine.task.higher_is_better() == peer.task.higher_is_better()
    if peer.task.VERSION != "Yaml":  # what lm_eval shows for a file without a version, such as its CommonsenseQA
        assert mine.task.VERSION == peer.task.VERSION
    record_property("docs", _compare(mine, peer, name))


PIECES = [
    *"0123456789 ,.=/%$x{}()[]",
    "0.5",
    "\\frac",
    "\\dfrac",
    "\\frac{1}{2}",
    "\\frac12",
    "\\sqrt",
    "\\sqrt2",
    "\\text{ cm}",
    "\\left(",
    "\\right)",
    "^\\circ",
    "^{\\circ}",
    "\\$",
    "\\%",
    "\\\\",
    "\\!",
    "\n",
    "3/4",
    "x=",
]


@hypothesis.given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
@hypothesis.example(r"\\\%%")
@hypothesis.settings(max_examples=2000, deadline=None, database=None)
def test_answers_of_math_are_spelled_as_in_lm_eval(answer: str) -> None:
    """Where our rules do not fit an answer, lm_eval's fail on it; both then compare it as it stands."""
    try:
        expected = peer_math.strip_string(answer)
    except Exception:
        with pytest.raises(ValueError, match=r"more than one unit|without its argument|invalid literal"):
            ANSWERS_OF_MATH["one_spelling"](answer)
    else:
        assert ANSWERS_OF_MATH["one_spelling"](answer) == expected


UNBOXED = st.lists(st.sampled_from([piece for piece in PIECES if not set(piece) & set("{}$")]), max_size=3).map("".join)
NESTED = st.recursive(UNBOXED, lambda inner: st.lists(inner, max_size=3).map(lambda parts: f"{{{''.join(parts)}}}"))
BOXES = NESTED.map("\\boxed{{{}}}".format) | UNBOXED.map("\\boxed {}$".format)


@hypothesis.given(st.lists(UNBOXED | BOXES, max_size=4).map("".join), BOXES, UNBOXED)
@hypothesis.settings(max_examples=500, deadline=None, database=None)
def test_boxed_answers_of_math_are_lm_evals(before: str, box: str, after: str) -> None:
    solution = before + box + after
    expected = peer_math.remove_boxed(peer_math.last_boxed_only_string(solution))
    assert ANSWERS_OF_MATH["boxed"](solution) == expected
