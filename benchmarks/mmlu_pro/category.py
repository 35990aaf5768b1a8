"""The docs of one MMLU-Pro category: the data set is a single table, with a column `category`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from datasets import Dataset


def only(category: str) -> Callable[[Dataset], Dataset]:
    """A `process_docs` that keeps the docs of this category, in their order."""

    def docs_of_category(docs: Dataset) -> Dataset:
        return docs.select([index for index, value in enumerate(docs["category"]) if value == category])

    return docs_of_category


biology = only("biology")
business = only("business")
chemistry = only("chemistry")
computer_science = only("computer science")
economics = only("economics")
engineering = only("engineering")
health = only("health")
history = only("history")
law = only("law")
math = only("math")
other = only("other")
philosophy = only("philosophy")
physics = only("physics")
psychology = only("psychology")
