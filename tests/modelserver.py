"""An HTTP server on the loopback that answers as vLLM, SGLang or llama-cpp-python do, and lies or fails on demand."""

from __future__ import annotations

import asyncio
import json
import threading
import warnings
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import torch
import transformers

from pytest_llmeval._models.server import ServerLM
from pytest_llmeval._models.specs import ServerSpec
from pytest_llmeval._models.specs import parse_spec
from pytest_llmeval._servers import Client
from pytest_llmeval._servers import Clock


BLOCK = 16
STARTER = Path(__file__).parents[1] / "benchmarks/starter"


class Remembered:
    """The log-probabilities of a model, computed once for each sequence of ids."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.vocab_size = int(model.config.vocab_size)
        self._rows: dict[tuple[int, ...], torch.Tensor] = {}

    def after(self, ids: Sequence[int]) -> torch.Tensor:
        """log P(next token | ids up to a position) [positions, vocabulary]."""
        key = tuple(ids)
        if key not in self._rows:
            logits: torch.Tensor = self.model(torch.tensor([key])).logits[0].float()
            self._rows[key] = logits.log_softmax(-1)
        return self._rows[key]


def starter_model() -> tuple[Remembered, Any]:
    """Return the good model of the starter suite and its tokenizer."""
    good = STARTER / "models/good"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(good).eval()
    return Remembered(model), transformers.AutoTokenizer.from_pretrained(good)


@dataclass
class Served:
    """A served model, its protocol and its faults.

    `doors`: the ways of scoring that it knows. `lie`: the fault of its numbers or tokens. `failing`: the fault of the
    n-th POST request, called with n from 1; None for none. `refused`: the ids of a prompt that it refuses.
    """

    model: Remembered
    tokenizer: Any
    name: str = "tiny"
    owner: str = "vllm"
    doors: frozenset[str] = frozenset({"echo"})
    takes_ids: bool = True
    adds_bos: bool = False
    lie: str = ""
    key: str = ""
    window: int | None = None
    failing: Callable[[int], str | None] = lambda n: None
    refused: tuple[int, ...] = ()
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: list[tuple[int, ...]] = field(default_factory=list)

    def paths(self) -> list[str]:
        return [path for path, _ in self.requests]


class RefusalError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def serving(served: Served) -> Iterator[str]:
    """The address of a running server."""

    class Handler(_Handler):
        pass

    Handler.served = served
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=lambda: server.serve_forever(0.01), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        served.released.set()
        server.shutdown()
        server.server_close()


class NoPauses(Clock):
    """A clock whose pauses take no time; they are kept."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)


@contextmanager
def opened(served: Served, **args: object) -> Iterator[ServerLM]:
    """The model of a running server, with model arguments; `own` replaces the server's tokenizer, `model` its name."""
    own, name = args.pop("own", served.tokenizer), args.pop("model", served.name)
    texts = {"tokenizer": "own"} | {key: str(value) for key, value in args.items()}
    with serving(served) as url:
        spec = parse_spec(f"openai:{url}#{name}", {key: text for key, text in texts.items() if text})
        assert isinstance(spec, ServerSpec)

        def connect() -> Client:
            return Client(spec.root, key=served.key or None, patience=spec.args.patience, clock=NoPauses())

        lm = ServerLM(spec, connect, lambda place: own)
        try:
            yield lm
        finally:
            lm.close()


class _Handler(BaseHTTPRequestHandler):
    served: Served
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        served = self.served
        if served.key and self.headers.get("Authorization") != f"Bearer {served.key}":
            self._send(401, {"error": {"message": f"wrong key {self.headers.get('Authorization')}"}})
            return
        entry = {"id": served.name, "owned_by": served.owner, "root": "nowhere/tiny", "max_model_len": served.window}
        self._send(*((200, {"data": [entry]}) if self.path == "/v1/models" else (404, {"detail": "Not Found"})))

    def do_POST(self) -> None:
        served = self.served
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with served.lock:
            served.requests.append((self.path, body))
            fault = served.failing(len(served.requests))
            served.under_way += 1
            served.most_under_way = max(served.most_under_way, served.under_way)
        try:
            self._answer(body, fault)
        finally:
            with served.lock:
                served.under_way -= 1

    def _answer(self, body: dict[str, Any], fault: str | None) -> None:
        if fault == "drop":
            self.close_connection = True
        elif fault == "stall":
            self.served.released.wait(60)
            self.close_connection = True
        elif fault == "limit":
            self._send(429, {"error": {"message": "too many requests"}}, {"Retry-After": "7"})
        elif fault == "error":
            self._send(500, {"error": {"message": "out of memory"}})
        elif fault == "garble":
            self._send(200, '{"choices": [{"text": "abc", "logpr')
        elif fault == "empty":
            self._send(200, {"choices": []})
        elif self.served.key and self.headers.get("Authorization") != f"Bearer {self.served.key}":
            self._send(401, {"error": {"message": "no key"}})
        else:
            try:
                with self.served.lock, torch.inference_mode():
                    self._send(200, answer(self.served, self.path, body))
            except RefusalError as refusal:
                self._send(refusal.status, {"error": {"message": str(refusal)}})

    def _send(self, status: int, data: Any, headers: Mapping[str, str] | None = None) -> None:
        content = (data if isinstance(data, str) else json.dumps(data)).encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def answer(served: Served, path: str, body: dict[str, Any]) -> dict[str, Any]:
    if path == "/v1/completions":
        return completions(served, body)
    if path == "/v1/chat/completions":
        text = "".join(message["content"] for message in body["messages"])
        ids, reason = written(served, encoded(served, text), body)
        message = {"role": "assistant", "content": served.tokenizer.decode(ids, skip_special_tokens=True)}
        return {"choices": [{"message": message, "finish_reason": reason}]}
    if path == "/tokenize" and "tokenize" in served.doors:
        return {"tokens": encoded(served, body["prompt"])}
    if path == "/generate" and "generate" in served.doors:
        return sglang(served, body)
    if path == "/inference/v1/generate" and "tokens" in served.doors:
        return scale_out(served, body)
    # vLLM knows this path, and serves it only with an option.
    raise RefusalError(403 if path.startswith("/inference") and served.owner == "vllm" else 404, "Not Found")


