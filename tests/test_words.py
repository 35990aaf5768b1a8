"""The rules for words: sentences that stand alone, plain phrases, and one home for each public class."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

import pytest_llmeval


ROOT = Path(__file__).parents[1]
PACKAGE = Path(pytest_llmeval.__file__).parent

#: Public classes and aliases that two modules may define, with the reason.
HOMONYMS: dict[str, str] = {}


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script that measures a package, which holds the rules."""
    monkeypatch.syspath_prepend(ROOT / "perf")
    return importlib.import_module("house")


@pytest.mark.parametrize("folder", [PACKAGE, ROOT / "perf"], ids=["package", "perf"])
def test_first_lines_of_docstrings_stand_alone(house: ModuleType, folder: Path) -> None:
    assert [f"{place.file}:{place.line}: {place.text}" for place in house.headless(house.read_package(folder))] == []


@pytest.mark.parametrize("folder", [PACKAGE, ROOT / "perf"], ids=["package", "perf"])
def test_discouraged_phrases_are_not_used(house: ModuleType, folder: Path) -> None:
    modules = [module for module in house.read_package(folder) if module.path.name != "house.py"]
    assert [f"{place.file}:{place.line}: {place.text}" for place in house.discouraged(modules)] == []


def test_a_public_class_has_one_home(house: ModuleType) -> None:
    homonyms = house.homonyms(house.read_package(PACKAGE))
    assert {name: list(map(str, paths)) for name, paths in homonyms.items() if name not in HOMONYMS} == {}
    assert HOMONYMS.keys() <= homonyms.keys()


def test_the_rules_find_what_they_look_for(house: ModuleType, tmp_path: Path) -> None:
    text = '"""How docs pair."""\nclass Pair:\n    """A pair is no tuple."""\n# so many docs\nPairs = list[Pair]\n'
    (tmp_path / "one.py").write_text(text, encoding="utf-8")
    (tmp_path / "two.py").write_text("class Pair:\n    pass\n", encoding="utf-8")
    modules = house.read_package(tmp_path)
    assert [(place.line, place.text) for place in house.headless(modules)] == [(1, "How docs pair.")]
    assert sorted(place.line for place in house.discouraged(modules)) == [3, 4]
    assert house.homonyms(modules) == {"Pair": [Path("one.py"), Path("two.py")]}
    assert house.longest_chain({"a": {"b"}, "b": {"c"}, "c": set(), "d": {"c"}}) == ["a", "b", "c"]
    with pytest.raises(ValueError, match="rooms import each other: a -> b -> a"):
        house.longest_chain({"a": {"b"}, "b": {"a"}})
