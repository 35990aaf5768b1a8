"""Calls of torch's functions inside a stock model, seen on their way."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

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
