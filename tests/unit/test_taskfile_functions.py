"""``!function``: which file is meant, what may be loaded, and what a failing module prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_llmeval._errors import TaskFileError
from pytest_llmeval._task import Task
from pytest_llmeval._taskfile import TaskFiles


TASK = """\
task: t
dataset_path: some/set
test_split: test
doc_to_target: a
doc_to_text: !function {}
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def prompt(path: Path) -> object:
    """What the doc_to_text of a task gives for an empty doc."""
    found = TaskFiles().read(path)
    assert isinstance(found, Task)
    assert found.doc_to_text is not None
    assert found.doc_to_text.function is not None
    return found.doc_to_text.function({})


def complaint(folder: Path, reference: str) -> str:
    path = write(folder / "t.yaml", TASK.format(reference))
    with pytest.raises(TaskFileError) as caught:
        TaskFiles().read(path)
    return str(caught.value).replace(f"{folder}/", "").replace(str(folder), "FOLDER")


def test_two_modules_of_one_name_do_not_meet(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / name / "utils.py", f"NAME = {name!r}\ndef f(doc):\n    return NAME\n")
        write(tmp_path / name / "t.yaml", TASK.format("utils.f"))
    assert prompt(tmp_path / "a" / "t.yaml") == "a"
    assert prompt(tmp_path / "b" / "t.yaml") == "b"
    assert prompt(tmp_path / "a" / "t.yaml") == "a"
    assert "utils" not in sys.modules


def test_dots_lead_into_folders_below(tmp_path: Path) -> None:
    write(tmp_path / "lib" / "deep" / "texts.py", "def f(doc):\n    return 'deep'\n")
    assert prompt(write(tmp_path / "t.yaml", TASK.format("lib.deep.texts.f"))) == "deep"


def test_a_module_finds_its_neighbours(tmp_path: Path) -> None:
    write(tmp_path / "words.py", "WORD = 'near'\n")
    write(tmp_path / "utils.py", "from .words import WORD\ndef f(doc):\n    return WORD\n")
    assert prompt(write(tmp_path / "t.yaml", TASK.format("utils.f"))) == "near"


def test_a_function_belongs_to_the_file_that_carries_the_tag(tmp_path: Path) -> None:
    write(tmp_path / "default" / "utils.py", "def f(doc):\n    return 'default'\n")
    write(tmp_path / "default" / "_base_yaml", TASK.format("utils.f"))
    write(tmp_path / "other" / "utils.py", "def f(doc):\n    return 'other'\n")
    assert prompt(write(tmp_path / "other" / "t.yaml", "task: o\ninclude: ../default/_base_yaml\n")) == "default"


def test_a_module_is_run_once(tmp_path: Path) -> None:
    write(tmp_path / "utils.py", "from pathlib import Path\nlog = Path(__file__).with_name('log')\n")
    with (tmp_path / "utils.py").open("a") as module:
        module.write("log.write_text(log.read_text() + 'x' if log.exists() else 'x')\ndef f(doc):\n    return 1\n")
    files = TaskFiles()
    for name in "abc":
        files.read(write(tmp_path / f"{name}.yaml", TASK.format("utils.f")))
    assert (tmp_path / "log").read_text() == "x"


def test_a_changed_module_is_run_again(tmp_path: Path) -> None:
    path = write(tmp_path / "t.yaml", TASK.format("utils.f"))
    write(tmp_path / "utils.py", "def f(doc):\n    return 'before'\n")
    assert prompt(path) == "before"
    write(tmp_path / "utils.py", "def f(doc):\n    return 'and after'\n")
    assert prompt(path) == "and after"


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "os.system",
            "t.yaml:5: doc_to_text: !function os.system: there is no os.py in FOLDER; "
            "functions come from files in that folder or below it",
        ),
        (
            "os.path.join",
            "t.yaml:5: doc_to_text: !function os.path.join: there is no os/path.py in FOLDER; "
            "functions come from files in that folder or below it",
        ),
        ("f", "t.yaml:5: doc_to_text: expects !function module.name, got !function f"),
        ("..up.f", "t.yaml:5: doc_to_text: expects !function module.name, got !function ..up.f"),
        ("../up.f", "t.yaml:5: doc_to_text: expects !function module.name, got !function ../up.f"),
        ("a..f", "t.yaml:5: doc_to_text: expects !function module.name, got !function a..f"),
        ("utils.f()", "t.yaml:5: doc_to_text: expects !function module.name, got !function utils.f()"),
        (
            "utils.ff",
            "t.yaml:5: doc_to_text: !function utils.ff: utils.py defines no 'ff'; did you mean 'fff'?",
        ),
        ("utils.NUMBER", "t.yaml:5: doc_to_text: !function utils.NUMBER: 'NUMBER' in utils.py is not a function"),
    ],
)
def test_what_is_not_loaded(tmp_path: Path, reference: str, message: str) -> None:
    write(tmp_path / "utils.py", "NUMBER = 3\ndef fff(doc):\n    return ''\n")
    write(tmp_path.parent / "up.py", "def f(doc):\n    return 'up'\n")
    assert complaint(tmp_path, reference) == message


