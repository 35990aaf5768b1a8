"""A served model as an `LM`: equal to the model in this process, also through servers that fail one call in five."""

from __future__ import annotations

import json
from typing import Any

import pytest
from modelserver import Remembered
from modelserver import Served
from modelserver import opened
from modelserver import starter_model

from pytest_llmeval import _models
from pytest_llmeval._doc import Instance
from pytest_llmeval._errors import ModelError
from pytest_llmeval._errors import SettingError
from pytest_llmeval._evaluation.model_calls import ask_docs
from pytest_llmeval._lm import LM
from pytest_llmeval._lm import Generation
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._models import load_model
from pytest_llmeval._models import parse_spec
from pytest_llmeval._models import wrap_model
from pytest_llmeval._models.server import ServerLM


SHOTS = "Q: 1+1?\nA: 2\n\nQ: 2+2?\nA: 4\n\n"
#: Six docs of four choices: three lettered, of one token each, and three with longer ones.
LETTERS = [(f"{SHOTS}Q: {q}?\nA:", f" {letter}") for q in ("sky", "sea", "sun") for letter in "ABCD"]
LONGER = [(f"{SHOTS}Q: {q}?\nA:", f" the {a}") for q in ("sky", "sea", "sun") for a in ("cat", "big dog", "red", "sun")]
PROMPTS = ["Once upon a time", "Q: what is 2+2?\nA:", "The capital of France is"]
FAULTS = ("drop", "limit", "garble", "error", "empty")


@pytest.fixture(scope="module")
def parts() -> tuple[Remembered, Any]:
    return starter_model()


@pytest.fixture(scope="module")
def local(parts: tuple[Remembered, Any]) -> LM:
    return wrap_model(parts[0].model, parts[1], max_length=200)


def near(found: list[Any], expected: list[Any]) -> None:
    assert [answer[1] for answer in found] == [answer[1] for answer in expected]
    assert [answer[0] for answer in found] == pytest.approx([answer[0] for answer in expected], abs=1e-4)


def posts(served: Served, since: int) -> list[dict[str, Any]]:
    return [body for _, body in served.requests[since:]]


class TestScoring:
    def test_it_equals_the_model_in_this_process(self, parts: tuple[Remembered, Any], local: LM) -> None:
        served = Served(*parts, doors=frozenset({"labels", "prompt_logprobs", "tokenize"}))
        requests = [*LETTERS, *LONGER, ("", "Once upon"), ("x " * 300, " y")]
        with opened(served, max_length=200) as lm:
            lm.prepare()
            asked = len(served.requests)
            found = lm.loglikelihood(requests)
            near(found, list(local.loglikelihood(requests)))
            assert [answer.truncated for answer in found] == [False] * 25 + [True]
            # Lettered choices are one request per doc.
            sent = posts(served, asked)
            assert len(sent) == 3 + 12 + 2
            labelled = [body["logprob_token_ids"] for body in sent if "logprob_token_ids" in body]
            assert [len(labels) for labels in labelled if len(labels) > 1] == [4, 4, 4]
            assert lm.usage() == {"tokens": sum(len(body["prompt"]) for body in sent)}

    def test_a_whole_text_is_scored_in_windows(self, parts: tuple[Remembered, Any], local: LM) -> None:
        texts = ["", "Once upon a time", "one two three " * 60]
        with opened(Served(*parts), max_length=64) as lm:
            assert lm.loglikelihood_rolling(texts) == pytest.approx(
                list(wrap_model(parts[0].model, parts[1], max_length=64).loglikelihood_rolling(texts)), abs=1e-3
            )

    def test_equal_requests_are_asked_once_and_common_beginnings_follow_each_other(
        self, parts: tuple[Remembered, Any]
    ) -> None:
        served = Served(*parts)
        with opened(served, max_concurrency=1) as lm:
            lm.prepare()
            asked = len(served.requests)
            mixed = [LONGER[i] for i in (0, 4, 8, 1, 5, 9, 0, 4)]
            answers = lm.loglikelihood(mixed)
            assert answers[0] == answers[6]
            sent = [tuple(body["prompt"]) for body in posts(served, asked)]
            assert len(sent) == 6
            assert sent == sorted(sent)
            assert served.most_under_way == 1

    def test_the_window_is_that_of_the_server(self, parts: tuple[Remembered, Any]) -> None:
        with opened(Served(*parts, window=50)) as lm:
            assert lm.max_length == 48
            found = lm.loglikelihood([("x " * 300, " y")])
            assert found[0].truncated

    def test_texts_alone_where_no_tokenizer_is_named(self, parts: tuple[Remembered, Any], local: LM) -> None:
        served = Served(*parts)
        with opened(served, tokenizer="none") as lm:
            near(lm.loglikelihood(LONGER), list(local.loglikelihood(LONGER)))
            assert {type(body["prompt"]) for body in posts(served, 0)} == {str}
            assert lm.generate_until([(PROMPTS[0], GenerationKwargs(max_gen_toks=4))])[0].finish_reason == "length"
            with pytest.raises(ModelError, match="set model argument tokenizer="):
                lm.loglikelihood([("", "text")])
            with pytest.raises(ModelError, match="set model argument tokenizer="):
                lm.loglikelihood_rolling(["text"])

    def test_progress_counts_requests(self, parts: tuple[Remembered, Any]) -> None:
        seen: list[tuple[int, int]] = []
        with opened(Served(*parts)) as lm:
            lm.on_progress = lambda done, total: seen.append((done, total))
            lm.loglikelihood([*LONGER, LONGER[0]])
        assert seen[-1] == (13, 13)
        assert seen == sorted(seen)


