"""Requests to servers that fail: attempts, pauses, concurrency, secrets. The time of pauses is a counter."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx2
import pytest

from pytest_llmeval._errors import LLMEvalError
from pytest_llmeval._errors import ModelError
from pytest_llmeval._servers import Client
from pytest_llmeval._servers import Clock
from pytest_llmeval._servers import GoneError
from pytest_llmeval._servers import Patience
from pytest_llmeval._servers import RefusedError
from pytest_llmeval._servers.client import AbsentError
from pytest_llmeval._servers.pace import SLOW
from pytest_llmeval._servers.pace import Pace
from pytest_llmeval._servers.pace import Pauses


KEY = "sk-never-shown-4711"


class Counter(Clock):
    """A clock that moves only by pauses."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def now(self) -> float:
        return sum(self.pauses)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


ClientOf = Callable[..., tuple[Client, Counter]]


@pytest.fixture
def client_of() -> Iterator[ClientOf]:
    """Makes a client of a server whose n-th answer is `answers(n, request)`: a status, JSON, or an exception."""
    with ExitStack() as stack:

        def make(answers: Callable[[int, httpx2.Request], Any], **patience: Any) -> tuple[Client, Counter]:
            clock, seen = Counter(), []

            def handle(request: httpx2.Request) -> httpx2.Response:
                seen.append(request)
                answer = answers(len(seen), request)
                if isinstance(answer, Exception):
                    raise answer
                if isinstance(answer, httpx2.Response):
                    return answer
                return httpx2.Response(answer) if isinstance(answer, int) else httpx2.Response(200, json=answer)

            client = Client(
                "http://h:1",
                key=KEY,
                patience=Patience(**patience),
                clock=clock,
                draw=lambda: 1.0,
                transport=httpx2.MockTransport(handle),
            )
            stack.callback(client.close)
            return client, clock

        yield make


def value(data: Any) -> int:
    if "value" not in data:
        raise AbsentError("the answer has no value")
    return int(data["value"])


def post(client: Client, *, trial: bool = False) -> int:
    return client.run(client.post("/v1/x", {"a": 1}, value, trial=trial))


@pytest.mark.parametrize(
    "fault",
    [
        httpx2.ConnectError("refused"),
        httpx2.ReadTimeout("slow"),
        httpx2.RemoteProtocolError("disconnected"),
        429,
        500,
        503,
        httpx2.Response(200, content=b'{"val'),
        {"other": 1},
    ],
    ids=str,
)
def test_a_passing_fault_is_tried_again(client_of: ClientOf, fault: Any) -> None:
    client, clock = client_of(lambda n, _: fault if n <= 3 else {"value": 7})
    assert post(client) == 7
    assert clock.pauses == [0.5, 1.0, 2.0]


def test_a_server_may_ask_for_a_longer_pause_up_to_a_bound(client_of: ClientOf) -> None:
    busy = [httpx2.Response(429, headers={"Retry-After": "7"}), httpx2.Response(503, headers={"Retry-After": "9999"})]
    client, clock = client_of(lambda n, _: busy[n - 1] if n <= 2 else {"value": 7})
    assert post(client) == 7
    assert clock.pauses == [7.0, 120.0]


def test_pauses_double_up_to_a_bound_and_vary_by_half() -> None:
    assert [Pauses(lambda: 1.0).before(n) for n in (1, 2, 3, 7, 50)] == [0.5, 1.0, 2.0, 30.0, 30.0]
    assert [Pauses(lambda: 0.0).before(n) for n in (1, 2, 3, 7, 50)] == [0.25, 0.5, 1.0, 15.0, 15.0]


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_not_repeated(client_of: ClientOf, status: int) -> None:
    client, clock = client_of(lambda n, _: httpx2.Response(status, json={"error": {"message": "too long"}}))
    with pytest.raises(RefusedError, match=rf"/v1/x refuses the request with status {status}: too long") as error:
        post(client)
    assert error.value.status == status
    assert clock.pauses == []


def test_a_server_that_is_gone_is_named_with_what_it_answered_and_asked_no_more(client_of: ClientOf) -> None:
    calls: list[int] = []

    def answer(n: int, request: Any) -> Any:
        calls.append(n)
        return {"value": 7} if n == 1 else httpx2.ConnectError("Connection refused")

    client, clock = client_of(answer, retries=3)
    assert post(client) == 7
    told = (
        "the server at http://h:1 is gone: 4 attempts in 4 s failed, the last with Connection refused; 1 requests had"
    )
    with pytest.raises(GoneError, match=told):
        post(client)
    assert clock.pauses == [0.5, 1.0, 2.0]
    with pytest.raises(GoneError, match=told):
        post(client)
    # The sixth asks for the list of models, in case only these requests fail.
    assert calls == [1, 2, 3, 4, 5, 6]


def test_a_request_that_fails_while_the_server_is_up_is_at_fault_itself(client_of: ClientOf) -> None:
    def answer(n: int, request: httpx2.Request) -> Any:
        if request.method == "GET":
            return {"data": []}
        return 500 if json.loads(request.content)["a"] == 3 else {"value": 7}

    client, _ = client_of(answer, retries=2, most=2)
    answers: dict[int, int] = {}

    def ask(a: int) -> Callable[[], Awaitable[int]]:
        return lambda: client.post("/v1/x", {"a": a}, value)

    failed = client.ask_all([ask(a) for a in range(20)], answers.__setitem__)
    assert answers == {a: 7 for a in range(20) if a != 3}
    assert [(index, str(error)) for index, error in failed] == [(3, "http://h:1/v1/x answers status 500: no reason")]


