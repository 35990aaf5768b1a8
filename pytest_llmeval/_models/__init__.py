"""A model spec to a model that answers: specs, loading, encoding.

torch and transformers live in this room and in `_engine` only, and are imported when a model is loaded.
"""

from __future__ import annotations

import copy
from typing import Any

from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import LM
from pytest_llmeval._models.arguments import DTYPES
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.checkpoints import missing_packages
from pytest_llmeval._models.encoding import TextEncoder
from pytest_llmeval._models.history import Given
from pytest_llmeval._models.history import first_bad
from pytest_llmeval._models.history import history_between
from pytest_llmeval._models.specs import HuggingFaceSpec
from pytest_llmeval._models.specs import ModelFactory
from pytest_llmeval._models.specs import ModelSpec
from pytest_llmeval._models.specs import SchemeSpec
from pytest_llmeval._models.specs import parse_spec
from pytest_llmeval._models.token_cache import TokenCache


__all__ = [
    "DTYPES",
    "Given",
    "HuggingFaceSpec",
    "ModelArgs",
    "ModelFactory",
    "ModelSpec",
    "SchemeSpec",
    "TextEncoder",
    "TokenCache",
    "first_bad",
    "history_between",
    "load_model",
    "parse_spec",
    "wrap_model",
]

NEEDED_PACKAGES = ("torch", "transformers")


def load_model(spec: ModelSpec, token_cache: TokenCache | None = None) -> LM:
    """Return the model of a spec, its weights not yet read: `prepare()` or the first request reads them.

    `token_cache` is shared by several models of a session. Raises ModelError if the model cannot be loaded.
    """
    if isinstance(spec, SchemeSpec):
        return spec.factory(spec.rest, spec.args)
    missing = missing_packages(NEEDED_PACKAGES)
    if missing:
        raise ModelError(
            f"model {spec.source.place!r} needs {' and '.join(missing)}, which this Python lacks: "
            f"pip install {' '.join(missing)} (for a build that suits your machine see "
            "https://pytorch.org/get-started)"
        )
    # Imports torch.
    from pytest_llmeval._models.huggingface import open_model

    return open_model(spec, token_cache)


def wrap_model(model: Any, tokenizer: Any, *, name: str = "model in memory", **args: Any) -> LM:
    """A model of transformers that is already in memory, such as one in training, as an `LM`.

    `args` are the fields of `ModelArgs` that matter here: max_length, add_bos_token, prefix_token_id, batch_size,
    max_batch_tokens, engine. It is evaluated as it stands at each call, without dropout, and left in the mode it was
    in. ::

        @pytest.fixture(scope="session")
        def llmeval_model():
            return wrap_model(my_model, my_tokenizer, max_length=1024)
    """
    import torch

    from pytest_llmeval._models.huggingface import HuggingFaceLM

    usual = ModelArgs(**args)

    def in_memory(asked: ModelArgs) -> Any:
        """The model itself, or for another dtype a copy."""
        return model if asked.dtype == usual.dtype else copy.deepcopy(model).to(getattr(torch, asked.dtype))

    return HuggingFaceLM(model.config, tokenizer, in_memory, usual, name=name)