class TestWriting:
    @pytest.mark.parametrize("owner", ["vllm", "me"])
    def test_it_equals_the_model_in_this_process(self, owner: str, parts: tuple[Remembered, Any], local: LM) -> None:
        settings = [
            GenerationKwargs(max_gen_toks=6),
            GenerationKwargs(until=("\n", "."), max_gen_toks=12),
            GenerationKwargs(until=("<|eos|>",), max_gen_toks=3),
        ]
        requests = [(prompt, kwargs) for prompt in PROMPTS for kwargs in settings]
        with opened(Served(*parts, owner=owner), max_length=200) as lm:
            found, expected = lm.generate_until(requests), list(local.generate_until(requests))
        assert found == expected
        if owner == "vllm":
            assert [text.finish_reason for text in found] == [text.finish_reason for text in expected]

    def test_samples_of_one_prompt_have_seeds_of_their_own(self, parts: tuple[Remembered, Any]) -> None:
        served = Served(*parts)
        sampled = {"do_sample": True, "temperature": 0.5, "top_p": 0.9, "seed": 5}
        with opened(served) as lm:
            lm.prepare()
            asked = len(served.requests)
            lm.generate_until([("Q", GenerationKwargs(max_gen_toks=2, repeat=i, **sampled)) for i in (0, 1, 0)])
            lm.generate_until([("Q", GenerationKwargs(max_gen_toks=2, repeat=i)) for i in (0, 1)])
        sent = posts(served, asked)
        assert sorted(body["seed"] for body in sent[:-1]) == [5, 6]
        assert [(body["temperature"], body.get("top_p")) for body in sent] == [(0.5, 0.9), (0.5, 0.9), (0, None)]
        # Servers add penalties of their own unless they are told not to.
        assert {body["repetition_penalty"] for body in sent} == {1.0}

    def test_chats_are_sent_as_messages(self, parts: tuple[Remembered, Any]) -> None:
        served = Served(*parts)
        with opened(served, chat="true", tokenizer="") as lm:
            prompt = lm.apply_chat_template([{"role": "user", "content": "Once upon a"}], True)
            found = lm.generate_until([(prompt, GenerationKwargs(max_gen_toks=3)), ("plain", GenerationKwargs())])
            assert isinstance(found[0], Generation)
            with pytest.raises(ModelError, match="cannot continue an answer that was begun"):
                lm.apply_chat_template([{"role": "assistant", "content": "I"}], False)
            assert lm.engine_choice.facts["generation"] == "chat"
        chats = [body["messages"] for path, body in served.requests if path == "/v1/chat/completions"]
        assert {json.dumps(chat) for chat in chats} == {
            '[{"role": "user", "content": "Once upon a"}]',
            '[{"role": "user", "content": "plain"}]',
        }

    def test_the_template_of_the_tokenizer_is_put_on_here(self, parts: tuple[Remembered, Any], local: Any) -> None:
        messages = [{"role": "user", "content": "hi"}]
        with opened(Served(*parts)) as lm:
            assert lm.apply_chat_template(messages, True) == local.apply_chat_template(messages, True)


