"""One model's run: its results, what is known of the model, and the verdicts of its gates."""

from __future__ import annotations

import time
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from typing import TypeVar

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import ModelError
from pytest_llmeval._errors import SandboxError
from pytest_llmeval._evaluation.evaluation import Evaluation
from pytest_llmeval._evaluation.model_calls import Progress
from pytest_llmeval._evaluation.model_calls import facts_of
from pytest_llmeval._evaluation.model_calls import usage_of
from pytest_llmeval._evaluation.model_calls import watched
from pytest_llmeval._evaluation.noise import NoiseFloors
from pytest_llmeval._evaluation.repeats import Repeats
from pytest_llmeval._gates import Gate
from pytest_llmeval._journal import KnownAnswers
from pytest_llmeval._journal import known_answers
from pytest_llmeval._lm import LM
from pytest_llmeval._plain import listed
from pytest_llmeval._prompts import num_fewshot
from pytest_llmeval._registry import Registry
from pytest_llmeval._results import DocResult
from pytest_llmeval._results import Summary
from pytest_llmeval._scoring import summarize_group
from pytest_llmeval._scoring import summarize_task
from pytest_llmeval._settings import Settings
from pytest_llmeval._task import NOTHING
from pytest_llmeval._task import Group
from pytest_llmeval._task import Task
from pytest_llmeval._verdicts import Verdict


#: Docs in the first wave of a run, the most in any, and the seconds that a wave aims at: short enough for smooth
#: progress and -x, long enough for the engine to sort and share prefixes.
FIRST_WAVE, LARGEST_WAVE, WAVE_SECONDS = 32, 2048, 4.0


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class SelectedGate:
    """A gate that is to be judged in this session, and the names of the tasks whose docs it needs."""

    nodeid: str
    owner: Task | Group
    gate: Gate
    tasks: frozenset[str]

    def __str__(self) -> str:
        return f"gate[{self.gate.id}]" + (f" of {self.owner.name}" if isinstance(self.owner, Group) else "")


