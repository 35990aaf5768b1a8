"""The files of `--llmeval-output` against those that lm_eval's EvaluationTracker writes of the same run: a chat with
choices, a last word, a generation and a group. Needs the data sets of LLMEVAL_SHARED.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


pytest.importorskip("lm_eval")

import lm_eval
import pairedruns
from lm_eval.loggers import EvaluationTracker
from lm_eval.tasks import TaskManager


pytestmark = pytest.mark.filterwarnings("ignore")

PEERS = Path(lm_eval.__file__).parent / "tasks"
DOCS = 3

TASKS = {
    "arc": "include: PEERS/arc/arc_easy.yaml\ntask: arc\n",
    "lambada": "include: PEERS/lambada/lambada_openai.yaml\ntask: lambada\ntask_alias: last word\n",
    "sums": "include: PEERS/gsm8k/gsm8k.yaml\ntask: sums\nnum_fewshot: 2\n",
    "both": "group: both\ntask: [arc, lambada]\naggregate_metric_list: [{metric: acc}]\nmetadata: {version: 3}\n",
}

#: What only the one says: lm_eval's report on the machine is left out here.
ONLY_OURS = {"pretty_env_info", "transformers_version", "lm_eval_version", "upper_git_hash", "pytest_llmeval"}
#: What says when and where each was written.
OWN_WORDS = {"date", "git_hash", "total_evaluation_time_seconds"}
#: A path is called by its last name here, by its whole in lm_eval.
NAMES = {"model_name", "model_name_sanitized"}


@pytest.fixture(scope="module")
def files(checkpoint: Path, mirror: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Folders with the files that both write of one run in a chat: choices, a generation, a group."""
    folder = tmp_path_factory.mktemp("files")
    shutil.copytree(checkpoint, folder / "checkpoint")
    tasks = folder / "tasks"
    tasks.mkdir()
    for name, lines in TASKS.items():
        (tasks / f"{name}.yaml").write_text(lines.replace("PEERS", str(PEERS)))
    _write_theirs(folder, mirror)
    _write_ours(folder, mirror)
    return next((folder / "ours").iterdir()), next((folder / "theirs").iterdir())


def _write_theirs(folder: Path, mirror: Path) -> None:
    tracker = EvaluationTracker(output_path=str(folder / "theirs"))
    with pairedruns.peer_reads(mirror):
        results = lm_eval.simple_evaluate(
            model="hf",
            model_args=f"pretrained={folder / 'checkpoint'},dtype=float32,device=cpu",
            tasks=["both", "sums"],
            task_manager=TaskManager(include_path=folder / "tasks", include_defaults=False),
            limit=DOCS,
            gen_kwargs="max_gen_toks=16",
            bootstrap_iters=1000,
            evaluation_tracker=tracker,
            apply_chat_template=True,
            fewshot_as_multiturn=True,
            system_instruction="Be brief.",
        )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for task in results["configs"]:
        tracker.save_results_samples(task_name=task, samples=samples[task])


def _write_ours(folder: Path, mirror: Path) -> None:
    options = {
        "model": folder / "checkpoint",
        "model-args": "dtype=float32,device=cpu",
        "data": mirror,
        "limit": DOCS,
        "gen-kwargs": "max_gen_toks=16",
        "system": "Be brief.",
        "output": "ours",
    }
    command = [sys.executable, "-m", "pytest", "tasks", "--llmeval-chat-template", "--llmeval-fewshot-multiturn"]
    command += [f"--llmeval-{name}={value}" for name, value in options.items()]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_result_files(files: tuple[Path, Path]) -> None:
    ours, theirs = (json.loads(next(folder.glob("results_*.json")).read_text("utf-8")) for folder in files)
    assert [key for key in ours if key not in ONLY_OURS] == list(theirs)
    for key in theirs.keys() - OWN_WORDS - NAMES - {"config"}:
        assert pairedruns.differences(key, ours[key], theirs[key]) == []
    assert {ours[name] for name in NAMES} == {files[0].name} == {"checkpoint"}
    # lm_eval's batch size is one that it chose.
    config = {**theirs["config"], "batch_size": None}
    assert pairedruns.differences("config", ours["config"], config) == []


@pytest.mark.parametrize("task", ["arc", "lambada", "sums"])
def test_sample_files(task: str, files: tuple[Path, Path]) -> None:
    ours, theirs = (next(folder.glob(f"samples_{task}_*.jsonl")).read_text("utf-8").splitlines() for folder in files)
    assert len(ours) == len(theirs) >= DOCS
    for ours_line, line in zip(ours, theirs, strict=True):
        row, expected = json.loads(ours_line), json.loads(line)
        assert list(row) == list(expected)
        assert pairedruns.differences(task, _numbers(row), _numbers(expected)) == []


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose answers are numbers again: files hold them as texts."""
    kinds = {"True": True, "False": False}

    def number(value: Any) -> Any:
        if isinstance(value, list):
            return [number(item) for item in value]
        try:
            return kinds[value] if value in kinds else float(value)
        except ValueError:
            return value

    return {**row, **{key: number(row[key]) for key in ("resps", "filtered_resps")}}
