"""The files in which shards leave their results for `--llmeval-merge`.

    DIR/shard_2_of_8.jsonl

The first line has the settings of the shard and the tasks that it is a part of; then come, for each model, a line with
all that is known of it but its docs, and a line for each doc; the last line says how many lines there are.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from dataclasses import fields
from pathlib import Path
from typing import Any

from pytest_llmeval._errors import SettingError
from pytest_llmeval._plain import json_text
from pytest_llmeval._plain import listed
from pytest_llmeval._plain import version_of
from pytest_llmeval._plain import write_whole
from pytest_llmeval._report.result_files import PACKAGE
from pytest_llmeval._settings import Settings
from pytest_llmeval._settings import Shard


#: The version of these files.
SHARD_FORMAT = 1
#: Settings that decide no answer, or differ between machines.
FREE = frozenset(
    {
        *("data_dir", "strict", "keep_samples", "keep_keys", "bootstrap_iters", "family", "shard", "confirm"),
        *("early_stop", "stop_seed", "stop_confidence", "stop_split"),
    }
)


@dataclass(frozen=True, slots=True)
class ShardHead:
    """The facts of a shard that must agree with those of the others.

    `settings`: those that decide answers. `models`: name, spec and True if the user gave the name, of each.
    `tasks`: name of each task of the whole evaluation -> the hash of its plan.
    """

    shard: Shard
    settings: Mapping[str, Any]
    models: Sequence[Sequence[Any]]
    model_args: str
    tasks: Mapping[str, str]
    version: str | None = None


@dataclass(frozen=True, slots=True)
class JoinedShards:
    """The shards of one evaluation: what they agree on, and the runs of each by model."""

    head: ShardHead
    runs: Sequence[Mapping[str, Mapping[str, Any]]]

    def adopted(self, settings: Settings) -> Settings:
        """Return settings with those of the shards. Raises SettingError for one that was set here to another value."""
        usual, changed = asdict(Settings()), {}
        for name, value in self.head.settings.items():
            own = getattr(settings, name)
            if own not in (value, usual[name]):
                raise SettingError(f"{name} is {own!r} here, and the shards were run with {value!r}: omit the option")
            changed[name] = value
        return Settings(**{field.name: getattr(settings, field.name) for field in fields(Settings)} | changed)


def answer_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings that decide answers, as plain data."""
    return {name: value for name, value in asdict(_plain(settings)).items() if name not in FREE}


def _plain(settings: Settings) -> Settings:
    kept = {field.name: getattr(settings, field.name) for field in fields(Settings)}
    return Settings(**kept | {"gen_kwargs": dict(settings.gen_kwargs)})


def shard_path(folder: Path, shard: Shard) -> Path:
    """Return the path of a shard's file."""
    return folder / f"shard_{shard.number}_of_{shard.of}.jsonl"


