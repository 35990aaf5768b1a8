"""Baselines: what a model answered, one text file a task, meant to be committed and read in a diff.

A file begins with the settings that its answers depend on, one a line; then every doc has a line of its number, the
hash of its columns, the hash of what was sent for it, the model's pick, the right one and the margin between the
pick and the next (multiple choice), and its scores:

    llmeval baseline, format 1
    digest: "mfrggzdfmztwq"
    task: "arc_easy"
    num_fewshot: 0
    ...
    columns: ["doc", "hash", "prompt", "pick", "gold", "margin/acc_norm", "acc,none", "acc_norm,none"]

    0 kvzwylfo5a 4dq2bv B A 1.31/0.042 0 1

The second margin is that of what ``acc_norm`` picks, in its own unit: log-probability per character.

Docs of two runs pair by both hashes, never by their numbers, which are there for the reader (``doc[0]``). The doc
hash has 50 bits and the prompt hash 30: among 14,042 docs two different ones share a doc hash with probability 1e-7,
and share both, which is what it takes to pair them wrongly, with 1e-16.
"""

from __future__ import annotations

from pytest_llmeval._baselines.comparing import Comparison
from pytest_llmeval._baselines.comparing import compare_task
from pytest_llmeval._baselines.entries import Entry
from pytest_llmeval._baselines.entries import entry_of
from pytest_llmeval._baselines.folder import Folder
from pytest_llmeval._baselines.keys import doc_key
from pytest_llmeval._baselines.pairing import Pairing
from pytest_llmeval._baselines.pairing import pair
from pytest_llmeval._baselines.record import Record
from pytest_llmeval._baselines.record import read_record
from pytest_llmeval._baselines.record import record_text
from pytest_llmeval._baselines.updating import Update
from pytest_llmeval._baselines.updating import updated


__all__ = [
    "Comparison",
    "Entry",
    "Folder",
    "Pairing",
    "Record",
    "Update",
    "compare_task",
    "doc_key",
    "entry_of",
    "pair",
    "read_record",
    "record_text",
    "updated",
]
