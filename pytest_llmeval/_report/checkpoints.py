"""Several models side by side: a row a task or group, a column a model, and what changed from the first to the last."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field

from pytest_llmeval._report.table import ARROWS
from pytest_llmeval._report.table import Children
from pytest_llmeval._report.table import hierarchy
from pytest_llmeval._report.table import markdown_table
from pytest_llmeval._report.trends import Trend
from pytest_llmeval._report.trends import significant


#: From so many models on, columns are headed by what tells the models apart.
_MANY = 4


@dataclass(frozen=True, slots=True)
class Comparison:
    """What all models of a session scored on the same docs.

    `apart`: task -> docs that each model scored, where these are not the same.
    """

    models: Sequence[str]
    trends: Sequence[Trend]
    children: Children = field(default_factory=dict)
    apart: Mapping[str, Sequence[int]] = field(default_factory=dict)


def comparison_table(comparison: Comparison, *, everything: bool) -> str:
    """All trends, or without `everything` those of groups, of tasks in no group, and of tasks that changed.

    A row changed if chance does not explain how many of its docs rose and fell; such rows bear a star.
    """
    changed = _changed(comparison)
    shown = [trend for trend in comparison.trends if everything or _is_shown(trend, comparison, changed)]
    depths, order = hierarchy(comparison.children, {trend.name for trend in shown})
    rows = [row for name in order for row in _rows(name, shown, depths.get(name, 0), changed)]
    heads = _heads(comparison.models)
    # All cells are texts: of numbers the peer's layout would drop the last zeros, and the sign of a change.
    return markdown_table(("Tasks", "Metric", "", *heads, "Change", "", "Stderr", ""), rows)


def comparison_notes(comparison: Comparison, *, everything: bool) -> Iterator[str]:
    """What a reader must know of the table."""
    models, changed = comparison.models, _changed(comparison)
    yield (
        f"change: from {models[0]} to {models[-1]}, doc by doc; *: more than chance explains (sign test, 5 % over all "
        "rows)"
    )
    hidden = {t.name for t in comparison.trends if not everything and not _is_shown(t, comparison, changed)}
    hidden -= {t.name for t in comparison.trends if _is_shown(t, comparison, changed)}
    if hidden:
        what = "1 task" if len(hidden) == 1 else f"{len(hidden)} tasks"
        yield f"not shown: {what} without a significant change (-v shows all)"
    for name, counts in comparison.apart.items():
        docs = ", ".join(f"{model} {count:,}" for model, count in zip(models, counts, strict=True))
        yield f"not compared, the models scored other docs: {name} ({docs})"


def _changed(comparison: Comparison) -> set[tuple[str, str]]:
    return significant(comparison.trends)


def _is_shown(trend: Trend, comparison: Comparison, changed: set[tuple[str, str]]) -> bool:
    grouped = {task for other in comparison.trends for task in other.tasks}
    return bool(trend.tasks) or trend.name not in grouped or (trend.name, trend.key) in changed


def _rows(name: str, shown: Sequence[Trend], depth: int, changed: set[tuple[str, str]]) -> Iterator[tuple[str, ...]]:
    """One row a metric and filter; the name stands in the first only."""
    own = sorted((trend for trend in shown if trend.name == name), key=lambda trend: trend.key)
    for place, trend in enumerate(own):
        first = "" if place else " " * depth + "- " * bool(depth) + trend.display_name
        stderr = "N/A" if trend.stderr is None else f"{trend.stderr:.4f}"
        values = (f"{value:.4f}" for value in trend.values)
        star = "*" if (trend.name, trend.key) in changed else ""
        metric = trend.metric if trend.filter == "none" else trend.key
        yield first, metric, ARROWS[trend.higher_is_better], *values, f"{trend.change:+.4f}", "±", stderr, star


def _heads(models: Sequence[str]) -> Sequence[str]:
    """The names, or for many models what is left of them without the beginning that they share."""
    if len(models) < _MANY:
        return models
    shared = _beginning(models)
    return [f"…{model[len(shared) :]}" for model in models] if shared else models


def _beginning(models: Sequence[str]) -> str:
    """What all names begin with, up to a separator, so that numbers stay whole."""
    shared = min(models)
    while shared and not all(model.startswith(shared) for model in models):
        shared = shared[:-1]
    cut = re.fullmatch(r"(.*[-_/.=:])[^-_/.=:]*", shared)
    return cut[1] if cut else ""
