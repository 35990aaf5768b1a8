"""Work spread over workers: the docs, the prompts, the numbers and the ids of one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from faultsuite import CHOICE
from faultsuite import DRAWN
from faultsuite import FaultSuite
from faultsuite import Run
from faultsuite import add_draws
from faultsuite import prompts


pytest_plugins = ["pytester"]

#: Every load is a line in the file `loads`. Two docs of a task make a piece of work, where users have a thousand.
CONFTEST = """
import os
from pathlib import Path

from pytest_llmeval import _models
from pytest_llmeval._session import judge
from pytest_llmeval import FakeLM

LOADS = Path(__file__).with_name("loads")

def note():
    with LOADS.open("a") as file:
        file.write(f"{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}\\n")

def fake(rest, args):
    note()
    return FakeLM(loglikelihood_of={" yes": -1.0, " no": -2.0}, text_of="x")

def pytest_llmeval_register_models(register):
    register("counted", fake)

if "PYTEST_XDIST_WORKER" in os.environ:
    judge.Judge.chunk = 2
    load = _models.load_model

    def counting(spec, *more):
        if not isinstance(spec, _models.SchemeSpec):
            note()
        return load(spec, *more)

    _models.load_model = counting
"""

HITS = (1, 0, 1, 1, 0)


@pytest.fixture
def spread(faults: FaultSuite, monkeypatch: pytest.MonkeyPatch) -> FaultSuite:
    """B37 and B23: five docs of which three are right, four docs with drawn examples, and a group over both."""
    pytest.importorskip("xdist")
    # This process may be a worker itself; the runs that it starts are not.
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pytest_llmeval._session.judge.Judge.chunk", 2)
    faults.pytester.makeconftest(CONFTEST)
    metrics = [{"metric": metric} for metric in ("acc", "f1", "mcc", "brier_score")]
    own = {**CHOICE, "tag": ["b", "a", "c"], "metric_list": metrics, "metadata": {"gates": ["acc >= 0.6"]}}
    # The model says yes, which is choice 1 here, so that F1 is not 0 and its bootstrapped error bar neither.
    docs = [{"q": f"Q {i} x A", "label": hit} for i, hit in enumerate(HITS)]
    faults.add("z/hits", own, {"doc_to_choice": ["no", "yes"]}, test=docs)
    add_draws(faults)
    (faults.folder / "g.yaml").write_text(
        "group: g\ntask: [hits]\naggregate_metric_list: [{metric: acc}]\nmetadata: {gates: ['acc <= 0.6']}\n"
    )
    return faults


def check(run: Run) -> None:
    """Whatever the number of workers: every doc once, in order, with the examples of the full run, and .6 of 5."""
    assert run.printed.ret == 0
    assert run.value("hits", "acc,none") == run.value("g", "acc,none") == 0.6
    assert run.value("hits", "f1,none") == pytest.approx(0.75)
    assert run.value("hits", "f1_stderr,none") > 0
    assert run.value("hits", "sample_len") == run.value("g", "sample_len") == 5
    assert [row["doc_id"] for row in run.samples["hits"]] == [0, 1, 2, 3, 4]
    assert [row["acc"] for row in run.samples["hits"]] == list(HITS)
    assert list(prompts(run)) == [0, 1, 2, 3]
    assert prompts(run) == DRAWN


def loads(faults: FaultSuite) -> list[str]:
    path = faults.pytester.path / "loads"
    found = path.read_text().split()
    path.unlink()
    return found


def test_any_number_of_workers(spread: FaultSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    """One, and three of which one may have nothing to do; with other hashes."""
    alone = spread.run("--llmeval-model=counted:", model=None)
    check(alone)
    assert loads(spread) == ["alone"]
    for n in (1, 3):
        monkeypatch.setenv("PYTHONHASHSEED", str(n))
        run = spread.run("--llmeval-model=counted:", f"-n{n}", model=None)
        check(run)
        assert run.results["results"] == alone.results["results"]
        assert run.samples == alone.samples
        loaded = loads(spread)
        assert len(loaded) == len(set(loaded)) <= n


def test_a_checkpoint_on_two_workers(spread: FaultSuite) -> None:
    alone = spread.run()
    run = spread.run("-n2")
    check(run)
    assert run.results["results"] == alone.results["results"]
    assert run.samples == alone.samples
    assert sorted(loads(spread)) == ["gw0", "gw1"]


@contextmanager
def names_listed_backwards() -> Iterator[None]:
    """A file system that lists its folders in another order."""
    scandir, listdir = os.scandir, os.listdir

    @contextmanager
    def backwards(*args: Any) -> Iterator[Any]:
        with scandir(*args) as entries:
            yield iter(sorted(entries, key=lambda entry: entry.name, reverse=True))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", backwards)
        patch.setattr(os, "listdir", lambda *args: sorted(listdir(*args), reverse=True))
        yield


def test_ids_are_equal_everywhere(spread: FaultSuite, monkeypatch: pytest.MonkeyPatch) -> None:
    collect = ["tasks", "--collect-only", "-q", "-p", "no:cacheprovider"]
    expected = [f"tasks/t.yaml::doc[{i}]" for i in range(4)] + [f"tasks/z/hits.yaml::doc[{i}]" for i in range(5)]
    expected += ["tasks/z/hits.yaml::gate[acc]", "tasks/g.yaml::gate[acc]"]
    with names_listed_backwards():
        backwards = spread.pytester.runpytest_inprocess(*collect)
    found = [backwards]
    for seed in ("0", "1"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        found.append(spread.pytester.runpytest_subprocess(*collect))
    for result in found:
        assert [line for line in result.outlines if "::" in line] == expected
