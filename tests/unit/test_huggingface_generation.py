"""Generated texts: where they end, why, and that no neighbour in a batch changes them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import pytest
import tablemodels as tables
import torch
import transformers
from tablemodels import EOS
from tablemodels import NO
from tablemodels import YES
from tablemodels import A
from tablemodels import Q
from tablemodels import X

from pytest_llmeval._engine import Completion
from pytest_llmeval._engine import GenerationRequest
from pytest_llmeval._engine.batches import Budget
from pytest_llmeval._engine.padded import PaddedEngine
from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import GenerationKwargs
from pytest_llmeval._models import wrap_model


PROMPTS = [(10, 11, 12, 13), (20,), (5, 0, 7)]


@pytest.fixture(autouse=True)
def own_random_numbers() -> Iterator[None]:
    with torch.random.fork_rng():
        yield


def write(context: str, model: Any = None, **kwargs: Any) -> tuple[str, str, bool]:
    lm = wrap_model(model or tables.chain(), tables.words())
    text = lm.generate_until([(context, GenerationKwargs(**kwargs))])[0]
    return str(text), text.finish_reason, text.truncated


class TestEnd:
    """`A` is followed by `no x no x ...` without end, `Q` by `yes` and EOS."""

    def test_a_stop_string_is_cut_off(self) -> None:
        assert write("A", until=("x",), max_gen_toks=5) == ("no ", "stop", False)

    def test_the_prompt_is_not_searched(self) -> None:
        assert write("x A", until=("x",)) == ("no ", "stop", False)

    def test_a_stop_string_may_span_tokens(self) -> None:
        assert write("A x", until=("no x",)) == ("", "stop", False)
        assert write("A", until=("o x n",)) == ("n", "stop", False)

    def test_the_first_of_several_ends_it(self) -> None:
        assert write("A", until=("x no", "zz", "o x")) == ("n", "stop", False)

    def test_an_empty_stop_string_stops_nothing(self) -> None:
        assert write("A", until=("",), max_gen_toks=3) == ("no x no", "length", False)

    def test_the_length_ends_it(self) -> None:
        assert write("A", max_gen_toks=3) == ("no x no", "length", False)
        assert len(write("A")[0].split()) == 256

    def test_eos_ends_it_and_is_not_written(self) -> None:
        assert write("Q", max_gen_toks=9) == ("yes", "eos", False)

    def test_eos_in_letters_ends_it_too(self) -> None:
        assert write("Q", until=("</s>",)) == ("yes", "eos", False)

    def test_a_checkpoint_may_name_several_eos(self) -> None:
        model = tables.chain()
        model.generation_config.eos_token_id = [EOS, X]
        assert write("A", model) == ("no x", "eos", False)

    def test_a_checkpoint_without_eos_ends_at_the_tokenizer_s(self) -> None:
        model = tables.chain()
        model.generation_config.eos_token_id = None
        assert write("Q", model, max_gen_toks=9) == ("yes", "eos", False)

    def test_a_special_token_as_stop_string(self) -> None:
        model = tables.chain({**tables.NEXT, "no": "<s>", "<s>": "x"})
        assert write("A", model, until=("<s>",), max_gen_toks=5) == ("no", "stop", False)

    def test_a_long_prompt_keeps_its_end(self) -> None:
        lm = wrap_model(tables.chain(), tables.words(), max_length=6)
        text = lm.generate_until([("x x x x x x x x Q", GenerationKwargs(max_gen_toks=3))])[0]
        assert (text, text.truncated) == ("yes", True)

    def test_a_prompt_without_room_is_an_error(self) -> None:
        lm = wrap_model(tables.chain(), tables.words(), max_length=256)
        with pytest.raises(ModelError, match="max_gen_toks 256 leaves no space for a prompt in a window of 256 tok"):
            lm.generate_until([("Q", GenerationKwargs())])

    def test_an_empty_prompt_goes_on_from_bos(self) -> None:
        assert write("", max_gen_toks=2) == ("Q yes", "length", False)

    def test_temperature_zero_is_greedy(self) -> None:
        assert write("A", temperature=0.0, do_sample=True, max_gen_toks=3)[0] == "no x no"


def engine(model: Any, rows: int = 100) -> PaddedEngine:
    budget = Budget(10**6, 10**6, rows)
    return PaddedEngine(model, budget, budget, [EOS])


def nothing(done: int, total: int) -> None:
    """A progress that nobody watches."""


def never(ids: Sequence[int], kwargs: GenerationKwargs) -> bool:
    return False


def completions(
    model: Any, prompts: Sequence[tuple[int, ...]], *, rows: int = 100, is_stopped: Any = never, **kwargs: Any
) -> list[Completion]:
    asked = [GenerationRequest(ids, GenerationKwargs(**kwargs)) for ids in prompts]
    return engine(model, rows).generate(asked, is_stopped, nothing)


def greedy(model: Any, prompt: tuple[int, ...], n: int) -> tuple[int, ...]:
    """The definition: the likeliest token of the whole sequence so far, again and again."""
    ids = list(prompt)
    while len(ids) < len(prompt) + n:
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == EOS:
            break
    return tuple(ids[len(prompt) :])


def random_model(config: Any) -> Any:
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


SMALL = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": EOS}
LLAMA = {**SMALL, "intermediate_size": 64, "num_attention_heads": 4, "pad_token_id": 0, "initializer_range": 0.5}
MODELS = {
    "gpt2": tables.tiny_gpt2,
    "llama": lambda: random_model(transformers.LlamaConfig(**LLAMA)),
    # Its state cannot be cut to some rows: those that go on are read again.
    "mamba": lambda: random_model(transformers.MambaConfig(**SMALL, state_size=8, initializer_range=0.5)),
    # It takes a mask and does not use it, and mixes up the rows of a batch.
    "rwkv": lambda: random_model(transformers.RwkvConfig(**SMALL, context_length=64)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_neighbours_change_nothing(name: str) -> None:
    """Prompts of several lengths, id 0 a word and the padding, rows that end one after the other."""
    model = MODELS[name]()
    prompts = [*PROMPTS, (8, 9, 10, 11), (30, 31, 32, 33, 34, 35, 36)]
    expected = [greedy(model, prompt, 8) for prompt in prompts]
    for rows in (1, 2, 5):
        assert [done.ids for done in completions(model, prompts, rows=rows, max_gen_toks=8)] == expected
    stops = [written[i % len(written)] for i, written in enumerate(expected)]

    def ends(ids: Sequence[int], kwargs: GenerationKwargs) -> bool:
        return any(
            tuple(ids) == written[: len(ids)] and ids[-1] == stop for written, stop in zip(expected, stops, strict=True)
        )

    for rows in (1, 2, 5):
        done = completions(model, prompts, rows=rows, is_stopped=ends, max_gen_toks=8)
        for completion, written in zip(done, expected, strict=True):
            assert completion.ids == written[: len(completion.ids)]
            assert completion.finish_reason == ("eos" if completion.ids[-1] == EOS else "stop")


def test_rows_leave_when_they_are_done() -> None:
    model = tables.chain()
    widths: list[int] = []
    model.register_forward_pre_hook(lambda _, __, keywords: widths.append(len(keywords["input_ids"])), with_kwargs=True)
    written = engine(model)
    asked = [GenerationRequest(ids, GenerationKwargs(max_gen_toks=5)) for ids in [(Q,), (X, Q), (Q, Q), (A,)]]
    assert written.generator.groups([]) == []
    widths.clear()
    done = written.generate(asked, never, nothing)
    assert [completion.ids for completion in done] == [(YES, EOS)] * 3 + [(NO, X, NO, X, NO)]
    # Two steps of four rows and three of one; before them small ones that show beside which rows one may stand.
    assert widths[-5:] == [4, 4, 1, 1, 1]


def test_progress_counts_texts_that_have_ended() -> None:
    seen: list[tuple[int, int]] = []
    asked = [GenerationRequest(ids, GenerationKwargs(max_gen_toks=5)) for ids in [(Q,), (A,), (X, Q), (Q,)]]
    engine(tables.chain()).generate(asked, never, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 4), (3, 4), (4, 4)]


def test_a_repetition_penalty_does_not_see_padding() -> None:
    """The checkpoint's own penalty, as `generate` of transformers applies it to one prompt."""
    model = tables.tiny_gpt2()
    model.generation_config.repetition_penalty = 1.7
    alone = []
    for ids in map(torch.tensor, PROMPTS):
        mask = torch.ones(1, len(ids), dtype=torch.long)
        written = model.generate(ids[None], attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=0)
        alone.append(tuple(written[0, len(ids) :].tolist()))
    assert [done.ids for done in completions(model, PROMPTS, max_gen_toks=8)] == alone
    assert alone != [greedy(model, ids, 8) for ids in PROMPTS]
    by_request = completions(tables.tiny_gpt2(), PROMPTS, max_gen_toks=8, extra={"repetition_penalty": 1.7})
    assert [done.ids for done in by_request] == alone


