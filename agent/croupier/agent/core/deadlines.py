"""The deadlines of an agent: each is a value that names what is due."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.agent.core.tasks import Key


@dataclass(frozen=True, slots=True)
class KillDeadline:
    """The grace of a task that was asked to end is over."""

    key: Key


@dataclass(frozen=True, slots=True)
class ResendDeadline:
    """A task's updates were not acknowledged in time."""

    key: Key


Deadline = KillDeadline | ResendDeadline
