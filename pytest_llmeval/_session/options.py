"""The command line and its ini keys, turned into `Settings` before anything is collected.

Every option ``--llmeval-x`` has an ini key ``llmeval_x``; the command line wins. Options keep plain values
because xdist copies them to its workers.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import TypeVar

import pytest

from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import did_you_mean
from pytest_llmeval._session.option_values import CONFIDENCE
from pytest_llmeval._session.option_values import LIMIT
from pytest_llmeval._session.option_values import NOISE
from pytest_llmeval._session.option_values import RUNS
from pytest_llmeval._session.option_values import SAMPLE
from pytest_llmeval._session.option_values import SHARD
from pytest_llmeval._session.option_values import SPLIT
from pytest_llmeval._session.option_values import TOPK
from pytest_llmeval._settings import FEWSHOT_SEED
from pytest_llmeval._settings import Settings
from pytest_llmeval._settings import ValueType
from pytest_llmeval._settings import one_of
from pytest_llmeval._settings import parse_pairs
from pytest_llmeval._settings import whole_number


T = TypeVar("T")

#: The key under which the controller of xdist sends the seed of the run to its workers, in `config.workerinput`.
STOP_SEED = "llmeval_stop_seed"
#: The key of a worker's seat, its place among the workers that live at one time, from 0.
SEAT = "llmeval_seat"
#: Seeds of runs are below this number, so that they are easy to copy.
_SEEDS = 1_000_000


@dataclass(frozen=True, slots=True)
class Option:
    """One option and its ini key: `ini` is the ini type, `flag` the keywords of `addoption`, None for ini only."""

    name: str
    help: str
    ini: str
    flag: Mapping[str, Any] | None = None
    default: Any = None

    @property
    def dest(self) -> str:
        return "llmeval_" + self.name.replace("-", "_")


def _text(name: str, metavar: str, help: str) -> Option:
    return Option(name, help, "string", {"metavar": metavar})


def _texts(name: str, metavar: str, help: str) -> Option:
    return Option(name, help, "linelist", {"metavar": metavar, "action": "append"})


def _switch(name: str, help: str) -> Option:
    return Option(name, help, "bool", {"action": "store_true"})


#: All options in the order of ``pytest --help``; the last ones are ini keys only.
OPTIONS = (
    _texts(
        "model",
        "SPEC",
        "The model to evaluate: a folder, a hub id such as org/name, a .gguf file, openai:URL#MODEL for a model behind "
        "a server, or SCHEME:REST for a scheme that a plugin registers. NAME=SPEC sets its name in test ids and "
        "reports. Repeat the option for several models.",
    ),
    _text(
        "model-args",
        "K=V,...",
        "Arguments for loading the model: dtype, device, revision, max_length, batch_size, attn_implementation, ...",
    ),
    Option(
        "bisect",
        "Find the first checkpoint from GOOD to BAD on which a selected gate fails. The checkpoints are those saved "
        "beside GOOD and BAD, ordered by the numbers in their names, or those given with --llmeval-model, in that "
        "order. The search halves the range, so it assumes that all checkpoints after a bad one are bad too. Exit "
        "code: 0 if found; 1 if GOOD fails, BAD passes, either cannot be judged, or the first bad one may be a "
        "checkpoint that was left out because it could not be loaded or judged.",
        "args",
        {"nargs": 2, "metavar": ("GOOD", "BAD")},
    ),
    _text(
        "data",
        "DIR",
        "Folder with local copies of data sets: DIR/<dataset_path> is read instead of the hub (environment variable: "
        "LLMEVAL_DATA).",
    ),
    _text("limit", "N|0.x", "Evaluate only the first N docs of each task; a number below 1 is a share of its docs."),
    _text("sample", "random:SEED", "With --llmeval-limit: draw the docs at random with this seed."),
    _text("fewshot", "N", "Number of few-shot examples, instead of each task's own number."),
    _text("fewshot-seed", "S", f"Seed for drawing few-shot examples (default {FEWSHOT_SEED})."),
    _switch("chat-template", "Write prompts with the model's chat template."),
    _switch("fewshot-multiturn", "With --llmeval-chat-template: make each few-shot example a turn of its own."),
    _text("system", "TEXT", "System instruction in front of every prompt."),
    _text(
        "gen-kwargs",
        "K=V,...",
        "Generation settings that override those of every task: temperature, max_gen_toks, until, ...",
    ),
    _text(
        "shard",
        "I/N",
        "Evaluate part I of N of the docs, about equally much text each, and leave the results in the folder of "
        "--llmeval-output. Nothing is judged before --llmeval-merge.",
    ),
    _text(
        "merge",
        "GLOB",
        "Join the results of all shards in these files and folders, e.g. 'out/*', and judge them as one run, without a "
        "model.",
    ),
    _text("output", "DIR", "Write results and samples to DIR, in the file format of lm-evaluation-harness."),
    _text(
        "cache",
        "DIR",
        "Folder of the journal, in which answers of models are kept: a later run asks only for those that are not "
        "there. By default a folder in pytest's cache.",
    ),
    _switch("no-cache", "Ask the model for every answer, and keep none."),
    _texts("fail-on", "GATE", "Add a gate, for example 'mmlu.acc >= 0.25'. Repeat the option for several gates."),
    _text(
        "baseline",
        "NAME-or-PATH",
        "Compare with this baseline, doc by doc. A NAME is a folder in .llmeval/baselines.",
    ),
    _switch("update-baseline", "Write the answers of this run to the baseline, instead of comparing with it."),
    _text(
        "calibrate",
        "N",
        "With --llmeval-update-baseline: have every doc answered N times, in other orders, in passes of other sizes "
        "and, where texts are sampled, with other seeds, and write into the baseline how often its scores flip by "
        "themselves. Says how many good builds each gate would fail.",
    ),
    _text(
        "baseline-topk",
        "K",
        "With --llmeval-update-baseline: also keep the K likeliest next tokens of each scored position, in a file "
        "beside the baseline, for gates on kl and top1_agreement.",
    ),
    _switch(
        "early-stop",
        "Run the docs in random order. A task stops once the results of all selected gates that need it are proven. "
        "A gate is proven at its own confidence, or else at that of the ini key llmeval_stop_confidence.",
    ),
    _text(
        "noise",
        "N[:DTYPE]",
        "Estimate numerical noise: score N docs per task again in forward passes of other sizes, and in DTYPE if given "
        "(64:bfloat16). A gate with a confidence is inconclusive, not failed, if only right/wrong flips within that "
        "noise make it fail. Needs --llmeval-baseline.",
    ),
    _switch(
        "confirm",
        "Before a comparison with a confidence fails, have its docs answered again: in the baseline's precision, else "
        "in passes of other sizes, with other seeds where texts are sampled. Unless these answers show a loss too, "
        "the gate is inconclusive, not failed. Needs --llmeval-baseline.",
    ),
    Option(
        "wrong",
        "How to report a wrong answer: pass (in a category of its own, the default), xfail or fail.",
        "string",
        {"choices": ("pass", "xfail", "fail")},
    ),
    _switch("allow-code", "Let tasks marked unsafe_code run generated code, in a sandbox."),
    _switch("strict", "Turn warnings about task files into errors."),
    _switch("lint", "Check task files without data or model, one test item per file."),
    _switch("show", "Print the rendered prompts of the selected docs and run nothing."),
    _switch("list", "List the tasks, groups and tags that are found and run nothing."),
    Option(
        "files",
        "Glob patterns of the task files that pytest collects when no path is given.",
        "args",
        default=["benchmarks/**"],
    ),
    Option(
        "gates",
        "Gates added to the tasks and groups that they select, one per line, for example 'mmlu.acc >= 0.25'.",
        "linelist",
        default=[],
    ),
    Option("missing_data", "Outcome of a task whose data is missing: fail or skip.", "string", default="fail"),
    Option("inconclusive", "Outcome of an inconclusive gate: pass or fail.", "string", default="pass"),
    Option(
        "family",
        "Which gates with a confidence share one error rate. rule: those of one line of the configuration. checkpoint "
        "(default): all on one model with the same metric and condition. session: the same, over all models of the "
        "session.",
        "string",
        default="checkpoint",
    ),
    Option(
        "nights",
        "Count each run that compares as a night: the docs that flipped since the baseline are kept in its folder, one "
        "file per gate, and a gate that allows a fall fails if all nights together show one that is larger.",
        "bool",
        default=False,
    ),
    Option(
        "unpaired",
        "Outcome of a run with docs found on one side of a comparison only: fail or ignore.",
        "string",
        default="fail",
    ),
    Option(
        "stop_confidence",
        "With --llmeval-early-stop: the confidence at which gates without one are proven, from 0.5 to 1. At 1 a gate "
        "is proven only when the remaining docs cannot change its result.",
        "string",
        default="0.95",
    ),
    Option(
        "stop_split",
        "With --llmeval-early-stop: the share of a gate's error that early looks may spend, between 0 and 1. The rest "
        "is kept for the last doc. With a small share, clear results take more docs, and smaller differences are "
        "detected if all docs run.",
        "string",
        default="0.5",
    ),
    Option(
        "stop_seed",
        "With --llmeval-early-stop: the seed for the order of the docs. By default each run draws its own, so that "
        "early verdicts of many runs do not all depend on the same docs; the header and the result files name it.",
        "string",
        default="",
    ),
    Option("bootstrap_iters", "Number of resamples for bootstrapped standard errors.", "string", default="1000"),
)

#: Types of the ini keys that take one of a few words.
WORDS: Mapping[str, ValueType[str]] = {
    "missing_data": one_of("fail", "skip"),
    "inconclusive": one_of("pass", "fail"),
    "family": one_of("rule", "checkpoint", "session"),
    "unpaired": one_of("fail", "ignore"),
    "wrong": one_of("pass", "xfail", "fail"),
}


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("llmeval", "language-model evaluation")
    for option in OPTIONS:
        help_text = option.help
        if option.flag is not None:
            group.addoption(f"--llmeval-{option.name}", dest=option.dest, default=None, help=help_text, **option.flag)
            help_text = f"{help_text} (as --llmeval-{option.name})"
        parser.addini(option.dest, help_text, type=option.ini, default=option.default)  # type: ignore[arg-type]


def value_of(config: pytest.Config, name: str) -> Any:
    """Return the option's value: the command line's, else the ini file's, else None (or False for a switch)."""
    dest = "llmeval_" + name.replace("-", "_")
    value = config.getoption(dest)
    return config.getini(dest) if value is None else value


