"""The answers to requests by key: equal requests are asked once, and answers of a call that failed are kept."""

from __future__ import annotations

from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_llmeval._engine import OnProgress
from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._servers.client import Client


@dataclass(frozen=True, slots=True)
class Ask:
    """One exchange with the server: the keys of the requests that it answers, and the call for their answers."""

    keys: Sequence[Hashable]
    send: Callable[[], Awaitable[Sequence[Any]]]


class Ledger:
    """The requests to one server.

    A caller whose call fails repeats its requests in smaller calls, to find those at fault: each then gets its answer,
    or its error, without being sent again.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        #: Answers and errors of calls that failed as a whole.
        self._kept: dict[Hashable, Any] = {}

    def answers(
        self, keys: Sequence[Any], on_progress: OnProgress, plan: Callable[[list[Any]], list[Ask]]
    ) -> list[Any]:
        """Return the answer to each key. `plan` returns the exchanges for some keys, in the order to send them.

        Raises the first error, in the order of keys, when all others are answered; GoneError as soon as the server is.
        """
        distinct = dict.fromkeys(keys)
        found = {key: self._kept.pop(key) for key in distinct if key in self._kept}
        asks = plan([key for key in distinct if key not in found])

        def note(index: int, answers: Sequence[Any]) -> None:
            found.update(zip(asks[index].keys, answers, strict=True))
            on_progress(len(found) * len(keys) // len(distinct), len(keys))

        try:
            for index, error in self._client.ask_all([ask.send for ask in asks], note):
                found.update(dict.fromkeys(asks[index].keys, error))
            for key in distinct:
                if isinstance(found[key], LLMEvalError):
                    raise found[key]
        except BaseException:
            self._kept.update(found)
            raise
        return [found[key] for key in keys]
