"""Shards of a run, and what their merge makes of them: the same as one run, or a refusal with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: `fake:ANSWER` prefers that answer, and writes how many requests it got.
MODELS = """
from pathlib import Path

HERE = Path(__file__).parent

class Stubborn:
    def __init__(self, answer):
        self.answer = answer

    def loglikelihood(self, requests):
        with (HERE / "asked").open("a") as file:
            file.write(f"{len(requests)}\\n")
        return [(-1.0 if text.strip() == self.answer else -2.0, False) for _, text in requests]

    def describe(self):
        free = str(len(list(HERE.iterdir())))
        return {"model": {"model_dtype": (HERE / "dtype").read_text(), "engine": {"free": free}}}

    def usage(self):
        return {"tokens": 1000}

def pytest_llmeval_register_models(register):
    register("fake", lambda rest, arguments: Stubborn(rest))
"""

YES, NO = "--llmeval-model=first=fake:yes", "--llmeval-model=second=fake:no"
GATES = ("--llmeval-fail-on=*.acc >= baseline - 0.1 @ 0.95", "--llmeval-baseline=main")


@pytest.fixture
def sharded(pytester: pytest.Pytester, write_task: WriteTask) -> pytest.Pytester:
    """long: 20 docs, hard: 3, and the group of both; a baseline of the model that says yes."""
    pytester.makeconftest(MODELS)
    (pytester.path / "dtype").write_text("float32")
    write_task("long", [0, 1, 0, 0] * 5, gates="acc >= 0.5")
    write_task("hard", [0, 1, 1], gates="acc >= 0.5")
    (pytester.path / "tasks" / "all.yaml").write_text(
        "group: all\ntask: [long, hard]\naggregate_metric_list: [{metric: acc}]\n"
        "metadata: {version: 1.0, gates: ['acc >= 0.6 @ 0.9']}\n"
    )
    assert pytester.runpytest("tasks", YES, "--llmeval-baseline=main", "--llmeval-update-baseline").ret == 1
    (pytester.path / "asked").unlink()
    return pytester


def shard(sharded: pytest.Pytester, number: int, of: int, *options: str, out: str = "out") -> pytest.RunResult:
    return sharded.runpytest("tasks", f"--llmeval-shard={number}/{of}", f"--llmeval-output={out}/{number}", *options)


def merge(sharded: pytest.Pytester, *options: str) -> pytest.RunResult:
    return sharded.runpytest("tasks", "--llmeval-merge=out/*", *options)


def closing(result: pytest.RunResult) -> list[str]:
    """The lines from the first table on, without times and paths, then the counts."""
    start = next(number for number, line in enumerate(result.outlines) if re.match("=+ llmeval", line))
    lines = [re.sub(r"^(written: ).*/", r"\1", line) for line in result.outlines[start:]]
    return [re.sub(r"_\d{4}-[-T\d.]+|in [\d.]+s.*|=", "", line) for line in lines]


def files(folder: Path) -> dict[str, Any]:
    """The result files by name, without dates and what models say of their use."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.json*")):
        name = re.sub(r"_\d{4}-[-T\d.]+(?=\.json)", "", str(path.relative_to(folder)))
        if path.suffix == ".json":
            found[name] = json.loads(path.read_text())
            for key in ("date", "total_evaluation_time_seconds", "pretty_env_info"):
                del found[name][key]
            del found[name]["pytest_llmeval"]["usage"], found[name]["pytest_llmeval"]["engine"]
        else:
            found[name] = path.read_text()
    return found


def asked(sharded: pytest.Pytester) -> int:
    """The number of requests since the last look; two make a doc."""
    path = sharded.path / "asked"
    total = sum(map(int, path.read_text().split())) if path.exists() else 0
    path.unlink(missing_ok=True)
    return total


@pytest.mark.parametrize(
    ("of", "selection"),
    [(3, [YES, NO]), (4, [YES, "-m", "llmeval_gate"]), (2, [NO, "--llmeval-limit=5", "--llmeval-sample=random:1"])],
    ids=["two models", "gates only", "a sample"],
)
def test_a_merge_is_what_one_run_would_have_been(sharded: pytest.Pytester, of: int, selection: Sequence[str]) -> None:
    one = sharded.runpytest("tasks", *selection, *GATES, "--llmeval-output=one")
    requests = asked(sharded)
    for number in range(1, of + 1):
        part = shard(sharded, number, of, *selection, *GATES)
        assert part.ret == 0
        assert part.parseoutcomes()["skipped"] == 6 * len(set(selection) & {YES, NO})
        part.stdout.fnmatch_lines([f"llmeval: shard {number}/{of}: * docs answered, nothing judged*"])
        part.stdout.no_fnmatch_line("|Tasks*")
    assert asked(sharded) == requests > 0
    picked = [option for option in selection if not option.startswith("--llmeval")]
    whole = merge(sharded, *picked, *GATES, "--llmeval-output=merged")
    assert asked(sharded) == 0
    assert whole.ret == one.ret == (0 if "--llmeval-limit=5" in selection else 1)
    assert closing(whole) == closing(one)
    assert files(sharded.path / "merged") == files(sharded.path / "one")


