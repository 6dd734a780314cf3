"""What the shell must do, in order. `Save`s are made durable before anything else is done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NewType

from croupier.master.core.facts import Fact
from croupier.master.core.messages import ToAgent, ToFramework
from croupier.master.core.records import Record
from croupier.model.errors import CroupierError

# Names one stream from a framework or an agent; given by the shell, never used twice.
SessionId = NewType("SessionId", int)


@dataclass(frozen=True, slots=True)
class Send:
    """Queue a message for a session; it is dropped if the session has ended."""

    session: SessionId
    message: ToFramework | ToAgent


@dataclass(frozen=True, slots=True)
class Close:
    """Say the error, if any, and end the session."""

    session: SessionId
    error: CroupierError | None


@dataclass(frozen=True, slots=True)
class Save:
    """Make the record durable before any other effect of the batch."""

    record: Record


@dataclass(frozen=True, slots=True)
class Answer:
    """Give an operator the result of what was asked under this number."""

    request: int
    result: object


@dataclass(frozen=True, slots=True)
class Happened:
    """Log and count it."""

    fact: Fact


@dataclass(frozen=True, slots=True)
class Deposed:
    """Another master leads: nothing more may be said or done in the name of this one."""

    message: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing to do: a moment at which a long step may be interrupted, and then goes on.

    Only the driver, which makes steps a slice at a time, ever sees one.
    """


PAUSE = Pause()

Effect = Send | Close | Save | Answer | Happened | Deposed
# What a handler yields.
Step = Effect | Pause
