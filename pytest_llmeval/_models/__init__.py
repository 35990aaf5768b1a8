"""The loading of a model from its spec: specs, arguments, loading, encoding.

Only this package and `_engine` import torch and transformers, and only when a model is loaded.

specs, arguments             the texts of --llmeval-model and --llmeval-model-args
identity                     what decides about the answers of a model, for the journal
loading, checkpoints         config, tokenizer and weights of a folder, a .gguf file or a hub id; checks of its files
huggingface                  the `LM` that combines encoder, engine and chat template
server, chat                 the `LM` of a served model; the chat template of a tokenizer
thoughts                     the marks around a model's thoughts
encoding, cuts, token_cache  texts to token ids and back
history                      the saved checkpoints of one training run, and the search for the first bad one
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING
from typing import Any

from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import LM
from pytest_llmeval._models.arguments import DTYPES
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.checkpoints import missing_packages
from pytest_llmeval._models.encoding import TextEncoder
from pytest_llmeval._models.encoding import window_of
from pytest_llmeval._models.history import Given
from pytest_llmeval._models.history import first_bad
from pytest_llmeval._models.history import history_between
from pytest_llmeval._models.specs import HuggingFaceSpec
from pytest_llmeval._models.specs import ModelFactory
from pytest_llmeval._models.specs import ModelSpec
from pytest_llmeval._models.specs import SchemeSpec
from pytest_llmeval._models.specs import ServerSpec
from pytest_llmeval._models.specs import parse_spec
from pytest_llmeval._models.token_cache import TokenCache


if TYPE_CHECKING:
    from pytest_llmeval._journal import Journal

__all__ = [
    "DTYPES",
    "Given",
    "HuggingFaceSpec",
    "ModelArgs",
    "ModelFactory",
    "ModelSpec",
    "SchemeSpec",
    "ServerSpec",
    "TextEncoder",
    "TokenCache",
    "first_bad",
    "history_between",
    "load_model",
    "parse_spec",
    "window_of",
    "wrap_model",
]

NEEDED_PACKAGES = ("torch", "transformers")


def load_model(
    spec: ModelSpec, token_cache: TokenCache | None = None, seat: int | None = None, journal: Journal | None = None
) -> LM:
    """Return the model of a spec, without its weights: `prepare()` or the first request reads them.

    Models that share a `token_cache` and have equal tokenizers encode each text once. `seat`: the place of this process
    among those that share a machine, which decides its GPU. With a `journal`, a model of transformers is loaded when
    the journal lacks an answer. Raises ModelError if the model cannot be loaded.
    """
    if isinstance(spec, SchemeSpec):
        return spec.factory(spec.rest, spec.args)
    if isinstance(spec, ServerSpec):
        if missing_packages(["httpx2"]):
            raise ModelError(
                f"model {spec.model!r} at {spec.root} needs httpx2, which this Python does not have: "
                "pip install 'pytest-llmeval-harness[server]'"
            )
        from pytest_llmeval._models.server import open_server

        return open_server(spec, token_cache)
    missing = missing_packages(NEEDED_PACKAGES)
    if missing:
        raise ModelError(
            f"model {spec.place!r} needs {' and '.join(missing)}, which this Python does not have: "
            f"pip install {' '.join(missing)} (for a build for your machine see "
            "https://pytorch.org/get-started)"
        )

    def opened() -> LM:
        # Imported here because it imports torch.
        from pytest_llmeval._models.huggingface import open_model

        return open_model(spec, token_cache, seat)

    if journal is None:
        return opened()
    # Imported here because they import sqlite3, which other suites do not need.
    from pytest_llmeval._journal import DeferredLM
    from pytest_llmeval._models.identity import identifier

    return DeferredLM(spec.name, journal, opened, identifier(spec, journal))


def wrap_model(model: Any, tokenizer: Any, *, name: str = "model in memory", **args: Any) -> LM:
    """Return an `LM` of a transformers model that is already in memory, such as a model in training.

    `args` are fields of `ModelArgs`: max_length, add_bos_token, prefix_token_id, batch_size, max_batch_tokens and
    engine have an effect. Each call uses the current weights, without dropout, and restores the training mode of the
    model. ::

        @pytest.fixture(scope="session")
        def llmeval_model():
            return wrap_model(my_model, my_tokenizer, max_length=1024)
    """
    import torch

    from pytest_llmeval._models.huggingface import HuggingFaceLM

    own = ModelArgs(**args)

    def load(wanted: ModelArgs) -> Any:
        """Return the model itself, or a copy in another dtype."""
        return model if wanted.dtype == own.dtype else copy.deepcopy(model).to(getattr(torch, wanted.dtype))

    return HuggingFaceLM(model.config, tokenizer, load, own, name=name)
