"""Messages to frameworks and agents, as values."""

from __future__ import annotations

from croupier.model.agent_orders import TaskOrder
from croupier.model.attributes import Attributes
from croupier.model.devices import Device
from croupier.model.ids import NO_HOLD, AgentId, FrameworkId, HoldId, OfferId, Role, TaskId
from croupier.model.isolation import NO_FEATURES, Features
from croupier.model.resources import Resources
from croupier.model.task import TaskStatus
from croupier.model.value import value
from croupier.model.verdict import Verdict


@value
class Subscribed:
    """Confirms a framework's session."""

    framework_id: FrameworkId
    heartbeat_s: float
    master_id: str


@value
class AgentDescription:
    """An agent, as frameworks may see it."""

    agent_id: AgentId
    hostname: str
    attributes: Attributes
    http_address: str
    features: Features = NO_FEATURES
    devices: tuple[Device, ...] = ()


@value
class Offered:
    """An offer of one agent's resources until its lease ends."""

    offer_id: OfferId
    agent: AgentDescription
    role: Role
    resources: Resources
    lease_s: float
    hold_id: HoldId = NO_HOLD


@value
class Rescinded:
    """Ends an offer."""

    offer_id: OfferId
    reason: str


def verdict_size(verdict: Verdict) -> int:
    """Return about how many bytes of memory the verdict takes. O(tasks)."""
    size = 100 + (len(str(verdict.error)) if verdict.error is not None else 0)
    shared = {id(verdict.error)}
    for task in verdict.tasks:
        size += 120 + len(task.task_id)
        if task.error is not None and id(task.error) not in shared:
            shared.add(id(task.error))
            size += 200 + len(str(task.error))
    for operation in verdict.operations:
        size += 320 + len(operation.id) + len(str(operation.error or ""))
    return size


@value
class Updated:
    """Status updates of tasks."""

    statuses: tuple[TaskStatus, ...]


@value
class Placed:
    """Submitted tasks were placed on an agent; the statuses are STAGING."""

    agent: AgentDescription
    statuses: tuple[TaskStatus, ...]


@value
class MessageArrived:
    """A message from an executor of the framework."""

    task_id: TaskId
    agent_id: AgentId
    data: bytes


@value
class AgentFailed:
    """Reports the loss of an agent."""

    agent_id: AgentId
    hostname: str
    message: str


@value
class PreemptRequested:
    """Asks a framework to end tasks of one agent and one role before the master kills them.

    `reason`: the starving framework, for people.
    """

    task_ids: tuple[TaskId, ...]
    agent_id: AgentId
    grace_s: float
    role: Role
    reason: str


@value
class Heartbeat:
    """Keeps a session alive."""


@value
class Registered:
    """Confirms an agent's session."""

    agent_id: AgentId
    heartbeat_s: float
    master_id: str


ToFramework = (
    Subscribed
    | Offered
    | Rescinded
    | Verdict
    | Updated
    | Placed
    | AgentFailed
    | PreemptRequested
    | MessageArrived
    | Heartbeat
)
ToAgent = Registered | TaskOrder | Heartbeat
