"""Records of the store: the state that survives the master's process."""

from __future__ import annotations

from dataclasses import field
from typing import Final

from croupier.master.core import access_records, usage_records
from croupier.model.attributes import Constraint
from croupier.model.demand import Placement
from croupier.model.ids import (
    NO_FRAMEWORK,
    NO_HOLD,
    AgentId,
    FrameworkId,
    HoldId,
    ReservationId,
    Role,
    TaskId,
)
from croupier.model.principal import PrincipalName
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings
from croupier.model.store_position import StorePosition
from croupier.model.task import Reason, TaskInfo, TaskStatus
from croupier.model.value import value

# The owner of frameworks that were made without authentication.
NO_OWNER: Final = PrincipalName("")


@value
class PastTerm:
    """A term of the cluster.

    Attributes:
        name: random.
        commits: the number of commits in the store when the term began.
    """

    epoch: int
    name: str
    commits: int


@value
class MasterRecord:
    """The cluster's name and the history of its terms.

    Attributes:
        epoch: the number of the present term.
        secret: proves statements of the cluster's masters.
        generation: how often an operator has continued with an older copy of the store.
        terms: the latest terms, the present one last.
    """

    cluster: str
    epoch: int
    secret: str = field(default="", repr=False)
    generation: int = 0
    terms: tuple[PastTerm, ...] = ()

    @property
    def master_id(self) -> str:
        """Return the id of this run of a master, the prefix of the ids that it assigns."""
        return f"{self.cluster}-{self.epoch}"

    def position(self, commits: int) -> StorePosition:
        """Return the position of a store with this record and so many commits."""
        term = self.terms[-1].name if self.terms else ""
        return StorePosition(self.generation, self.epoch, term, commits)


@value
class DrainRequest:
    """An operator's request to drain an agent; without `grace_ms`, each task's own grace counts."""

    grace_ms: int | None = None


@value
class AgentRecord:
    """An agent that was admitted.

    Attributes:
        deactivated: an operator has excluded it from offers.
        drain: an operator drains it.
        gone: an operator has declared it gone; it can never register again under this id.
        unreachable: it was removed after a timeout, and its tasks were reported UNREACHABLE.
        total: its scalars at the last registration. They count until it registers with the next
            master.
        is_authenticated: it has proven its id, so no other may join under it.
    """

    agent_id: AgentId
    hostname: str
    deactivated: bool = False
    drain: DrainRequest | None = None
    gone: bool = False
    unreachable: bool = False
    total: Resources = NOTHING
    is_authenticated: bool = False


@value
class FrameworkRecord:
    """A framework that has subscribed.

    Attributes:
        removed: it was removed since.
        client_id: the latest run of its program.
        epoch: the number of runs.
        is_unrecorded: whether it came with an id that was not in the store; it may have tasks
            that are not in the store either.
        earlier_clients: the latest runs before this one.
        owner: the principal that subscribed it first; empty without authentication.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    failover_timeout_s: float
    removed: bool = False
    client_id: str = ""
    epoch: int = 1
    is_unrecorded: bool = False
    earlier_clients: tuple[str, ...] = ()
    owner: PrincipalName = NO_OWNER


@value
class QueuePlace:
    """The place of a submitted task in the queue of its framework.

    Attributes:
        placement: the agents on which it may run.
        number: of its submission; tasks of one shape are placed in this order.
        generation: of the store at that time. A store of a later one may have lost the launch.
    """

    placement: Placement
    number: int
    generation: int = 0


@value
class Requeue:
    """How a submitted task goes back into its queue, when it is preempted or with its gang.

    Attributes:
        place: its place, from the first submission on.
        count: how often it went back.
        sequence: the number of the last update of its earlier runs.
        is_last: whether its framework may know that it has ended: it does not go back any more.
        avoids: agents that were lost with an earlier run, which may go on there.
    """

    place: QueuePlace
    count: int = 0
    sequence: int = 0
    is_last: bool = False
    avoids: tuple[AgentId, ...] = ()


@value
class TaskRecord:
    """A task from its launch or submission until its terminal status is acknowledged.

    Attributes:
        client_id: the run of the framework's program that launched it; empty if an agent
            reported it.
        agent_id: empty as long as it is queued.
        seq: the number of the ACCEPT or SUBMIT in that run.
        kill: grace in milliseconds and reason of a requested kill.
        master_status: the latest status made by the master itself: UNREACHABLE or terminal.
        is_acknowledged: its terminal status was acknowledged; the record only answers an ACCEPT
            that is sent again.
        queued: its place in the queue; None once it was placed on an agent, or accepted there.
        requeue: None if it ends when it is preempted.
    """

    framework_id: FrameworkId
    info: TaskInfo
    agent_id: AgentId
    role: Role
    client_id: str = ""
    seq: int = 0
    kill: tuple[int | None, Reason] | None = None
    master_status: TaskStatus | None = None
    is_acknowledged: bool = False
    queued: QueuePlace | None = None
    hold_id: HoldId = NO_HOLD
    held: Resources = NOTHING
    requeue: Requeue | None = None

    @property
    def task_id(self) -> TaskId:
        """Return the task's id, unique within its framework."""
        return self.info.task_id


