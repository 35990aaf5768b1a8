"""The probe: how far margins move when a model computes otherwise, with moves that are put in by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from pytest_llmeval._errors import ModelError
from pytest_llmeval._evaluation import Evaluation
from pytest_llmeval._evaluation import NoiseFloors
from pytest_llmeval._evaluation import OpenTask
from pytest_llmeval._evaluation import measure
from pytest_llmeval._evaluation import probed_docs
from pytest_llmeval._lm import LM
from pytest_llmeval._registry import Registry
from pytest_llmeval._settings import Settings
from pytest_llmeval._verdicts import Noise
from pytest_llmeval._verdicts import noise_floor


TASK = """\
task: t
dataset_path: json
dataset_kwargs: {{data_files: {{test: t.jsonl}}}}
output_type: {kind}
test_split: test
doc_to_text: "{{{{q}}}}"
{choices}
doc_to_target: {target}
metric_list: [{metrics}]
metadata: {{version: 1.0}}
"""
CHOICES = 'doc_to_choice: ["no", "yes!"]'

Answer = Callable[[str, str], tuple[float, bool]]


class Model:
    """Answers by a function; `others` are its other ways of computing, by name."""

    def __init__(self, answer: Answer, **others: Answer) -> None:
        self.answer = answer
        self.others = others
        self.dtypes: list[str | None] = []
        self.asked = 0

    def loglikelihood(self, requests: Sequence[tuple[str, str]]) -> list[tuple[float, bool]]:
        self.asked += len(requests)
        return [self.answer(*request) for request in requests]

    def loglikelihood_rolling(self, requests: Sequence[str]) -> list[float]:
        raise NotImplementedError

    def generate_until(self, requests: Sequence[Any]) -> list[str]:
        raise NotImplementedError

    def recomputed(self, dtype: str | None) -> Iterator[LM]:
        self.dtypes.append(dtype)
        for name, answer in self.others.items():
            twin = Model(answer)
            twin.name = name  # type: ignore[attr-defined]
            yield twin


def opened(tmp_path: Path, docs: int = 4, kind: str = "multiple_choice", metrics: str = "") -> OpenTask:
    choice = kind == "multiple_choice"
    metrics = metrics or ("{metric: acc}, {metric: acc_norm}" if choice else "{metric: acc}")
    text = TASK.format(
        kind=kind, choices=CHOICES if choice else "", target="gold" if choice else '"yes!"', metrics=metrics
    )
    (tmp_path / "t.yaml").write_text(text)
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"q": str(i), "gold": 1}) + "\n" for i in range(docs)))
    registry = Registry()
    task: Any = registry.load(tmp_path / "t.yaml")
    return Evaluation(Settings(), registry).open(task)


def usual(asked: str, said: str) -> tuple[float, bool]:
    """Yes by 1 nat: -2 (of four characters) against -3 (of two)."""
    return (-2.0 if said == " yes!" else -3.0), False


def moved(by: float, doc: str | None = None) -> Answer:
    """As usual, but that yes loses so much, of all docs or of one."""

    def answer(asked: str, said: str) -> tuple[float, bool]:
        ll, greedy = usual(asked, said)
        return (ll - by if said == " yes!" and doc in (None, asked) else ll), greedy

    return answer


class TestMoves:
    def test_a_metric_has_its_own(self, tmp_path: Path) -> None:
        """Yes falls from -2 to -2.5: its margin from 1 to .5, by the character from -.5 + 1.5 = 1 to .875."""
        noise = measure(opened(tmp_path), Model(usual, way=moved(0.5)), 4, None)
        assert noise == Noise(4, {"acc": 0.5, "acc_norm": 0.125}, {"acc,none": 0, "acc_norm,none": 0}, ["way"])

    def test_of_several_ways_a_docs_largest_move_counts(self, tmp_path: Path) -> None:
        """Of four docs there is no bound on nine tenths: the largest."""
        model = Model(usual, down=moved(0.25), up=moved(-0.75, "2"))
        noise = measure(opened(tmp_path), model, 4, None)
        assert (noise.floors["acc"], noise.ways) == (0.75, ["down", "up"])

    def test_one_odd_doc_of_64_does_not_decide(self, tmp_path: Path) -> None:
        odd = {"7": 40.0, "9": 30.0, "11": 0.5}
        model = Model(usual, way=lambda asked, said: moved(odd.get(asked, 0.125))(asked, said))
        assert measure(opened(tmp_path, 64), model, 64, None).floors["acc"] == 0.5

    def test_a_pick_that_changes_moved_by_both_margins(self, tmp_path: Path) -> None:
        """From 1 above to 2 below, and then the doc is wrong."""
        noise = measure(opened(tmp_path), Model(usual, way=moved(3.0, "1")), 4, None)
        assert (noise.floors["acc"], dict(noise.changed)) == (3.0, {"acc,none": 1, "acc_norm,none": 0})

    def test_a_choice_that_is_never_possible_does_not_matter(self, tmp_path: Path) -> None:
        def only_yes(asked: str, said: str) -> tuple[float, bool]:
            return (-2.0 if said == " yes!" else -math.inf), False

        assert measure(opened(tmp_path), Model(only_yes, way=only_yes), 4, None).floors["acc"] == 0.0

    @pytest.mark.parametrize("broken", [math.nan, -math.inf])
    def test_numbers_that_are_not_finite_are_no_noise(self, tmp_path: Path, broken: float) -> None:
        model = Model(usual, half=lambda asked, said: (broken, False))
        with pytest.raises(ModelError, match=r"the margin of t doc 0, half, is not finite: 1 became nan"):
            measure(opened(tmp_path), model, 4, None)

    def test_docs_that_cannot_be_scored_are_left_out(self, tmp_path: Path) -> None:
        def refuses(asked: str, said: str) -> tuple[float, bool]:
            if asked == "3":
                raise ModelError("too long")
            return usual(asked, said)

        assert measure(opened(tmp_path), Model(refuses, way=usual), 4, None).docs == 3


class TestTasks:
    def test_greedy_answers_have_no_margin(self, tmp_path: Path) -> None:
        model = Model(lambda asked, said: (-1.0, True), way=lambda asked, said: (-1.0, asked != "2"))
        noise = measure(opened(tmp_path, kind="loglikelihood"), model, 4, None)
        assert noise == Noise(4, {}, {"acc,none": 1}, ["way"])

    def test_generated_answers_are_not_written_again(self, tmp_path: Path) -> None:
        model = Model(usual, way=usual)
        noise = measure(opened(tmp_path, kind="generate_until", metrics="{metric: exact_match}"), model, 4, None)
        assert (noise, model.asked) == (Noise(), 0)


class TestAsking:
    def test_the_draw(self) -> None:
        assert probed_docs(range(10), 20) == list(range(10))
        drawn = probed_docs(range(1000), 64)
        assert drawn == sorted(set(drawn)) == probed_docs(range(1000), 64)
        assert (len(drawn), drawn != list(range(64))) == (64, True)

    def test_only_the_probe_is_scored_again_once(self, tmp_path: Path) -> None:
        task = opened(tmp_path, 10)
        evaluation = Evaluation(Settings(noise_docs=3, noise_dtype="float64"), Registry())
        floors, model = NoiseFloors(evaluation), Model(usual, way=usual)
        for _ in range(2):
            floors.measure(model, [task.task])
        assert (model.asked, model.dtypes) == (6, ["float64"])
        other = NoiseFloors(evaluation)
        other.add(floors.to_list())
        assert other.of("t") == floors.of("t") is not None

    def test_nothing_without_a_request(self, tmp_path: Path) -> None:
        floors, model = NoiseFloors(Evaluation(Settings(), Registry())), Model(usual, way=usual)
        floors.measure(model, [opened(tmp_path).task])
        assert (model.asked, floors.of("t"), floors.needed("t")) == (0, None, None)

    def test_what_goes_wrong_is_kept(self, tmp_path: Path) -> None:
        floors = NoiseFloors(Evaluation(Settings(noise_docs=3), Registry()))
        unfinished = floors.needed("t")
        assert unfinished is not None
        assert unfinished.problem == "--llmeval-noise: the probe did not finish"
        floors.measure(Model(usual), [opened(tmp_path).task])
        known = floors.of("t")
        assert known is not None
        assert known.problem == "--llmeval-noise: Model.recomputed gave no other way of computing"


@pytest.mark.parametrize(("n", "place"), [(1, 1), (28, 28), (29, 29), (45, 45), (46, 45), (64, 62), (200, 188)])
def test_the_floor_is_an_order_statistic(n: int, place: int) -> None:
    assert noise_floor([float(move) for move in range(n, 0, -1)]) == place
    assert n < 29 or stats.binom.cdf(place - 1, n, 0.9) >= 0.95 > stats.binom.cdf(place - 2, n, 0.9)
