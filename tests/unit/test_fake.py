"""The shipped fake, and where a text is cut."""

from __future__ import annotations

import pytest

from pytest_llmeval._errors import ModelError
from pytest_llmeval._fake import FakeLM
from pytest_llmeval._lm import LM
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import cut_at_stops


@pytest.mark.parametrize(
    ("text", "stops", "cut"),
    [
        ("Quick: 5 Q: next", ["Q:"], "Quick: 5 "),
        ("a\nb.c", [".", "\n"], "a"),
        ("a\nb.c", ["\n", "."], "a"),
        ("abc", [""], "abc"),
        ("a\n\nb", ["\n\n"], "a"),
        ("abc", [], "abc"),
        ("Q: x", ["Q:"], ""),
    ],
)
def test_a_text_ends_before_its_first_stop(text: str, stops: list[str], cut: str) -> None:
    assert cut_at_stops(text, stops) == cut


def test_the_fake_is_a_model() -> None:
    assert isinstance(FakeLM(), LM)


def test_without_tables_every_byte_costs_one() -> None:
    lm = FakeLM()
    assert lm.loglikelihood([("Q", " é")]) == [(-3.0, False)]
    assert lm.loglikelihood_rolling(["abc"]) == [-3.0]
    assert lm.generate_until([("Q", GenerationKwargs())]) == [""]


def test_tables_answer_by_pair_and_by_continuation() -> None:
    lm = FakeLM(loglikelihood_of={("Q", " yes"): -0.5, " yes": -2.0, " no": (-1.0, True)}, rolling_of={"t": -9.0})
    assert lm.loglikelihood([("Q", " yes"), ("R", " yes"), ("R", " no")]) == [
        Loglikelihood(-0.5, False),
        Loglikelihood(-2.0, False),
        Loglikelihood(-1.0, True),
    ]
    assert lm.loglikelihood_rolling(["t"]) == [-9.0]
    with pytest.raises(ModelError, match=r"no answer to \('Q', ' maybe'\); its table has: \('Q', ' yes'\), ' yes'"):
        lm.loglikelihood([("Q", " maybe")])


def test_functions_answer() -> None:
    lm = FakeLM(
        loglikelihood_of=lambda context, continuation: -float(len(context + continuation)),
        text_of=lambda context, kwargs: f"{context}{kwargs.seed}",
        rolling_of=lambda text: -0.5,
    )
    assert lm.loglikelihood([("ab", "c")])[0].logprob == -3.0
    assert lm.generate_until([("x", GenerationKwargs(seed=7))]) == ["x7"]
    assert lm.loglikelihood_rolling(["x"]) == [-0.5]


def test_texts_end_at_stop_strings_and_say_why() -> None:
    lm = FakeLM(text_of={"P": "a.b\nc"})
    texts = lm.generate_until([("P", GenerationKwargs(until=stops)) for stops in [("\n",), (".",), ()]])
    assert texts == ["a.b", "a", "a.b\nc"]
    assert [text.finish_reason for text in texts] == ["stop", "stop", "eos"]


def test_what_was_asked_is_kept() -> None:
    lm = FakeLM(text_of="t")
    lm.loglikelihood([("a", "b")])
    lm.generate_until([("p", GenerationKwargs())])
    assert lm.calls == [("loglikelihood", ("a", "b")), ("generate_until", ("p", GenerationKwargs()))]


def test_a_chat_is_written_with_its_roles() -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So"}]
    lm = FakeLM()
    assert lm.apply_chat_template(messages[:1]) == "<user>Hi\n<assistant>"
    assert lm.apply_chat_template(messages, False) == "<user>Hi\n<assistant>So"
