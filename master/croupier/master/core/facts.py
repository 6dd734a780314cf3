"""Facts that the core reports for logs and metrics; `operator` is an operator's address."""

from __future__ import annotations

from typing import Literal

from croupier.model.ids import AgentId, FrameworkId, HoldId, OfferId, ReservationId, Role, TaskId
from croupier.model.task import Reason, Source, TaskState
from croupier.model.value import value

Joined = Literal["new", "again", "returned"]
OfferOutcome = Literal["accepted", "declined", "rescinded", "expired"]
Outcome = Literal["ok", "invalid"]
ReservationChange = Literal["announced", "began", "agents", "over", "deleted"]
HoldEnd = Literal["released", "expired", "preempted", "owner_removed", "agent_gone", "no_room"]


@value
class AgentJoined:
    """An agent registered: for the first time, again, or after it was unreachable."""

    agent_id: AgentId
    hostname: str
    kind: Joined
    tasks: int


@value
class AgentLeft:
    """An agent was suspected, disconnected, became unreachable, or left for good."""

    agent_id: AgentId
    hostname: str
    why: Literal["suspected", "disconnected", "unreachable", "stopped", "gone"]
    message: str


@value
class AgentOperated:
    """An operator drained, deactivated or reactivated an agent, or declared it gone."""

    agent_id: AgentId
    hostname: str
    action: str
    operator: str


@value
class AgentDrained:
    """The last task of a drained agent ended."""

    agent_id: AgentId
    hostname: str


@value
class AgentRefused:
    """An agent was refused for its resources, or for the masters it has seen."""

    agent_id: AgentId
    hostname: str
    message: str


@value
class TasksUnproven:
    """An agent listed live tasks without proof of launch; it was told to end them.

    `first`: one of them, as `FRAMEWORK/TASK`.
    """

    agent_id: AgentId
    hostname: str
    tasks: int
    first: str


@value
class AgentUnhealthy:
    """An agent reported why it cannot launch tasks; it is not offered."""

    agent_id: AgentId
    hostname: str
    problems: str


@value
class AgentHealthy:
    """An agent reported that it can launch tasks again."""

    agent_id: AgentId
    hostname: str


@value
class FrameworkJoined:
    """A framework subscribed: with a new id, a known one, or one from an earlier store."""

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    kind: Joined


@value
class FrameworkLeft:
    """A framework disconnected, or was removed."""

    framework_id: FrameworkId
    why: Literal["disconnected", "removed"]
    message: str


@value
class FrameworkTornDown:
    """An operator tore a framework down.

    `tasks`: the number of tasks that have yet to end.
    """

    framework_id: FrameworkId
    name: str
    tasks: int
    operator: str


@value
class PreemptionBegun:
    """Resources of an agent are being freed for a starving framework.

    Attributes:
        room: the resources that are earmarked for it.
        tasks: the tasks that were asked to end.
        offers: the offers that were rescinded.
    """

    framework_id: FrameworkId
    role: Role
    agent_id: AgentId
    room: str
    tasks: tuple[str, ...]
    offers: tuple[str, ...]
    message: str


@value
class PreemptionEnded:
    """The preemption of a task ended.

    The task yielded within its grace, was killed, or was spared because it is no longer needed. A
    task that is requeued was killed before.
    """

    framework_id: FrameworkId
    task_id: TaskId
    outcome: Literal["yielded", "killed", "spared", "requeued"]


@value
class OfferMade:
    """An offer was made."""

    offer_id: OfferId
    framework_id: FrameworkId
    agent_id: AgentId


@value
class OfferEnded:
    """An offer ended after `held_s` seconds."""

    offer_id: OfferId
    framework_id: FrameworkId
    outcome: OfferOutcome
    held_s: float
    message: str


@value
class OffersUnanswered:
    """A framework or its principal kept an agent too long without a launch, and backs off.

    Attributes:
        kept_s: seconds for which the agent was offered to it in a row.
        back_off_s: seconds for which other frameworks come first.
    """

    framework_id: FrameworkId
    agent_id: AgentId
    kept_s: float
    back_off_s: float


@value
class TaskMoved:
    """A task's state changed."""

    framework_id: FrameworkId
    task_id: TaskId
    agent_id: AgentId
    state: TaskState
    source: Source
    reason: Reason
    message: str


@value
class CallAnswered:
    """A framework's call was answered."""

    framework_id: FrameworkId
    call: str
    outcome: Outcome
    message: str


@value
class RoleChanged:
    """An operator changed a role's settings.

    `forced`: whether the change was to override contradictions with the cluster.
    """

    role: Role
    before: str
    after: str
    operator: str
    forced: bool


@value
class BudgetReached:
    """A role has used 80 or 100 percent of its budget; `percent` is that number."""

    role: Role
    percent: int
    used_ppm: int
    budget: str


@value
class UpdateHandled:
    """An agent's update was forwarded, or why it was not."""

    outcome: Literal["forwarded", "stale", "waiting", "unknown"]


@value
class ExecutorMessaged:
    """A message between a framework and an executor was passed on or dropped."""

    direction: Literal["to_executor", "to_framework"]
    outcome: Literal["sent", "dropped"]


@value
class UpdateAcknowledged:
    """A framework's acknowledgement was forwarded, or named no update."""

    outcome: Literal["forwarded", "unknown"]


@value
class TaskLined:
    """A submitted task was lined up at an agent, was recalled, was returned, or has started."""

    outcome: Literal["lined_up", "recalled", "returned", "started"]


@value
class HoldMade:
    """Resources of an agent are held.

    Attributes:
        framework_id: the framework that they are held for; empty if they are for the role.
        ttl_s: None: until the hold is released.
        operator: empty if a framework made it.
    """

    hold_id: HoldId
    agent_id: AgentId
    role: Role
    framework_id: FrameworkId
    resources: str
    ttl_s: float | None
    operator: str = ""


@value
class HoldEnded:
    """A hold has ended: it was released, its time was over, its owner or its agent was removed.

    Attributes:
        tasks: how many tasks in it run on.
        operator: set if one released it.
    """

    hold_id: HoldId
    agent_id: AgentId
    role: Role
    framework_id: FrameworkId
    why: HoldEnd
    tasks: int
    message: str
    operator: str = ""


@value
class ReservationMade:
    """An operator reserved agents for a role."""

    reservation_id: ReservationId
    role: Role
    agents: tuple[AgentId, ...]
    operator: str


@value
class ReservationChanged:
    """A reservation was announced, began, got other agents, is over, or was deleted.

    Attributes:
        missing: how many agents it lacks.
        tasks: how many tasks of others run on its agents as it begins.
        operator: set if one deleted it.
    """

    reservation_id: ReservationId
    role: Role
    change: ReservationChange
    agents: tuple[AgentId, ...]
    missing: int
    tasks: int
    operator: str = ""


Fact = (
    AgentJoined
    | AgentLeft
    | AgentOperated
    | AgentDrained
    | AgentRefused
    | TasksUnproven
    | AgentUnhealthy
    | AgentHealthy
    | FrameworkJoined
    | FrameworkLeft
    | FrameworkTornDown
    | OfferMade
    | OfferEnded
    | OffersUnanswered
    | TaskMoved
    | CallAnswered
    | RoleChanged
    | BudgetReached
    | PreemptionBegun
    | PreemptionEnded
    | UpdateHandled
    | ExecutorMessaged
    | UpdateAcknowledged
    | TaskLined
    | HoldMade
    | HoldEnded
    | ReservationMade
    | ReservationChanged
)