def origin_of(config: pytest.Config, name: str) -> str:
    """Return the name of a setting in messages: that of the option if it was given, else that of the ini key."""
    dest = "llmeval_" + name.replace("-", "_")
    return f"--llmeval-{name}" if config.getoption(dest) is not None else f"ini {dest}"


def word_of(config: pytest.Config, name: str) -> str:
    """Return the value of an ini key that takes one of a few words. Raises SettingError for another."""
    return _read_ini(config, name, WORDS[name])


def refuse_unknown_key(warning: Warning | str) -> None:
    """Raise pytest.UsageError for pytest's warning of an unknown ini key, if the key is ``llmeval_...``.

    A misspelled `llmeval_gates` would leave a checkpoint without its gates.
    """
    _, is_unknown, key = str(warning).strip().partition("Unknown config option: llmeval_")
    if is_unknown:
        known = [option.dest.removeprefix("llmeval_") for option in OPTIONS]
        mend = did_you_mean(key, known, otherwise="; pytest --help lists the keys")
        raise pytest.UsageError(f"ini llmeval_{key}: no key of this plugin is called {key!r}{mend}")


def read_settings(config: pytest.Config) -> Settings:
    """Return all settings of the run, checked.

    Raises SettingError with the option's name, its value and the mend.
    """
    for name in WORDS:
        if name != "wrong" or config.getini("llmeval_wrong"):
            word_of(config, name)
    _check_combinations(config)
    baseline, updating = value_of(config, "baseline"), bool(value_of(config, "update-baseline"))
    noise_docs, noise_dtype = _read(config, "noise", NOISE) or (0, None)
    if updating or not baseline:
        # The ini key is for those runs that compare.
        noise_docs, noise_dtype = 0, None
    # So is this one for those that write it.
    calibration_runs = _read(config, "calibrate", RUNS) if updating else None
    fewshot_seed = _read(config, "fewshot-seed", whole_number())
    gen_kwargs = value_of(config, "gen-kwargs")
    return Settings(
        data_dir=_data_folder(config),
        limit=_read(config, "limit", LIMIT),
        sample_seed=_read(config, "sample", SAMPLE),
        num_fewshot=_read(config, "fewshot", whole_number()),
        fewshot_seed=FEWSHOT_SEED if fewshot_seed is None else fewshot_seed,
        chat_template=bool(value_of(config, "chat-template")),
        fewshot_multiturn=bool(value_of(config, "fewshot-multiturn")),
        system=value_of(config, "system") or None,
        gen_kwargs=parse_pairs(gen_kwargs, origin_of(config, "gen-kwargs")) if gen_kwargs else {},
        allow_code=bool(value_of(config, "allow-code")),
        strict=bool(value_of(config, "strict")),
        bootstrap_iters=_read_ini(config, "bootstrap_iters", whole_number()),
        # A wrong answer that fails shows its prompt and answers.
        keep_samples=bool(value_of(config, "output")) or value_of(config, "wrong") == "fail",
        # The merge may compare.
        keep_keys=bool(baseline or value_of(config, "shard")),
        identify=updating,
        early_stop=bool(value_of(config, "early-stop")),
        stop_seed=_stop_seed(config),
        stop_confidence=_read_ini(config, "stop_confidence", CONFIDENCE),
        stop_split=_read_ini(config, "stop_split", SPLIT),
        family=word_of(config, "family"),
        # The ini key is for those runs that write.
        baseline_topk=(_read(config, "baseline-topk", TOPK) or 0) if updating else 0,
        noise_docs=noise_docs,
        noise_dtype=noise_dtype,
        calibration_runs=calibration_runs or 0,
        confirm=bool(value_of(config, "confirm") and baseline and not updating),
        shard=_read(config, "shard", SHARD),
    )


