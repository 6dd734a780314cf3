"""What is known of a task's processes once they have ended, beside how the first one ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from croupier.model.isolation import Usage
from croupier.model.task import Reason


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A limit that a task has exceeded.

    Attributes:
        reason: MEMORY_LIMIT or DISK_LIMIT.
        message: names the limit and the peak, for people.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Measurements of a run that has ended.

    Attributes:
        usage: None if it was not measured.
        exceeded: the limit for which processes of the task were killed, if there is one.
        notes: limits that it met without losing a process, for people.
    """

    usage: Usage | None = None
    exceeded: Exceeded | None = None
    notes: tuple[str, ...] = ()


NO_ENDING: Final = Ending()
