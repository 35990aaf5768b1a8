"""The docs of a run answered a second time by the same model, to confirm what a gate found (`--llmeval-confirm`).

A model in another precision than the baseline, for example bfloat16 beside float32, computes the second answers in that
of the baseline, so that like is compared with like. Otherwise it computes them in another grouping of its requests
(`LM.recomputed`): in float32 it would be better than the same model in bfloat16 that wrote the baseline, which hides
losses. A model without such a method, for example a server, is asked as it is. Sampled texts get other seeds.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from itertools import chain
from itertools import islice

from pytest_llmeval._evaluation.model_run import ModelRun
from pytest_llmeval._lm import LM


#: Added to the seeds of sampled texts.
_RESEED = 1


class SecondAnswers:
    """The second answers to docs of the run `first`, in a run of their own (`run`), which shares its noise.

    `way` names the way in which the model computed them; it is empty if it was asked as it is.
    """

    def __init__(self, first: ModelRun) -> None:
        self.run = ModelRun(first.evaluation, first.model, reseed=_RESEED)
        self.run.noise = first.noise
        self.way = ""
        self._first = first
        self._lm: LM | None = None
        #: Held, because a model loaded in another precision is closed when its iterator ends.
        self._ways: Iterator[LM] = iter(())

    def model(self, lm: LM, dtypes: Iterable[str]) -> LM:
        """Return the model that answers a second time, given the dtypes of the baseline; it is made once.

        Raises ModelError if it cannot compute so.
        """
        if self._lm is None:
            own = (self._first.facts or {}).get("model", {}).get("model_dtype")
            found = set(dtypes)
            differing = found.pop() if len(found) == 1 and own and own not in found else None
            self._ways = _other_ways(lm, differing)
            other = next(self._ways, lm)
            # Weights that cannot be loaded are to be found out here, once, not doc by doc.
            getattr(other, "prepare", lambda: None)()
            self._lm = other
            self.way = "" if other is lm else str(getattr(other, "name", type(other).__name__))
        return self._lm


def _other_ways(lm: LM, dtype: str | None) -> Iterator[LM]:
    """Return the other ways of a model to compute, in `dtype` first; none if it has no others."""
    recomputed = getattr(lm, "recomputed", None)
    if recomputed is None:
        return iter(())
    if dtype is None:
        return iter(recomputed(None))
    groupings = sum(1 for _ in recomputed(None))
    return chain(islice(recomputed(dtype.removeprefix("torch.")), groupings, None), recomputed(None))
