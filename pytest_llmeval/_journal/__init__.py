"""The journal: answers of models kept from run to run, in a file that concurrent processes share.

journal   the file: entries by key, checked, bounded in size, replaced when it is damaged
deferred  a model that is loaded when the journal does not know an answer
answers   what the journal knows of one model: keys of requests, answers as bytes and back
"""

from __future__ import annotations

from pytest_llmeval._journal.answers import KnownAnswers
from pytest_llmeval._journal.answers import key_of
from pytest_llmeval._journal.answers import known_answers
from pytest_llmeval._journal.deferred import DeferredLM
from pytest_llmeval._journal.deferred import Identity
from pytest_llmeval._journal.journal import Journal


__all__ = ["DeferredLM", "Identity", "Journal", "KnownAnswers", "key_of", "known_answers"]