def write_shard(path: Path, head: ShardHead, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the runs of a shard (`ModelRun.to_plain`) by model. Raises SettingError if the file cannot be written."""
    try:
        write_whole(path, _lines(head, runs))
    except OSError as error:
        raise SettingError(f"--llmeval-output: cannot write {path}: {error.strerror}") from None


def _lines(head: ShardHead, runs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    count = 2
    own = {**asdict(head), "shard": [head.shard.number, head.shard.of], "version": version_of(PACKAGE)}
    yield json_text({"llmeval_shard": SHARD_FORMAT, **own}) + "\n"
    for model, run in runs.items():
        yield json_text({"model": model, **run, "records": len(run["records"])}) + "\n"
        for record in run["records"]:
            yield json_text(record) + "\n"
        count += 1 + len(run["records"])
    yield json_text({"lines": count}) + "\n"


def read_shards(paths: Iterable[Path]) -> JoinedShards:
    """Return all shards of one evaluation from files, and from the folders that hold them.

    Raises SettingError, with the reason, if one is missing or there twice, cannot be read, or was run in another way.
    """
    files = list(dict.fromkeys(file.resolve() for path in paths for file in _files(path)))
    if not files:
        raise SettingError("no file of a shard (shard_I_of_N.jsonl) is there; write them with --llmeval-shard I/N")
    heads, runs = zip(*map(_read, files), strict=True)
    first = heads[0]
    for file, head in zip(files, heads, strict=True):
        if reason := _difference(first, head):
            raise SettingError(f"{file} does not belong to the same evaluation as {files[0]}: {reason}")
    counts = Counter(head.shard.number for head in heads)
    if missing := [f"{number}/{first.shard.of}" for number in range(1, first.shard.of + 1) if not counts[number]]:
        raise SettingError(f"shards are missing: {listed(missing)}; they were not run, or stopped before their end")
    for number, times in counts.items():
        if times > 1:
            same = [str(file) for file, head in zip(files, heads, strict=True) if head.shard.number == number]
            raise SettingError(f"shard {number}/{first.shard.of} is there {times} times: {listed(same)}")
    for model in dict.fromkeys(model for run in runs for model in run):
        _check_identity(model, [(file, run[model]) for file, run in zip(files, runs, strict=True) if model in run])
    return JoinedShards(first, runs)


def _files(path: Path) -> list[Path]:
    name = "shard_*_of_*.jsonl"
    return sorted(path.rglob(name)) if path.is_dir() else [path] if path.match(name) else []


def _read(path: Path) -> tuple[ShardHead, dict[str, Mapping[str, Any]]]:
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise SettingError(f"{path}: cannot be read: {error}") from None
    head = lines[0] if lines else None
    if not isinstance(head, dict) or head.get("llmeval_shard") != SHARD_FORMAT:
        raise SettingError(f"{path}: no file of a shard, or one of another version of {PACKAGE}: run the shard again")
    if lines[-1] != {"lines": len(lines)}:
        raise SettingError(f"{path}: its end is missing: copy the file again, or run the shard again")
    runs: dict[str, Mapping[str, Any]] = {}
    place = 1
    while place < len(lines) - 1:
        run = lines[place]
        end = place + 1 + run["records"]
        runs[run.pop("model")] = {**run, "records": lines[place + 1 : end]}
        place = end
    del head["llmeval_shard"]
    return ShardHead(**head | {"shard": Shard(*head["shard"])}), runs


def _difference(first: ShardHead, other: ShardHead) -> str | None:
    """Return in what a shard differs from another of the same evaluation; None if in nothing."""
    if first.shard.of != other.shard.of:
        return f"one is of {first.shard.of} shards, the other of {other.shard.of}"
    if first.version != other.version:
        return f"versions {first.version} and {other.version} of {PACKAGE}"
    for name in dict.fromkeys((*first.settings, *other.settings)):
        one, two = first.settings.get(name), other.settings.get(name)
        if one != two:
            return f"{name} is {two!r} in the one and {one!r} in the other"
    if first.models != other.models or first.model_args != other.model_args:
        one, two = (
            f"{listed((spec for _, spec, _ in head.models), 3) or 'of a fixture'} {head.model_args}".strip()
            for head in (first, other)
        )
        return f"the models are {two} in the one and {one} in the other"
    return task_difference(first.tasks, other.tasks)


def task_difference(first: Mapping[str, str], other: Mapping[str, str]) -> str | None:
    """Return in what the tasks of two evaluations differ, by their hashes; None if in nothing."""
    if lone := sorted(first.keys() ^ other.keys()):
        return f"only one of them has {listed(lone, 3, noun='tasks')}"
    if changed := sorted(name for name in first if first[name] != other[name]):
        return f"other task files, data or examples of {listed(changed, 3, noun='tasks')}"
    return None


def _check_identity(model: str, runs: Iterable[tuple[Path, Mapping[str, Any]]]) -> None:
    """Raise SettingError if the models of two shards state different facts of themselves."""
    known: tuple[Path, dict[str, Any]] | None = None
    for file, run in runs:
        if run["facts"] is None:
            continue
        facts = {name: value for name, value in run["facts"].items() if name != "model"}
        facts |= {name: value for name, value in run["facts"].get("model", {}).items() if name != "engine"}
        known = known or (file, facts)
        for name in facts.keys() | known[1].keys():
            if facts.get(name) != known[1].get(name):
                raise SettingError(
                    f"{file} and {known[0]} were answered by different models{f' {model}' if model else ''}: {name} is "
                    f"{facts.get(name)!r} in the one and {known[1].get(name)!r} in the other"
                )
