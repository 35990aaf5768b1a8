"""The command line and its ini keys, turned into `Settings` and model choices before anything is collected.

Every option ``--llmeval-x`` has an ini key ``llmeval_x``; the command line wins. Options keep plain values
because xdist copies them to its workers.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pathlib import PurePath
from typing import Any

import pytest

from pytest_llmeval._errors import SettingError
from pytest_llmeval._models.arguments import DTYPES
from pytest_llmeval._models.history import Given
from pytest_llmeval._models.history import history_between
from pytest_llmeval._settings import FEWSHOT_SEED
from pytest_llmeval._settings import Settings


@dataclass(frozen=True, slots=True)
class Option:
    """One option and its ini key: `ini` is the ini type, `flag` the keywords of `addoption`."""

    name: str
    help: str
    ini: str
    flag: Mapping[str, Any]

    @property
    def dest(self) -> str:
        return "llmeval_" + self.name.replace("-", "_")


def _text(name: str, metavar: str, help: str) -> Option:
    return Option(name, help, "string", {"metavar": metavar})


def _texts(name: str, metavar: str, help: str) -> Option:
    return Option(name, help, "linelist", {"metavar": metavar, "action": "append"})


def _switch(name: str, help: str) -> Option:
    return Option(name, help, "bool", {"action": "store_true"})


OPTIONS = (
    _texts(
        "model", "SPEC", "folder, hub id, .gguf file or scheme:rest, optionally NAME=SPEC; repeat for several models"
    ),
    _text("model-args", "K=V,...", "dtype, device, revision, max_length, attn_implementation, ... for the model"),
    Option(
        "bisect",
        "find the first checkpoint from GOOD to BAD on which a selected gate fails, by halving: among those saved "
        "beside them (ordered by the numbers in their names) or those named by --llmeval-model (in that order); "
        "assumes that after a bad one all are bad; exit code 0 if found, 1 if GOOD fails, BAD passes or one cannot be "
        "judged",
        "args",
        {"nargs": 2, "metavar": ("GOOD", "BAD")},
    ),
    _text("data", "DIR", "local mirror: DIR/<dataset_path> is used before the hub (env LLMEVAL_DATA)"),
    _text("limit", "N|0.x", "the first N docs, or that share, of each task"),
    _text("sample", "random:SEED", "with a limit: a seeded random subset instead of the first docs"),
    _text("fewshot", "N", "number of few-shot examples instead of the task's own"),
    _text("fewshot-seed", "S", f"seed of the few-shot draws (default {FEWSHOT_SEED})"),
    _switch("chat-template", "write prompts with the model's chat template"),
    _switch("fewshot-multiturn", "with a chat template: each few-shot example is a turn of its own"),
    _text("system", "TEXT", "system instruction"),
    _text("gen-kwargs", "K=V,...", "override generation settings: temperature, max_gen_toks, until, ..."),
    _text("output", "DIR", "write results and samples in lm-evaluation-harness's file format"),
    _texts("fail-on", "GATE", "a further gate, e.g. 'mmlu.acc >= 0.25'; repeat for several"),
    _text("baseline", "NAME-or-PATH", "compare with this baseline, doc by doc; NAME lies in .llmeval/baselines"),
    _switch(
        "early-stop",
        "run docs in random order (seed: ini llmeval_stop_seed), and no more of a task once all selected gates that "
        "rest on it are proven: at their own confidence, those without one at that of ini llmeval_stop_confidence",
    ),
    _switch("update-baseline", "write the answers of this run into the baseline, instead of comparing"),
    _text(
        "noise",
        "N[:DTYPE]",
        "with a baseline: score N docs of each compared task again in passes of other sizes, and in DTYPE if named "
        "(64, 64:bfloat16); flips whose margins, before and now, lie below what that changed are ties for gates with "
        "a confidence: neither lost nor gained",
    ),
    Option(
        "wrong",
        "how a wrong answer is recorded: pass (own category, default), xfail or fail",
        "string",
        {"choices": ("pass", "xfail", "fail")},
    ),
    _switch("allow-code", "let tasks marked unsafe_code run generated code, sandboxed"),
    _switch("strict", "warnings about task files become errors"),
    _switch("lint", "check task files without data or model: one item per file"),
    _switch("show", "print the rendered prompts of the selected docs, run nothing"),
    _switch("list", "list tasks, groups and tags found, run nothing"),
)

#: What is allowed in ini keys that take one of a few words.
WORDS: Mapping[str, tuple[str, ...]] = {
    "missing_data": ("fail", "skip"),
    "inconclusive": ("pass", "fail"),
    "unpaired": ("fail", "ignore"),
    "wrong": ("", "pass", "xfail", "fail"),
}

#: Settings that make no sense for a single run, hence only as ini keys: (name, help, type, default).
INI_ONLY: tuple[tuple[str, str, str, Any], ...] = (
    ("llmeval_files", "globs of task files that a bare pytest collects", "args", ["benchmarks/**"]),
    ("llmeval_gates", "gates for tasks that carry none, one a line: 'mmlu.acc >= 0.25'", "linelist", []),
    ("llmeval_missing_data", "what a task without its data does: fail or skip", "string", "fail"),
    ("llmeval_inconclusive", "what an inconclusive gate does: pass or fail", "string", "pass"),
    ("llmeval_unpaired", "what docs do that only the run or only the baseline has: fail or ignore", "string", "fail"),
    (
        "llmeval_stop_confidence",
        "early stop: at what confidence gates that have none are proven; 1: only what the other docs cannot change",
        "string",
        "0.95",
    ),
    ("llmeval_stop_seed", "early stop: seed of the order of docs", "string", "0"),
    ("llmeval_bootstrap_iters", "draws for bootstrapped standard errors", "string", "1000"),
)


def add_options(parser: pytest.Parser) -> None:
    group = parser.getgroup("llmeval", "language-model evaluation")
    for option in OPTIONS:
        group.addoption(f"--llmeval-{option.name}", dest=option.dest, default=None, help=option.help, **option.flag)
        parser.addini(option.dest, f"{option.help} (as --llmeval-{option.name})", type=option.ini, default=None)  # type: ignore[arg-type]
    for name, help_text, kind, default in INI_ONLY:
        parser.addini(name, help_text, type=kind, default=default)  # type: ignore[arg-type]


def value_of(config: pytest.Config, name: str) -> Any:
    """The option's value: the command line's, else the ini file's, else None (or False for a switch)."""
    dest = "llmeval_" + name.replace("-", "_")
    value = config.getoption(dest)
    return config.getini(dest) if value is None else value