def _check_combinations(config: pytest.Config) -> None:
    """Raise SettingError if an option is given without one that it needs, or with one that it excludes."""
    baseline, updating = value_of(config, "baseline"), value_of(config, "update-baseline")
    sample, noise, early_stop = (value_of(config, name) for name in ("sample", "noise", "early-stop"))
    if sample and not value_of(config, "limit"):
        raise SettingError(f"{origin_of(config, 'sample')}: {sample!r} needs --llmeval-limit to say how many docs")
    if config.getoption("llmeval_baseline") == "":
        raise SettingError("--llmeval-baseline: expected a NAME or a path, got ''")
    if config.getoption("llmeval_cache") and config.getoption("llmeval_no_cache"):
        raise SettingError("--llmeval-cache names a folder for answers, and --llmeval-no-cache keeps none: give one")
    if updating and not baseline:
        raise SettingError(f"{origin_of(config, 'update-baseline')}: needs --llmeval-baseline NAME")
    if config.getoption("llmeval_baseline_topk") and not updating:
        raise SettingError(
            "--llmeval-baseline-topk: it is for writing a baseline: add --llmeval-update-baseline (a comparison finds "
            "what the baseline keeps)"
        )
    if updating and early_stop:
        raise SettingError(
            f"{origin_of(config, 'update-baseline')}: a baseline holds all docs that were asked for, and "
            f"{origin_of(config, 'early-stop')} omits some: they cannot be combined"
        )
    if noise and early_stop:
        raise SettingError(
            f"{origin_of(config, 'noise')}: flips within noise are counted over all docs, and "
            f"{origin_of(config, 'early-stop')} omits some: they cannot be combined"
        )
    if config.getoption("llmeval_noise") and (updating or not baseline):
        _read(config, "noise", NOISE)
        raise SettingError(
            f"--llmeval-noise: {noise!r} is for comparisons with a baseline: name one with --llmeval-baseline, "
            "without --llmeval-update-baseline"
        )

    if (runs := config.getoption("llmeval_calibrate")) is not None and not updating:
        _read(config, "calibrate", RUNS)
        raise SettingError(
            f"--llmeval-calibrate: {runs!r} is for the run that writes a baseline: add --llmeval-baseline NAME "
            "--llmeval-update-baseline"
        )
    if config.getoption("llmeval_confirm") and (updating or not baseline):
        raise SettingError("--llmeval-confirm: needs --llmeval-baseline NAME, without --llmeval-update-baseline")


