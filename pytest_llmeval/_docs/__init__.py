"""The docs of a task: where its data lies, which rows of it are docs, and which of them a run asks for.

layout      which files of a folder hold which split
readers     files to tables
calls       running the functions of a task file
opening     one split, from mirror, files, function or hub
rows        tables to docs
tasks       the docs and the few-shot pool of one task
selection   limit, share, seeded sample
"""

from pytest_llmeval._docs.tasks import DataSource
from pytest_llmeval._docs.tasks import TaskDocs
from pytest_llmeval._docs.tasks import open_docs
from pytest_llmeval._docs.tasks import select


__all__ = ["DataSource", "TaskDocs", "open_docs", "select"]