def test_shards_under_xdist(sharded: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    assert shard(sharded, 1, 2, YES, "-n1").ret == 0
    assert shard(sharded, 2, 2, YES).ret == 0
    assert merge(sharded).parseoutcomes() == sharded.runpytest("tasks", YES).parseoutcomes()


def test_a_merge_writes_the_baseline(sharded: pytest.Pytester) -> None:
    for number in (1, 2):
        shard(sharded, number, 2, YES, "--llmeval-baseline=new", "--llmeval-update-baseline")
    assert not (sharded.path / ".llmeval/baselines/new").exists()
    merge(sharded, "--llmeval-baseline=new", "--llmeval-update-baseline")
    folder = sharded.path / ".llmeval" / "baselines"
    for path in (folder / "main").iterdir():
        assert (folder / "new" / path.name).read_text() == path.read_text()


def refusal(result: pytest.RunResult) -> str:
    assert result.ret == 4
    return result.stdout.str() + result.stderr.str()


def test_shards_that_do_not_belong_together_are_refused(sharded: pytest.Pytester) -> None:
    assert "no file of a shard" in refusal(merge(sharded))
    for number in (1, 2):
        shard(sharded, number, 3, YES)
    assert "shards are missing: 3/3" in refusal(merge(sharded))
    third = sharded.path / "out/3/shard_3_of_3.jsonl"
    # Of another evaluation: another model, other settings, another number of shards.
    for options, of, reason in (
        ([NO], 3, "the models are fake:no in the one and fake:yes in the other"),
        ([YES, "--llmeval-limit=4"], 3, "limit is 4 in the one and None in the other"),
        ([YES], 4, "one is of 3 shards, the other of 4"),
    ):
        shard(sharded, 3, of, *options)
        text = refusal(merge(sharded))
        assert f"shard_3_of_{of}.jsonl does not belong to the same evaluation as" in text
        assert reason in text
        (sharded.path / f"out/3/shard_3_of_{of}.jsonl").unlink()
    # The checkpoint behind the same name has changed.
    (sharded.path / "dtype").write_text("bfloat16")
    shard(sharded, 3, 3, YES)
    assert "answered by different models: model_dtype is 'bfloat16' in the one" in refusal(merge(sharded))
    (sharded.path / "dtype").write_text("float32")
    shard(sharded, 3, 3, YES)
    assert "limit is 4 here, and the shards were run with None" in refusal(merge(sharded, "--llmeval-limit=4"))
    whole = third.read_text()
    third.write_text(whole[: len(whole) // 2].rpartition("\n")[0] + "\n")
    assert "its end is missing" in refusal(merge(sharded))
    third.write_text(whole[: len(whole) // 2])
    assert "cannot be read" in refusal(merge(sharded))
    third.write_text(whole)
    (sharded.path / "out/3/again").mkdir()
    (sharded.path / "out/3/again/shard_3_of_3.jsonl").write_text(whole)
    assert "shard 3/3 is there 2 times" in refusal(merge(sharded))
    (sharded.path / "out/3/again/shard_3_of_3.jsonl").unlink()
    # The data changed between the shards and the merge.
    data = sharded.path / "tasks/hard.jsonl"
    data.write_text(data.read_text().replace("hard 1?", "hard one?"))
    assert "other task files, data or examples of hard" in refusal(merge(sharded))
    (sharded.path / "tasks/hard.yaml").unlink()
    text = refusal(sharded.runpytest("tasks/long.yaml", "--llmeval-merge=out/*"))
    assert "the shards and this run differ: only one of them has hard" in text


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            ["--llmeval-shard=3/2", "--llmeval-output=out"],
            "expected I/N, part I from 1 to N of N parts, e.g. 2/8, got '3/2'",
        ),
        (["--llmeval-shard=1/2"], "--llmeval-shard: needs --llmeval-output DIR"),
        (["--llmeval-shard=1/2", "--llmeval-output=out", "--llmeval-early-stop"], "a shard knows only its own"),
        (["--llmeval-merge=out/*", "--llmeval-early-stop"], "a shard knows only its own"),
        (["--llmeval-merge=out/*", "--llmeval-shard=1/2", "--llmeval-output=out"], "omit --llmeval-shard"),
        (["--llmeval-merge=out/*", YES], "the shards name their models"),
        (["--llmeval-merge=out/*", "-n1"], "add -n 0"),
        (["--llmeval-merge=out/*", "-ollmeval_confirm=true"], "ini llmeval_confirm asks for docs again"),
    ],
)
def test_options_that_exclude_each_other(
    pytester: pytest.Pytester, suite: Path, options: Sequence[str], reason: str
) -> None:
    if "-n1" in options:
        pytest.importorskip("xdist")
    assert reason in refusal(pytester.runpytest("tasks", *options))


def test_an_interrupted_shard_leaves_nothing_and_says_so(sharded: pytest.Pytester) -> None:
    result = shard(sharded, 1, 1, NO, "--llmeval-wrong=fail", "-x")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["ERROR: --llmeval-shard 1/1: the run was stopped before its end: *"])
    assert list((sharded.path / "out").rglob("shard*")) == []


def test_a_merge_leaves_the_fixture_of_a_suite_alone(sharded: pytest.Pytester) -> None:
    """A suite that loads its own model; the shards load it, the merge does not. Tests that ask for results get them."""
    fixture = """
import pytest

@pytest.fixture(scope="session", params=["yes", "no"])
def llmeval_model(request):
    assert request.config.getoption("llmeval_merge") is None
    return Stubborn(request.param)
"""
    sharded.makeconftest(MODELS + fixture)
    one = sharded.runpytest("tasks")
    assert one.ret == 1
    for number in (1, 2):
        assert shard(sharded, number, 2).ret == 0
    whole = merge(sharded)
    assert whole.parseoutcomes() == one.parseoutcomes()
    assert closing(whole) == closing(one)
