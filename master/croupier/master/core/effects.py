"""Actions that a step orders. The shell commits every `Save` before it performs the others."""

from __future__ import annotations

from typing import NewType

from croupier.master.core.facts import Fact
from croupier.master.core.messages import ToAgent, ToFramework
from croupier.master.core.records import Record
from croupier.model.errors import CroupierError
from croupier.model.value import value

# Number of one stream of a framework or an agent; the shell never uses a number twice.
SessionId = NewType("SessionId", int)


@value
class Send:
    """Queue a message for a session; drop it if the session has ended."""

    session: SessionId
    message: ToFramework | ToAgent


@value
class Close:
    """End the session, with an error if there is one."""

    session: SessionId
    error: CroupierError | None


@value
class Save:
    """Make the record durable before any other effect of the batch is performed."""

    record: Record


@value
class Answer:
    """Answer the question with this number; the result is a value or a `CroupierError`."""

    request: int
    result: object


@value
class Happened:
    """Log and count a fact."""

    fact: Fact


@value
class Deposed:
    """End the term without performing anything more: another master leads."""

    message: str


@value
class AccessChanged:
    """Check the callers of open streams again: the policy has changed, or tokens were revoked.

    `revoked`: the sessions and streams of these tokens and keys end with Unauthenticated.
    """

    revoked: tuple[str, ...] = ()


@value
class Pause:
    """A moment within a long step at which the driver may let other work run."""


PAUSE = Pause()

Effect = Send | Close | Save | Answer | Happened | Deposed | AccessChanged
Step = Effect | Pause
