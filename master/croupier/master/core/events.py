"""Events of peers and of time; those of operators are in `operator_command`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeVar

from croupier.master.core.calls import Call
from croupier.master.core.effects import SessionId
from croupier.model.attributes import Attributes
from croupier.model.demand import Demand
from croupier.model.health import Problem
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.limits import DEFAULT_FAILOVER_TIMEOUT_S
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo, TaskStatus

if TYPE_CHECKING:
    from croupier.master.core.state import State

T_co = TypeVar("T_co", covariant=True)


class Question(Generic[T_co]):
    """An event that the core answers with a `T_co`, or with a CroupierError."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Subscribe:
    """A framework's first call.

    Attributes:
        framework_id: empty if it has none yet.
        client_id: names the run of its program; call numbers start again with each.
        offer_lease_s: 0: the default.
        suppressed: in all roles; `suppressed_roles` names single ones.
        takes_reconciled: whether its SDK supports numbered answers to RECONCILE.
    """

    session: SessionId
    framework_id: FrameworkId
    name: str
    roles: tuple[Role, ...]
    client_id: str
    failover_timeout_s: float = DEFAULT_FAILOVER_TIMEOUT_S
    offer_lease_s: float = 0.0
    demands: tuple[Demand, ...] = ()
    suppressed: bool = False
    hostname: str = ""
    webui_url: str = ""
    suppressed_roles: tuple[Role, ...] = ()
    takes_reconciled: bool = True


@dataclass(frozen=True, slots=True)
class FrameworkCalled:
    """A later call; `seq` numbers it."""

    session: SessionId
    seq: int
    call: Call


@dataclass(frozen=True, slots=True)
class Received:
    """Something was received on a session.

    Attributes:
        verdicts_seen: the last call whose verdict has arrived at the framework.
    """

    session: SessionId
    verdicts_seen: int = 0


@dataclass(frozen=True, slots=True)
class AgentTask:
    """A task that an agent reports when it registers.

    Attributes:
        role: the role it was launched in; None if its agent does not know it.
    """

    framework_id: FrameworkId
    task: TaskInfo
    latest: TaskStatus
    unacknowledged: tuple[TaskStatus, ...] = ()
    role: Role | None = None


class Claim(Enum):
    """How the newest master that an agent has seen relates to the history of this store.

    KNOWN: part of it. SILENT: the agent claims nothing new and proves nothing, as agents of
    earlier releases do. GIVEN_UP: proven and not part of it; an operator has abandoned it.
    NEWER: proven and later; another master leads, or this store is an old copy. UNPROVEN: not
    proven. FOREIGN: of another cluster.
    """

    KNOWN = "known"
    SILENT = "silent"
    GIVEN_UP = "given up"
    NEWER = "newer"
    UNPROVEN = "unproven"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Register:
    """An agent's first report: its resources and all its tasks.

    Attributes:
        master_epoch: that of the newest master it has seen, in `cluster`.
        incomplete: whether it lost records, so that unlisted tasks may have run.
        problems: what keeps the agent from launching tasks.
        claim: the shell's judgement of `master_epoch`.
        objection: why the agent is refused, for people; empty if it is not.
    """

    session: SessionId
    agent_id: AgentId
    hostname: str
    total: Resources
    attributes: Attributes
    http_address: str = ""
    tasks: tuple[AgentTask, ...] = ()
    master_epoch: int = 0
    incomplete: bool = False
    cluster: str = ""
    problems: tuple[Problem, ...] = ()
    claim: Claim = Claim.KNOWN
    objection: str = ""


@dataclass(frozen=True, slots=True)
class RefusedLaunch:
    """A launch that an unhealthy agent refused without a record."""

    framework_id: FrameworkId
    task_id: TaskId
    message: str


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """An agent reports what keeps it from launching tasks, and the launches that it refused.

    Attributes:
        problems: all present ones; empty if the agent is healthy.
    """

    session: SessionId
    problems: tuple[Problem, ...]
    refused: tuple[RefusedLaunch, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentReported:
    """An agent sends status updates."""

    session: SessionId
    statuses: tuple[TaskStatus, ...]


@dataclass(frozen=True, slots=True)
class AgentStopped:
    """An agent has ended all its tasks and leaves for good."""

    session: SessionId
    message: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A session has ended."""

    session: SessionId
    message: str


@dataclass(frozen=True, slots=True)
class Read(Question[object]):
    """A question about the state; answered with what `query` returns."""

    request: int
    query: Callable[[State], object]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may have passed."""


@dataclass(frozen=True, slots=True)
class AllocationDue:
    """Deal dirty agents, looking at about `budget` frameworks."""

    budget: int = 2000


PeerEvent = (
    Subscribe
    | FrameworkCalled
    | Received
    | Register
    | AgentReported
    | AgentHealth
    | AgentStopped
    | SessionEnded
)
