"""lm_eval and this package run the embedded model in one process: every request, answer, score and sum is the same.

The data is real where LLMEVAL_SHARED names a folder with a `mirror` of the data sets, and made up for data sets that
are not in it. A few docs of each task are compared; LLMEVAL_FULL=1 compares a hundred.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


pytest.importorskip("lm_eval")

import datasets
import lm_eval
import pairedruns
import pyarrow.parquet
import synthetic_docs
import torch
import transformers
from pairedruns import Found
from pairedruns import Pair
from tokenizers import processors

from pytest_llmeval import evaluate
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._settings import Settings


pytestmark = pytest.mark.filterwarnings("ignore")

OURS = Path(__file__).parents[2] / "benchmarks"
PEERS = Path(lm_eval.__file__).parent / "tasks"

FULL = os.environ.get("LLMEVAL_FULL") == "1"
DOCS = 100 if FULL else 3

#: Our file -> lm_eval's of the same task, below the two roots, and the shots that are asked for (None: the task's own).
BENCHMARKS: dict[str, tuple[str, int | None]] = {
    "arc/arc_challenge": ("arc/arc_challenge", None),
    "arc/arc_easy": ("arc/arc_easy", None),
    "boolq": ("super_glue/boolq/default", None),
    "commonsense_qa": ("commonsense_qa/default", 5),
    "gsm8k/gsm8k": ("gsm8k/gsm8k", None),
    "hendrycks_math/algebra": ("hendrycks_math/hendrycks_math_algebra", None),
    "lambada_openai": ("lambada/lambada_openai", None),
    "mmlu/anatomy": ("mmlu/default/mmlu_anatomy", 5),
    "mmlu_continuation/virology": ("mmlu/continuation/mmlu_virology", 5),
    "mmlu_generative/marketing": ("mmlu/generative/mmlu_marketing", 5),
    "openbookqa": ("openbookqa/openbookqa", None),
    "piqa": ("piqa/piqa", None),
    "triviaqa": ("triviaqa/default", None),
    "winogrande/winogrande": ("winogrande/default", None),
}

#: Files of lm_eval that both read -> whether there is a split for shots, or shots of their own.
PEERS_FILES = {
    "arc/arc_challenge": False,
    "arc/arc_easy": False,
    "commonsense_qa/default": True,
    "gsm8k/gsm8k": True,
    "gsm8k/gsm8k-cot-llama": True,
    "hendrycks_math/hendrycks_math_geometry": False,
    "lambada/lambada_openai": False,
    "mmlu/default/mmlu_virology": True,
    "mmlu/generative/mmlu_virology": True,
    "openbookqa/openbookqa": False,
    "piqa/piqa": False,
    "super_glue/boolq/default": False,
    "super_glue/boolq/seq2seq": False,
    "triviaqa/default": False,
    "winogrande/default": False,
}
CHAT: dict[str, dict[str, Any]] = {
    "chat": {"chat_template": True},
    "chat-system": {"chat_template": True, "system": "Be brief."},
}
SHOTS_CHAT: dict[str, dict[str, Any]] = {
    "shots-chat": {"num_fewshot": 2, "chat_template": True},
    "shots-multiturn": {"num_fewshot": 2, "chat_template": True, "fewshot_multiturn": True, "system": "Be brief."},
}
CHAT_CASES = [(name, mode) for name, shots in PEERS_FILES.items() for mode in (SHOTS_CHAT if shots else CHAT)]

#: lm_eval's name of a group -> our file, the folder that lm_eval finds it in, and settings. A limit below 1 is a share
#: of each task's docs: the tasks then weigh differently.
GROUPS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mmlu": ("mmlu/mmlu", "mmlu/default", {"num_fewshot": 0, "limit": 10 if FULL else 1}),
    "mmlu_stem": ("mmlu/stem", "mmlu/default", {"num_fewshot": 2, "limit": 0.1 if FULL else 0.01}),
    "hendrycks_math": (
        "hendrycks_math/hendrycks_math",
        "hendrycks_math",
        {"limit": 0.02 if FULL else 0.003, "gen_kwargs": {"max_gen_toks": 8}},
    ),
}

#: Data sets that are in no mirror.
MADE_UP = {
    "hellaswag": "hellaswag/hellaswag",
    "mmlu_pro/biology": "mmlu_pro/mmlu_pro_biology",
    "truthfulqa/truthfulqa_mc1": "truthfulqa/truthfulqa_mc1",
    "truthfulqa/truthfulqa_mc2": "truthfulqa/truthfulqa_mc2",
    "wikitext/wikitext": "wikitext/wikitext",
}

#: Task files for what no task above does: name -> (the file, settings of the run).
OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "rolling": (
        """
