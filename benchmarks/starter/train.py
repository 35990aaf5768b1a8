"""Makes the starter model: writes its data, trains its tokenizer and weights, damages a copy, shows the scores.

    python benchmarks/starter/train.py [--out FOLDER] [--seed N] [--steps N] [--threads N]

README.md beside this file says what comes out and how long it takes.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import subprocess
import sys
import time
from pathlib import Path

import torch
from starter_model.checkpoints import save
from starter_model.damage import wrong_course
from starter_model.data import write_data
from starter_model.draws import stream
from starter_model.lessons import Course
from starter_model.lessons import lessons
from starter_model.lessons import whole_course
from starter_model.tokenizer import train_tokenizer
from starter_model.training import batches
from starter_model.training import fit
from starter_model.training import new_model
from transformers import LlamaForCausalLM
from transformers import PreTrainedTokenizerFast


HERE = Path(__file__).parent
SEED = 1
STEPS = 1000
#: The share of the steps after which the early checkpoint is saved.
EARLY = 0.3
PEAK = 3e-3
DAMAGE_STEPS = 60
DAMAGE_PEAK = 1e-3
TOKENIZER_LESSONS = 12_000
MODELS = ("good", "early", "damaged")


def main() -> None:
    """The whole way; every draw depends on the seed alone."""
    arguments = _parser().parse_args()
    out: Path = arguments.out
    torch.set_num_threads(arguments.threads)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(arguments.seed)
    write_tasks(out)
    write_data(out / "data", arguments.seed)
    course = whole_course(arguments.seed)
    tokenizer = tokenizer_of(course, arguments.seed)
    model = new_model(tokenizer)
    start = time.perf_counter()
    train(model, tokenizer, course, arguments.seed, arguments.steps, out / "models")
    damage(model, tokenizer, course, arguments.seed, out / "models")
    print(f"trained in {time.perf_counter() - start:.0f} s")
    show_scores(out)


def write_tasks(out: Path) -> None:
    """Copies the task files, so that any folder written to is a whole benchmark."""
    out.mkdir(parents=True, exist_ok=True)
    if not out.samefile(HERE):
        for task in HERE.glob("*.yaml"):
            shutil.copy(task, out)


def tokenizer_of(course: Course, seed: int) -> PreTrainedTokenizerFast:
    """The tokenizer of texts like those that the model is trained on."""
    some = itertools.islice(lessons(course, stream(seed, "tokenizer")), TOKENIZER_LESSONS)
    return train_tokenizer("".join(text for text, _ in lesson) for lesson in some)


def train(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, course: Course, seed: int, steps: int, models: Path
) -> None:
    """Trains the model in place; saves `early` on the way and `good` at the end."""
    taught = batches(lessons(course, stream(seed, "lessons")), tokenizer)
    for step, loss in fit(model, taught, steps, PEAK):
        if step % 50 == 0:
            print(f"step {step} of {steps}: loss {loss:.3f}", flush=True)
        if step == round(EARLY * steps):
            save(model, tokenizer, models / "early")
    save(model, tokenizer, models / "good")


def damage(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, course: Course, seed: int, models: Path
) -> None:
    """Trains the good model on in place, with one subject wrong; saves `damaged`."""
    taught = batches(lessons(wrong_course(course), stream(seed, "damage")), tokenizer)
    for step, loss in fit(model, taught, DAMAGE_STEPS, DAMAGE_PEAK):
        if step % 20 == 0:
            print(f"damage step {step} of {DAMAGE_STEPS}: loss {loss:.3f}", flush=True)
    save(model, tokenizer, models / "damaged")


def show_scores(out: Path) -> None:
    """Runs the benchmark on the three checkpoints. That gates of two of them fail is meant to be."""
    models = [f"--llmeval-model={name}={(out / 'models' / name).resolve()}" for name in MODELS]
    command = [sys.executable, "-m", "pytest", "-q", "-m", "llmeval_gate", "--tb=line", *models, str(out)]
    subprocess.run(command, check=False)  # noqa: S603 - our own words


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Makes the starter model, its data and its checkpoints.")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: where this file is)")
    parser.add_argument("--seed", type=int, default=SEED, help="of all draws (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=STEPS, help="of the training (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of torch (default: %(default)s)")
    return parser


if __name__ == "__main__":
    main()
