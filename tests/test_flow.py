"""The rules of the house that no other test would notice: who imports whom, and what is public."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pytest_llmeval


PACKAGE = Path(pytest_llmeval.__file__).parent

#: A room imports only from rooms above it in this list; rooms on one line may not import each other.
FLOOR_PLAN = [
    {"_errors"},
    {"_task"},
    {"_settings", "_plain", "_functions", "_time_limit", "_doc", "_lm", "_results"},
    {"_template", "_fake", "_journal", "_output_types"},
    {"_scoring"},
    {"_gates"},
    {"_taskfile"},
    {"_registry"},
    {"_docs"},
    {"_prompts"},
    {"_engine", "_sandbox"},
    {"_servers"},
    {"_models"},
    {"_baselines", "_stats"},
    {"_verdicts"},
    {"_evaluation"},
    {"_report"},
    {"_session"},
    {"hookspecs"},
    {"plugin"},
]
#: Rooms that know pytest; everything else works from a plain Python prompt.
KNOW_PYTEST = {"_session", "hookspecs", "plugin"}
PLACE = {room: floor for floor, rooms in enumerate(FLOOR_PLAN) for room in rooms}


def rooms() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if room != "__init__":
            yield room, path


def imports_of(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_every_room_has_a_place() -> None:
    assert {room for room, _ in rooms()} == set(PLACE)


def test_contributing_lists_the_rooms_in_the_order_of_the_floor_plan() -> None:
    text = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.partition("| room | responsibility |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = [re.fullmatch(r"\| `(\w+)` \| (.+\.) \|", row) for row in table.splitlines()]
    assert all(rows), table
    assert [row[1] for row in rows if row] == [room for floor in FLOOR_PLAN for room in sorted(floor)]


def test_data_flows_one_way() -> None:
    wrong = []
    for room, path in rooms():
        for name in imports_of(path):
            parts = name.split(".")
            if parts[0] != "pytest_llmeval" or len(parts) < 2 or parts[1] not in PLACE or parts[1] == room:
                continue
            if PLACE[parts[1]] >= PLACE[room]:
                wrong.append(f"{path.relative_to(PACKAGE)} imports {parts[1]}")
    assert wrong == []


def test_rooms_are_entered_by_their_face() -> None:
    """`_engine` has none, because its modules load torch; `plugin` takes from `_session` only what a start needs."""
    wrong = []
    for room, path in rooms():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            parts = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            entered = parts[1] if len(parts) > 2 and parts[0] == "pytest_llmeval" else room
            if entered not in {room, "_engine"} and (room, entered) != ("plugin", "_session"):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {'.'.join(parts)}")
    assert wrong == []


def test_only_plugin_rooms_know_pytest() -> None:
    knowing = {room for room, path in rooms() if {n.split(".")[0] for n in imports_of(path)} & {"pytest", "_pytest"}}
    assert knowing <= KNOW_PYTEST


def test_torch_and_datasets_are_imported_late() -> None:
    heavy = {"torch", "transformers", "datasets", "httpx2"}
    early = {
        str(path.relative_to(PACKAGE))
        for room, path in rooms()
        if {name.split(".")[0] for name in imports_of(path, top_level_only=True)} & heavy
        and room not in {"_engine", "_models"}
    }
    assert early == set()


def test_the_plugin_alone_loads_nothing_heavy() -> None:
    code = "import sys, pytest_llmeval.plugin; print(sorted(set(sys.modules) & set(sys.argv[1:])))"
    heavy = ["torch", "transformers", "datasets", "httpx2", "numpy", "scipy", "jinja2", "yaml", "regex"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_public_names() -> None:
    assert sorted(pytest_llmeval.__all__) == sorted(set(pytest_llmeval.__all__))
    for name in pytest_llmeval.__all__:
        assert getattr(pytest_llmeval, name).__doc__, name


@pytest.mark.parametrize("room", sorted(PLACE))
def test_modules_stay_readable(room: str) -> None:
    long = [path.name for name, path in rooms() if name == room and len(path.read_text().splitlines()) > 450]
    assert long == []
