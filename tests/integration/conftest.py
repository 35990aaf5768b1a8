"""A small suite that is worked out by hand: two tasks and a group, answered by a model that always says yes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import datasets  # noqa: F401 - see below
import hypothesis  # noqa: F401
import numpy as np  # noqa: F401
import pytest
import scipy.optimize
import scipy.special
import scipy.stats  # noqa: F401
from yessuite import FIXTURE
from yessuite import MODEL
from yessuite import TASK
from yessuite import WriteTask

# pytester forgets the modules that a run inside this process imported, and numpy and scipy cannot be imported twice:
# whatever such runs need must be there before the first one. hypothesis, whose plugin imports it at the end of every
# run, takes a second each time.
import pytest_llmeval._session.hooks
import pytest_llmeval._session.xdist  # noqa: F401


if TYPE_CHECKING:
    from faultsuite import FaultSuite


@pytest.fixture
def write_task(pytester: pytest.Pytester) -> WriteTask:
    """Writes ``tasks/NAME.yaml`` and its docs; `labels` are the right choices: 0 is yes, 1 is no."""

    def write(name: str, labels: Sequence[int], tags: str = "", gates: str = "", extra: str = "") -> Path:
        folder = pytester.path / "tasks"
        folder.mkdir(exist_ok=True)
        rows = [json.dumps({"q": f"{name} {i}?", "label": label}) for i, label in enumerate(labels)]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
        path = folder / f"{name}.yaml"
        path.write_text(TASK.format(name=name, tags=tags, gates=gates) + extra)
        return path

    return write


@pytest.fixture
def suite(pytester: pytest.Pytester, write_task: WriteTask) -> Path:
    """even: 5 of 10 right, gate passes; hard: 3 of 6, gate fails; all: 8 of 16, gate passes."""
    pytester.makeconftest(MODEL + FIXTURE)
    write_task("even", [0, 1] * 5, tags="stem", gates="acc >= 0.5")
    write_task("hard", [0, 1] * 3, tags="stem, humanities", gates="acc >= 0.9")
    folder = pytester.path / "tasks"
    (folder / "all.yaml").write_text(
        "group: all\ntask: [even, hard]\naggregate_metric_list: [{metric: acc}]\n"
        'metadata: {version: 1.0, gates: ["acc >= 0.4"]}\n'
    )
    return folder


@pytest.fixture(params=["plain", "-n2"])
def workers(request: pytest.FixtureRequest) -> list[str]:
    """Arguments for a plain run, then for one spread over two workers of pytest-xdist."""
    if request.param == "plain":
        return []
    pytest.importorskip("xdist")
    return ["-n2"]


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of saved table models; `faultsuite` imports torch, so only where a test uses it."""
    import faultsuite

    return faultsuite.prepared(tmp_path_factory.mktemp("checkpoints"))


@pytest.fixture
def faults(pytester: pytest.Pytester, checkpoints: Path) -> FaultSuite:
    """A folder of tasks and checkpoints that are worked out by hand."""
    import faultsuite

    return faultsuite.FaultSuite(pytester, checkpoints)