def test_a_link_does_not_lead_out(tmp_path: Path) -> None:
    write(tmp_path / "outside" / "utils.py", "def f(doc):\n    return ''\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "utils.py").symlink_to(tmp_path / "outside" / "utils.py")
    (inside / "lib").symlink_to(tmp_path / "outside")
    message = "t.yaml:5: doc_to_text: !function {0}.f: {1}.py is a link that leads out of FOLDER"
    assert complaint(inside, "utils.f") == message.format("utils", "utils")
    assert complaint(inside, "lib.utils.f") == message.format("lib.utils", "lib/utils")


def test_a_linked_folder_is_a_folder_like_any_other(tmp_path: Path) -> None:
    write(tmp_path / "real" / "utils.py", "def f(doc):\n    return 'linked'\n")
    write(tmp_path / "real" / "t.yaml", TASK.format("utils.f"))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert prompt(tmp_path / "link" / "t.yaml") == "linked"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("x = 1\n\nraise ValueError('boom')\n", "utils.py:3 raised ValueError: boom"),
        ("def g():\n    return {}['k']\ng()\n", "utils.py:2 raised KeyError: 'k'"),
        ("import sys\nsys.exit('no Prolog here')\n", "utils.py:2 raised SystemExit: no Prolog here"),
        ("def f(:\n", "utils.py:1 raised SyntaxError: invalid syntax (utils.py, line 1)"),
        (
            "import numpy\nimport absent_package.part\n",
            "utils.py:2 needs the package 'absent_package', which is not installed: pip install absent-package",
        ),
        ("from .absent import x\n", "utils.py:1 raised ModuleNotFoundError: No module named "),
    ],
)
def test_a_module_that_fails_ends_its_task_with_its_own_place(tmp_path: Path, module: str, reason: str) -> None:
    write(tmp_path / "utils.py", module)
    message = f"t.yaml:5: doc_to_text: !function utils.f: {reason}"
    found = complaint(tmp_path, "utils.f")
    assert found == message or (message.endswith(" ") and found.startswith(message))


def test_a_failing_module_is_run_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path / "utils.py", "import pathlib\nlog = pathlib.Path(__file__).with_name('log')\n")
    with (tmp_path / "utils.py").open("a") as module:
        module.write("log.write_text(log.read_text() + 'x' if log.exists() else 'x')\nraise OSError('x')\n")
    files = TaskFiles()
    before = {name for name in sys.modules if name.startswith("llmeval_tasks_") and "." in name}
    for name in "ab":
        with pytest.raises(TaskFileError, match="raised OSError: x"):
            files.read(write(tmp_path / f"{name}.yaml", TASK.format("utils.f")))
    assert (tmp_path / "log").read_text() == "x"
    assert {name for name in sys.modules if name.startswith("llmeval_tasks_") and "." in name} == before


def test_dataclasses_and_pickles_find_their_module(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\nimport pickle\nfrom dataclasses import dataclass, field\n"
        "@dataclass(slots=True)\nclass C:\n    x: list[int] = field(default_factory=list)\n"
        "def f(doc):\n    return pickle.loads(pickle.dumps(C([1]))).x\n"
    )
    write(tmp_path / "utils.py", text)
    assert prompt(write(tmp_path / "t.yaml", TASK.format("utils.f"))) == [1]


def test_every_place_of_a_function(tmp_path: Path) -> None:
    write(
        tmp_path / "utils.py",
        "def f(*args):\n    return args\nclass Picker:\n    def apply(self, r, d):\n        return r\n",
    )
    path = write(
        tmp_path / "t.yaml",
        """\
task: t
custom_dataset: !function utils.f
test_split: test
process_docs: !function utils.f
doc_to_text: !function utils.f
doc_to_target: !function utils.f
doc_to_choice: !function utils.f
fewshot_config:
  samples: !function utils.f
  process_docs: !function utils.f
  doc_to_text: !function utils.f
filter_list:
  - name: own
    filter:
      - {function: custom, filter_fn: !function utils.f}
      - function: !function utils.Picker
metric_list:
  - metric: !function utils.f
    aggregation: !function utils.f
    higher_is_better: true
""",
    )
    found = TaskFiles().read(path)
    assert isinstance(found, Task)
    f = found.custom_dataset
    assert f is not None
    shots = found.fewshot
    fields = (found.doc_to_text, found.doc_to_target, found.doc_to_choice, shots.doc_to_text)
    assert [field.function for field in fields if field] == [f] * 4
    assert [found.process_docs, shots.samples, shots.process_docs] == [f] * 3
    custom, picker = found.filters[0].steps
    assert (custom.name, custom.function, dict(custom.options)) == ("custom", f, {})
    assert (picker.name, picker.function.__name__) == ("utils.Picker", "Picker")
    (metric,) = found.metrics
    assert (metric.name, metric.aggregation.name, metric.aggregation.owned) == ("f", "f", True)
    assert metric.score is not None
    assert metric.score("a", ["b"]) == {"f": (["b", "a"],)}
    with pytest.raises(ValueError, match=r"aggregation f must return a number, got \(\[1, 2\],\)"):
        metric.aggregation([1, 2])