class TestFailing:
    @pytest.mark.parametrize("fault", FAULTS)
    def test_one_call_in_five_may_fail(self, fault: str, parts: tuple[Remembered, Any], local: LM) -> None:
        served = Served(*parts, failing=lambda n: fault if n % 5 == 0 else None)
        with opened(served) as lm:
            near(lm.loglikelihood(LONGER), list(local.loglikelihood(LONGER)))
            texts = [(prompt, GenerationKwargs(max_gen_toks=3)) for prompt in PROMPTS]
            assert lm.generate_until(texts) == list(local.generate_until(texts))

    def test_a_server_that_stalls_is_asked_again(self, parts: tuple[Remembered, Any], local: LM) -> None:
        served = Served(*parts)
        with opened(served, timeout=1) as lm:
            lm.prepare()
            start = len(served.requests)
            served.failing = lambda n: "stall" if n - start in (2, 7) else None
            near(lm.loglikelihood(LONGER), list(local.loglikelihood(LONGER)))
            assert len(served.requests) - start == 14

    def test_what_was_answered_before_a_server_was_lost_is_kept(self, parts: tuple[Remembered, Any], local: LM) -> None:
        served = Served(*parts)
        with opened(served, retries=2, max_concurrency=1) as lm:
            lm.prepare()
            start = len(served.requests)
            served.failing = lambda n: "error" if n - start > 9 else None
            docs = {
                doc: [Instance("loglikelihood", "t", doc, i, 0, LONGER[4 * doc + i]) for i in range(4)]
                for doc in range(3)
            }
            # Six requests fail for good while the server is up, before it counts as lost.
            answers = ask_docs(lm, docs)
            expected = list(local.loglikelihood(LONGER))
            answered = [doc for doc, (_, problem) in answers.items() if problem is None]
            assert len(answered) == 2
            for doc in answered:
                near(answers[doc][0], expected[4 * doc : 4 * doc + 4])
            (lost,) = set(docs) - set(answered)
            assert "500" in str(answers[lost][1])

    def test_a_server_that_is_lost_while_it_is_examined(self, parts: tuple[Remembered, Any]) -> None:
        served = Served(*parts, failing=lambda n: "drop" if n > 3 else None)
        with opened(served, retries=1) as lm, pytest.raises(ModelError, match=r"/tokenize: Server disconnected"):
            lm.prepare()

    def test_nobody_listens(self) -> None:
        lm = load_model(parse_spec("openai:http://127.0.0.1:9/v1#m", {"retries": "0", "tokenizer": "none"}))
        with pytest.raises(ModelError, match=r"the server at http://127.0.0.1:9 is gone: 1 attempts .* 0 requests had"):
            lm.loglikelihood([("a", " b")])

    def test_a_refused_request_costs_only_its_doc(self, parts: tuple[Remembered, Any]) -> None:
        served = Served(*parts)
        with opened(served) as lm:
            lm.prepare()
            refused = parts[1](LONGER[5][0] + LONGER[5][1])["input_ids"]
            served.refused = tuple(refused)
            docs = {
                doc: [Instance("loglikelihood", "t", doc, i, 0, LONGER[4 * doc + i]) for i in range(4)]
                for doc in range(3)
            }
            start = len(served.requests)
            answers = ask_docs(lm, docs)
            assert [problem is None for _, problem in answers.values()] == [True, False, True]
            assert "refuses the request with status 400: too long" in str(answers[1][1])
            # Nothing was asked twice.
            assert len(served.requests) - start == 12

    @pytest.mark.parametrize(
        ("name", "told"),
        [("other", "has no model 'other': it serves tiny; write openai:URL#MODEL"), ("", None)],
    )
    def test_the_model_is_looked_up(self, name: str, told: str | None, parts: tuple[Remembered, Any]) -> None:
        with opened(Served(*parts), model=name) as lm:
            if told is None:
                lm.prepare()
                return
            with pytest.raises(ModelError, match=told):
                lm.prepare()