def origin_of(config: pytest.Config, name: str) -> str:
    """What to call the setting in a message: the option if it was given, else the ini key."""
    dest = "llmeval_" + name.replace("-", "_")
    return f"--llmeval-{name}" if config.getoption(dest) is not None else f"ini {dest}"


def word_of(config: pytest.Config, name: str) -> str:
    """The value of an ini key that takes one of a few words. Raises SettingError for another."""
    value, allowed = str(config.getini(f"llmeval_{name}") or ""), WORDS[name]
    if value not in allowed:
        raise SettingError(f"ini llmeval_{name}: expected {' or '.join(filter(None, allowed))}, got {value!r}")
    return value


def read_settings(config: pytest.Config) -> Settings:
    """All settings of the run, checked.

    Raises SettingError with the option's name, its value and the mend.
    """
    reader = _Reader(config)
    sample = reader.text("sample")
    limit = reader.limit()
    if sample is not None and limit is None:
        raise SettingError(f"{origin_of(config, 'sample')}: {sample!r} needs --llmeval-limit to say how many docs")
    for name in WORDS:
        word_of(config, name)
    if config.getoption("llmeval_baseline") == "":
        raise SettingError("--llmeval-baseline: expected a NAME or a path, got ''")
    updating = bool(value_of(config, "update-baseline"))
    if updating and reader.text("baseline") is None:
        raise SettingError(f"{origin_of(config, 'update-baseline')}: say which one with --llmeval-baseline NAME")
    if updating and value_of(config, "early-stop"):
        raise SettingError(
            f"{origin_of(config, 'update-baseline')}: a baseline holds all docs that were asked for, and "
            f"{origin_of(config, 'early-stop')} leaves some out: give one of the two"
        )
    if value_of(config, "noise") and value_of(config, "early-stop"):
        raise SettingError(
            f"{origin_of(config, 'noise')}: ties are counted over all docs, and "
            f"{origin_of(config, 'early-stop')} leaves some out: give one of the two"
        )
    noise_docs, noise_dtype = reader.noise(comparing=reader.text("baseline") is not None and not updating)
    return Settings(
        data_dir=reader.folder("data", os.environ.get("LLMEVAL_DATA")),
        limit=limit,
        sample_seed=None if sample is None else reader.sample_seed(sample),
        num_fewshot=reader.integer("fewshot", minimum=0),
        fewshot_seed=reader.integer("fewshot-seed", minimum=0, default=FEWSHOT_SEED) or 0,
        chat_template=bool(value_of(config, "chat-template")),
        fewshot_multiturn=bool(value_of(config, "fewshot-multiturn")),
        system=reader.text("system"),
        gen_kwargs=reader.pairs("gen-kwargs"),
        allow_code=bool(value_of(config, "allow-code")),
        strict=bool(value_of(config, "strict")),
        bootstrap_iters=reader.ini_integer("bootstrap_iters"),
        # A wrong answer that fails shows its prompt and answers.
        keep_samples=bool(value_of(config, "output")) or value_of(config, "wrong") == "fail",
        keep_keys=reader.text("baseline") is not None,
        identify=updating,
        early_stop=bool(value_of(config, "early-stop")),
        stop_seed=reader.ini_integer("stop_seed"),
        stop_confidence=reader.stop_confidence(),
        noise_docs=noise_docs,
        noise_dtype=noise_dtype,
    )


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one setting after the other, each with its own checks."""

    config: pytest.Config

    def text(self, name: str) -> str | None:
        value = value_of(self.config, name)
        return None if value is None or value == "" else str(value)

    def fail(self, name: str, value: object, expected: str) -> SettingError:
        return SettingError(f"{origin_of(self.config, name)}: expected {expected}, got {value!r}")

    def integer(self, name: str, *, minimum: int, default: int | None = None) -> int | None:
        text = self.text(name)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit()) or int(text) < minimum:
            raise self.fail(name, text, f"a whole number from {minimum}")
        return int(text)

    def limit(self) -> int | float | None:
        text = self.text("limit")
        if text is None:
            return None
        try:
            number = float(text)
        except ValueError:
            number = -1.0
        if not 0 < number < float("inf") or (number >= 1 and number != int(number)):
            raise self.fail("limit", text, "a number of docs (10) or a share below 1 (0.1)")
        return int(number) if number >= 1 else number

    def noise(self, *, comparing: bool) -> tuple[int, str | None]:
        """How many docs to score again, and in which dtype; without a comparison an ini key asks for nothing."""
        text = self.text("noise")
        if text is None:
            return 0, None
        docs, colon, dtype = text.partition(":")
        known = [name for name in DTYPES if name != "auto"]
        if not (docs.isascii() and docs.isdigit()) or int(docs) < 1 or (colon and dtype not in known):
            raise self.fail("noise", text, f"N or N:DTYPE, e.g. 64 or 64:bfloat16 (dtypes: {', '.join(known)})")
        if not comparing:
            if self.config.getoption("llmeval_noise") is None:
                return 0, None
            raise SettingError(
                f"--llmeval-noise: {text!r} is for comparisons with a baseline: name one with --llmeval-baseline, "
                "without --llmeval-update-baseline"
            )
        return int(docs), dtype or None

    def sample_seed(self, text: str) -> int:
        kind, colon, seed = text.partition(":")
        if kind != "random" or not colon or not (seed.isascii() and seed.isdigit()):
            raise self.fail("sample", text, "random:SEED with a whole number, e.g. random:7")
        return int(seed)

    def folder(self, name: str, fallback: str | None) -> Path | None:
        text = self.text(name)
        origin = origin_of(self.config, name) if text else "environment variable LLMEVAL_DATA"
        text = text or fallback
        if not text:
            return None
        folder = self.config.invocation_params.dir / Path(text).expanduser()
        if not folder.is_dir():
            raise SettingError(f"{origin}: expected a folder, got {text!r}, which does not exist or is no folder")
        return folder.resolve()

    def pairs(self, name: str) -> Mapping[str, str]:
        text = self.text(name)
        return {} if text is None else parse_pairs(text, origin_of(self.config, name))

    def ini_integer(self, name: str) -> int:
        text = str(self.config.getini(f"llmeval_{name}"))
        if not (text.isascii() and text.isdigit()):
            raise SettingError(f"ini llmeval_{name}: expected a whole number, got {text!r}")
        return int(text)

    def stop_confidence(self) -> float:
        text = str(self.config.getini("llmeval_stop_confidence"))
        try:
            number = float(text)
        except ValueError:
            number = 0.0
        if not 0.5 <= number <= 1:
            raise SettingError(f"ini llmeval_stop_confidence: expected a number from 0.5 to 1, got {text!r}")
        return number


def parse_pairs(text: str, origin: str) -> dict[str, str]:
    """``a=1,b=x`` as texts; commas inside brackets or quotes do not split. Raises SettingError."""
    pairs: dict[str, str] = {}
    for part in _split_outside_brackets(text):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise SettingError(f"{origin}: expected key=value pairs joined by commas, got {part!r}")
        if key.strip() in pairs:
            raise SettingError(f"{origin}: {key.strip()!r} is given twice")
        pairs[key.strip()] = value.strip()
    return pairs


def _split_outside_brackets(text: str) -> list[str]:
    parts, depth, quote, start = [], 0, "", 0
    for position, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[({":
            depth += 1
        elif char in "])}":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    return [part for part in (*parts, text[start:]) if part.strip()]


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """One model of the session: how it is called in ids and reports, and what to load."""

    name: str
    spec: str


def read_models(config: pytest.Config) -> tuple[ModelChoice, ...]:
    """The models named by option or ini, with names that tell them apart. Raises SettingError."""
    named = _given(config, "model")
    if ends := _given(config, "bisect"):
        named = _history(config, ends, named)
    specs = [spec for _, spec in named]
    short = _shortest_names(specs)
    choices = tuple(ModelChoice(name or short[i], specs[i]) for i, (name, _) in enumerate(named))
    for name, count in Counter(choice.name for choice in choices).items():
        if count > 1:
            raise SettingError(
                f"{origin_of(config, 'model')}: {count} models are called {name!r}; name them apart with NAME=SPEC"
            )
    return choices


def _given(config: pytest.Config, option: str) -> list[Given]:
    """The models that an option names, paths as absolute ones."""
    typed = config.getoption(f"llmeval_{option}") is not None
    base = config.invocation_params.dir if typed else config.rootpath
    named = [_split_name(str(text)) for text in value_of(config, option) or ()]
    return [(name, _absolute(spec, base)) for name, spec in named]


def _history(config: pytest.Config, ends: Sequence[Given], named: Sequence[Given]) -> list[Given]:
    """The checkpoints to search. The model of the ini file is the one for runs that name none: no part of them."""
    origin = origin_of(config, "bisect")
    if len(ends) != 2:
        raise SettingError(f"{origin}: expected two models, GOOD and BAD, got {len(ends)}")
    try:
        return history_between(ends[0], ends[1], named if config.getoption("llmeval_model") else ())
    except SettingError as error:
        raise SettingError(f"{origin}: {error}") from None


def _split_name(text: str) -> Given:
    """``new=path`` is named; a slash or colon before the sign makes it part of the spec."""
    name, equals, spec = text.partition("=")
    if equals and spec and not set(name) & set("/\\:") and name.strip():
        return name.strip(), spec
    return None, text


def _absolute(spec: str, base: Path) -> str:
    """A spec that is a path below `base` as an absolute one, so that xdist's workers find it from anywhere."""
    path = Path(spec).expanduser()
    if path.is_absolute() or (base / path).exists():
        return str(base / path)
    return spec


def _shortest_names(specs: Sequence[str]) -> list[str]:
    """The last path component of each spec, with as many more in front as it takes to tell all apart."""
    parts = [PurePath(spec.rstrip("/")).parts or (spec,) for spec in specs]
    depths = [1] * len(specs)
    while True:
        names = ["/".join(part[-depth:]).lstrip("/") for part, depth in zip(parts, depths, strict=True)]
        clashes = {name for name, count in Counter(names).items() if count > 1}
        growable = [i for i, name in enumerate(names) if name in clashes and depths[i] < len(parts[i])]
        if not growable:
            return names
        for i in growable:
            depths[i] += 1
