"""`fewshot_config` and `fewshot_split`: where the examples before a doc come from, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from typing import Literal

from pytest_llmeval._task import DocData
from pytest_llmeval._task import DocFunction
from pytest_llmeval._task import FewshotSpec
from pytest_llmeval._task import Field
from pytest_llmeval._taskfile import typed
from pytest_llmeval._taskfile.fields import FieldReader
from pytest_llmeval._taskfile.yaml import FunctionRef
from pytest_llmeval._taskfile.yaml import Items
from pytest_llmeval._taskfile.yaml import Value
from pytest_llmeval._taskfile.yaml import data


FEWSHOT_KEYS = frozenset(
    {
        "sampler",
        "split",
        "samples",
        "fewshot_indices",
        "process_docs",
        "doc_to_text",
        "doc_to_choice",
        "doc_to_target",
        "gen_prefix",
        "fewshot_delimiter",
        "target_delimiter",
    }
)


def read_fewshot(entries: Mapping[str, Value], fields: FieldReader) -> FewshotSpec:
    """The few-shot settings out of the entries of a whole task. `fewshot_config.split` wins over `fewshot_split`."""
    config = typed.given(entries, "fewshot_config")
    own = {} if config is None else typed.table(config, "fewshot_config").entries
    typed.check_keys(own, FEWSHOT_KEYS, "fewshot_config.")
    reader = _Reader(own, fields)
    split = typed.given(own, "split") if "split" in own else typed.given(entries, "fewshot_split")
    return FewshotSpec(
        sampler=reader.sampler(),
        split=None if split is None else typed.name(split, "fewshot_split"),
        samples=reader.samples(),
        indices=reader.indices(),
        process_docs=reader.process_docs(),
        doc_to_text=fields.text("fewshot_config.doc_to_text", typed.given(own, "doc_to_text")),
        doc_to_choice=fields.choice("fewshot_config.doc_to_choice", typed.given(own, "doc_to_choice")),
        doc_to_target=fields.target("fewshot_config.doc_to_target", typed.given(own, "doc_to_target")),
        gen_prefix=reader.gen_prefix(),
        fewshot_delimiter=reader.delimiter("fewshot_delimiter"),
        target_delimiter=reader.delimiter("target_delimiter"),
    )


class _Reader:
    """Reads single keys of `fewshot_config`."""

    def __init__(self, entries: Mapping[str, Value], fields: FieldReader) -> None:
        self.entries = entries
        self.fields = fields

    def sampler(self) -> Literal["default", "first_n"]:
        value = typed.given(self.entries, "sampler")
        if value is None:
            return "default"
        if isinstance(value, FunctionRef):
            raise typed.expects(value, "fewshot_config.sampler", "default or first_n")
        name = typed.one_of(value, "fewshot_config.sampler", ("default", "first_n"))
        return "first_n" if name == "first_n" else "default"

    def samples(self) -> tuple[DocData, ...] | DocFunction | None:
        value, key = typed.given(self.entries, "samples"), "fewshot_config.samples"
        if value is None:
            return None
        if isinstance(value, FunctionRef):
            return self.fields.modules.function(value, key)
        return tuple(data(table) for table in typed.tables(value, key))

    def indices(self) -> tuple[int, ...] | None:
        value, key = typed.given(self.entries, "fewshot_indices"), "fewshot_config.fewshot_indices"
        if value is None:
            return None
        if not isinstance(value, Items):
            raise typed.expects(value, key, "a list of row numbers")
        return tuple(typed.whole(entry, f"{key}[{n}]", 0) for n, entry in enumerate(value))

    def process_docs(self) -> DocFunction | None:
        """Null here means that the examples are taken as they are, not that they are treated like the docs."""
        value, key = self.entries.get("process_docs"), "fewshot_config.process_docs"
        if value is None:
            return None
        if typed.is_null(value):
            return as_they_are
        if not isinstance(value, FunctionRef):
            raise typed.expects(value, key, "!function module.name")
        return self.fields.modules.function(value, key)

    def gen_prefix(self) -> Field | None:
        """Null or an empty text here take the task's prefix away from the examples."""
        key = "fewshot_config.gen_prefix"
        if "gen_prefix" not in self.entries:
            return None
        return self.fields.template(key, typed.given(self.entries, "gen_prefix")) or Field(key, text="")

    def delimiter(self, name: str) -> str | None:
        value = typed.given(self.entries, name)
        return None if value is None else typed.text(value, f"fewshot_config.{name}")


def as_they_are(docs: Any) -> Any:
    """The docs unchanged: the function of ``process_docs: null``."""
    return docs
