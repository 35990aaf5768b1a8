"""Loading of the config, the tokenizer and the weights of a folder, file or hub id with transformers.

Only messages that may concern scores are shown: weights missing from the checkpoint are an error, and the warnings of
transformers become Python warnings, except those that give only advice.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import warnings
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from typing import TypeVar

import torch
import transformers

from pytest_llmeval._engine.causal_model import silence
from pytest_llmeval._errors import LLMEvalWarning
from pytest_llmeval._errors import ModelError
from pytest_llmeval._models.checkpoints import content_hashes
from pytest_llmeval._models.specs import HuggingFaceSpec
from pytest_llmeval._plain import listed


Loaded = TypeVar("Loaded")

_VERSION = tuple(map(int, transformers.__version__.split(".")[:2]))

#: The keyword was renamed in transformers 4.56.
DTYPE_KEYWORD = "dtype" if _VERSION >= (4, 56) else "torch_dtype"

#: From 5.0 on the error for weights of the wrong shape does not name them; only a logged table does.
TELLS_SHAPES = _VERSION < (5, 0)

#: Arguments that affect only speed and memory.
NEUTRAL_ARGS = frozenset({"device", "batch_size", "max_batch_tokens", "engine"})

#: Messages of transformers during loading that do not concern scores.
ADVISORY = re.compile(
    "`torch_dtype` is deprecated"
    "|You are attempting to use Flash Attention 2"
    "|Using (bos|eos|pad)_token, but it is not set yet"
    "|Special tokens have been added in the vocabulary"
    "|is falling back to its reference PyTorch implementation"
    "|The fast path is not available"
    # Missing and unused weights, which `Loader.model` checks itself.
    "|LOAD REPORT"
    "|Some weights of "
)

#: Colour codes in the reports that transformers logs.
_COLOURS = re.compile("\x1b\\[[0-9;]*m")


class Loader:
    """Loads the parts of one model; each method reads one of them."""

    def __init__(self, spec: HuggingFaceSpec) -> None:
        self.spec = spec
        self.args = spec.args

    def config(self) -> Any:
        """Return the config. Raises ModelError if it cannot be read, and for an encoder-decoder model."""
        config = self._read("the config", transformers.AutoConfig.from_pretrained, self._place())
        if getattr(config, "is_encoder_decoder", False):
            raise ModelError(f"model {self.spec.place!r} is an encoder-decoder model: use a decoder model")
        return config

    def tokenizer(self) -> Any:
        """Return the tokenizer. Raises ModelError if it cannot be read."""
        if self.args.tokenizer is not None:
            place: dict[str, Any] = {
                "pretrained_model_name_or_path": self.args.tokenizer,
                "trust_remote_code": self.args.trust_remote_code,
            }
        else:
            place = self._place()
        if self.args.add_bos_token is not None:
            place["add_bos_token"] = self.args.add_bos_token
        return self._read("the tokenizer", transformers.AutoTokenizer.from_pretrained, place)

    def model(self, config: Any, device: torch.device) -> Any:
        """Return the model on `device`, in evaluation mode. Raises ModelError for missing or misshapen weights."""
        dtype = "auto" if self.args.dtype == "auto" else getattr(torch, self.args.dtype)
        keywords = self._place() | {"config": config, "output_loading_info": True, DTYPE_KEYWORD: dtype}
        if not TELLS_SHAPES:
            keywords["ignore_mismatched_sizes"] = True
        if self.args.attn_implementation is not None:
            keywords["attn_implementation"] = self.args.attn_implementation
        read: Any = transformers.AutoModelForCausalLM.from_pretrained
        model, info = self._read("the weights", read, keywords)
        self._check_shapes(info["mismatched_keys"])
        missing = sorted(info["missing_keys"])
        if missing:
            raise ModelError(
                f"model {self.spec.place!r} lacks {len(missing)} of its weights, which would be random: "
                f"{listed(missing)}; save or download the checkpoint again"
            )
        unused = sorted(info["unexpected_keys"])
        if unused:
            warnings.warn(
                f"model {self.spec.place!r}: {type(model).__name__} does not use {len(unused)} of the weights: "
                f"{listed(unused)}",
                LLMEvalWarning,
                stacklevel=2,
            )
        try:
            return model.to(device).eval()
        except (RuntimeError, ValueError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise ModelError(
                f"model {self.spec.place!r} does not fit on {device}: {reason}; choose another device or a smaller "
                "dtype with --llmeval-model-args"
            ) from None

    def fingerprint(self, config: Any) -> str | None:
        """Return a hash of everything that answers depend on; None for a hub model with an unknown commit.

        It covers the contents of a folder or file, or the commit of a hub id, and the arguments. Equal copies in
        different folders have equal fingerprints.
        """
        commit = getattr(config, "_commit_hash", None)
        in_hub = self.spec.kind == "hub"
        if in_hub and commit is None:
            return None
        parts: list[Any] = [
            ("arguments", {name: value for name, value in asdict(self.args).items() if name not in NEUTRAL_ARGS}),
            ("model", [self.spec.place, commit] if in_hub else content_hashes(Path(self.spec.place))),
        ]
        if (tokenizer := self.args.tokenizer) is not None:
            path = Path(tokenizer)
            parts.append(("tokenizer", content_hashes(path) if path.is_dir() else [tokenizer, None]))
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _check_shapes(self, mismatched: Iterable[Sequence[Any]]) -> None:
        """Raise ModelError if there are mismatched weights, each (name, saved shape, shape by the config)."""
        odd = sorted((name, tuple(saved), tuple(expected)) for name, saved, expected in mismatched)
        if odd:
            name, saved, expected = odd[0]
            do = "does" if len(odd) == 1 else "do"
            raise ModelError(
                f"model {self.spec.place!r}: {len(odd)} of its weights {do} not have the shape in the config, "
                f"first {name}: saved as {saved}, expected {expected}; use config and weights that were saved together"
            )

    def _place(self) -> dict[str, Any]:
        """Return the keyword arguments of `from_pretrained` for the place of the model."""
        if self.spec.kind == "gguf":
            path = Path(self.spec.place)
            return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}
        place: dict[str, Any] = {"pretrained_model_name_or_path": self.spec.place}
        if self.args.gguf_file is not None:
            place["gguf_file"] = self.args.gguf_file
        if self.args.revision is not None:
            place["revision"] = self.args.revision
        return place | {"trust_remote_code": self.args.trust_remote_code}

    def _read(self, what: str, read: Callable[..., Loaded], keywords: Mapping[str, Any]) -> Loaded:
        """Return the result of `read`. Raises ModelError, with the reason, if it fails; `what` names it in messages."""
        try:
            with silence() as messages, contextlib.ExitStack() as stack:
                if "gguf_file" in keywords:
                    # transformers shows the progress of reading GGUF even if its progress bars are disabled.
                    stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
                loaded = read(**keywords)
        except Exception as error:
            reason = str(error).strip() or type(error).__name__
            if "above report" in reason and messages:
                reason = f"{reason}\n{_COLOURS.sub('', messages[-1])}"
            hint = f" (there is no such folder in {Path.cwd()} either)" if self.spec.kind == "hub" else ""
            raise ModelError(f"model {self.spec.place!r}: {what} cannot be loaded: {reason}{hint}") from error
        for message in dict.fromkeys(messages):
            if not ADVISORY.search(message):
                warnings.warn(f"transformers on {self.spec.place!r}: {message}", LLMEvalWarning, stacklevel=2)
        return loaded