dataset_path: EleutherAI/lambada_openai
dataset_name: default
output_type: loglikelihood_rolling
test_split: test
doc_to_text: ""
doc_to_target: "{{text}}"
metric_list: [{metric: word_perplexity}, {metric: byte_perplexity}, {metric: bits_per_byte}]
""",
        {},
    ),
    "a prefix before choices": (
        'include: PEERS/commonsense_qa/default.yaml\ngen_prefix: "It is"\n',
        {"num_fewshot": 2},
    ),
    "a prefix in a chat": (
        'include: PEERS/gsm8k/gsm8k.yaml\ngen_prefix: "So:"\n',
        {"num_fewshot": 2, "chat_template": True, "fewshot_multiturn": True, "gen_kwargs": {"max_gen_toks": 16}},
    ),
    "metrics of choices": (
        """
include: PEERS/super_glue/boolq/default.yaml
metric_list:
  - {metric: acc}
  - {metric: acc_norm}
  - {metric: acc_bytes}
  - {metric: acc_mutual_info}
  - {metric: brier_score}
  - {metric: f1}
  - {metric: mcc}
""",
        {"limit": 8},
    ),
    "metrics of texts": (
        """
include: PEERS/gsm8k/gsm8k.yaml
generation_kwargs: {until: "Question:", max_new_tokens: 16}
repeats: 2
filter_list: [{name: vote, filter: [{function: majority_vote}, {function: take_first}]}]
metric_list:
  - {metric: bleu}
  - {metric: chrf}
  - {metric: ter}
  - {metric: exact_match, aggregation: mean, higher_is_better: true, ignore_punctuation: true, ignore_case: true}
""",
        {"num_fewshot": 1},
    ),
    "another seed": ("include: PEERS/commonsense_qa/default.yaml\n", {"num_fewshot": 3, "fewshot_seed": 7}),
}

#: Both score what the model itself wrote.
GREEDY = """
task: greedy
dataset_path: made/greedy
output_type: loglikelihood
test_split: test
doc_to_text: "{{text}}"
doc_to_target: "{{next}}"
target_delimiter: ""
metric_list: [{metric: acc}, {metric: perplexity}]
"""

AssertSame = Callable[..., Found]


@pytest.fixture(scope="module")
def pair(checkpoint: Path) -> Pair:
    return Pair(checkpoint)


@pytest.fixture(scope="module")
def bos_checkpoint(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with a tokenizer that puts BOS before every text by itself."""
    folder = tmp_path_factory.mktemp("bos") / "checkpoint"
    shutil.copytree(checkpoint, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint)
    bos = (tokenizer.bos_token, tokenizer.bos_token_id)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos[0]} $A", special_tokens=[bos]
    )
    tokenizer.save_pretrained(folder)
    assert transformers.AutoTokenizer.from_pretrained(folder)("a")["input_ids"][0] == bos[1]
    return folder


@pytest.fixture(scope="module")
def bos_pair(bos_checkpoint: Path) -> Pair:
    return Pair(bos_checkpoint)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic_docs.write_mirror(tmp_path_factory.mktemp("made-up"))


