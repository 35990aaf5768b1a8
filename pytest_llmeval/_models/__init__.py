"""Models by name. torch and transformers live in this room only, and are imported when a model is loaded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from typing import TypeAlias

from pytest_llmeval._errors import ModelError
from pytest_llmeval._lm import LM
from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.arguments import read_model_args
from pytest_llmeval._models.checkpoints import check_folder
from pytest_llmeval._models.checkpoints import check_gguf
from pytest_llmeval._models.checkpoints import missing_packages
from pytest_llmeval._models.sharing import Encodings
from pytest_llmeval._models.specs import Source
from pytest_llmeval._models.specs import find_source
from pytest_llmeval._models.specs import split_scheme


#: Makes a model from what follows ``SCHEME:`` and the texts of the model arguments.
ModelFactory: TypeAlias = Callable[[str, Mapping[str, str]], LM]

NO_SCHEMES: Mapping[str, ModelFactory] = MappingProxyType({})
NEEDED_PACKAGES = ("torch", "transformers")


def check_spec(spec: str, args: Mapping[str, str], *, schemes: Mapping[str, ModelFactory] = NO_SCHEMES) -> None:
    """Everything that can be known of a model without loading it, torch or a network.

    Raises SettingError: unknown scheme, no such folder or file, a folder without config, weights or tokenizer,
    a model argument that is unknown or ill-typed. The arguments of a registered scheme are its own affair.
    """
    scheme, rest = split_scheme(spec, schemes)
    if scheme not in schemes:
        _check_hugging_face(find_source(rest), read_model_args(args))


def load_model(
    spec: str,
    args: Mapping[str, str],
    *,
    schemes: Mapping[str, ModelFactory] = NO_SCHEMES,
    encodings: Encodings | None = None,
) -> LM:
    """The model that a spec names, its weights not yet read: `prepare()` or the first request does that.

    `spec` is a folder, a ``.gguf`` file, a hub id, or ``SCHEME:REST`` of one of `schemes`. Raises SettingError as
    `check_spec`, and ModelError if the model cannot be loaded. `encodings` are those that several models share.
    """
    scheme, rest = split_scheme(spec, schemes)
    if scheme in schemes:
        return schemes[scheme](rest, args)
    source, read = find_source(rest), read_model_args(args)
    _check_hugging_face(source, read)
    missing = missing_packages(NEEDED_PACKAGES)
    if missing:
        raise ModelError(
            f"model {spec!r} needs {' and '.join(missing)}, which this Python lacks: pip install {' '.join(missing)} "
            "(for a build that suits your machine see https://pytorch.org/get-started)"
        )
    # Imports torch.
    from pytest_llmeval._models.huggingface import open_model

    return open_model(source, read, encodings)


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


def _check_hugging_face(source: Source, args: ModelArgs) -> None:
    if source.kind == "gguf":
        check_gguf(source.path)
    elif source.kind == "folder" and args.gguf_file is not None:
        check_gguf(source.path / args.gguf_file)
    elif source.kind == "folder":
        check_folder(source.path, own_tokenizer=args.tokenizer is None)
