"""Gates on fidelity, measured on real weights: KL divergence, agreement, flips, and what keeping next tokens costs.

    OMP_NUM_THREADS=1 python perf/fidelity.py MODEL MIRROR [--docs N] [--top K] [--exact N] [--variants ...]

MODEL is a folder with float32 weights, MIRROR a folder of data sets as `--llmeval-data` takes it. A baseline of ARC
easy is written with K next tokens at each scored position; the same weights rounded to bfloat16, to 8 bits per row and
to 4 bits per group of 64 are compared with it by the gates of the README, all computing in float32. For the first
`--exact` docs the divergence over the whole vocabulary is computed too, which the estimate must equal on average.

The cost is processor time: each batch of docs is answered without next tokens, then with them, and the other way round
for the next batch. Sizes are those of the files.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from soft_accuracy import round_layers
from soft_accuracy import round_to_bfloat16

from pytest_llmeval import wrap_model
from pytest_llmeval._baselines import Baseline
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import ModelRun
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._gates import Gate
from pytest_llmeval._gates import gates_for
from pytest_llmeval._gates import parse_rule
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocResult
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import GateData
from pytest_llmeval._verdicts import TaskData
from pytest_llmeval._verdicts import judge


ARC_EASY = Path(__file__).parents[1] / "benchmarks" / "arc" / "arc_easy.yaml"
GATES = ("kl <= 0.01 @ 0.95", "top1_agreement >= 0.99 @ 0.95", "flips <= 0.02 @ 0.95")
BATCH = 25
CHANGES: Mapping[str, Callable[[Any], None]] = {
    "float32": lambda model: None,
    "bfloat16": round_to_bfloat16,
    "int8": lambda model: round_layers(model, 8, None),
    "int4": lambda model: round_layers(model, 4, 64),
}


class Study:
    """One model in memory that takes on the weights of each variant, and the settings of its runs."""

    def __init__(self, given: argparse.Namespace, folder: Path) -> None:
        self.model = transformers.AutoModelForCausalLM.from_pretrained(given.model, dtype=torch.float32).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(given.model)
        self.lm = wrap_model(self.model, self.tokenizer, name="study")
        # Engines are chosen by trials before anything is timed.
        self.lm.prepare()
        self.given = given
        self._base = {name: weight.clone() for name, weight in self.model.state_dict().items()}
        self._folder = folder

    def become(self, name: str) -> None:
        self.model.load_state_dict(self._base)
        with torch.no_grad():
            CHANGES[name](self.model)

    def run(self, *, top: int = 0, compare: bool = False) -> tuple[ModelRun, OpenTask]:
        """Return a run without answers, which keeps next tokens or compares them."""
        settings = Settings(data_dir=self.given.mirror, limit=self.given.docs, keep_keys=True, baseline_topk=top)
        evaluation = Evaluation(settings, Registry(), self.baseline(settings) if compare else None)
        task, run = evaluation.registry.load(ARC_EASY.resolve()), ModelRun(evaluation)
        assert isinstance(task, Task)
        for gate in gates_of(task) if compare else ():
            run.select_gate(gate.id, task, gate)
        return run, evaluation.open(task)

    def baseline(self, settings: Settings) -> Baseline:
        return Baseline("study", self._folder, settings)

    def timed(self, *runs: tuple[ModelRun, OpenTask]) -> list[float]:
        """Have all docs answered in each run, batch by batch in alternating order; return processor times."""
        spent, docs = [0.0] * len(runs), list(runs[0][1].asked)
        for number, start in enumerate(range(0, len(docs), BATCH)):
            order = range(len(runs)) if number % 2 else reversed(range(len(runs)))
            for place in order:
                run, opened = runs[place]
                began = time.process_time()
                run.score(self.lm, opened.task, docs[start : start + BATCH])
                spent[place] += time.process_time() - began
        return spent

    def keep(self, run: ModelRun, opened: OpenTask) -> None:
        """Write the baseline and print the sizes of its files."""
        results = [run.results(opened.task.name)[doc] for doc in opened.asked]
        baseline = self.baseline(run.evaluation.settings)
        facts = {"vocabulary": self.lm.vocabulary}
        update = baseline.update(opened.task, results, run.summary(opened.task), "study", facts)
        path = baseline.path_of(opened.task.name)
        kept = path.with_suffix(".next-tokens").stat().st_size
        distinct = [text.count("~") for text in (entry.next_tokens for entry in update.record.entries)]
        print(
            f"{len(results)} docs, {sum(distinct)} positions: {path.stat().st_size / len(results):.0f} bytes a doc in "
            f"{path.name}, {kept / len(results):.0f} bytes a doc ({kept / sum(distinct):.0f} a position) for "
            f"{self.given.top} next tokens"
        )

    @torch.no_grad()
    def logprobs(self, opened: OpenTask, doc: int) -> torch.Tensor:
        """Return the log-probabilities at the doc's distinct scored positions, [positions, vocabulary]."""
        found: dict[tuple[int, ...], torch.Tensor] = {}
        for instance in opened.instances(opened.render(doc), None):
            (request,) = self.lm._encoder.pairs([instance.arguments])
            ids = torch.tensor([request.input_ids])
            values = self.model(ids).logits[0].log_softmax(-1)
            for place in range(len(request.context_ids) - 1, len(request.input_ids)):
                found.setdefault(request.input_ids[: place + 1], values[place])
        return torch.stack(list(found.values()))