@pytest.fixture
def assert_same(record_property: Callable[[str, object], None]) -> AssertSame:
    """Runs both on two files of one task, or on one file, and has no difference between them."""

    def check(
        pair: Pair, ours: Path, theirs: Path | str, data: Path, near: Path | None = None, **settings: Any
    ) -> Found:
        keep = {"data_dir": data, "keep_samples": True, "bootstrap_iters": 100, "limit": DOCS}
        with pairedruns.peer_reads(data):
            runs = pair.run(ours, theirs, Settings(**{**keep, **settings}), near)
        found = pairedruns.compare(runs)
        assert found.differences == []
        record_property("compared", f"{found.docs} docs, {found.requests} requests, {found.largest:.1e}")
        return found

    return check


@pytest.fixture
def write_own(tmp_path: Path) -> Callable[[str], Path]:
    def write(name: str) -> Path:
        path = tmp_path / "own.yaml"
        path.write_text(f"task: own\n{OWN[name][0]}".replace("PEERS", str(PEERS)))
        return path

    return write


@pytest.mark.parametrize("name", BENCHMARKS)
def test_benchmarks(name: str, pair: Pair, mirror: Path, assert_same: AssertSame) -> None:
    theirs, shots = BENCHMARKS[name]
    found = assert_same(pair, OURS / f"{name}.yaml", PEERS / f"{theirs}.yaml", mirror, num_fewshot=shots)
    assert found.docs == DOCS


@pytest.mark.parametrize(("name", "mode"), CHAT_CASES)
def test_lm_evals_files_as_a_chat(name: str, mode: str, pair: Pair, mirror: Path, assert_same: AssertSame) -> None:
    path = PEERS / f"{name}.yaml"
    settings = {**CHAT, **SHOTS_CHAT}[mode]
    found = assert_same(pair, path, path, mirror, gen_kwargs={"max_gen_toks": 16}, **settings)
    assert found.docs == DOCS


@pytest.mark.parametrize("mode", ["plain", "chat"])
@pytest.mark.parametrize("name", MADE_UP)
def test_made_up_docs(name: str, mode: str, pair: Pair, made_up: Path, assert_same: AssertSame) -> None:
    theirs = PEERS / f"{MADE_UP[name]}.yaml"
    ours = OURS / f"{name}.yaml" if mode == "plain" else theirs
    settings = {} if mode == "plain" else CHAT["chat-system"]
    assert_same(pair, ours, theirs, made_up, gen_kwargs={"max_gen_toks": 16}, **settings)


@pytest.mark.parametrize("name", GROUPS)
def test_groups(name: str, pair: Pair, mirror: Path, assert_same: AssertSame) -> None:
    ours, near, settings = GROUPS[name]
    assert_same(pair, OURS / f"{ours}.yaml", name, mirror, PEERS / near, **settings)


@pytest.mark.parametrize("name", OWN)
def test_what_no_benchmark_does(
    name: str, pair: Pair, mirror: Path, write_own: Callable[[str], Path], assert_same: AssertSame
) -> None:
    path = write_own(name)
    assert_same(pair, path, path, mirror, **OWN[name][1])


@pytest.mark.parametrize("name", ["rolling", "a prefix in a chat", "another seed"])
def test_a_window_that_is_too_short(
    name: str, checkpoint: Path, mirror: Path, write_own: Callable[[str], Path], assert_same: AssertSame
) -> None:
    path = write_own(name)
    assert_same(Pair(checkpoint, max_length=64), path, path, mirror, **OWN[name][1])


