"""The turns of a prompt, written as plain text or as the messages of a chat.

The rules are those of lm-evaluation-harness 0.4.13. In plain text every turn is followed by its delimiter (the
target delimiter after a question, the few-shot delimiter after an answer); in a chat the template separates the
turns, and delimiters remain only inside a user message that contains several turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a prompt; `delimiter` follows it in plain text."""

    role: Literal["system", "user", "assistant"]
    content: str
    delimiter: str = ""


def system_turn(system: str | None, description: str, delimiter: str) -> tuple[Turn, ...]:
    """Return the system text of the run and the task's description as one turn; no turn if both are empty."""
    content = _joined(system or "", description, delimiter)
    return (Turn("system", content),) if content else ()


def question_turns(question: str, gen_prefix: str, target_delimiter: str) -> tuple[Turn, ...]:
    """Return the turns of the evaluated doc; with a `gen_prefix`, they end with the beginning of the reply."""
    if not gen_prefix:
        return (Turn("user", question),)
    return (Turn("user", question, _between(question, gen_prefix, target_delimiter)), Turn("assistant", gen_prefix))


def example_turns(
    question: str, answer: str, gen_prefix: str, target_delimiter: str, fewshot_delimiter: str
) -> tuple[Turn, ...]:
    """Return the turns of a solved example. Without an answer it ends after the question, as in lm_eval."""
    if not answer:
        return question_turns(question, gen_prefix, target_delimiter)
    delimiter = _between(question, gen_prefix, target_delimiter) if gen_prefix else target_delimiter
    reply = _joined(gen_prefix, answer, " ")
    return (Turn("user", question, delimiter), Turn("assistant", reply, fewshot_delimiter))


def plain_text(turns: Sequence[Turn]) -> str:
    """Return the prompt without a chat template."""
    return "".join(turn.content + turn.delimiter for turn in turns)


def chat_messages(turns: Sequence[Turn], multiturn: bool) -> list[dict[str, str]]:
    """Return the prompt as chat messages: one per turn, or one user message of all examples and the question."""
    if not multiturn:
        head = turns[:1] if turns[0].role == "system" else ()
        tail = turns[-1:] if turns[-1].role == "assistant" else ()
        asked = turns[len(head) : len(turns) - len(tail)]
        turns = (*head, Turn("user", plain_text(asked[:-1]) + asked[-1].content), *tail)
    return [{"role": turn.role, "content": turn.content} for turn in turns]


def ends_with_space(text: str) -> bool:
    return text[-1:].isspace()


def _joined(first: str, second: str, delimiter: str) -> str:
    """Return both texts, with the delimiter between them unless one is empty or has white space where they meet."""
    return first + (_between(first, second, delimiter) if first and second else "") + second


def _between(first: str, second: str, delimiter: str) -> str:
    return "" if not first or ends_with_space(first) or second[:1].isspace() else delimiter
