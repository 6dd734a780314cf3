"""Events of peers, of operators and of time.

An operator's command is a frozen dataclass that executes itself. A new one is one class in the
module of its noun, such as `agent_commands`, listed in `step.Command`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

from croupier.master.core.calls import Call
from croupier.master.core.effects import Effect, Pause, SessionId
from croupier.model.access import AGENT_USER
from croupier.model.agent_orders import ExecutorMessage
from croupier.model.attributes import Attributes
from croupier.model.demand import Demand
from croupier.model.devices import Device
from croupier.model.health import Problem
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.isolation import NO_FEATURES, Features
from croupier.model.limits import DEFAULT_FAILOVER_TIMEOUT_S
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo, TaskStatus
from croupier.model.value import value
from croupier.model.volume import Volume

if TYPE_CHECKING:
    from croupier.master.core.state import State

T_co = TypeVar("T_co", covariant=True)


class Question(Generic[T_co]):
    """An event that the core answers with a `T_co`, or with a CroupierError."""

    __slots__ = ()


@value
class Subscribe:
    """A framework's first call.

    Attributes:
        framework_id: empty if it has none yet.
        client_id: identifies the run of its program; call numbers restart with each run.
        offer_lease_s: 0 for the default.
        suppressed: whether offers are suppressed in all roles, else in `suppressed_roles` only.
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
    principal: Principal = ANONYMOUS


@value
class FrameworkCalled:
    """A framework's call after SUBSCRIBE; `seq` is its number."""

    session: SessionId
    seq: int
    call: Call


@value
class Received:
    """A message arrived; the verdicts up to `verdicts_seen` have reached the framework."""

    session: SessionId
    verdicts_seen: int = 0


@value
class AgentTask:
    """A task that an agent reports when it registers.

    Attributes:
        role: the role it was launched in; None if its agent does not know it.
        is_unproven: whether it came without a valid proof that a master launched it.
        age_ms: for how long it has run; 0 if that is unknown.
    """

    framework_id: FrameworkId
    task: TaskInfo
    latest: TaskStatus
    unacknowledged: tuple[TaskStatus, ...] = ()
    role: Role | None = None
    is_unproven: bool = False
    age_ms: int = 0


class Claim(Enum):
    """Relation of the store position that an agent reports to the history of this store.

    KNOWN: part of the history. SILENT: no position and no later epoch, as from a new agent or one
    that forgot its master. GIVEN_UP: proven, but outside the history, and abandoned by an operator.
    NEWER: proven and later; another master leads, or this store is an old copy. UNPROVEN: not
    proven. FOREIGN: of another cluster.
    """

    KNOWN = "known"
    SILENT = "silent"
    GIVEN_UP = "given up"
    NEWER = "newer"
    UNPROVEN = "unproven"
    FOREIGN = "foreign"


@value
class Register:
    """An agent's first report: its resources and all its tasks.

    Attributes:
        master_epoch: the highest epoch that it has seen, in `cluster`.
        incomplete: whether it lost records, so that unlisted tasks may have run.
        problems: reasons why the agent cannot launch tasks.
        claim: the shell's judgement of `master_epoch` and of the position that the agent reports.
        objection: the reason if the agent is refused, in words; else empty.
        takes_secrets: whether tasks with secrets can be sent to it: the connection is encrypted
            or local.
        volumes: those that it has a directory of.
        devices: its named devices.
        features, default_user, takes_exec, lines_up: as in `agents.Agent`.
        boot_id, sent_ms: as in `agents.Agent`.
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
    principal: Principal = ANONYMOUS
    takes_secrets: bool = False
    features: Features = NO_FEATURES
    default_user: str = AGENT_USER
    takes_exec: bool = False
    lines_up: bool = False
    boot_id: str = ""
    sent_ms: int = 0
    volumes: tuple[Volume, ...] = ()
    devices: tuple[Device, ...] = ()


@value
class TasksReturned:
    """Lined-up tasks that an agent has not started, and never will."""

    session: SessionId
    tasks: tuple[tuple[FrameworkId, TaskId], ...]


@value
class ExecutorSaid:
    """An executor on an agent has sent a message to its framework."""

    session: SessionId
    message: ExecutorMessage


@value
class RefusedLaunch:
    """A launch that an unhealthy agent refused without a record."""

    framework_id: FrameworkId
    task_id: TaskId
    message: str


@value
class AgentHealth:
    """An agent's report of its health, and of the launches that it refused.

    `problems`: all present reasons why it cannot launch tasks; empty if it is healthy.
    """

    session: SessionId
    problems: tuple[Problem, ...]
    refused: tuple[RefusedLaunch, ...] = ()


@value
class LaunchUnsent:
    """A launch could not be sent: the master cannot open a secret of the task."""

    session: SessionId
    framework_id: FrameworkId
    task_id: TaskId
    message: str


@value
class AgentReported:
    """Status updates from an agent."""

    session: SessionId
    statuses: tuple[TaskStatus, ...]


@value
class AgentStopped:
    """An agent has ended all its tasks and leaves for good."""

    session: SessionId
    message: str


@value
class SessionEnded:
    """A session has ended."""

    session: SessionId
    message: str


@dataclass(frozen=True, slots=True)
class OperatorCommand(Question[T_co], ABC):
    """A command with an immutable answer, for which the shell waits under the number `request`."""

    request: int

    @abstractmethod
    def execute(self, state: State, now: float) -> Generator[Effect, None, T_co]:
        """Yield the effects and return the answer.

        Raises CroupierError to refuse the command, before anything is changed.
        """


ResultT = TypeVar("ResultT")
# A long query is a generator, which pauses.
Query: TypeAlias = "Callable[[State], ResultT | Generator[Pause, None, ResultT]]"


@value
class Read(Question[object]):
    """A question about the state; answered with what `query` returns."""

    request: int
    query: Query[object]


@value
class TimePassed:
    """A deadline may have passed."""


@value
class AllocationDue:
    """A slice of an allocation pass is due, which checks about `budget` frameworks."""

    budget: int = 2000


@value
class AccountingDue:
    """An accounting step is due; `wall_ms` is the time of day, in milliseconds since the epoch."""

    wall_ms: int


PeerEvent = (
    Subscribe
    | FrameworkCalled
    | Received
    | Register
    | AgentReported
    | TasksReturned
    | ExecutorSaid
    | AgentHealth
    | LaunchUnsent
    | AgentStopped
    | SessionEnded
)
