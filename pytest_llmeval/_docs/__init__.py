"""The docs of a task: where its data lies, which rows of it are docs, and which docs a run evaluates.

layout      the files of each split in a folder
readers     files as tables
opening     one split, from a mirror, files, a function or the hub
tasks       the docs and the few-shot pool of one task; limit, share, seeded sample
"""

from pytest_llmeval._docs.opening import DataSource
from pytest_llmeval._docs.tasks import TaskDocs
from pytest_llmeval._docs.tasks import open_docs
from pytest_llmeval._docs.tasks import select


__all__ = ["DataSource", "TaskDocs", "open_docs", "select"]