@value
class HoldRecord:
    """Resources of an agent that are held.

    Attributes:
        framework_id: the framework that it is for; empty if it is for the role.
        ttl_ms: the rest of its time when the record was written; 0: no end.
        made_by: the framework that made it; empty if an operator did.
        client_id: the run of that framework's program.
        seq: the number of the ACCEPT in that run.
        volume: whether it is a volume.
    """

    hold_id: HoldId
    agent_id: AgentId
    role: Role
    framework_id: FrameworkId
    resources: Resources
    ttl_ms: int = 0
    made_by: FrameworkId = NO_FRAMEWORK
    client_id: str = ""
    seq: int = 0
    volume: bool = False


@value
class ReservationRecord:
    """Agents that are reserved for a role.

    Attributes:
        agents: how many are wanted.
        from_ms, until_ms: the present or next occurrence, in milliseconds since the epoch.
        every_ms: after which time it recurs; 0: it does not.
        notice_ms: how long before its begin it binds others.
        least: the scalars that each agent has at least.
        made_by: the principal that made it; empty without authentication.
        agent_ids: the agents that were chosen.
    """

    reservation_id: ReservationId
    role: Role
    agents: int
    from_ms: int
    until_ms: int
    every_ms: int = 0
    notice_ms: int = 0
    least: Resources = NOTHING
    constraints: tuple[Constraint, ...] = ()
    made_by: str = ""
    agent_ids: tuple[AgentId, ...] = ()


@value
class RoleRecord:
    """All settings of a role that an operator has changed; they override the master's flags."""

    role: Role
    settings: RoleSettings


@value
class ForgetAgent:
    """Deletion of an agent's record."""

    agent_id: AgentId


@value
class ForgetFramework:
    """Deletion of the record of a framework that was removed long ago."""

    framework_id: FrameworkId


@value
class ForgetTask:
    """Deletion of a task's record."""

    framework_id: FrameworkId
    task_id: TaskId


@value
class ForgetHold:
    """Deletion of the record of a hold that has ended."""

    hold_id: HoldId


@value
class ForgetReservation:
    """Deletion of the record of a reservation that has ended."""

    reservation_id: ReservationId


@value
class ForgetRole:
    """Deletion of a role's record: the settings of the flags count again."""

    role: Role


Record = (
    MasterRecord
    | AgentRecord
    | FrameworkRecord
    | RoleRecord
    | TaskRecord
    | HoldRecord
    | ReservationRecord
    | access_records.GroupRecord
    | access_records.RuleRecord
    | access_records.RevokedKeyRecord
    | access_records.TokenRecord
    | usage_records.UsageRecord
    | ForgetAgent
    | ForgetFramework
    | ForgetTask
    | ForgetHold
    | ForgetReservation
    | ForgetRole
    | usage_records.ForgetUsage
    | access_records.ForgetGroup
    | access_records.ForgetRule
    | access_records.ForgetToken
    | access_records.ForgetRevokedKey
)


def task_key(framework_id: FrameworkId, task_id: TaskId) -> str:
    """Return a key that is unique among the tasks of all frameworks; ids hold no blanks."""
    return f"{framework_id} {task_id}"
