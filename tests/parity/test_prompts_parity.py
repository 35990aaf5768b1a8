"""lm_eval's own task files, unmodified, read by lm_eval and by this package: every request must be the same.

Real data where LLMEVAL_SHARED names a folder with a `mirror`; made-up docs for what no real task does, each case a
task file that both read.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest


pytest.importorskip("lm_eval")

import datasets
import lm_eval
import lm_eval.utils
from lm_eval.models.utils import normalize_gen_kwargs
from lm_eval.tasks import TaskManager

from pytest_llmeval._docs import open_docs
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._prompts import Shots
from pytest_llmeval._prompts import instances_for
from pytest_llmeval._prompts import render_doc
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import TaskFiles


pytestmark = pytest.mark.filterwarnings("ignore")

PEERS = Path(lm_eval.__file__).parent / "tasks"

#: Docs compared of each task and mode; LLMEVAL_FULL=1 compares them all.
DOCS = None if os.environ.get("LLMEVAL_FULL") == "1" else 60

#: doc -> its requests, each (kind, arguments).
Requests = dict[int, list[tuple[str, tuple[Any, ...]]]]


def chat(messages: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
    """A chat template of few words, given to both sides."""
    text = "".join(f"<{m['role']}>{m['content']}</{m['role']}>" for m in messages)
    return f"{text}<assistant>" if add_generation_prompt else text.removesuffix(f"</{messages[-1]['role']}>")


def peers_requests(path: Path, settings: Settings, docs: int | None) -> Requests:
    (task,) = TaskManager(include_defaults=False).load([str(path)])["tasks"].values()
    if settings.num_fewshot is not None or task.config.num_fewshot is None:
        task.set_config("num_fewshot", settings.num_fewshot or 0)
    task.set_fewshot_seed(settings.fewshot_seed)
    task.build_all_requests(
        limit=docs,
        system_instruction=settings.system,
        apply_chat_template=settings.chat_template,
        fewshot_as_multiturn=settings.fewshot_multiturn,
        chat_template=chat if settings.chat_template else None,
    )
    found: Requests = {}
    for instance in task.instances:
        requests = found.setdefault(instance.doc_id, [])
        requests += [(instance.request_type, tuple(map(_plain, instance.args)))] * instance.repeats
    return found


def our_requests(path: Path, settings: Settings, docs: int | None) -> Requests:
    task = TaskFiles().read(path)
    assert isinstance(task, Task)
    opened = open_docs(task, settings)
    shots = Shots(task, opened, settings)
    found: Requests = {}
    # Backwards: what a doc is asked may not depend on what came before.
    for index in reversed(range(min(len(opened), docs or len(opened)))):
        doc = render_doc(task, index, opened[index])
        assert doc.problem is None
        made = instances_for(task, doc, shots.for_doc(index), settings, chat if settings.chat_template else None)
        found[index] = [(instance.kind, tuple(map(_plain, instance.arguments))) for instance in made]
    return found


def _plain(argument: Any) -> Any:
    if isinstance(argument, GenerationKwargs):
        rest = {"top_p": argument.top_p, "top_k": argument.top_k, **argument.extra}
        own = [list(argument.until), argument.max_gen_toks, argument.do_sample, argument.temperature]
        return *own, {key: value for key, value in rest.items() if value is not None}
    if isinstance(argument, dict):
        kwargs = dict(normalize_gen_kwargs(argument))
        own = [kwargs.pop("until"), kwargs.pop("max_gen_toks"), kwargs.pop("do_sample"), kwargs.pop("temperature", 0.0)]
        return *own, kwargs
    return argument


def assert_same_requests(path: Path, settings: Settings, docs: int | None = DOCS) -> None:
    theirs, ours = peers_requests(path, settings, docs), our_requests(path, settings, docs)
    assert sorted(ours) == sorted(theirs)
    assert sum(map(len, theirs.values())) >= len(theirs) > 0
    for index, requests in theirs.items():
        assert ours[index] == requests, f"doc {index}"


MODES = {
    "plain": Settings(),
    "system": Settings(system="Be brief."),
    "chat": Settings(chat_template=True),
    "chat-system": Settings(chat_template=True, system="Be brief."),
}
SHOT_MODES = {
    "shots": Settings(num_fewshot=5),
    "shots-other-seed": Settings(num_fewshot=3, fewshot_seed=7),
    "shots-chat": Settings(num_fewshot=5, chat_template=True, system="Be brief."),
    "shots-multiturn": Settings(num_fewshot=5, chat_template=True, fewshot_multiturn=True, system="Be brief."),
}

#: lm_eval's task files whose data set is in the mirror; True: with a split for examples, or examples of their own.
TASKS = {
    "arc/arc_challenge": False,
    "arc/arc_easy": False,
    "arc/arc_challenge_chat": False,
    "commonsense_qa/default": True,
    "gsm8k/gsm8k": True,
    "gsm8k/gsm8k-cot": True,
    "gsm8k/gsm8k-cot-llama": True,
    "gsm8k/gsm8k-cot-zeroshot": False,
    "hendrycks_math/hendrycks_math_algebra": False,
    "lambada/lambada_openai": False,
    "lambada_cloze/lambada_openai_cloze": False,
    "mmlu/continuation/mmlu_anatomy": True,
    "mmlu/default/mmlu_anatomy": True,
    "mmlu/default/mmlu_professional_law": True,
    "mmlu/flan_cot_fewshot/mmlu_anatomy": True,
    "mmlu/flan_n_shot/generative/mmlu_anatomy": True,
    "mmlu/flan_n_shot/loglikelihood/mmlu_anatomy": True,
    "mmlu/generative/mmlu_anatomy": True,
    "openbookqa/openbookqa": False,
    "piqa/piqa": False,
    "super_glue/boolq/default": False,
    "super_glue/boolq/seq2seq": False,
    "triviaqa/default": False,
    "winogrande/default": False,
}
CASES = [(name, mode) for name, shots in TASKS.items() for mode in ({**MODES, **SHOT_MODES} if shots else MODES)]


@pytest.fixture(scope="module")
def mirror() -> Path:
    shared = os.environ.get("LLMEVAL_SHARED")
    if shared is None or not Path(shared, "mirror").is_dir():
        pytest.skip("LLMEVAL_SHARED names no folder that holds a mirror of the data sets")
    return Path(shared, "mirror").resolve()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("datasets")


@pytest.fixture(autouse=True)
def peer_reads_this_disk(monkeypatch: pytest.MonkeyPatch, cache: Path) -> Iterator[None]:
    """lm_eval opens all splits that a task names, used or not: those that the mirror lacks are stood in for."""
    load_dataset, shared = datasets.load_dataset, os.environ.get("LLMEVAL_SHARED", "")

    def load(path: str, name: str | None = None, **kwargs: Any) -> Any:
        kwargs.pop("trust_remote_code", None)
        folder = Path(shared, "mirror", path)
        splits = load_dataset(str(folder) if folder.is_dir() else path, name, cache_dir=str(cache), **kwargs)
        some = next(iter(splits.values()))
        for split in ("train", "validation", "test"):
            splits.setdefault(split, some.select(range(min(20, len(some)))))
        return splits

    monkeypatch.setattr(datasets, "load_dataset", load)
    # It compiles a template anew for each doc and field.
    compiled = functools.lru_cache(maxsize=1000)(lm_eval.utils.env.from_string)
    monkeypatch.setattr(lm_eval.utils.env, "from_string", compiled)
    datasets.disable_progress_bars()
    yield
    datasets.enable_progress_bars()


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_requests_of_lm_evals_own_files(name: str, mode: str, mirror: Path) -> None:
    settings = replace({**MODES, **SHOT_MODES}[mode], data_dir=mirror)
    assert_same_requests(PEERS / f"{name}.yaml", settings)


#: Functions that the made-up tasks below use.
FUNCTIONS = """
def shout(docs):
    return docs.map(lambda doc: {"q": doc["q"] + "!"})

