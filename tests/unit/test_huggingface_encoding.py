"""How texts become token ids: nothing lost, nothing added, BOS once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tablemodels as tables
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from tablemodels import BOS
from tablemodels import EOS
from tablemodels import NO
from tablemodels import YES
from tablemodels import A
from tablemodels import Q
from tablemodels import X

from pytest_llmeval._engine import RequestError
from pytest_llmeval._engine import TokenRequest
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._models import TextEncoder
from pytest_llmeval._models import wrap_model


def encode(tokenizer: Any, context: str, continuation: str, **args: Any) -> TokenRequest:
    return TextEncoder(tokenizer, 600, **args).pairs([(context, continuation)])[0]


def prompt(tokenizer: Any, text: str, **args: Any) -> tuple[int, ...]:
    return TextEncoder(tokenizer, 600, **args).prompts([(text, GenerationKwargs())])[0].ids


class TestBos:
    """A tokenizer that adds BOS by itself, and texts that begin with it already."""

    tokenizer = tables.words(auto_bos=True)

    @pytest.mark.parametrize("context", ["Q x A", "<s> Q x A\n", "<s>  Q x A "])
    @pytest.mark.parametrize(("choice", "scored"), [("yes", YES), ("no", NO)])
    def test_it_stands_once_and_in_front(self, context: str, choice: str, scored: int) -> None:
        assert encode(self.tokenizer, context, " " + choice) == TokenRequest((BOS, Q, X, A), (scored,))
        assert prompt(self.tokenizer, context) == (BOS, Q, X, A)

    def test_scores_are_those_of_the_table(self) -> None:
        lm = wrap_model(tables.bigram(), self.tokenizer)
        answers = lm.loglikelihood([("Q x A", " yes"), ("Q x A", " no"), ("<s> Q x A\n", "yes")])
        assert [answer[0] for answer in answers] == pytest.approx([-0.693147, -1.203973, -0.693147], abs=1e-4)
        assert [answer[1] for answer in answers] == [True, False, True]

    def test_rolling_predicts_from_it_and_never_it(self) -> None:
        lm = wrap_model(tables.bigram(), self.tokenizer)
        assert lm.loglikelihood_rolling(["Q x A", "<s> Q x A"]) == pytest.approx([-2.813411] * 2, abs=1e-4)

    def test_a_tokenizer_that_adds_none_gets_none(self) -> None:
        assert encode(tables.words(), "Q x A", " yes").context_ids == (Q, X, A)
        assert prompt(tables.words(), "Q x A") == (Q, X, A)

    def test_a_context_of_nothing_is_bos(self) -> None:
        for tokenizer in (self.tokenizer, tables.words()):
            for context in ("", " \n"):
                assert encode(tokenizer, context, "yes") == TokenRequest((BOS,), (YES,))
        assert encode(self.tokenizer, "", "<s> yes") == TokenRequest((BOS,), (YES,))

    def test_the_user_may_decide(self) -> None:
        assert encode(self.tokenizer, "Q x A", " yes", add_bos_token=False).context_ids == (Q, X, A)
        assert encode(tables.words(), "Q x A", " yes", add_bos_token=True).context_ids == (BOS, Q, X, A)
        assert encode(tables.words(), "<s> Q", " yes", add_bos_token=True).context_ids == (BOS, Q)
        assert encode(self.tokenizer, "", "yes", prefix_token_id=X).context_ids == (X,)

    def test_eos_behind_a_text_is_left_out(self) -> None:
        tokenizer = tables.words(auto_bos=True, auto_eos=True)
        assert encode(tokenizer, "Q x A", " yes no") == TokenRequest((BOS, Q, X, A), (YES, NO))
        assert prompt(tokenizer, "Q x A") == (BOS, Q, X, A)
        assert TextEncoder(tokenizer, 600).rolling(["Q x"]) == [[TokenRequest((BOS,), (Q, X))]]
        assert prompt(tables.words(auto_eos=True), "Q x A") == (Q, X, A)

    def test_without_bos_eos_stands_in(self) -> None:
        assert encode(tables.words(bos=False), "", "yes") == TokenRequest((EOS,), (YES,))

    def test_with_neither_the_error_says_what_to_do(self) -> None:
        tokenizer = tables.words(bos=False)
        tokenizer.eos_token = None
        with pytest.raises(ModelError, match=r"neither BOS nor EOS.*prefix_token_id=N"):
            encode(tokenizer, "", "yes")


class TestBorder:
    """Where a context ends and its continuation begins."""

    @pytest.mark.parametrize(("context", "rest", "scored"), [("Q A", " yes", 15), ("Q A", " no", 17), ("", "yes", 15)])
    def test_no_stray_blank_in_sentencepiece(self, context: str, rest: str, scored: int) -> None:
        request = encode(tables.sentencepiece_like(), context, rest)
        assert request == TokenRequest((11, 12) if context else (1,), (scored,))
        lm = wrap_model(tables.uniform(18), tables.sentencepiece_like())
        assert lm.loglikelihood([(context, rest)])[0][0] == pytest.approx(-math.log(18), abs=1e-4)

    @pytest.mark.parametrize(
        ("context", "rest", "left", "right"),
        [
            ("Ans", "wer", (11,), (13,)),
            ("An", "swer x", (10,), (4, 13, 15)),
            ("Ans", " x", (11,), (15,)),
            ("An", " x", (10,), (15,)),
            ("An", "swer", (10,), (4, 13)),
        ],
    )
    def test_a_token_over_the_border_costs_no_letter(
        self, context: str, rest: str, left: tuple[int, ...], right: tuple[int, ...]
    ) -> None:
        assert encode(tables.merging(), context, rest) == TokenRequest(left, right)
        lm = wrap_model(tables.uniform(16), tables.merging())
        assert lm.loglikelihood([(context, rest)])[0][0] == pytest.approx(-math.log(16) * len(right), abs=1e-4)

    def test_a_word_that_goes_on_is_no_new_word(self) -> None:
        # `▁` + `yes` is one token of the joined text, and `yes` by itself would be written ` yes`.
        request = encode(tables.sentencepiece_like(), "Q ", "yes")
        assert request == TokenRequest((11,), (15,))
        request = encode(tables.sentencepiece_like(), "Q ye", "s")
        assert request == TokenRequest((11, 3, 6, 7), (8,))

    @pytest.mark.parametrize("blank", [" ", "\n", "\t", " \n", "\u3000"])
    def test_blanks_at_the_end_of_a_context_move_over(self, blank: str) -> None:
        assert encode(tables.merging(), "x" + blank, "wer") == encode(tables.merging(), "x", blank + "wer")
        lm = wrap_model(tables.bigram(), tables.words())
        assert lm.loglikelihood([("Q x A" + blank, "yes")])[0][0] == pytest.approx(-0.693147, abs=1e-4)

    def test_a_lone_blank_is_no_token_of_the_context(self) -> None:
        assert encode(tables.merging(), "wer ", "x") == TokenRequest((13,), (15,))

    @pytest.mark.parametrize("context", ["Q", "", "<s>"])
    def test_nothing_to_score_is_refused(self, context: str) -> None:
        with pytest.raises(RequestError, match=f"the continuation '' after '{context}' has no token to score") as error:
            TextEncoder(tables.words(), 600).pairs([("Q", " yes"), (context, "")])
        assert error.value.index == 1


class TestTooLong:
    def test_the_continuation_is_what_is_scored(self) -> None:
        lm = wrap_model(tables.bigram(), tables.words(), max_length=3)
        answer = lm.loglikelihood([("Q x A", " yes no")])[0]
        assert answer[0] == pytest.approx(-2.995732, abs=1e-4)
        assert answer.truncated

    def test_nothing_is_scored_if_the_continuation_does_not_fit(self) -> None:
        lm = wrap_model(tables.bigram(), tables.words(), max_length=3)
        with pytest.raises(ModelError, match="continuation of 4 tokens"):
            lm.loglikelihood([("Q", " A yes no x")])

    def test_rolling_over_two_windows(self) -> None:
        for max_length in (4, 5, 6, 600):
            lm = wrap_model(tables.bigram(), tables.words(), max_length=max_length)
            assert lm.loglikelihood_rolling(["Q x A yes no Q", ""]) == pytest.approx([-7.195437, 0.0], abs=1e-4)


def test_each_distinct_text_is_encoded_once() -> None:
    class Counting:
        def __init__(self) -> None:
            self.inner = tables.words()
            self.seen: list[str] = []

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def __len__(self) -> int:
            return len(self.inner)

        def __call__(self, text: Any, **options: Any) -> Any:
            self.seen += text if isinstance(text, list) else []
            return self.inner(text, **options)

    tokenizer = Counting()
    TextEncoder(tokenizer, 600).pairs([("Q A", " yes"), ("Q A", " no"), ("Q A", " yes"), ("", "x"), ("", "x")])
    assert sorted(tokenizer.seen) == ["Q A", "Q A no", "Q A yes", "x"]


def spelled(tokenizer: Any, ids: Sequence[int]) -> str:
    return "".join(tokenizer.convert_ids_to_tokens(list(ids)))


@given(context=st.text("Answer x", min_size=1), rest=st.text("Answer x", min_size=1))
def test_no_letter_is_lost_when_tokens_merge(context: str, rest: str) -> None:
    request = encode(tables.merging(), context, rest)
    kept = context.rstrip()
    assert spelled(tables.merging(), request.context_ids) == kept or not kept
    assert spelled(tables.merging(), request.continuation_ids) == context[len(kept) :] + rest


@given(context=st.text("QA yesno", min_size=1), rest=st.text("QA yesno", min_size=1))
def test_no_letter_is_lost_in_sentencepiece(context: str, rest: str) -> None:
    request = encode(tables.sentencepiece_like(), context, rest)
    ids = (request.context_ids if context.strip() else ()) + request.continuation_ids
    assert spelled(tables.sentencepiece_like(), ids) == "▁" + (context + rest).replace(" ", "▁")


word = st.sampled_from(tables.VOCABULARY[3:])


@given(context=st.lists(word, min_size=1), rest=st.lists(word, min_size=1), auto_bos=st.booleans())
def test_no_word_is_lost(context: list[str], rest: list[str], auto_bos: bool) -> None:
    request = encode(tables.words(auto_bos=auto_bos), " ".join(context), " " + " ".join(rest))
    assert request.context_ids == (BOS,) * auto_bos + tuple(map(tables.VOCABULARY.index, context))
    assert request.continuation_ids == tuple(map(tables.VOCABULARY.index, rest))


def test_no_letter_is_lost_in_a_real_vocabulary(smollm2_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    inside = {"gguf_file": smollm2_path.name} if smollm2_path.is_file() else {}
    folder = smollm2_path.parent if inside else smollm2_path
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **inside)

    @settings(deadline=None)
    @given(context=st.text(min_size=1, max_size=20), rest=st.text(min_size=1, max_size=20))
    @example(context="\x16", rest="0")
    @example(context="0", rest="\x16")
    def check(context: str, rest: str) -> None:
        # Some control characters are in no token of this vocabulary: a context of such alone is an empty one.
        kept, whole = (tokenizer(text)["input_ids"] for text in (context.rstrip(), context + rest))
        if whole == kept and not tokenizer(rest)["input_ids"]:
            with pytest.raises(RequestError, match="has no token to score"):
                encode(tokenizer, context, rest)
            return
        request = encode(tokenizer, context, rest)
        assert kept or request.context_ids == (tokenizer.bos_token_id,)
        ids = (request.context_ids if kept else ()) + request.continuation_ids
        assert spelled(tokenizer, ids) == spelled(tokenizer, tokenizer(context + rest)["input_ids"])

    check()
