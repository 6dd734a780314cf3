"""What has happened, for logs and metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.task import Reason, Source, TaskState

Joined = Literal["new", "again", "returned"]
OfferOutcome = Literal["accepted", "declined", "rescinded", "expired"]
Outcome = Literal["ok", "invalid"]


@dataclass(frozen=True, slots=True)
class AgentJoined:
    """An agent registered: for the first time, again, or after it was given up."""

    agent_id: AgentId
    hostname: str
    kind: Joined
    tasks: int


@dataclass(frozen=True, slots=True)
class AgentLeft:
    """An agent was suspected, disconnected, became unreachable, or left for good."""

    agent_id: AgentId
    hostname: str
    why: Literal["suspected", "disconnected", "unreachable", "stopped", "gone"]
    message: str


@dataclass(frozen=True, slots=True)
class AgentOperated:
    """An operator has had an agent drained, deactivated, reactivated or declared gone.

    Attributes:
        operator: where the wish came from.
    """

    agent_id: AgentId
    hostname: str
    action: str
    operator: str


@dataclass(frozen=True, slots=True)
class AgentDrained:
    """The last task of an agent that is being drained has ended."""

    agent_id: AgentId
    hostname: str


@dataclass(frozen=True, slots=True)
class AgentRefused:
    """An agent was not taken in for its kinds of resources or for what it has heard, and why."""

    agent_id: AgentId
    hostname: str
    message: str


@dataclass(frozen=True, slots=True)
class AgentUnhealthy:
    """An agent says that it cannot launch tasks, and why; it is not offered."""

    agent_id: AgentId
    hostname: str
    problems: str


@dataclass(frozen=True, slots=True)
class AgentHealthy:
    """An agent that could not launch tasks says that it can again."""

    agent_id: AgentId
    hostname: str


@dataclass(frozen=True, slots=True)
class FrameworkJoined:
    """A framework subscribed: for the first time, again, or over an older session."""

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    kind: Joined


@dataclass(frozen=True, slots=True)
class FrameworkLeft:
    """A framework disconnected, or was removed."""

    framework_id: FrameworkId
    why: Literal["disconnected", "removed"]
    message: str


@dataclass(frozen=True, slots=True)
class FrameworkTornDown:
    """An operator has torn a framework down: the audit line.

    Attributes:
        tasks: how many of its tasks are to end.
        operator: the operator's address.
    """

    framework_id: FrameworkId
    name: str
    tasks: int
    operator: str


@dataclass(frozen=True, slots=True)
class PreemptionBegun:
    """Room is being made for a framework that starved.

    Attributes:
        room: what is kept for it on the agent.
        tasks: what is asked to end.
        offers: what was rescinded.
    """

    framework_id: FrameworkId
    role: Role
    agent_id: AgentId
    room: str
    tasks: tuple[str, ...]
    offers: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class PreemptionEnded:
    """What became of a task that was asked to end.

    It ended by itself within the grace, was killed, or was spared as nobody needs its room.
    """

    framework_id: FrameworkId
    task_id: TaskId
    outcome: Literal["yielded", "killed", "spared"]


@dataclass(frozen=True, slots=True)
class OfferMade:
    """An offer was made."""

    offer_id: OfferId
    framework_id: FrameworkId
    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class OfferEnded:
    """An offer came to its end after `held_s` seconds."""

    offer_id: OfferId
    framework_id: FrameworkId
    outcome: OfferOutcome
    held_s: float
    message: str


@dataclass(frozen=True, slots=True)
class TaskMoved:
    """A task's state changed."""

    framework_id: FrameworkId
    task_id: TaskId
    agent_id: AgentId
    state: TaskState
    source: Source
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class CallAnswered:
    """A framework's call was handled."""

    framework_id: FrameworkId
    call: str
    outcome: Outcome
    message: str


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """An operator has changed a role's settings: the audit line.

    Attributes:
        operator: where the wish came from.
        forced: whether he would have it against what the cluster said.
    """

    role: Role
    before: str
    after: str
    operator: str
    forced: bool


@dataclass(frozen=True, slots=True)
class UpdateHandled:
    """An agent's update was passed on, was stale, or had nobody to go to."""

    outcome: Literal["forwarded", "stale", "waiting", "unknown"]


@dataclass(frozen=True, slots=True)
class UpdateAcknowledged:
    """A framework's acknowledgement was passed on, or meant nothing."""

    outcome: Literal["forwarded", "unknown"]


Fact = (
    AgentJoined
    | AgentLeft
    | AgentOperated
    | AgentDrained
    | AgentRefused
    | AgentUnhealthy
    | AgentHealthy
    | FrameworkJoined
    | FrameworkLeft
    | FrameworkTornDown
    | OfferMade
    | OfferEnded
    | TaskMoved
    | CallAnswered
    | RoleChanged
    | PreemptionBegun
    | PreemptionEnded
    | UpdateHandled
    | UpdateAcknowledged
)
