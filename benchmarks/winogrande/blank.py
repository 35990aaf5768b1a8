"""A WinoGrande sentence, cut at its blank "_".

sentence "Ann thanked Eve because _ had helped.", options "Ann" and "Eve", answer "2"
filled_beginnings  ["Ann thanked Eve because Ann", "Ann thanked Eve because Eve"]
ending             "had helped."
right_option       1
"""

from __future__ import annotations

from collections.abc import Mapping


def right_option(doc: Mapping[str, str]) -> int:
    return int(doc["answer"]) - 1


def filled_beginnings(doc: Mapping[str, str]) -> list[str]:
    beginning, _, _ = doc["sentence"].partition("_")
    return [beginning + doc["option1"], beginning + doc["option2"]]


def ending(doc: Mapping[str, str]) -> str:
    _, _, rest = doc["sentence"].partition("_")
    return rest.strip()