def encoded(served: Served, text: str) -> list[int]:
    ids = list(served.tokenizer(text, add_special_tokens=False)["input_ids"])
    return [served.tokenizer.bos_token_id, *ids] if served.adds_bos else ids


def read(served: Served, prompt: Any) -> list[int]:
    """The ids that the server reads for a prompt."""
    if isinstance(prompt, str):
        ids = encoded(served, prompt)
    elif not served.takes_ids:
        raise RefusalError(422, "Input should be a valid string")
    else:
        ids = list(prompt)
    if served.refused == tuple(ids):
        raise RefusalError(400, "too long")
    if served.lie == "second bos":
        return [served.tokenizer.bos_token_id, *ids]
    if served.lie == "template":
        return [*encoded(served, "Question: "), *ids, *encoded(served, " Answer:")]
    if served.lie == "wrong ids":
        return [ids[0], *((token + 1) % len(served.tokenizer) for token in ids[1:])]
    return ids


def logprobs(served: Served, ids: Sequence[int]) -> torch.Tensor:
    """log P(next token | ids up to a position) [positions, vocabulary]."""
    return served.model.after([5]).expand(len(ids), -1) if served.lie == "deaf" else served.model.after(ids)


def rows_of(served: Served, ids: Sequence[int], n_prompt: int) -> tuple[torch.Tensor, list[float | None]]:
    """The distribution shown at each token [positions, vocabulary], and the value shown for it."""
    after = logprobs(served, ids)
    before = torch.cat([after[:1], after[:-1]])
    shown = after if served.lie == "after itself" else before
    values: list[float | None] = [None, *(float(shown[i, ids[i]]) for i in range(1, len(ids)))]
    own = range(1, n_prompt)
    for i in own:
        if served.lie == "missing":
            values[i] = None
        elif served.lie == "zero":
            values[i] = 0.0
        elif served.lie == "constant":
            values[i] = -2.5
        elif served.lie == "no context":
            values[i] = float(logprobs(served, [ids[0]])[0, ids[i]])
        elif served.lie == "clipped" and ids[i] not in shown[i].topk(20).indices.tolist():
            values[i] = -20.0
    return shown, values


def name_of(served: Served, token: int, body: Mapping[str, Any]) -> str:
    if body.get("return_tokens_as_token_ids") and served.owner == "vllm":
        return f"token_id:{token}"
    return str(served.tokenizer.decode([token]))


def written(served: Served, ids: Sequence[int], body: Mapping[str, Any]) -> tuple[list[int], str]:
    """Greedy decoding: the new ids, and the reason for their end."""
    new: list[int] = []
    stops = body.get("stop") or []
    bias = torch.zeros(served.model.vocab_size)
    for token, value in (body.get("logit_bias") or {}).items():
        if "forced" not in served.doors:
            raise RefusalError(400, "logit_bias is not supported")
        bias[int(token)] = value
    for _ in range(body.get("max_tokens") or 1):
        new.append(int((logprobs(served, [*ids, *new])[-1] + bias).argmax()))
        if new[-1] == served.tokenizer.eos_token_id:
            return new, "stop"
        if any(stop in served.tokenizer.decode(new) for stop in stops):
            return new, "stop"
    return new, "length"


