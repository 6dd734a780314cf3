"""What can happen to the master."""

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
        offer_lease_s: 0 is the default.
        suppressed: in all roles; `suppressed_roles` names single ones.
        takes_reconciled: whether the SDK knows answers to RECONCILE that have a number.
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
class Heard:
    """Anything at all came from a session.

    Attributes:
        verdicts_seen: up to which call a framework has its verdicts.
    """

    session: SessionId
    verdicts_seen: int = 0


@dataclass(frozen=True, slots=True)
class AgentTask:
    """A task as its agent knows it.

    Attributes:
        role: what it was launched in; None if its agent was not told.
    """

    framework_id: FrameworkId
    task: TaskInfo
    latest: TaskStatus
    unacknowledged: tuple[TaskStatus, ...] = ()
    role: Role | None = None


class Claim(Enum):
    """What it is worth that an agent has heard of a master and of how far its store was.

    KNOWN is part of the history of this store. SILENT proves nothing and claims nothing new, as
    agents of earlier releases do. GIVEN_UP is proven and not part of it, and an
    operator has gone on without it. NEWER is proven and beyond it: another master leads, or
    this store is an old copy. UNPROVEN may be a lie, FOREIGN is of another cluster.
    """

    KNOWN = "known"
    SILENT = "silent"
    GIVEN_UP = "given up"
    NEWER = "newer"
    UNPROVEN = "unproven"
    FOREIGN = "foreign"


@dataclass(frozen=True, slots=True)
class Register:
    """An agent's first report: everything it knows.

    Attributes:
        master_epoch: of the newest master that it has heard, in `cluster`.
        incomplete: records of tasks were lost: what is not listed may have run.
        problems: what keeps the agent from launching tasks.
        claim: what that is worth, as the shell has judged it.
        objection: why it is refused, for people; empty if it is not.
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
    """A launch that an unhealthy agent did not take, and remembers nothing of."""

    framework_id: FrameworkId
    task_id: TaskId
    message: str


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """An agent says what keeps it from launching tasks, and which launches it refused for that.

    Attributes:
        problems: all that there are now; empty if the agent is healthy.
    """

    session: SessionId
    problems: tuple[Problem, ...]
    refused: tuple[RefusedLaunch, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentReported:
    """Status updates from an agent."""

    session: SessionId
    statuses: tuple[TaskStatus, ...]


@dataclass(frozen=True, slots=True)
class AgentStopped:
    """An agent has ended all its tasks and goes."""

    session: SessionId
    message: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """A stream broke or ended."""

    session: SessionId
    message: str


@dataclass(frozen=True, slots=True)
class Read(Question[object]):
    """A question about the state; answered with what `query` returns."""

    request: int
    query: Callable[[State], object]


@dataclass(frozen=True, slots=True)
class TimePassed:
    """A deadline may be over."""


@dataclass(frozen=True, slots=True)
class AllocationDue:
    """Deal dirty agents, looking at about `budget` frameworks."""

    budget: int = 2000


PeerEvent = (
    Subscribe
    | FrameworkCalled
    | Heard
    | Register
    | AgentReported
    | AgentHealth
    | AgentStopped
    | SessionEnded
)