def blank(doc):
    return [doc["q"].replace("0", option) for option in ("A", "B")]

def samples():
    return [{"q": "s0", "a": "t0", "label": 0, "c": ["x", "y"]}, {"q": "s1", "a": "t1", "label": 1, "c": ["x", "y"]}]

def answer(doc):
    return doc["a"] + "?"
"""

CHOICES = {"output_type": "multiple_choice", "doc_to_choice": "c", "doc_to_target": "label"}
TRAIN = {"fewshot_split": "train"}

#: What is put over the keys below: one case each.
SYNTHETIC: dict[str, Mapping[str, Any]] = {
    "generation": {},
    "generation kwargs": {"generation_kwargs": {"until": ["\n", "Q:"], "max_gen_toks": 7, "temperature": 0.5}},
    "generation kwargs without until": {"generation_kwargs": {"max_tokens": 7, "do_sample": False}},
    "one stop string": {"generation_kwargs": {"until": "Q:"}},
    "other settings pass through": {"generation_kwargs": {"until": [], "num_beams": 2, "top_k": 5}},
    "repeats": {"repeats": 3, "generation_kwargs": {"do_sample": True, "temperature": 0.7, "until": ["\n"]}},
    "loglikelihood": {"output_type": "loglikelihood", "doc_to_target": "{{' ' + a}}"},
    "rolling": {"output_type": "loglikelihood_rolling", "doc_to_text": "", "doc_to_target": "{{q}} {{a}}"},
    "choices": CHOICES,
    "choices by a template": {**CHOICES, "doc_to_choice": "{{[c[0] + '.', c[1]]}}"},
    "choices piece by piece": {**CHOICES, "doc_to_choice": "['{{c[0]}} is', '{{c[1]}} is']"},
    "gold by a template": {**CHOICES, "doc_to_target": "{{['A', 'B'].index(key)}}"},
    "gold by arithmetic": {**CHOICES, "doc_to_target": "{{one|int - 1}}"},
    "gold by cases": {**CHOICES, "doc_to_target": "{% if label == 1 %}1{% else %}0{% endif %}"},
    "gold by text": {**CHOICES, "doc_to_target": "{{c[label]}}"},
    "several golds": {**CHOICES, "doc_to_target": "labels", "fewshot_config": {"doc_to_target": "label"}},
    "letters": {**CHOICES, "doc_to_choice": ["A", "B"], "doc_to_target": "key"},
    "mutual information": {**CHOICES, "metric_list": [{"metric": "acc"}, {"metric": "acc_mutual_info"}]},
    "spaces in the choices": {**CHOICES, "doc_to_choice": "{{[' ' + c[0], c[1] + ' ']}}"},
    "no delimiter": {**CHOICES, "target_delimiter": "", "doc_to_text": "{{q}} "},
    "options in the prompt": {
        **CHOICES,
        "doc_to_text": "label",
        "doc_to_choice": "!function f.blank",
        "doc_to_target": "a",
    },
    "options in the prompt by a template": {
        **CHOICES,
        "doc_to_text": "{{label}}",
        "doc_to_choice": "{{[q + c[0], q + c[1]]}}",
        "doc_to_target": "{{a}}",
    },
    "several answers": {"doc_to_target": "answers"},
    "several answers by a template": {"doc_to_target": "{{answers}}"},
    "an answer without text": {"doc_to_target": ""},
    "description": {"description": "Answer.\n\n"},
    "description from the doc": {"description": "About {{key}}: "},
    "description in a column": {"description": "key"},
    "prefix": {"gen_prefix": "It is"},
    "prefix with a space": {"gen_prefix": "It is "},
    "prefix from the doc": {"gen_prefix": "{{key}} is"},
    "prefix in a column": {"gen_prefix": "key"},
    "prefix and choices": {**CHOICES, "gen_prefix": "It is"},
    "prefix with a space and choices": {**CHOICES, "gen_prefix": "It is "},
    "prefix and options in the prompt": {
        **CHOICES,
        "doc_to_text": "label",
        "doc_to_choice": "{{[q, a]}}",
        "doc_to_target": "a",
        "gen_prefix": "It is",
    },
    "delimiters": {"fewshot_delimiter": "\n#\n", "target_delimiter": " = "},
    "a question that ends in a space": {"doc_to_text": "Q: {{q}} "},
    "process_docs": {"process_docs": "!function f.shout"},
    "functions": {"doc_to_text": "{{q}}", "doc_to_target": "!function f.answer"},
    "first_n": {"fewshot_config": {"sampler": "first_n"}},
    "shots of the evaluated split": {"fewshot_split": "test"},
    "first_n of the evaluated split": {"fewshot_split": "test", "fewshot_config": {"sampler": "first_n"}},
    "shots by the rule": {"fewshot_split": None, "training_split": "train"},
    "no test split": {"fewshot_split": None, "training_split": "train", "test_split": None, "validation_split": "test"},
    "first_n without a test split": {
        "fewshot_split": None,
        "training_split": "train",
        "test_split": None,
        "validation_split": "test",
        "fewshot_config": {"sampler": "first_n"},
    },
    "written samples": {
        "fewshot_split": None,
        "fewshot_config": {"samples": [{"q": "w0", "a": "x0"}, {"q": "w1", "a": "x1"}, {"q": "w2", "a": "x2"}]},
    },
    "made samples": {"fewshot_split": None, "fewshot_config": {"samples": "!function f.samples", "sampler": "first_n"}},
    "shots of their own": {
        "fewshot_config": {
            "doc_to_text": "{{q}}?",
            "doc_to_target": "{{a}}.",
            "gen_prefix": "Hm",
            "fewshot_delimiter": "|",
            "target_delimiter": ">",
        }
    },
    "shots with choices of their own": {
        **CHOICES,
        "fewshot_config": {"doc_to_choice": "{{[c[1], c[0]]}}", "doc_to_target": "{{1 - label}}"},
    },
    "shots with process_docs of their own": {"fewshot_config": {"process_docs": "!function f.shout"}},
}


def synthetic_rows(letter: str, n: int) -> list[dict[str, Any]]:
    return [
        {
            "q": f"{letter}{i} {{{{x}}}}",
            "a": f"answer {i}",
            "key": "AB"[i % 2],
            "label": i % 2,
            "labels": [0, 1] if i % 3 else [1],
            "one": str(1 + i % 2),
            "c": [f"yes {i}", "no"],
            "answers": [f"first {i}", "second"],
        }
        for i in range(n)
    ]


def _yaml(value: Any, indent: str = "") -> str:
    """JSON is YAML; only tags are written bare."""
    if isinstance(value, str) and value.startswith("!function"):
        return value
    if isinstance(value, Mapping):
        return "".join(f"\n{indent}  {key}: {_yaml(entry, indent + '  ')}" for key, entry in value.items())
    return json.dumps(value)


@pytest.fixture(scope="module")
def synthetic_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("synthetic")
    for split, rows in {"train": synthetic_rows("t", 9), "test": synthetic_rows("q", 12)}.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def write_task(tmp_path: Path, synthetic_data: Path) -> Callable[[Mapping[str, Any]], Path]:
    """Writes a task file with its functions beside it."""
    (tmp_path / "f.py").write_text(FUNCTIONS)
    data_files = {split: str(synthetic_data / f"{split}.jsonl") for split in ("train", "test")}

    def write(keys: Mapping[str, Any]) -> Path:
        config = {
            "task": "synthetic",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": data_files},
            "output_type": "generate_until",
            "test_split": "test",
            "fewshot_split": "train",
            "doc_to_text": "Q: {{q}}\nA:",
            "doc_to_target": "{{a}}",
            **keys,
        }
        path = tmp_path / "synthetic.yaml"
        path.write_text("".join(f"{key}: {_yaml(value)}\n" for key, value in config.items()))
        return path

    return write


@pytest.mark.parametrize("mode", ["plain", "chat-system", "two-shots", "two-shots-chat", "two-shots-multiturn"])
@pytest.mark.parametrize("case", SYNTHETIC)
def test_requests_of_made_up_tasks(case: str, mode: str, write_task: Callable[[Mapping[str, Any]], Path]) -> None:
    modes = {
        **MODES,
        "two-shots": Settings(num_fewshot=2, system="S"),
        "two-shots-chat": Settings(num_fewshot=2, chat_template=True),
        "two-shots-multiturn": Settings(num_fewshot=2, chat_template=True, fewshot_multiturn=True, system="S"),
    }
    assert_same_requests(write_task(SYNTHETIC[case]), modes[mode], docs=None)