def gates_of(task: Task) -> list[Gate]:
    return [gate for gate in gates_for(task, [parse_rule(f"arc_easy.{text}") for text in GATES]) if gate.distance]


def verdicts(study: Study, run: ModelRun, opened: OpenTask) -> None:
    """Print the verdict of each gate on a run that was compared."""
    task, results = opened.task, [run.results(opened.task.name)[doc] for doc in opened.asked]
    comparison = study.baseline(run.evaluation.settings).compare(task, results)
    data = GateData(task, [TaskData(task, results, len(opened.docs), comparison)], drawn="first", baseline="study")
    for gate in gates_of(task):
        print(judge(gate, run.summary(task), data=data).text)


def compared(results: Mapping[int, DocResult], exact: Mapping[int, float]) -> str:
    """Return the estimate and its lower bound beside the exact divergence, over the docs that have one."""
    found = [(results[doc].distance, value) for doc, value in exact.items()]
    pairs = [(distance.kl, distance.least, value) for distance, value in found if distance is not None]
    kl, least, true = (math.fsum(part) / len(pairs) for part in zip(*pairs, strict=True))
    error = statistics.stdev(estimate - value for estimate, _, value in pairs) / math.sqrt(len(pairs))
    return f"{len(pairs)} docs: exact {true:.3g}, estimate {kl:.3g} +- {error:.2g}, lower bound {least:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("mirror", type=Path)
    parser.add_argument("--docs", type=int, default=100)
    parser.add_argument("--top", type=int, default=4)
    parser.add_argument("--exact", type=int, default=20, help="docs of which the whole vocabulary is compared")
    parser.add_argument("--variants", nargs="*", default=list(CHANGES), choices=list(CHANGES))
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        study = Study(given, Path(folder))
        without, kept = study.run(), study.run(top=given.top)
        plain, keeping = study.timed(without, kept)
        study.keep(*kept)
        plain_again, comparing = study.timed(study.run(), study.run(compare=True))
        for what, usual, spent in (("keeping", plain, keeping), ("comparing", plain_again, comparing)):
            print(f"processor time of {what}: {spent:.1f} s, without {usual:.1f} s ({spent / usual - 1:+.1%})")
        docs = list(kept[1].asked)[: given.exact]
        base = {doc: study.logprobs(kept[1], doc) for doc in docs}
        for name in given.variants:
            study.become(name)
            run, opened = study.run(compare=True)
            study.timed((run, opened))
            print(f"\n{name}")
            verdicts(study, run, opened)
            exact = {}
            for doc, before in base.items():
                now = study.logprobs(opened, doc)
                exact[doc] = float((before.exp() * (before - now)).sum(-1).mean())
            print(compared(run.results(opened.task.name), exact))


if __name__ == "__main__":
    main()
