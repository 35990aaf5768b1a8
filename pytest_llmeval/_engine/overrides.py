"""Calls of torch's functions inside a stock model, seen on their way.

Linear layers through oneDNN, where its products of single-precision matrices on a processor are faster.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class CallMode(TorchFunctionMode):
    """While it is entered, every call of a torch function in this thread goes through `call`, which may answer it."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        return func(*args, **keywords)


class OneDNNLinear(CallMode):
    """While it is entered, linear layers in float32 on a processor are computed by oneDNN.

    torch's own product took half again as long on 8 tokens and a seventh more on 512 (AMD EPYC, two cores). For texts,
    not for scores: it adds up in another order than lm_eval's products, and log-likelihoods of long continuations went
    1.1e-4 away from the recorded ones. The operator is torch's own too, if not a public one: where it is absent, all
    stays as it is.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_there = torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")

    def call(self, func: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        if func is torch.nn.functional.linear and self._is_there and not keywords and _is_plain(*args[:2]):
            bias = args[2] if len(args) > 2 else None
            return torch.ops.mkldnn._linear_pointwise(args[0], args[1], bias, "none", [], "")
        return super().call(func, args, keywords)


def _is_plain(tokens: torch.Tensor, weight: torch.Tensor) -> bool:
    return tokens.device.type == "cpu" and tokens.dtype == weight.dtype == torch.float32 and weight.is_contiguous()
