"""The distribution of the next token at scored positions, on a model whose probabilities stand in a table."""

from __future__ import annotations

import math

import pytest
import tablemodels
import torch
from tablemodels import NO
from tablemodels import VOCABULARY
from tablemodels import YES
from tablemodels import A
from tablemodels import P
from tablemodels import Q
from tablemodels import X

from pytest_llmeval import wrap_model
from pytest_llmeval._engine import Watch
from pytest_llmeval._engine.next_tokens import next_tokens
from pytest_llmeval._lm import Loglikelihood
from pytest_llmeval._lm import NextToken


def table() -> torch.Tensor:
    return torch.tensor([P[word] for word in VOCABULARY]).log()


def one(logits: torch.Tensor, row: int, watch: Watch) -> NextToken:
    (found,) = next_tokens(logits, [row], [watch])
    assert found is not None
    return found


def probabilities(token: NextToken) -> list[float]:
    return [math.exp(value) for value in token.logprobs]


class TestNextTokens:
    def test_the_likeliest_ids_are_kept_with_the_sum_of_the_others(self) -> None:
        found = one(table(), A, Watch(top=2, draw=0.5))
        assert found.ids[:2] == (YES, NO)
        assert found.likeliest == YES
        assert probabilities(found)[:2] == pytest.approx([0.5, 0.3], rel=1e-5)
        assert math.exp(found.rest) == pytest.approx(0.2, rel=1e-5)

    @pytest.mark.parametrize(
        ("draw", "drawn"),
        # The others of A in the order of ids: <pad> .01, <s> .01, </s> .03, Q .03, A .02, x .10, of a sum of .20.
        [(0.0, 0), (0.049, 0), (0.051, 1), (0.099, 1), (0.11, 2), (0.24, 2), (0.26, Q), (0.41, A), (0.51, X), (1.0, X)],
    )
    def test_one_id_is_drawn_from_the_others_in_their_proportions(self, draw: float, drawn: int) -> None:
        found = one(table(), A, Watch(top=2, draw=draw))
        assert found.ids[2] == drawn
        assert probabilities(found)[2] == pytest.approx(P["A"][drawn], rel=1e-5)

    def test_given_ids_are_reported_where_the_last_is_no_part_of_the_kept_ones(self) -> None:
        found = one(table(), Q, Watch((YES, NO, X)))
        assert found.ids == (YES, NO, X)
        assert probabilities(found) == pytest.approx([0.05, 0.05, 0.2], rel=1e-5)
        assert math.exp(found.rest) == pytest.approx(0.9, rel=1e-5)
        assert found.likeliest == A

    def test_a_shared_highest_probability_is_that_of_the_first_id(self) -> None:
        logits = torch.tensor([[0.0, 1.0, 1.0, 1.0]])
        assert [one(logits, 0, Watch((i, 0))).likeliest for i in (1, 2, 3)] == [1, 2, 3]

    def test_an_id_that_the_model_lacks_has_no_probability(self) -> None:
        found = one(torch.zeros(1, 4), 0, Watch((1, 9, 3)))
        assert found.logprobs == pytest.approx((math.log(0.25), -math.inf, math.log(0.25)))
        assert math.exp(found.rest) == pytest.approx(0.75)

    def test_at_least_one_id_is_not_kept(self) -> None:
        found = one(torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log(), 0, Watch(top=9, draw=0.7))
        assert found.ids == (0, 1, 2, 3)
        assert math.exp(found.rest) == pytest.approx(0.1)

    def test_nan_is_reported_as_nan(self) -> None:
        found = one(torch.full((1, 600), math.nan), 0, Watch(top=2, draw=0.5))
        assert all(math.isnan(value) for value in (*found.logprobs, found.rest))

    def test_draws_from_several_blocks_are_in_proportion(self) -> None:
        # Of 600 ids 0 and 1 are kept; the weight of id i is in proportion to i.
        logits = torch.arange(600.0).log()[None]
        logits[0, :2] = 10.0
        drawn = [one(logits, 0, Watch(top=2, draw=(i + 0.5) / 1000)).ids[2] for i in range(1000)]
        assert drawn == sorted(drawn)
        # The sum of weights up to id i is about i^2 / 2, of 179,699.
        assert [drawn[i] for i in (0, 250, 500, 999)] == [13, 300, 424, 599]

    def test_blocks_of_any_size_and_repeated_positions_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rows = [A, Q, A, X, Q]
        watches = [Watch(top=3, draw=0.9), None, Watch((YES, NO, X)), Watch(top=3, draw=0.1), Watch((YES, NO, X))]
        whole = next_tokens(table(), rows, watches)
        monkeypatch.setattr("pytest_llmeval._engine.next_tokens.CPU_ELEMENTS", 1)
        assert next_tokens(table(), rows, watches) == whole
        assert whole[1] is None
        assert [token and len(token.ids) for token in whole] == [4, None, 3, 4, 3]


