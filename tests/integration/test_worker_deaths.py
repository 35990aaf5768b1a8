"""Workers of pytest-xdist that die in the middle: the same numbers, gates and exit code as one process gives."""

from __future__ import annotations

import re

import pytest
from yessuite import MODEL
from yessuite import WriteTask


pytest_plugins = ["pytester"]

#: The model ends its process once at doc 1 of `short` (the file `died` remembers), and always at doc 7 of `long`.
DEADLY = """
import os
import signal
from pathlib import Path

HERE = Path(__file__).parent

class Deadly(Yes):
    def loglikelihood(self, requests):
        asked = {context for context, _ in requests}
        if "short 1?" in asked and not (HERE / "died").exists():
            (HERE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if "long 7?" in asked:
            HOW
        return super().loglikelihood(requests)

@pytest.fixture(scope="session")
def llmeval_model(pytestconfig):
    with (HERE / "seats").open("a") as seats:
        seats.write(f"{os.environ['PYTEST_XDIST_WORKER']} {pytestconfig.workerinput['llmeval_seat']}\\n")
    return Deadly()
"""


@pytest.fixture
def suite_of_deaths(
    pytester: pytest.Pytester, write_task: WriteTask, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    """long: 10 of 20 docs right; short: 3 of 3; both: 13 of 23."""
    pytest.importorskip("xdist")
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)
    write_task("long", [0, 1] * 10, gates="acc >= 0.5")
    write_task("short", [0, 0, 0], gates="acc >= 1")
    (pytester.path / "tasks" / "both.yaml").write_text(
        "group: both\ntask: [long, short]\naggregate_metric_list: [{metric: acc}]\n"
        "metadata: {version: 1.0, gates: ['acc <= 0.6']}\n"
    )
    return pytester


def test_a_doc_that_kills_two_workers_is_an_error_and_nothing_else_is_lost(suite_of_deaths: pytest.Pytester) -> None:
    suite_of_deaths.makeconftest(MODEL + DEADLY.replace("HOW", "os._exit(0)"))
    result = suite_of_deaths.runpytest("tasks", "-n1", "--dist=worksteal")
    assert result.ret == 1
    # 12 of 22 docs are right. A gate is not judged without doc 7: those of `long` and `both` fail with the reason.
    assert result.parseoutcomes() == {"failed": 2, "passed": 14, "wrong": 9, "errors": 1}
    text = result.stdout.str()
    reason = r"2 worker processes died while it was evaluated \(gw\d, gw\d\)"
    assert re.search(rf"tasks/long\.yaml::doc\[7\]: {reason}", text)
    assert re.search(
        rf"gate failed: \S+::gate\[acc\]: long: acc 0\.5263 \S+ \S+ on 19 of 20 docs.* doc 7: {reason}", text
    )
    assert re.search(r"\|both *\|.*\|acc *\|↑ *\|0\.5909\|", text)
    # Each replacement sits where its predecessor sat.
    assert (suite_of_deaths.path / "seats").read_text().split() == ["gw0", "0", "gw1", "0", "gw2", "0", "gw3", "0"]


def test_pytest_exit_in_a_worker_ends_the_run(suite_of_deaths: pytest.Pytester) -> None:
    (suite_of_deaths.path / "died").touch()
    suite_of_deaths.makeconftest(MODEL + DEADLY.replace("HOW", "pytest.exit('enough', 7)"))
    result = suite_of_deaths.runpytest("tasks", "-n1", "--dist=loadscope")
    assert result.ret == 7
    result.stdout.fnmatch_lines(["*Exit: enough*"])
    assert "INTERNALERROR" not in result.stdout.str()


@pytest.mark.parametrize(
    ("name", "seat", "expected"),
    [(None, 0, "cuda:0"), ("cuda", 5, "cuda:1"), (None, None, "cuda"), ("cuda:3", 1, "cuda:3"), ("cpu", 1, "cpu")],
)
def test_devices_are_dealt_out_by_seat(
    monkeypatch: pytest.MonkeyPatch, name: str | None, seat: int | None, expected: str
) -> None:
    torch = pytest.importorskip("torch")
    from pytest_llmeval._engine import devices

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch, "empty", lambda *args, device: None)
    assert str(devices.choose_device(name, seat)) == expected