def test_settings_that_see_padding_get_none() -> None:
    model = tables.tiny_gpt2()
    kwargs = {"max_gen_toks": 8, "extra": {"no_repeat_ngram_size": 2}}
    together = completions(model, PROMPTS, **kwargs)
    assert together == [completions(model, [ids], **kwargs)[0] for ids in PROMPTS]


def test_equal_greedy_requests_are_written_once() -> None:
    model = tables.chain()
    assert completions(model, [(Q,)] * 3, max_gen_toks=4) == [Completion((YES, EOS), "eos")] * 3


class TestSampling:
    def draw(self, model: Any, n: int, *, rows: int = 1000, prompt: tuple[int, ...] = (A,), **kwargs: Any) -> list[int]:
        settings = [
            GenerationKwargs(max_gen_toks=1, do_sample=True, temperature=1.0, repeat=i, **kwargs) for i in range(n)
        ]
        asked = [GenerationRequest(prompt, one) for one in settings]
        return [done.ids[0] for done in engine(model, rows).generate(asked, never, nothing)]

    def test_draws_follow_the_distribution(self) -> None:
        """P(. | A) = .5 yes, .3 no, .1 x: of 2,000 draws within four standard deviations."""
        counts = Counter(self.draw(tables.bigram(), 2000))
        for token, p in ((YES, 0.5), (NO, 0.3), (X, 0.1)):
            assert abs(counts[token] - 2000 * p) < 4 * (2000 * p * (1 - p)) ** 0.5

    def test_draws_depend_on_prompt_seed_and_repeat_alone(self) -> None:
        model = tables.bigram()
        one = self.draw(model, 40)
        assert self.draw(model, 40, rows=7) == one
        assert self.draw(model, 40, seed=1) != one
        assert self.draw(model, 40, prompt=(X, A)) != one
        assert len(set(one)) > 1

    def test_batches_change_no_text(self) -> None:
        model = tables.tiny_gpt2()
        settings = [GenerationKwargs(max_gen_toks=8, do_sample=True, temperature=0.8, repeat=i) for i in range(3)]
        asked = [GenerationRequest(ids, one) for ids, one in itertools.product(PROMPTS, settings)]
        one_by_one = engine(model, 1).generate(asked, never, nothing)
        assert engine(model, 4).generate(asked, never, nothing) == one_by_one
        assert len({done.ids for done in one_by_one}) > len(PROMPTS)

    def test_global_random_numbers_are_neither_read_nor_changed(self) -> None:
        model = tables.bigram()
        torch.manual_seed(3)
        before = torch.random.get_rng_state()
        one = self.draw(model, 5)
        assert torch.equal(torch.random.get_rng_state(), before)
        torch.manual_seed(4)
        assert self.draw(model, 5) == one

    def test_top_k_and_top_p_leave_the_likeliest(self) -> None:
        assert set(self.draw(tables.bigram(), 50, top_k=2)) == {YES, NO}
        assert set(self.draw(tables.bigram(), 50, top_p=0.45)) == {YES}
        assert set(self.draw(tables.bigram(), 50, extra={"min_p": 0.5})) == {YES, NO}

    def test_the_checkpoint_s_own_settings_hold_where_the_task_says_nothing(self) -> None:
        model = tables.bigram()
        model.generation_config.top_k = 1
        assert set(self.draw(model, 20)) == {YES}
        assert set(self.draw(model, 50, top_k=2)) == {YES, NO}

    def test_settings_for_sampling_are_silent_when_greedy(self, capfd: pytest.CaptureFixture[str]) -> None:
        model = tables.chain()
        model.generation_config.temperature, model.generation_config.top_p = 0.6, 0.9
        assert completions(model, [(Q,)], max_gen_toks=4) == [Completion((YES, EOS), "eos")]
        assert capfd.readouterr() == ("", "")


def test_beams_find_what_is_likelier_as_a_whole() -> None:
    """After Q greedy takes A (.6) and ends with .6 x .5; over two tokens no beam is better than that."""
    done = completions(tables.bigram(), [(Q,)], max_gen_toks=2, extra={"num_beams": 3})
    assert done == [Completion((A, YES), "length")]
    assert completions(tables.chain(), [(Q,), (A,)], max_gen_toks=3, extra={"num_beams": 2})[0].ids[:2] == (YES, EOS)


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (
            {"max_length": 20},
            "generation setting 'max_length' is not supported: use max_gen_toks for the number of new tok",
        ),
        ({"temprature": 1.0}, "generation setting 'temprature' is unknown to transformers"),
        ({"repetition_penalty": -1.0}, "the model failed on 1 sequence of up to 257 tokens: ValueError: .*penalty"),
    ],
)
def test_settings_that_cannot_be_are_errors(extra: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        completions(tables.chain(), [(Q,)], extra=extra)