def completions(served: Served, body: dict[str, Any]) -> dict[str, Any]:
    ids = read(served, body["prompt"])
    new, reason = written(served, ids, body)
    text = served.tokenizer.decode(new, skip_special_tokens=True)
    stops = [stop for stop in body.get("stop") or [] if stop in text]
    for stop in stops:
        text = text.split(stop)[0]
    choice: dict[str, Any] = {"text": text, "finish_reason": reason}
    if served.owner == "vllm":
        choice |= {"stop_reason": stops[0] if stops else None}
        if body.get("return_token_ids"):
            choice["token_ids"] = new
    echo = body.get("echo") and "echo" in served.doors
    if echo:
        choice["text"] = served.tokenizer.decode(ids, skip_special_tokens=True) + text
    if "prompt_logprobs" in body and "prompt_logprobs" in served.doors:
        choice["prompt_logprobs"] = vllm_rows(served, ids)
    if body.get("logprobs") is not None and "silent" not in served.doors:
        shown, values = rows_of(served, [*ids, *new], len(ids))
        start = 0 if echo else len(ids)
        if served.lie == "after itself":
            honest = rows_of(Served(served.model, served.tokenizer), [*ids, *new], len(ids))
            shown = torch.cat([shown[: len(ids)], honest[0][len(ids) :]])
            values = [*values[: len(ids)], *honest[1][len(ids) :]]
        # A server that puts BOS before a text does not show it.
        start = 1 if echo and served.adds_bos else start
        choice["logprobs"] = listed(served, [*ids, *new], shown, values, start, body)
    n_new = len(new)
    return {"choices": [choice], "usage": {"prompt_tokens": len(ids), "completion_tokens": n_new}}


def listed(
    served: Served,
    ids: Sequence[int],
    shown: torch.Tensor,
    values: Sequence[float | None],
    start: int,
    body: Mapping[str, Any],
) -> dict[str, Any]:
    tops: list[dict[str, float] | None] = []
    names = [name_of(served, token, body) for token in ids]
    labels = body.get("logprob_token_ids")
    if labels and "labels" not in served.doors:
        labels = None
    for i in range(start, len(ids)):
        value = values[i]
        if i == 0 or value is None:
            tops.append(None)
            continue
        chosen = labels or shown[i].topk(body["logprobs"]).indices.tolist()
        top = {name_of(served, token, body): float(shown[i, token]) for token in chosen}
        tops.append(top | {names[i]: value})
    texts = [served.tokenizer.decode([token]) for token in ids]
    shown_values = list(values[start:])
    if start < 2 and served.lie in ("early", "late"):
        early = served.lie == "early"
        shown_values, tops = ([*row[1:], None] if early else [None, *row[:-1]] for row in (shown_values, tops))
    before = 1 if served.adds_bos else 0
    return {
        "tokens": names[start:],
        "token_logprobs": shown_values,
        "top_logprobs": tops,
        "text_offset": [sum(map(len, texts[before:i])) for i in range(start, len(ids))],
    }


def vllm_rows(served: Served, ids: Sequence[int], n_cached: int = 0) -> list[dict[str, Any] | None]:
    shown, values = rows_of(served, ids, len(ids))
    rows: list[dict[str, Any] | None] = [None]
    for i in range(1, len(ids)):
        if values[i] is None:
            rows.append(None)
            continue
        rank = int((shown[i] > shown[i, ids[i]]).sum()) + 1
        # Rows of cached tokens are garbage.
        entry = {"logprob": -0.125, "rank": 1} if i < n_cached else {"logprob": values[i], "rank": rank}
        rows.append({str(ids[i]): entry})
    return rows


def scale_out(served: Served, body: dict[str, Any]) -> dict[str, Any]:
    ids, settings = read(served, body["token_ids"]), body["sampling_params"]
    n_cached = 0
    if not settings["skip_reading_prefix_cache"] and "cache" in served.doors:
        for old in served.seen:
            same = next((i for i, (a, b) in enumerate(zip(old, ids, strict=False)) if a != b), min(len(old), len(ids)))
            n_cached = max(n_cached, min(same, len(ids) - 1) // BLOCK * BLOCK)
    served.seen.append(tuple(ids))
    usage = {"prompt_tokens": len(ids), "prompt_tokens_details": {"cached_tokens": n_cached} if n_cached else None}
    return {"prompt_logprobs": vllm_rows(served, ids, n_cached), "usage": usage}


def sglang(served: Served, body: dict[str, Any]) -> dict[str, Any]:
    ids, start = read(served, body["input_ids"]), body["logprob_start_len"]
    shown, values = rows_of(served, ids, len(ids))
    entries = [[None if i == start else values[i], ids[i], None] for i in range(start, len(ids))]
    tops = [
        None if i == start else [[float(best.values), int(best.indices), None]]
        for i in range(start, len(ids))
        for best in [shown[i].max(-1)]
    ]
    meta = {"input_token_logprobs": entries, "input_top_logprobs": tops, "prompt_tokens": len(ids), "cached_tokens": 0}
    return {"text": "", "meta_info": meta}