def _read(config: pytest.Config, name: str, value_type: ValueType[T]) -> T | None:
    """Return the value of an option; None if it is not given or empty."""
    value = value_of(config, name)
    return None if value is None or value == "" else value_type.read(str(value), origin_of(config, name))


def _read_ini(config: pytest.Config, name: str, value_type: ValueType[T]) -> T:
    return value_type.read(str(config.getini(f"llmeval_{name}")), f"ini llmeval_{name}")


def _stop_seed(config: pytest.Config) -> int:
    """Return the seed of the order of docs: that of the ini file, else one of this run, which xdist's workers share."""
    if config.getini("llmeval_stop_seed"):
        return _read_ini(config, "stop_seed", whole_number())
    if not value_of(config, "early-stop"):
        return 0
    return getattr(config, "workerinput", {}).get(STOP_SEED) or secrets.randbelow(_SEEDS - 1) + 1


def order_text(settings: Settings) -> str:
    """Return how the order of docs was drawn, and the setting that repeats it."""
    return f"docs in random order (-o llmeval_stop_seed={settings.stop_seed} repeats it)"


def _data_folder(config: pytest.Config) -> Path | None:
    text, origin = value_of(config, "data"), origin_of(config, "data")
    if not text:
        text, origin = os.environ.get("LLMEVAL_DATA"), "environment variable LLMEVAL_DATA"
    if not text:
        return None
    folder = config.invocation_params.dir / Path(text).expanduser()
    if not folder.is_dir():
        raise SettingError(f"{origin}: expected a folder, got {text!r}, which does not exist or is not a folder")
    return folder.resolve()
