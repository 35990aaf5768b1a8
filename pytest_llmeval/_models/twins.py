"""One model computing otherwise: the same answers, up to rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pytest_llmeval._models.arguments import ModelArgs
from pytest_llmeval._models.devices import pass_limits


#: Passes so much smaller than usual: sums over other numbers of rows and columns, hence in another order.
SMALLER = 4


def other_groupings(model: Any, args: ModelArgs) -> Iterator[tuple[str, ModelArgs]]:
    """Arguments under which requests go together otherwise, and what to call that: smaller passes, and one by one."""
    tokens = max(1, pass_limits(model, args).pack // SMALLER)
    yield f"passes of {tokens} tokens", replace(args, max_batch_tokens=tokens)
    yield "one sequence a pass", replace(args, engine="padded", batch_size=1)