def test_a_server_that_is_up_but_fails_each_request_is_gone(client_of: ClientOf) -> None:
    client, _ = client_of(lambda n, request: {"data": []} if request.method == "GET" else 500, retries=0)
    for kind in (RefusedError, RefusedError, GoneError, GoneError):
        with pytest.raises(kind):
            post(client)


def test_a_call_that_a_server_does_not_know_is_given_up_at_once_in_a_trial(client_of: ClientOf) -> None:
    client, clock = client_of(lambda n, _: {"other": 1})
    with pytest.raises(AbsentError, match="http://h:1/v1/x: the answer has no value"):
        post(client, trial=True)
    assert clock.pauses == []
    client, clock = client_of(lambda n, _: 500 if n < 4 else {"value": 7})
    assert post(client, trial=True) == 7
    assert clock.pauses == [0.5, 1.0, 2.0]


def test_the_key_is_sent_and_never_shown(client_of: ClientOf, caplog: pytest.LogCaptureFixture) -> None:
    sent: list[str] = []

    def answer(n: int, request: httpx2.Request) -> Any:
        sent.append(request.headers["Authorization"])
        if n == 1:
            return {"value": 1}
        return httpx2.Response(401, json={"error": {"message": f"Bearer {KEY} is not valid"}})

    client, _ = client_of(answer)
    with caplog.at_level(1):
        assert post(client) == 1
        with pytest.raises(RefusedError) as error:
            post(client)
    assert sent == [f"Bearer {KEY}"] * 2
    assert "Bearer *** is not valid (the key is read from the environment" in str(error.value)
    assert KEY not in f"{error.value!r} {caplog.text} {error.getrepr(showlocals=False)}"


def test_a_running_event_loop_is_named_as_the_reason(client_of: ClientOf) -> None:
    client, _ = client_of(lambda n, _: {"value": 7})

    async def inside() -> None:
        with pytest.raises(ModelError, match="cannot be asked inside an event loop"):
            post(client)

    asyncio.run(inside())


def test_requests_begin_in_their_order_within_the_limit(client_of: ClientOf) -> None:
    begun: list[int] = []
    under_way = most = 0
    client, _ = client_of(lambda n, _: {"value": 0}, most=3)

    def ask(a: int) -> Callable[[], Awaitable[int]]:
        async def send() -> int:
            nonlocal under_way, most
            begun.append(a)
            under_way += 1
            most = max(most, under_way)
            await client.post("/v1/x", {"a": a}, value)
            await asyncio.sleep(0)
            under_way -= 1
            return a

        return send

    answers: dict[int, int] = {}
    assert client.ask_all([ask(a) for a in range(30)], answers.__setitem__) == []
    assert begun == list(range(30))
    assert most == 3
    assert answers == {a: a for a in range(30)}


def test_an_interrupted_call_ends_the_others(client_of: ClientOf) -> None:
    client, _ = client_of(lambda n, _: {"value": 0})
    ended: list[bool] = []

    async def endless() -> int:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)
        return 0

    async def lost() -> int:
        raise GoneError("gone")

    with pytest.raises(GoneError):
        client.ask_all([endless, endless, lost], lambda index, answer: None)
    assert ended == [True, True]


class TestPace:
    def test_it_grows_with_answers_up_to_the_bound(self) -> None:
        pace = Pace(16)
        limits = []
        for _ in range(20):
            pace.answered(1.0)
            limits.append(pace.limit)
        assert limits[:4] == [5, 6, 7, 8]
        assert limits[-1] == 16

    def test_a_busy_server_halves_it_once_for_all_that_was_under_way(self) -> None:
        pace = Pace(64)
        for _ in range(12):
            pace.answered(1.0)
        assert pace.limit == 16
        marks = [pace.sent() for _ in range(5)]
        for mark in marks:
            pace.overloaded(mark)
        assert pace.limit == 8
        pace.overloaded(pace.sent())
        assert pace.limit == 4
        # From now on it grows by one in as many answers as the limit.
        for _ in range(4):
            pace.answered(1.0)
        assert pace.limit == 4
        pace.answered(1.0)
        assert pace.limit == 5

    def test_it_is_never_below_one(self) -> None:
        pace = Pace(64)
        for _ in range(10):
            pace.overloaded(pace.sent())
        assert pace.limit == 1

    def test_answers_that_wait_in_a_queue_hold_it(self) -> None:
        pace = Pace(64)
        for _ in range(4):
            pace.answered(1.0)
        assert pace.limit == 8
        for _ in range(40):
            pace.answered(2 * SLOW)
        held = pace.limit
        assert held < 16
        pace.begin()
        for _ in range(100):
            pace.answered(2 * SLOW)
        assert pace.limit > held


def test_errors_are_those_of_the_package() -> None:
    assert issubclass(GoneError, LLMEvalError)
