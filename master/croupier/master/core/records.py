"""What must outlive the process."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings
from croupier.model.tags import recorded
from croupier.model.task import Reason, TaskInfo, TaskStatus


@recorded("PastTerm", "epoch name commits")
@dataclass(frozen=True, slots=True)
class PastTerm:
    """A term of the cluster: its number, its random name, and how far the store was.

    Attributes:
        commits: how many commits the store had when the term began.
    """

    epoch: int
    name: str
    commits: int


@recorded("MasterRecord", "cluster epoch secret generation terms")
@dataclass(frozen=True, slots=True)
class MasterRecord:
    """The cluster's name, and how many masters have led it.

    Attributes:
        secret: proves what masters of the cluster have stated; empty in records of earlier
            releases.
        generation: how often an operator has gone on with an older store on purpose.
        terms: the latest terms, the present one last.
    """

    cluster: str
    epoch: int
    secret: str = field(default="", repr=False)
    generation: int = 0
    terms: tuple[PastTerm, ...] = ()

    @property
    def master_id(self) -> str:
        """Names this run of a master; the prefix of the ids that it gives."""
        return f"{self.cluster}-{self.epoch}"


@recorded("DrainRequest", "grace_ms")
@dataclass(frozen=True, slots=True)
class DrainRequest:
    """An operator wants an agent without tasks; `grace_ms` None leaves the tasks' own."""

    grace_ms: int | None = None


@recorded("AgentRecord", "agent_id hostname deactivated drain gone unreachable total")
@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent that was admitted, and what an operator has done with it.

    Attributes:
        deactivated: it is not to be offered.
        drain: its tasks are to end; None: they may run.
        gone: it was declared dead, and may never return under this id.
        unreachable: it was away for too long, and its tasks were told to be so.
        total: the scalars that it had when it last registered. They count until it returns to
            the next master. Empty in records that older releases wrote.
    """

    agent_id: AgentId
    hostname: str
    deactivated: bool = False
    drain: DrainRequest | None = None
    gone: bool = False
    unreachable: bool = False
    total: Resources = NOTHING


@recorded(
    "FrameworkRecord",
    "framework_id name roles failover_timeout_s removed client_id epoch is_stranger former",
)
@dataclass(frozen=True, slots=True)
class FrameworkRecord:
    """A framework that subscribed, and whether it was removed since.

    Attributes:
        client_id: the latest run of its program.
        epoch: how many runs there were.
        former: the latest of them but for this one.
        is_stranger: the ledger did not know of it when it came, so it may have tasks that the
            ledger does not know either.
    """

    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    failover_timeout_s: float
    removed: bool = False
    client_id: str = ""
    epoch: int = 1
    is_stranger: bool = False
    former: tuple[str, ...] = ()


@recorded("TaskRecord", "framework_id info agent_id role client_id seq kill told done")
@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A task that was accepted, until its framework has acknowledged its end.

    Attributes:
        client_id: the run of the framework's program that launched it; empty if it was found
            on its agent.
        seq: the number of the ACCEPT, of that run.
        kill: the grace and the reason of a kill that is wanted.
        told: the latest that the master itself has said of it: UNREACHABLE, or an end.
        done: its end was acknowledged, and only the verdict on its ACCEPT may be asked for
            again.
    """

    framework_id: FrameworkId
    info: TaskInfo
    agent_id: AgentId
    role: Role
    client_id: str = ""
    seq: int = 0
    kill: tuple[int | None, Reason] | None = None
    told: TaskStatus | None = None
    done: bool = False

    @property
    def task_id(self) -> TaskId:
        """The task's id, unique within its framework."""
        return self.info.task_id


@recorded("RoleRecord", "role settings")
@dataclass(frozen=True, slots=True)
class RoleRecord:
    """What an operator has set of a role: all of its settings, whatever the flags say."""

    role: Role
    settings: RoleSettings


@dataclass(frozen=True, slots=True)
class ForgetAgent:
    """The agent left for good."""

    agent_id: AgentId


@dataclass(frozen=True, slots=True)
class ForgetFramework:
    """So many frameworks were removed since that this one's id need not be remembered."""

    framework_id: FrameworkId


@dataclass(frozen=True, slots=True)
class ForgetTask:
    """The end of the task has arrived where it had to: nobody will ask for it again."""

    framework_id: FrameworkId
    task_id: TaskId


@dataclass(frozen=True, slots=True)
class ForgetRole:
    """The role's settings are again those that the flags give."""

    role: Role


Record = (
    MasterRecord
    | AgentRecord
    | FrameworkRecord
    | RoleRecord
    | TaskRecord
    | ForgetAgent
    | ForgetFramework
    | ForgetTask
    | ForgetRole
)


def task_key(framework_id: FrameworkId, task_id: TaskId) -> str:
    """What names a task among those of all frameworks; no id holds a blank."""
    return f"{framework_id} {task_id}"


@dataclass(slots=True)
class Registry:
    """All records, as a store gives them back; tasks by `task_key`."""

    master: MasterRecord | None = None
    agents: dict[AgentId, AgentRecord] = field(default_factory=dict)
    frameworks: dict[FrameworkId, FrameworkRecord] = field(default_factory=dict)
    roles: dict[Role, RoleRecord] = field(default_factory=dict)
    tasks: dict[str, TaskRecord] = field(default_factory=dict)

    def apply(self, record: Record) -> None:
        """Take one record in; the newest of a kind and id wins."""
        match record:
            case MasterRecord():
                self.master = record
            case AgentRecord():
                self.agents[record.agent_id] = record
            case FrameworkRecord():
                self.frameworks[record.framework_id] = record
            case RoleRecord():
                self.roles[record.role] = record
            case TaskRecord():
                self.tasks[task_key(record.framework_id, record.info.task_id)] = record
            case ForgetAgent():
                self.agents.pop(record.agent_id, None)
            case ForgetFramework():
                self.frameworks.pop(record.framework_id, None)
            case ForgetTask():
                self.tasks.pop(task_key(record.framework_id, record.task_id), None)
            case ForgetRole():
                self.roles.pop(record.role, None)

    def records(self) -> list[Record]:
        """All of them."""
        kinds = (self.agents, self.frameworks, self.roles, self.tasks)
        held: list[Record] = [record for kind in kinds for record in kind.values()]
        return [self.master, *held] if self.master is not None else held
