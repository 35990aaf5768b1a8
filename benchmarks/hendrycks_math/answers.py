r"""Answers of MATH: the one in a solution, the one in a model's text, and when two of them are equal.

The rules are the data set's own (Hendrycks et al. 2021, appendix, and their published `math_equivalence`): two answers
are equal if their LaTeX is, once differences that do not change the value have been written one way. So ``\tfrac12``,
``1/2`` and ``0.5`` are all ``\frac{1}{2}``, but ``\frac{2}{4}`` is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from collections.abc import Sequence


#: Replaced one after another, before anything else is looked at.
SPELLINGS = [
    ("\n", ""),
    (r"\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    (r"\left", ""),
    (r"\right", ""),
    (r"^{\circ}", ""),
    (r"^\circ", ""),
    (r"\$", ""),
]

#: Stands before a unit at the right end, as in ``5\text{ cm}``.
UNIT = r"\text{ "


def gold(doc: Mapping[str, str]) -> str:
    """The content of the last box of the doc's solution."""
    return boxed(doc["solution"])


def score(doc: Mapping[str, str], results: Sequence[str]) -> dict[str, int]:
    return {"exact_match": int(equal(written(results[0]), gold(doc)))}


def written(text: str) -> str:
    """What stands between the first and the last dollar sign, or the whole text if there are no two of them."""
    first, last = text.find("$"), text.rfind("$")
    return text[first + 1 : last] if first < last else text


def boxed(solution: str) -> str:
    r"""The content of the last ``\boxed{...}``, ``\boxed ...$`` or ``\fbox{...}``.

    Raises ValueError if there is none.
    """
    if r"\boxed " in solution:
        return solution.rsplit(r"\boxed ", 1)[1].split("$")[0]
    for box in (r"\boxed{", r"\fbox{"):
        _, found, content = solution.rpartition(box)
        if found:
            return content[: _closing_brace(content)]
    raise ValueError(f"no boxed answer in the solution {solution!r}")


def _closing_brace(content: str) -> int:
    """Where the brace stands that closes the one just before the content."""
    depth = 1
    for brace in re.finditer("[{}]", content):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return brace.start()
    raise ValueError(f"the box is not closed in {content!r}")


def equal(answer: str, other: str) -> bool:
    """Equal in the one spelling, or as they stand if one of them cannot be brought into it."""
    try:
        return one_spelling(answer) == one_spelling(other)
    except ValueError:
        return answer == other


def one_spelling(answer: str) -> str:
    """The answer with all that does not matter written one way. Raises ValueError if the rules do not fit it."""
    for old, new in SPELLINGS:
        answer = answer.replace(old, new)
    # Twice, as there: what one pass takes away may leave another sign of percent.
    answer = _without_unit(answer).replace(r"\%", "").replace(r"\%", "")
    answer = answer.replace(" .", " 0.").replace("{.", "{0.")
    if answer.startswith("."):
        answer = "0" + answer
    answer = _with_root_braces(_right_side(answer)).replace(" ", "")
    answer = _with_fraction_braces(answer)
    return _as_fraction(r"\frac{1}{2}" if answer == "0.5" else answer)


def _without_unit(answer: str) -> str:
    value, *units = answer.split(UNIT)
    if len(units) > 1:
        raise ValueError(f"more than one unit in {answer!r}")
    return value


def _right_side(answer: str) -> str:
    """``5`` of ``x = 5``: of one equation whose left side is no longer than a name and a blank."""
    left, *right = answer.split("=")
    return right[0] if len(right) == 1 and len(left) <= 2 else answer


def _with_root_braces(answer: str) -> str:
    r"""``\sqrt3`` becomes ``\sqrt{3}``: without braces the root is of one character."""
    head, *roots = answer.split(r"\sqrt")
    return r"\sqrt".join([head, *(_braced(root) for root in roots)])


def _with_fraction_braces(answer: str) -> str:
    r"""``\frac12`` and ``\frac1{2}`` become ``\frac{1}{2}``; an answer in which nothing stands under a line stays."""
    head, *fractions = answer.split(r"\frac")
    braced = [head]
    for fraction in fractions:
        if len(fraction) == 1 and fraction != "{":
            return answer
        braced.append(fraction if fraction.startswith("{") else _braced(fraction[:1]) + _braced(fraction[1:]))
    return r"\frac".join(braced)


def _braced(argument: str) -> str:
    """The text with its first character in braces, unless it starts with one."""
    if not argument:
        raise ValueError("a command without its argument")
    return argument if argument.startswith("{") else f"{{{argument[0]}}}{argument[1:]}"


def _as_fraction(answer: str) -> str:
    r"""``3/4`` becomes ``\frac{3}{4}``; other quotients than those of two plain integers do not."""
    numbers = answer.split("/")
    if len(numbers) != 2:
        return answer
    over, under = (int(number) for number in numbers)
    return rf"\frac{{{over}}}{{{under}}}" if answer == f"{over}/{under}" else answer
