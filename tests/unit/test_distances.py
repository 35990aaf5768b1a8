"""Next tokens of a baseline: their text, and the distance of a run from them."""

from __future__ import annotations

import json
import math

import pytest
import tablemodels
import torch
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies
from tablemodels import VOCABULARY
from tablemodels import P

from pytest_llmeval import NextToken
from pytest_llmeval import wrap_model
from pytest_llmeval._baselines import NO_POSITIONS
from pytest_llmeval._baselines import positions_text
from pytest_llmeval._baselines import read_positions
from pytest_llmeval._evaluation.next_tokens import distance_of
from pytest_llmeval._results import Distance
from pytest_llmeval._results import DocKey
from pytest_llmeval._results import DocResult


costs = strategies.integers(0, 999_000).map(lambda number: -number / 1000)
ids = strategies.integers(0, 200_000)
tokens = strategies.tuples(strategies.lists(strategies.tuples(ids, costs), min_size=2, max_size=5), costs).map(
    lambda drawn: NextToken(tuple(i for i, _ in drawn[0]), tuple(c for _, c in drawn[0]), drawn[1], drawn[0][0][0])
)


@given(strategies.lists(strategies.lists(tokens, min_size=1, max_size=3), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_positions_come_back_as_they_were(requests: list[list[NextToken]]) -> None:
    # A position that occurs again is written once, and read as the same one.
    assert read_positions(positions_text([*requests, requests[0]])) == [*requests, requests[0]]


def test_the_text_of_positions() -> None:
    first = NextToken((260, 281, 9), (-0.4118, -2.0, -math.inf), -1.1204, 260)
    second = NextToken((7, 8), (0.0, -12.3456), -7.0, 7)
    assert positions_text([[first, second], [first]]) == "260:0.412,281:2~9:999/1.12;7:0~8:12.346/7|=0"


def test_a_text_without_tokens_has_no_distance() -> None:
    assert read_positions(NO_POSITIONS) == [[]]
    assert distance_of([[]], [()]) == Distance()


def test_the_result_of_a_doc_travels_with_its_next_tokens() -> None:
    result = DocResult(
        3, {"none": {"acc": 1.0}}, key=DocKey("d", "p"), next_tokens="1:2~3:4/5", distance=Distance(0.1, 0.05, 0.3, 0.5)
    )
    assert DocResult.from_list(json.loads(json.dumps(result.to_list()))) == result


class TestDistance:
    """Models that predict by the previous token only: the distance of two tables can be computed by hand."""

    def lm(self, **changed: list[float]) -> object:
        table = torch.tensor([(P | changed)[word] for word in VOCABULARY]).log()
        return wrap_model(tablemodels.table_lm(table), tablemodels.words())

    def distance(self, now: object, requests: list[tuple[str, ...]], top: int = 7) -> Distance:
        before = [answer.next_tokens for answer in self.lm().tracked(requests, [top] * len(requests))]
        before = read_positions(positions_text(before))
        asked = [[token.ids for token in tokens] for tokens in before]
        return distance_of(before, [answer.next_tokens for answer in now.tracked(requests, asked)])

    def test_a_model_has_no_distance_from_itself(self) -> None:
        found = self.distance(self.lm(), [("Q x A", "yes no"), ("Q x A", "no"), ("Q A x",)], top=2)
        assert (found.kl, found.least, found.agreement, found.problem) == (0.0, 0.0, 1.0, "")

    def test_each_distinct_position_counts_once(self) -> None:
        # After A .5 of yes and .3 of no become .3 and .5; after yes nothing changes. Two positions in three requests.
        other = self.lm(A=[0.01, 0.01, 0.03, 0.03, 0.02, 0.30, 0.50, 0.10])
        found = self.distance(other, [("Q A", "yes"), ("Q A", "no"), ("Q A", "yes x")])
        assert found.kl == pytest.approx((0.5 * math.log(5 / 3) + 0.3 * math.log(3 / 5)) / 2, abs=1e-3)
        assert found.agreement == 0.5

    def test_the_lower_bound_takes_the_others_as_one(self) -> None:
        # Only tokens that are not kept change: x and </s> trade places.
        other = self.lm(A=[0.01, 0.01, 0.10, 0.03, 0.02, 0.50, 0.30, 0.03])
        found = self.distance(other, [("Q A", "yes")], top=2)
        assert found.least == pytest.approx(0.0, abs=1e-6)
        assert found.rest == pytest.approx(0.2, abs=1e-3)
        assert found.kl > found.least

    def test_nan_is_a_problem_and_no_agreement(self) -> None:
        before = [[NextToken((1, 2), (-0.5, -3.0), -1.0, 1)]]
        for now in (NextToken((1, 2), (math.nan, -3.0), -1.0, 1), NextToken((1, 2), (-0.5, math.nan), -1.0, 1)):
            problem = distance_of(before, [[now]]).problem
            assert problem == "the model gave a probability of a next token that is not a number"

    def test_other_tokens_are_a_problem(self) -> None:
        requests = [("Q A", "yes no")]
        before = [answer.next_tokens for answer in self.lm().tracked(requests, [2])]
        assert distance_of(before, [()]).problem == "the model reads its requests as other tokens than the baseline did"
