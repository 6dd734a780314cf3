"""The names in the event log that are not those of Python.

Rule: a name in a log never changes. A class, field or enum member that is renamed in Python gets an
entry here; `tests/upgrade/tags.txt` lists all names. The digest of decisions is computed over the
same names, in the order of the fields.
"""

from __future__ import annotations

from typing import Final

from croupier.master.core.access_records import TokenKind
from croupier.master.core.agent_status import AgentStatus
from croupier.master.core.tasks import TaskSnapshot
from croupier.model.access import AccessPolicy, Action
from croupier.model.codec import error_name
from croupier.model.errors import CroupierError

NAMES: Final = {
    "Head": "head",
    "KnownRole": "role",
    "KnownAgent": "agent",
    "KnownFramework": "framework",
    "KnownOffer": "offer",
    "KnownTask": "task",
    "Received": "Heard",
    "Head.digest": "decided",
    "Settings.used_task_ids": "spent_ids",
    "Settings.removed_frameworks": "spent_frameworks",
    "AgentRecord.is_authenticated": "authenticated",
    "FrameworkRecord.is_unrecorded": "is_stranger",
    "FrameworkRecord.earlier_clients": "former",
    "TaskRecord.master_status": "told",
    "TaskRecord.is_acknowledged": "done",
    **{f"Action.{each.name}": each.value for each in Action},
    **{f"TokenKind.{each.name}": each.value for each in TokenKind},
}

# Answers to operators. The digest holds only the kind of an answer.
_ANSWERS: Final[dict[type, str]] = {
    AgentStatus: "Agent",
    TaskSnapshot: "Task",
    AccessPolicy: "Policy",
}


def answer_tag(result: object) -> str:
    """Return the kind of an operator's answer; with its text if it is an error."""
    if isinstance(result, CroupierError):
        return f"{error_name(result)}: {result}"
    return _ANSWERS.get(type(result), type(result).__name__)
