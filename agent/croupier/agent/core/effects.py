"""What an agent must do about what happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from croupier.agent.core.tasks import Key
from croupier.model.ids import AgentId
from croupier.model.task import TaskStatus


class Force(Enum):
    """How a process group is told to end."""

    ASK = "SIGTERM"
    MAKE = "SIGKILL"


@dataclass(frozen=True, slots=True)
class Introduce:
    """Open the session with REGISTER: everything the state holds, as it is now."""

    session: int


@dataclass(frozen=True, slots=True)
class SendUpdates:
    """Send updates of one task in the session, unless it is over by now."""

    session: int
    statuses: tuple[TaskStatus, ...]
    again: bool = False
    """Whether they were sent before."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A fact, for logs and metrics: a task is in a new state."""

    status: TaskStatus


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A fact, for metrics: so many updates need not be kept any longer."""

    count: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the task's process, if the state still wants it by then; answer with an event."""

    key: Key


@dataclass(frozen=True, slots=True)
class Signal:
    """Tell the process group of a task to end."""

    key: Key
    pid: int
    force: Force


@dataclass(frozen=True, slots=True)
class Forget:
    """The task is no more: nothing will be said about it again."""

    key: Key


@dataclass(frozen=True, slots=True)
class KeepAgentId:
    """Remember the agent's id over restarts; an empty one: forget it."""

    agent_id: AgentId


Effect = Introduce | SendUpdates | Moved | Acknowledged | Spawn | Signal | Forget | KeepAgentId
