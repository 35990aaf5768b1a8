"""The peer's own task files, unmodified, mean the same here: resolved mappings, names and tags are equal."""

from __future__ import annotations

import importlib.util
import logging
import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._registry import Index
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import TaskFiles
from pytest_llmeval._taskfile import looks_like_task


pytest.importorskip("lm_eval")

#: Benchmarks of every output type, with include chains, groups, tags, functions, filters and samples.
FOLDERS = (
    "arc",
    "bbh",
    "blimp",
    "commonsense_qa",
    "gsm8k",
    "hellaswag",
    "lambada",
    "mmlu",
    "mmlu_pro",
    "openbookqa",
    "piqa",
    "super_glue",
    "triviaqa",
    "truthfulqa",
    "wikitext",
    "winogrande",
)


@pytest.fixture(autouse=True)
def quiet_peer() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


def peer_tasks() -> Path:
    spec = importlib.util.find_spec("lm_eval")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "tasks"


def alike(ours: Any, peers: Any, folder: Path) -> bool:
    """Equal, but for functions: the peer is asked for their places, and our source text is not in its mapping."""
    if isinstance(peers, str) and peers.startswith(str(folder)):
        return isinstance(ours, str)
    if isinstance(ours, dict) and isinstance(peers, dict):
        return ours.keys() == peers.keys() and all(alike(ours[key], peers[key], folder) for key in ours)
    if isinstance(ours, list) and isinstance(peers, list):
        return len(ours) == len(peers) and all(alike(a, b, folder) for a, b in zip(ours, peers, strict=True))
    return bool(ours == peers) and type(ours) is type(peers)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_resolved_mapping_is_the_peers(folder: str) -> None:
    from lm_eval.config.task import TaskConfig
    from lm_eval.tasks._yaml_loader import load_yaml

    files, root = TaskFiles(), peer_tasks() / folder
    read = 0
    for path in sorted(root.rglob("*.yaml")):
        if not looks_like_task(path):
            continue
        try:
            found = files.read(path)
        except TaskFileError as error:
            # Some of the peer's modules need packages, or releases of them, that are not here.
            if not re.search(r"!function \S+: \S+:\d+ (needs the package|raised) ", str(error)):
                raise
            continue
        if not isinstance(found, Task):
            continue
        config = load_yaml(path, resolve_func=False)
        for key in ("tag", "group"):
            config.pop(key, None)
        expected = TaskConfig(**deepcopy(config)).to_dict()
        ours = dict(found.config)
        assert ours.keys() == expected.keys(), path
        wrong = [key for key in expected if not alike(ours[key], expected[key], root)]
        assert wrong == [], path
        read += 1
    assert read


def test_names_and_tags_are_the_peers() -> None:
    from lm_eval.tasks._index import Kind
    from lm_eval.tasks._index import TaskIndex

    for folder in ("mmlu", "super_glue", "arc"):
        root = peer_tasks() / folder
        index = Index()
        names = index.below(root)
        peers = TaskIndex.build([root])
        assert set(names.files) == {name for name, entry in peers.items() if entry.kind is not Kind.TAG}
        ours = {tag: [index.outline(path).name for path in paths] for tag, paths in names.tags.items()}
        assert ours == {name: sorted(entry.tags) for name, entry in peers.items() if entry.kind is Kind.TAG}