@pytest.mark.parametrize("engine", ["tree", "padded"])
class TestTracked:
    """``tracked`` of a model: the answers of `loglikelihood`, with the distributions at its positions."""

    def lm(self, engine: str) -> object:
        return wrap_model(tablemodels.bigram(), tablemodels.words(), engine=engine)

    def test_answers_are_those_without_tracking(self, engine: str) -> None:
        lm = self.lm(engine)
        requests = [("Q x A", "yes no"), ("Q x A", "no"), ("Q A", "yes"), ("Q x A", "yes no")]
        found = lm.tracked(requests, [2] * 4)
        assert found == lm.loglikelihood(requests)
        assert [len(answer.next_tokens) for answer in found] == [2, 1, 1, 2]

    def test_positions_are_in_the_order_of_the_continuation(self, engine: str) -> None:
        (found,) = self.lm(engine).tracked([("Q", "A yes no")], [1])
        assert [token.ids[0] for token in found.next_tokens] == [A, YES, 2]
        assert [probabilities(token)[0] for token in found.next_tokens] == pytest.approx([0.6, 0.5, 0.4], rel=1e-4)

    def test_choices_share_their_first_position(self, engine: str) -> None:
        first, second = self.lm(engine).tracked([("Q x A", "yes no"), ("Q x A", "no yes")], [3, 3])
        assert first.next_tokens[0] == second.next_tokens[0]

    def test_positions_ask_for_the_ids_of_another_run(self, engine: str) -> None:
        lm = self.lm(engine)
        (kept,) = lm.tracked([("Q", "A yes")], [2])
        (again,) = lm.tracked([("Q", "A yes")], [[token.ids for token in kept.next_tokens]])
        assert again.next_tokens == kept.next_tokens

    def test_ids_for_another_number_of_positions_are_not_reported(self, engine: str) -> None:
        (found,) = self.lm(engine).tracked([("Q", "A yes")], [[(YES, NO)]])
        assert found.next_tokens == ()
        assert isinstance(found, Loglikelihood)

    def test_whole_texts_are_read_in_windows(self, engine: str) -> None:
        lm = wrap_model(tablemodels.bigram(), tablemodels.words(), engine=engine, max_length=2)
        text = "Q A yes no x"
        (found,) = lm.tracked([(text,)], [1])
        assert found == pytest.approx(lm.loglikelihood_rolling([text])[0])
        assert [token.ids[0] for token in found.next_tokens] == [Q, A, YES, 2, 2]


def test_draws_depend_on_all_tokens_before_a_position_and_on_nothing_else() -> None:
    lm = wrap_model(tablemodels.uniform(8), tablemodels.words())
    answers = lm.tracked([("Q", "A yes"), ("Q A", "yes"), ("x A", "yes"), ("Q", "A yes")], [1] * 4)
    draws = [answer.next_tokens[-1].ids[-1] for answer in answers]
    assert draws[0] == draws[1] == draws[3]
    many = lm.tracked([("Q " * n, "yes") for n in range(1, 200)], [1] * 199)
    drawn = {answer.next_tokens[0].ids[-1] for answer in many}
    kept = {answer.next_tokens[0].ids[0] for answer in many}
    assert drawn == set(range(8)) - kept


def test_the_vocabulary_identifies_the_meaning_of_ids() -> None:
    names = [
        wrap_model(tablemodels.bigram(), tablemodels.words(vocabulary=words)).vocabulary
        for words in (VOCABULARY, VOCABULARY, (*VOCABULARY[:5], "no", "yes", "x"))
    ]
    assert names[0] == names[1] != names[2]
