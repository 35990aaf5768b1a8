"""The docs of a run answered a second time by the same model, to confirm what a gate found (`--llmeval-confirm`).

The second answers come from float32 if the model computes in a lower precision, else from another grouping of its
requests (`LM.recomputed`). A model without such a method, for example a server, is asked as it is. Sampled texts get
other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from pytest_llmeval._evaluation.model_run import ModelRun
from pytest_llmeval._lm import LM


#: Precisions below float32, as models state them.
_LOWER = frozenset({"torch.bfloat16", "torch.float16"})

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

    def model(self, lm: LM) -> LM:
        """Return the model that answers a second time; it is made once. Raises ModelError if it cannot compute so."""
        if self._lm is None:
            self._ways = _other_ways(lm, str((self._first.facts or {}).get("model", {}).get("model_dtype")))
            other = next(self._ways, lm)
            # Weights that cannot be loaded are to be found out here, once, not doc by doc.
            getattr(other, "prepare", lambda: None)()
            self._lm = other
            self.way = "" if self._lm is lm else str(getattr(self._lm, "name", type(self._lm).__name__))
        return self._lm


def _other_ways(lm: LM, dtype: str) -> Iterator[LM]:
    """Return the other ways of a model to compute, the best one to confirm with first; none if it has no others."""
    recomputed = getattr(lm, "recomputed", None)
    if recomputed is None:
        return iter(())
    if dtype not in _LOWER:
        return iter(recomputed(None))
    groupings = sum(1 for _ in recomputed(None))
    return islice(recomputed("float32"), groupings, None)
