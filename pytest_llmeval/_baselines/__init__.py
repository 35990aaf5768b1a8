"""Baselines: the answers of a model in one text file per task, to be committed and read in a diff.

A file begins with the settings that its answers depend on, one per line. Then every doc has a line with its number, the
hash of its columns, the hash of its requests, the choice of the model, the right choice and the margin between the
model's choice and the next one (multiple choice), and its scores:

    llmeval baseline, format 1
    digest: "mfrggzdfmztwq"
    task: "arc_easy"
    num_fewshot: 0
    ...
    columns: ["doc", "hash", "prompt", "pick", "gold", "margin/acc_norm", "acc,none", "acc_norm,none"]

    0 kvzwylfo5a 4dq2bv B A 1.31/0.042 0 1

The second margin is that of the choice by ``acc_norm``, in log-probability per character. A baseline that
``--llmeval-calibrate`` wrote has a line ``calibration`` in its head.

Docs of two runs pair by both hashes, never by their numbers, which are for the reader (``doc[0]``). The doc hash has 50
bits and the prompt hash 30: the probability that any two of 14,042 different docs share a doc hash is 1e-7, and that
they share both hashes and pair wrongly 1e-16.

baseline, record, entry  a baseline folder, the file of a task, the line of a doc
calibration              the flips of an unchanged build, measured when the baseline was written
next_tokens              the file of next-token probabilities, which a baseline has on request
nights                   the runs that a gate has seen against its baseline
comparison               the pairs of docs of a run and its baseline, and the reasons against comparing them
"""

from __future__ import annotations

from pytest_llmeval._baselines.baseline import Baseline
from pytest_llmeval._baselines.baseline import updated
from pytest_llmeval._baselines.calibration import Calibration
from pytest_llmeval._baselines.calibration import SelfFlips
from pytest_llmeval._baselines.comparison import Comparison
from pytest_llmeval._baselines.comparison import pair
from pytest_llmeval._baselines.entry import Entry
from pytest_llmeval._baselines.entry import doc_key
from pytest_llmeval._baselines.entry import entry_of
from pytest_llmeval._baselines.entry import read_item
from pytest_llmeval._baselines.entry import write_item
from pytest_llmeval._baselines.next_tokens import NO_POSITIONS
from pytest_llmeval._baselines.next_tokens import Kept
from pytest_llmeval._baselines.next_tokens import cost_of
from pytest_llmeval._baselines.next_tokens import positions_text
from pytest_llmeval._baselines.next_tokens import read_positions
from pytest_llmeval._baselines.nights import History
from pytest_llmeval._baselines.nights import Night
from pytest_llmeval._baselines.nights import history_path
from pytest_llmeval._baselines.nights import read_history
from pytest_llmeval._baselines.nights import write_history
from pytest_llmeval._baselines.record import Record
from pytest_llmeval._baselines.record import read_record
from pytest_llmeval._baselines.record import record_text


__all__ = [
    "NO_POSITIONS",
    "Baseline",
    "Calibration",
    "Comparison",
    "Entry",
    "History",
    "Kept",
    "Night",
    "Record",
    "SelfFlips",
    "cost_of",
    "doc_key",
    "entry_of",
    "history_path",
    "pair",
    "positions_text",
    "read_history",
    "read_item",
    "read_positions",
    "read_record",
    "record_text",
    "updated",
    "write_history",
    "write_item",
]
