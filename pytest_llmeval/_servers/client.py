"""HTTP requests to a server that may be slow, busy or broken: retries, time-outs, concurrency, and what is secret.

Only this module knows the HTTP library (httpx2), which is imported when a client is made.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Coroutine
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from typing import TypeVar

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import ModelError
from pytest_llmeval._servers.pace import Clock
from pytest_llmeval._servers.pace import Pace
from pytest_llmeval._servers.pace import Pauses


T = TypeVar("T")

#: Seconds to open a connection.
CONNECT_SECONDS = 10.0
#: Seconds for the list of models.
LIST_SECONDS = 60.0
#: Statuses after which the same request may succeed; those of `BUSY` say that the server has too much to do.
BUSY = frozenset({429, 503, 529})
PASSING = BUSY | {408, 409, 425, 500, 502, 504}
#: Attempts after the first for a request that the server may not know.
TRIAL_RETRIES = 3
#: The list of models, which also shows that a server is up.
MODELS = "/v1/models"
#: The number of requests in succession that fail for good while the server is up, after which it counts as gone.
MOST_FAILURES = 3
#: The most characters of a server's message that are shown.
SHOWN = 300


class RefusedError(ModelError):
    """The server refuses a request, so that another attempt is of no use; `status` is its HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class UnfitError(ModelError):
    """An answer of a server cannot be read: it is not JSON, or has another form, or values that cannot be."""


class AbsentError(UnfitError):
    """A complete answer lacks a field: the server does not know what it was asked for."""


