"""A run against a server: the numbers of the model in this process, through failures, and the key in no output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2  # noqa: F401 - pytester forgets what a run imports, and some of it cannot be imported twice
import pytest
from modelserver import STARTER
from modelserver import Remembered
from modelserver import Served
from modelserver import serving
from modelserver import starter_model

from pytest_llmeval._servers import pace


pytest_plugins = ["pytester"]

KEY = "sk-4711-never-shown"


@pytest.fixture(scope="module")
def parts() -> tuple[Remembered, Any]:
    return starter_model()


@pytest.fixture
def served(parts: tuple[Remembered, Any]) -> Served:
    return Served(*parts, doors=frozenset({"prompt_logprobs", "labels", "tokenize"}), key=KEY)


def responses(folder: Path) -> dict[str, Any]:
    """The responses of each task's docs."""
    found = {}
    for path in folder.rglob("samples_*.jsonl"):
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        found[path.name.rpartition("_")[0]] = {(row["doc_id"], row["filter"]): row["resps"] for row in rows}
    return found


def flat(value: Any) -> list[Any]:
    return [one for item in value for one in flat(item)] if isinstance(value, list) else [value]


def test_a_run_equals_one_in_this_process_and_hides_the_key(
    pytester: pytest.Pytester, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(pace, "FIRST_PAUSE", 0.0)
    served.failing = lambda n: ("drop", "garble", "error")[n % 3] if n % 5 == 0 else None
    tasks = [str(STARTER / "capitals.yaml"), str(STARTER / "continuations.yaml"), str(STARTER / "sums.yaml")]
    common = [*tasks, "-k", "doc", "--llmeval-limit=3", f"--rootdir={pytester.path}", "--llmeval-baseline=base"]
    with serving(served) as url:
        done = pytester.runpytest(
            *common,
            f"--llmeval-model=openai:{url}#tiny",
            f"--llmeval-model-args=tokenizer={STARTER / 'models/good'}",
            "--llmeval-output=served",
            "--llmeval-update-baseline",
            "--junitxml=junit.xml",
            "-v",
        )
    assert done.ret == 0, done.stdout.str()
    done.stdout.fnmatch_lines(
        [
            "llmeval: tiny: prompts are scored without the prefix cache (vllm serve*",
            "*prompt_logprobs+labels for scoring*",
        ]
    )
    compared = pytester.runpytest(*common, f"--llmeval-model={STARTER / 'models/good'}", "--llmeval-output=local")
    assert compared.ret == 0, compared.stdout.str()
    ours, theirs = responses(pytester.path / "served"), responses(pytester.path / "local")
    assert len(ours) == 3
    assert ours.keys() == theirs.keys()
    for task, docs in ours.items():
        assert docs.keys() == theirs[task].keys()
        for doc, answer in docs.items():
            for one, other in zip(flat(answer), flat(theirs[task][doc]), strict=True):
                if task.endswith("sums"):
                    assert one == other
                else:
                    assert float(one) == pytest.approx(float(other), abs=1e-4) if one not in ("True", "False") else True
                    assert (one in ("True", "False")) == (other in ("True", "False"))
    shown = [done.stdout.str(), done.stderr.str(), compared.stdout.str()]
    files = [path for path in pytester.path.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert {"junit.xml", "served", "base"} <= {part for path in files for part in path.parts}
    assert [name for name, text in zip(files, map(Path.read_bytes, files), strict=True) if b"4711" in text] == []
    assert [text for text in shown if "4711" in text] == []


def test_a_server_that_is_lost_ends_the_run_with_the_reason(
    pytester: pytest.Pytester, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with serving(served) as url:
        done = pytester.runpytest(
            str(STARTER / "capitals.yaml"),
            f"--rootdir={pytester.path}",
            "--llmeval-limit=2",
            f"--llmeval-model=openai:{url}#other",
            f"--llmeval-model-args=tokenizer={STARTER / 'models/good'}",
        )
    assert done.ret == 1
    done.stdout.fnmatch_lines(
        [f"model 'other': the server at {url.removesuffix('/v1')} has no model 'other': it serves tiny;*"]
    )
    assert "Traceback" not in done.stdout.str()