class TestKey:
    def test_it_is_in_no_fact_error_or_log(
        self, parts: tuple[Remembered, Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        served = Served(*parts, key="sk-4711-secret")
        with caplog.at_level(1), opened(served) as lm:
            lm.loglikelihood(LONGER[:2])
            shown = f"{lm.describe()} {lm.engine_choice} {lm.fingerprint} {lm.usage()} {lm.name}"
            served.key = "sk-other"
            with pytest.raises(ModelError) as error:
                lm.loglikelihood(LONGER[2:4])
        assert "status 401" in str(error.value)
        assert "4711" not in f"{shown} {error.value!r} {caplog.text}"
        assert caplog.text

    def test_it_is_read_from_the_environment(
        self, parts: tuple[Remembered, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MY_KEY", "sk-4711-geheim\u00e4")
        spec = parse_spec("openai:http://127.0.0.1:9/v1#m", {"api_key_env": "MY_KEY", "tokenizer": "none"})
        with pytest.raises(
            SettingError, match="environment variable MY_KEY: the key has characters that cannot"
        ) as error:
            load_model(spec)
        assert "4711" not in str(error.value)


class TestFacts:
    def test_the_fingerprint_is_what_the_user_says_is_served(self, parts: tuple[Remembered, Any]) -> None:
        served = Served(*parts)
        with opened(served) as lm, opened(served, revision="r1") as one, opened(served, revision="r2") as two:
            assert lm.fingerprint is None
            assert one.fingerprint is not None
            assert one.fingerprint != two.fingerprint

    def test_result_files_name_server_and_call(self, parts: tuple[Remembered, Any], local: Any) -> None:
        with opened(Served(*parts)) as lm:
            facts = lm.describe()
            assert facts["model"]["served_model"] == "tiny"
            assert facts["model"]["served_by"] == "vllm"
            assert facts["model"]["engine"]["scoring"] == "echo"
            assert facts["chat_template"] == local.describe()["chat_template"]

    def test_a_missing_library_is_named_with_the_way_to_install_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_models, "missing_packages", lambda names: list(names))
        told = r"model 'm' at http://h needs httpx2, .*: pip install 'pytest-llmeval-harness\[server\]'"
        with pytest.raises(ModelError, match=told):
            load_model(parse_spec("openai:http://h/v1#m", {}))

    def test_a_tokenizer_that_cannot_be_loaded_must_be_named(self, parts: tuple[Remembered, Any]) -> None:
        def fail(place: str) -> Any:
            raise ModelError(f"model {place!r}: the tokenizer cannot be loaded")

        with opened(Served(*parts), tokenizer="") as lm:
            assert isinstance(lm, ServerLM)
            lm._load_tokenizer = fail
            with pytest.raises(
                ModelError, match="'nowhere/tiny' names none that can be loaded: set model argument tok"
            ):
                lm.prepare()
