"""Models of HTTP servers: token ids to log-probabilities and new texts, as `_engine` does it in this process.

The face of this room imports no HTTP library: `Client` does so when it is made.

client, pace   requests with retries and time-outs; the number of them at a time
ledger         answers by request, kept if a call fails
doors, writing the calls that score prompts; the calls that continue them
served         the entry of a model in the server's list
intake, probe  the examination of a server before the first doc
"""

from __future__ import annotations

from pytest_llmeval._servers.client import Client
from pytest_llmeval._servers.client import GoneError
from pytest_llmeval._servers.client import Patience
from pytest_llmeval._servers.client import RefusedError
from pytest_llmeval._servers.client import UnfitError
from pytest_llmeval._servers.doors import ID_DOORS
from pytest_llmeval._servers.doors import MOST_LABELS
from pytest_llmeval._servers.doors import Passage
from pytest_llmeval._servers.doors import Wire
from pytest_llmeval._servers.doors import ask_labels
from pytest_llmeval._servers.intake import Codec
from pytest_llmeval._servers.ledger import Ask
from pytest_llmeval._servers.ledger import Ledger
from pytest_llmeval._servers.pace import Clock
from pytest_llmeval._servers.probe import Findings
from pytest_llmeval._servers.probe import probe
from pytest_llmeval._servers.served import Served
from pytest_llmeval._servers.served import find_served
from pytest_llmeval._servers.writing import Written
from pytest_llmeval._servers.writing import chat
from pytest_llmeval._servers.writing import write


__all__ = [
    "ID_DOORS",
    "MOST_LABELS",
    "Ask",
    "Client",
    "Clock",
    "Codec",
    "Findings",
    "GoneError",
    "Ledger",
    "Passage",
    "Patience",
    "RefusedError",
    "Served",
    "UnfitError",
    "Wire",
    "Written",
    "ask_labels",
    "chat",
    "find_served",
    "probe",
    "write",
]