class ModelRun:
    """Everything that a session knows of one model.

    Parameters
    ----------
    evaluation
        The tasks, shared by the runs of all models.
    model
        The name of the model in node ids; empty where the session has only one.
    reseed
        Added to the seeds of sampled texts, so that docs asked for again get other answers.
    """

    def __init__(self, evaluation: Evaluation, model: str = "", *, reseed: int = 0) -> None:
        self.evaluation = evaluation
        self.model = model
        self._reseed = reseed
        #: The name of the model in reports.
        self.name = model
        #: True once the model is loaded and known to the run.
        self.introduced = False
        #: The facts that the model states of itself, as plain data; None before it answered.
        self.facts: Mapping[str, Any] | None = None
        #: The cost of the answers as the model counts it (tokens, bytes), here or in all workers.
        self.usage: Mapping[str, int] = {}
        #: Task name -> the reason why the model could not be asked.
        self.model_errors: dict[str, str] = {}
        self.noise = NoiseFloors(evaluation)
        self.repeats = Repeats(evaluation.settings.calibration_runs)
        #: Task name -> the docs whose items run, in item order, each with its place in that order.
        self.selected_docs: dict[str, dict[int, int]] = {}
        #: (task or group name, gate id) -> the gates to be judged.
        self.gates: dict[tuple[str, str], SelectedGate] = {}
        #: Node id -> verdict, in the order in which they were given.
        self.verdicts: dict[str, Verdict] = {}
        #: Node id -> the reason why a gate has no verdict.
        self.gate_errors: dict[str, str] = {}
        self._results: dict[str, dict[int, DocResult]] = {}
        #: Output types after whose first wave the model was asked for its facts.
        self._described: list[str] = []
        #: Requests answered from the journal, and all that it was asked for.
        self._recalled, self._looked_up = 0, 0
        #: The messages of the journals of other processes.
        self._messages: list[str] = []
        #: Key -> (number of results, a value that depends on them).
        self._computed: dict[tuple[str, ...], tuple[int, Any]] = {}
        self._wave = FIRST_WAVE
        #: Task name -> the number of its results that `news` has reported, and the usage that it has reported.
        self._sent: dict[str, int] = {}
        self._usage_sent: Mapping[str, int] = {}

    @property
    def answered(self) -> bool:
        """True if at least one doc has a result."""
        return any(self._results.values())

    def add(self, task: str, results: Iterable[DocResult]) -> None:
        """Add results of a task; a doc that is known is replaced."""
        known = self._results.setdefault(task, {})
        for result in results:
            known[result.doc] = result

    def results(self, task: str) -> Mapping[int, DocResult]:
        """Return the results of one task so far, by doc index."""
        return self._results.get(task, {})

    def known(self, owner: Task | Group) -> int:
        """Return how many docs of a task or group have a result."""
        return sum(len(self.results(task.name)) for task in self.evaluation.leaves(owner))

    def scored(self) -> list[str]:
        """Return the names of the tasks with results, in the order in which the first results came."""
        return list(self._results)

    def select_gate(self, nodeid: str, owner: Task | Group, gate: Gate) -> None:
        """Count a gate among those that are judged in this session."""
        tasks = frozenset(task.name for task in self.evaluation.leaves(owner))
        self.gates[owner.name, gate.id] = SelectedGate(nodeid, owner, gate, tasks)

    def compares_next_tokens(self, task: Task) -> bool:
        """Return True if a selected gate needs the distance of a task's next tokens from the baseline."""
        return any(one.gate.needs_next_tokens and task.name in one.tasks for one in self.gates.values())

    def family(self, gate: Gate) -> list[SelectedGate]:
        """Return the selected gates of this model that share the error of a gate, one for each task or group.

        None for a gate without a confidence. Two gates of one task that ask the same are one.
        """
        if gate.confidence is None:
            return []
        by_rule = self.evaluation.settings.family == "rule"
        key = gate.rule if by_rule else gate.family
        found: dict[str, SelectedGate] = {}
        for one in self.gates.values():
            if one.gate.confidence is not None and (one.gate.rule if by_rule else one.gate.family) == key:
                found.setdefault(one.owner.name, one)
        return list(found.values())

    def family_size(self, gate: Gate) -> int:
        """Return the number of gates that share the error of a gate, on all models that do; 1 if it is alone."""
        return max(1, len(self.family(gate))) * self.models_sharing

    @property
    def models_sharing(self) -> int:
        """The number of models among which the error of a family is divided."""
        return self.evaluation.models if self.evaluation.settings.family == "session" else 1

    def score(self, lm: LM, task: Task, indices: Iterable[int], progress: Progress | None = None) -> None:
        """Have the model answer those of the docs that have no result yet, wave by wave.

        Raises LLMEvalError if the task's data is not available, its examples cannot be drawn, the model cannot be
        asked, or the task runs code that is not allowed.
        """
        if reason := self.evaluation.refusal(task):
            raise SandboxError(reason)
        opened, known = self.evaluation.open(task), self.results(task.name)
        opened.check_examples()
        missing = [index for index in indices if index not in known]
        if not missing:
            return
        # Docs are asked for again to see whether the answer is the same: the model must give it.
        answers = None if self._reseed else known_answers(self.evaluation.journal, lm)
        done, before = 0, usage_of(lm).get("tokens", 0)

        def tokens() -> int:
            return usage_of(lm).get("tokens", 0) - before

        while done < len(missing):
            wave = missing[done : done + self._wave]
            with watched(lm, progress, done, len(wave), len(missing), tokens):
                self.add(task.name, self._timed_wave(task, lm, wave, answers))
            self.repeats.ask(opened, lm, [doc for doc in wave if self.results(task.name)[doc].error is None])
            done += len(wave)
            if progress:
                progress(done, len(missing), tokens())
            # An engine is chosen when a method is first called: only then the model can state it.
            if task.output_type not in self._described:
                self._described.append(task.output_type)
                facts = facts_of(lm, answers, self._described, identify=self.evaluation.settings.identify)
                self.facts = merged(self.facts or NOTHING, facts)
        self.usage = usage_of(lm)
        if answers is not None:
            self._recalled, self._looked_up = self._recalled + answers.recalled, self._looked_up + answers.asked
            self.usage = {**self.usage, "answers": self._looked_up, "from_journal": self._recalled}

    def wave_size(self) -> int:
        """Return how many docs the next wave should hold, judged by the time that the last ones took."""
        return self._wave

    def _timed_wave(self, task: Task, lm: LM, wave: Sequence[int], known: KnownAnswers | None) -> list[DocResult]:
        started, recalled = time.perf_counter(), known.recalled if known else 0
        compares = self.compares_next_tokens(task)
        results = self.evaluation.answer(lm, task, wave, known, reseed=self._reseed, compares=compares)
        seconds = max(time.perf_counter() - started, 1e-6)
        is_fresh = known is None or known.recalled == recalled
        # Only a full wave that the model answered tells how fast docs are; grow at most fourfold, one odd wave must
        # not decide alone.
        if len(wave) == self._wave and is_fresh:
            fitting = int(len(wave) * WAVE_SECONDS / seconds)
            self._wave = max(1, min(fitting, self._wave * 4, LARGEST_WAVE))
        return results

    def journal_messages(self) -> list[str]:
        """Return the messages of the journal, here and in all workers, each once."""
        own = self.evaluation.journal.messages if self.evaluation.journal else []
        return list(dict.fromkeys([*own, *self._messages]))

    def introduce(self, lm: LM, name: str = "") -> None:
        """Take the model's name for reports: that of its node ids, else `name`, else its own."""
        self.introduced = True
        self.name = self.name or name or str(getattr(lm, "name", "") or type(lm).__name__)

    def record_error(self, task: Task, error: LLMEvalError) -> None:
        """Record why a task has no results, for its gates: because of this model, or of the task itself."""
        if isinstance(error, ModelError):
            self.model_errors[task.name] = str(error)
        else:
            self.evaluation.data_errors[task.name] = str(error)

    def missing(self, owner: Task | Group) -> str | None:
        """Return why a verdict on a task or group would be incomplete; None if every doc asked for has a result."""
        leaves, data_errors = self.evaluation.leaves(owner), self.evaluation.data_errors
        errors = [data_errors.get(task.name) or self.model_errors.get(task.name) for task in leaves]
        if reasons := list(dict.fromkeys(filter(None, errors))):
            return listed(reasons, 3, separator="; ", noun="tasks like that")
        short = []
        for task in leaves:
            asked, have = self.evaluation.asked(task.name), len(self.results(task.name))
            if have < asked or not asked:
                short.append(f"{task.name}: {have} of {asked} docs have a result")
        return f"incomplete: {', '.join(short)}" if short else None

    def computed(self, owner: Task | Group, key: tuple[str, ...], compute: Callable[[], Value]) -> Value:
        """Return a value that depends on the results of a task or group; computed again when there are more."""
        known, found = self.known(owner), self._computed.get(key)
        if found is None or found[0] != known:
            self._computed[key] = found = (known, compute())
        value: Value = found[1]
        return value

    def summary(self, owner: Task | Group) -> Summary:
        """Return the numbers of a task or group over the docs known so far."""
        if isinstance(owner, Group):
            return summarize_group(owner, [(task, self.summary(task)) for task in self.evaluation.leaves(owner)])
        return self.computed(owner, ("summary", owner.name), lambda: self._summary(owner))

    def _summary(self, task: Task) -> Summary:
        results, settings = self.results(task.name), self.evaluation.settings
        return summarize_task(
            task,
            [results[index] for index in sorted(results)],
            n_total=self.evaluation.sizes.get(task.name, (0, len(results)))[1],
            num_fewshot=num_fewshot(task, settings),
            bootstrap_iters=settings.bootstrap_iters,
        )

    def news(self) -> dict[str, Any]:
        """Return what another process does not know since the last call, but for results that doc items report."""
        records = [
            [task, result.to_list()]
            for task, results in self._results.items()
            for index, result in islice(results.items(), self._sent.get(task, 0), None)
            if index not in self.selected_docs.get(task, ())
        ]
        usage = {key: count - self._usage_sent.get(key, 0) for key, count in self.usage.items()}
        self._sent = {task: len(results) for task, results in self._results.items()}
        self._usage_sent = dict(self.usage)
        return self._plain(records, usage)

    def to_plain(self) -> dict[str, Any]:
        """Return the whole run as plain data, for `merge` in another process."""
        records = [[task, result.to_list()] for task, known in self._results.items() for result in known.values()]
        return self._plain(records, dict(self.usage))

    def _plain(self, records: list[Any], usage: Mapping[str, int]) -> dict[str, Any]:
        return {
            "name": self.name,
            "records": records,
            "facts": self.facts,
            "usage": usage,
            "model_errors": self.model_errors,
            "journal": self.journal_messages(),
            "noise": self.noise.to_list(),
            "repeats": self.repeats.to_list(),
        }

    def merge(self, plain: Mapping[str, Any]) -> None:
        """Add what another process found (`news`, `to_plain`); its model took memory and tokens of its own."""
        self.name = plain["name"] or self.name
        for task, result in plain["records"]:
            self.add(task, [DocResult.from_list(result)])
        self.facts = merged(self.facts or NOTHING, plain["facts"] or NOTHING) or self.facts
        self._messages += plain["journal"]
        self.usage = {
            key: self.usage.get(key, 0) + plain["usage"].get(key, 0) for key in (*self.usage, *plain["usage"])
        }
        self.model_errors.update(plain["model_errors"])
        self.noise.add(plain["noise"])
        self.repeats.add(plain["repeats"])


def merged(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of both mappings; where both have one, that of `now`, and mappings are merged in turn.

    >>> merged({"engine": {"scoring": "tree"}}, {"engine": {"generation": "padded"}})
    {'engine': {'scoring': 'tree', 'generation': 'padded'}}
    """
    both = dict(before)
    for name, value in now.items():
        old = both.get(name)
        both[name] = merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return both


def evaluate(paths: Iterable[str | Path], lm: LM, settings: Settings | None = None) -> dict[str, Summary]:
    """Evaluate task or group files with a model and return the summaries by task and group name.

    ::

        summaries = evaluate(["benchmarks/arc_easy.yaml"], my_model, Settings(limit=100))
        print(summaries["arc_easy"].find("acc")[0].value)

    Raises the errors of `pytest_llmeval.LLMEvalError` for files, data and models that cannot be used.
    """
    evaluation = Evaluation(settings or Settings(), Registry())
    run, summaries = ModelRun(evaluation), {}
    for path in paths:
        found = evaluation.registry.load(Path(path).resolve())
        for task in evaluation.leaves(found):
            run.score(lm, task, evaluation.open(task).asked)
            summaries[task.name] = run.summary(task)
        if isinstance(found, Group):
            summaries[found.name] = run.summary(found)
    return summaries