def test_what_the_model_writes_is_greedy(pair: Pair, mirror: Path, tmp_path: Path, assert_same: AssertSame) -> None:
    (file,) = (mirror / "EleutherAI/lambada_openai/default").glob("test*.parquet")
    texts = [text.rpartition(" ")[0] for text in pyarrow.parquet.read_table(file)["text"].to_pylist()[: 4 * DOCS]]
    written = pair.ours.generate_until([(text, GenerationKwargs(max_gen_toks=4)) for text in texts])
    docs = [{"text": text, "next": str(end)} for text, end in zip(texts, written, strict=True)]
    docs = [doc for doc in docs if keeps_border(pair.peer.tokenizer, doc["text"], doc["next"])]
    docs += [{**doc, "next": doc["next"] + " zebra"} for doc in docs]
    (tmp_path / "made/greedy/default").mkdir(parents=True)
    datasets.Dataset.from_list(docs).to_parquet(tmp_path / "made/greedy/default/test-0.parquet")
    path = tmp_path / "greedy.yaml"
    path.write_text(GREEDY)
    found = assert_same(pair, path, path, tmp_path, limit=None)
    share = evaluate([path], pair.ours, Settings(data_dir=tmp_path))["greedy"].metrics["acc"]
    assert found.docs == len(docs) >= 4
    assert 0 < share <= 0.5


def keeps_border(tokenizer: Any, context: str, continuation: str) -> bool:
    """Whether the encoded context begins the encoded whole; where not, lm_eval loses letters."""
    left, whole = tokenizer(context)["input_ids"], tokenizer(context + continuation)["input_ids"]
    return len(whole) > len(left) and whole[: len(left)] == left


@pytest.mark.parametrize("name", ["a prefix before choices", "a prefix in a chat", "metrics of choices"])
@pytest.mark.parametrize("chat", [False, True], ids=["plain", "chat"])
def test_a_tokenizer_that_adds_bos(
    name: str, chat: bool, bos_pair: Pair, mirror: Path, write_own: Callable[[str], Path], assert_same: AssertSame
) -> None:
    path = write_own(name)
    assert_same(bos_pair, path, path, mirror, **{**OWN[name][1], "chat_template": chat, "fewshot_multiturn": False})


def test_rolling_where_the_tokenizer_adds_bos(bos_pair: Pair, mirror: Path, write_own: Callable[[str], Path]) -> None:
    """lm_eval puts BOS before BOS and counts the second as a token of the text; BOS is only its condition."""
    path = write_own("rolling")
    settings = Settings(data_dir=mirror, keep_samples=True, limit=DOCS)
    with pairedruns.peer_reads(mirror):
        runs = bos_pair.run(path, path, settings)
    ours, rows = runs.ours.results("own"), runs.theirs["samples"]["own"]
    assert len(rows) == len(ours) == DOCS
    for row in rows:
        ids = bos_pair.peer.tokenizer(row["doc"]["text"])["input_ids"]
        sample = ours[row["doc_id"]].sample
        assert sample is not None
        assert sample["resps"] == [[pytest.approx(logprob(bos_pair, ids), rel=1e-6)]]
        assert row["resps"] == [[pytest.approx(logprob(bos_pair, [ids[0], *ids]), rel=1e-6)]]


def test_shots_that_are_asked_for(pair: Pair, mirror: Path) -> None:
    """lm_eval keeps a task without shots if its file says 0, whatever is asked for; here the option overrides."""
    path = PEERS / "gsm8k/gsm8k-cot-zeroshot.yaml"
    settings = Settings(data_dir=mirror, keep_samples=True, limit=1, num_fewshot=1, gen_kwargs={"max_gen_toks": 4})
    with pairedruns.peer_reads(mirror):
        runs = pair.run(path, path, settings)
    (name,) = (task.name for task in runs.tasks)
    sample = runs.ours.results(name)[0].sample
    assert sample is not None
    ours, theirs = sample["arguments"][0][0], runs.theirs["samples"][name][0]["arguments"][0][0]
    assert (ours.count("Q: "), theirs.count("Q: ")) == (2, 1)
    assert ours.endswith(theirs)
    assert (runs.ours.summary(runs.tasks[0]).num_fewshot, runs.theirs["n-shot"][name]) == (1, 0)


@torch.inference_mode()
def logprob(pair: Pair, ids: list[int]) -> float:
    """log P of all ids but the first, by one call of the model."""
    logits = pair.peer.model(torch.tensor([ids])).logits[0, :-1]
    return float(logits.log_softmax(-1).double()[range(len(ids) - 1), ids[1:]].sum())