class GoneError(ModelError):
    """The server has stopped answering; nothing more is sent to it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """The limits of waiting: `timeout` in seconds per attempt, `retries` after the first attempt.

    `most` is the largest number of requests under way.
    """

    timeout: float = 600.0
    retries: int = 8
    most: int = 64


class Client:
    """Requests to the server at `root`, without ``/v1``.

    `key` is sent as a bearer token and is removed from every message. `transport` replaces the network, and `clock` and
    `draw` (random numbers from 0 to 1) the time and jitter, in tests. The methods must not be called while an event
    loop runs in the same thread.
    """

    def __init__(
        self,
        root: str,
        *,
        key: str | None = None,
        patience: Patience | None = None,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
        transport: Any = None,
    ) -> None:
        import httpx2

        self.root = root
        self.patience = patience or Patience()
        self.pace = Pace(self.patience.most)
        self._clock = clock or Clock()
        self._pauses = Pauses(draw)
        self._key = key
        self._lost: GoneError | None = None
        self._answers = 0
        #: The number of requests that failed for good since the last answer, and the number of answers before them.
        self._failures, self._answers_then = 0, 0
        self._runner = asyncio.Runner()
        self._http = httpx2.AsyncClient(
            base_url=root,
            headers={} if key is None else {"Authorization": f"Bearer {key}"},
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=self.patience.most),
            # Reading the certificates takes 60 ms, which an address without encryption does not need.
            verify=root.startswith("https:"),
            transport=transport,
        )
        self._timeout: Callable[[float], Any] = lambda seconds: httpx2.Timeout(
            seconds, connect=min(CONNECT_SECONDS, seconds)
        )
        #: Errors of the network, of which another attempt may be free.
        self._network_errors = (httpx2.TransportError, httpx2.DecodingError)
        self._timeouts = httpx2.TimeoutException

    def run(self, asked: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine that uses `post` or `get`. Raises ModelError in a running event loop."""
        if _loop_runs():
            asked.close()
            raise ModelError(f"the server at {self.root} cannot be asked inside an event loop: call the model outside")
        return self._runner.run(asked)

    def ask_all(
        self, asked: Sequence[Callable[[], Awaitable[T]]], note: Callable[[int, T], None]
    ) -> list[tuple[int, LLMEvalError]]:
        """Await each of `asked`, begun in this order, as many at a time as the server bears; return those that fail.

        `note` is called with the index and the answer of each as it comes. Raises GoneError as soon as the server is
        lost; the other errors are returned with their indices when all others have been answered.
        """
        return self.run(self._ask_all(asked, note))

    def close(self) -> None:
        """Close all connections."""
        # Inside another event loop the connections stay open until the process ends.
        if not _loop_runs():
            self._runner.run(self._http.aclose())
            self._runner.close()

    async def get(self, path: str) -> Any:
        """Return the JSON at a path. Raises ModelError as `post` does."""
        return await self._ask("GET", path, None, lambda data: data, trial=False)

    async def post(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T], *, trial: bool = False) -> T:
        """Return `read` of the JSON that answers `body`.

        Lost connections, time-outs, busy or failing servers and answers for which `read` raises UnfitError are tried
        again, after a pause. Raises RefusedError for other statuses. After the last attempt raises the error of that
        attempt if the server still answers others, else GoneError. `trial`: the server may not know such requests, so
        there are few attempts, and the error is never GoneError.
        """
        return await self._ask("POST", path, body, read, trial=trial)

    async def _ask_all(
        self, asked: Sequence[Callable[[], Awaitable[T]]], note: Callable[[int, T], None]
    ) -> list[tuple[int, LLMEvalError]]:
        self.pace.begin()
        waiting = iter(enumerate(asked))
        running: dict[asyncio.Future[T], int] = {}
        failed: list[tuple[int, LLMEvalError]] = []
        more, gone = True, None
        try:
            while True:
                while more and len(running) < self.pace.limit:
                    index, ask = next(waiting, (-1, None))
                    if ask is None:
                        more = False
                        break
                    running[asyncio.ensure_future(ask())] = index
                if not running:
                    return sorted(failed, key=lambda pair: pair[0])
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    index = running.pop(task)
                    try:
                        note(index, task.result())
                    except GoneError as error:
                        gone = error
                    except LLMEvalError as error:
                        failed.append((index, error))
                if gone is not None:
                    raise gone
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None, read: Callable[[Any], T], *, trial: bool
    ) -> T:
        retries = min(TRIAL_RETRIES, self.patience.retries) if trial else self.patience.retries
        seconds = self.patience.timeout if method == "POST" else min(LIST_SECONDS, self.patience.timeout)
        timeout = self._timeout(seconds)
        started, before = self._clock.now(), self._answers
        attempt, seen = 0, ""
        while True:
            if self._lost is not None:
                raise self._lost
            mark, sent, asked = self.pace.sent(), self._clock.now(), None
            error: ModelError
            try:
                response = await self._http.request(method, path, json=body, timeout=timeout)
            except self._network_errors as fault:
                slow = isinstance(fault, self._timeouts)
                seen = f"no answer within {seconds:g} s" if slow else self._clean(fault)
                error = ModelError(f"{self.root}{path}: {seen}")
                self.pace.overloaded(mark)
            else:
                if response.status_code in PASSING:
                    seen = f"status {response.status_code}: {self._message(response)}"
                    error = RefusedError(response.status_code, f"{self.root}{path} answers {seen}")
                    asked = _seconds(response.headers.get("retry-after"))
                    if response.status_code in BUSY:
                        self.pace.overloaded(mark)
                elif not response.is_success:
                    raise RefusedError(
                        response.status_code,
                        f"{self.root}{path} refuses the request with status {response.status_code}: "
                        f"{self._message(response)}{self._advice(response.status_code)}",
                    )
                else:
                    try:
                        answer = _read(response.content, read)
                    except UnfitError as fault:
                        seen = self._clean(fault)
                        error = type(fault)(f"{self.root}{path}: {seen}")
                    else:
                        self._answers += 1
                        self.pace.answered(self._clock.now() - sent)
                        return answer
            if attempt == retries or (trial and isinstance(error, AbsentError)):
                if trial or self._answers > before or await self._is_up():
                    raise error
                self._lost = GoneError(
                    f"the server at {self.root} is gone: {attempt + 1} attempts in "
                    f"{self._clock.now() - started:.0f} s failed, the last with {seen}; {self._answers} requests had "
                    "been answered. Start it again and repeat the run (model arguments retries and timeout: more "
                    "patience)"
                )
                raise self._lost
            attempt += 1
            await self._clock.sleep(self._pauses.before(attempt, asked))

    async def _is_up(self) -> bool:
        """Return True if the server answers at all, and has answered since the last requests that failed for good."""
        self._failures = self._failures + 1 if self._answers == self._answers_then else 1
        self._answers_then = self._answers
        if self._failures == MOST_FAILURES:
            return False
        try:
            response = await self._http.get(MODELS, timeout=CONNECT_SECONDS)
        except self._network_errors:
            return False
        return bool(response.status_code < 500)

    def _advice(self, status: int) -> str:
        if status in (401, 403):
            return " (the key is read from the environment, see model argument api_key_env)"
        return ""

    def _message(self, response: Any) -> str:
        """Return the reason that a server gives, in one short line without the key."""
        try:
            told = json.loads(response.content)
            error = told.get("error", told)
            text = error.get("message") or error.get("detail") or told if isinstance(error, dict) else error
        except (ValueError, AttributeError):
            text = response.text
        return self._clean(text) or "no reason"

    def _clean(self, shown: Any) -> str:
        text = " ".join(str(shown).split()) or (type(shown).__name__ if isinstance(shown, Exception) else "")
        if self._key:
            text = text.replace(self._key, "***")
        return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def closes(error: ModelError) -> bool:
    """Return True if an error of a trial shows that the server does not serve such requests.

    Other errors concern the server as a whole: it is gone, or refuses the key. vLLM answers 403 to calls that need an
    option of its own.
    """
    return isinstance(error, UnfitError) or (isinstance(error, RefusedError) and error.status != 401)


def denies(error: ModelError) -> bool:
    """Return True if the server refuses the key, for a request that all servers serve."""
    return isinstance(error, RefusedError) and error.status in (401, 403)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _read(content: bytes, read: Callable[[Any], T]) -> T:
    """Return `read` of JSON. Raises UnfitError if it is not JSON, or has another form than `read` expects."""
    try:
        data = json.loads(content)
    except ValueError:
        raise UnfitError("the answer is not JSON, or is cut off") from None
    try:
        return read(data)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise UnfitError(f"the answer has an unexpected form ({type(error).__name__}: {error})") from None


def _seconds(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header; None without one, or if it is a date."""
    try:
        return None if text is None else max(0.0, float(text))
    except ValueError:
        return None
