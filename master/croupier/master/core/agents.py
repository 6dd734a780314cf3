"""An agent, as the master knows it.

Rule: `TRANSITIONS` lists the legal moves; any other move is an error and changes nothing. Only a
connected or suspect agent has a session, and problems.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from croupier.master.core.effects import SessionId
from croupier.master.core.holds import Hold
from croupier.master.core.messages import AgentDescription
from croupier.master.core.offers import Offer
from croupier.master.core.records import AgentRecord, DrainRequest
from croupier.master.core.tasks import Key, Task, TaskKey
from croupier.model.access import AGENT_USER
from croupier.model.attributes import Attributes
from croupier.model.devices import DeviceRequest, Inventory
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.health import Problem
from croupier.model.ids import AgentId, FrameworkId, HoldId, OfferId
from croupier.model.isolation import NO_FEATURES, Feature, Features, feature_names
from croupier.model.resources import NOTHING, Resources
from croupier.model.task import TaskInfo, TaskStatus
from croupier.model.volume import Volume


class AgentState(Enum):
    """State of an agent.

    CONNECTED: its session is open. SUSPECT: the session is open but silent; the agent is not
    offered until a message arrives. DISCONNECTED: the session has ended; the agent's tasks count as
    running. ABSENT: it has not registered with this master; an earlier master knew it, or it is
    new. UNREACHABLE: it was disconnected for too long; its resources do not count. GONE: it
    stopped, or was declared gone; the master forgets it.
    """

    CONNECTED = "connected"
    SUSPECT = "suspect"
    DISCONNECTED = "disconnected"
    ABSENT = "absent"
    UNREACHABLE = "unreachable"
    GONE = "gone"


# The names of the states that operators see in lists, each once.
STATE_NAMES: Final = ("connected", "suspect", "disconnected", "unreachable")
_WITH_SESSION: Final = (AgentState.CONNECTED, AgentState.SUSPECT)

TRANSITIONS: Final[dict[AgentState, tuple[AgentState, ...]]] = {
    AgentState.CONNECTED: (AgentState.CONNECTED, AgentState.SUSPECT, AgentState.DISCONNECTED),
    AgentState.SUSPECT: (AgentState.SUSPECT, AgentState.CONNECTED, AgentState.DISCONNECTED),
    AgentState.DISCONNECTED: (AgentState.CONNECTED, AgentState.UNREACHABLE, AgentState.GONE),
    AgentState.ABSENT: (AgentState.CONNECTED, AgentState.UNREACHABLE, AgentState.GONE),
    AgentState.UNREACHABLE: (AgentState.CONNECTED, AgentState.GONE),
    AgentState.GONE: (),
}


@dataclass(slots=True)
class Agent:
    """An agent that was admitted.

    Attributes:
        session: its open session, if there is one.
        problems: reasons why it cannot launch tasks, from its own reports.
        total: its resources; of an absent agent the scalars that the last master saved.
        last_received: time of its latest message, in monotonic seconds.
        connected_at: time at which its latest session began; None before the first one.
        deactivated: withheld from allocation by an operator.
        drain: set while an operator drains it.
        is_authenticated: it has proven its id, so no other may join under it.
        takes_secrets: whether tasks with secrets can be sent on its session.
        features: what it can enforce or measure.
        default_user: the account of tasks that name no user: `(own)`, `(agent)` or a name.
        takes_exec: whether it runs commands beside tasks.
        lines_up: whether tasks can be lined up at it.
        boot_id, sent_ms: when it sent its latest REGISTER: milliseconds since that boot.
        line: the tasks that are lined up at it, in order; they are not in `tasks`.
        running: how many submitted tasks of each framework, role and shape run on it.
        inventory: its named devices; None if it has none.
        holds: the holds of its resources.
        orphans: the volumes that it has a directory of, and no hold is for, by the ids that
            operators name.
    """

    agent_id: AgentId
    hostname: str
    state: AgentState = AgentState.ABSENT
    total: Resources = NOTHING
    attributes: Attributes = field(default_factory=dict)
    http_address: str = ""
    session: SessionId | None = None
    problems: tuple[Problem, ...] = ()
    last_received: float = 0.0
    connected_at: float | None = None
    deactivated: bool = False
    drain: DrainRequest | None = None
    is_authenticated: bool = False
    takes_secrets: bool = False
    features: Features = NO_FEATURES
    default_user: str = AGENT_USER
    takes_exec: bool = False
    lines_up: bool = False
    boot_id: str = ""
    sent_ms: int = 0
    inventory: Inventory | None = None
    line: dict[TaskKey, Task] = field(default_factory=dict)
    running: Counter[tuple[FrameworkId, Key]] = field(default_factory=Counter)
    tasks: dict[TaskKey, Task] = field(default_factory=dict)
    offers: dict[OfferId, Offer] = field(default_factory=dict)
    holds: dict[HoldId, Hold] = field(default_factory=dict)
    orphans: dict[HoldId, Volume] = field(default_factory=dict)
    _description: AgentDescription | None = None

    def move(self, state: AgentState) -> None:
        """Move to `state`, along `TRANSITIONS`; without a session there, the present one ends.

        Raises Conflict if the agent cannot go there from its present state.
        """
        if state not in TRANSITIONS[self.state]:
            raise Conflict(f"agent {self.agent_id} cannot go from {self.state} to {state}")
        self.state = state
        if state not in _WITH_SESSION:
            self.session, self.problems = None, ()

    @property
    def state_name(self) -> str:
        """The name of its state, as operators see it."""
        return (AgentState.DISCONNECTED if self.is_absent else self.state).value

    @property
    def in_pool(self) -> bool:
        """Whether its resources count in the cluster: registered, and not unreachable since."""
        return self.session is not None or self.state is AgentState.DISCONNECTED

    def was_overtaken(self, boot_id: str, sent_ms: int) -> bool:
        """Return whether the agent sent its latest REGISTER after one that comes now.

        An unreachable agent may always return.
        """
        return self.in_pool and boot_id == self.boot_id and 0 < sent_ms < self.sent_ms

    @property
    def is_absent(self) -> bool:
        """Whether it has not registered with this master yet."""
        return self.state is AgentState.ABSENT

    @property
    def is_offered(self) -> bool:
        """Whether its free resources are to be offered."""
        is_withheld = self.deactivated or self.drain is not None or self.problems
        return self.state is AgentState.CONNECTED and not is_withheld

    @property
    def is_empty(self) -> bool:
        """Whether all its tasks have ended. O(tasks)."""
        return all(task.state.is_terminal for task in self.tasks.values())

    @property
    def is_stopped(self) -> bool:
        """Whether an operator drained it, and it has no tasks and no session. O(tasks)."""
        return self.drain is not None and self.session is None and self.is_empty

    def record(self) -> AgentRecord:
        """Return its record for the ledger."""
        return AgentRecord(
            self.agent_id,
            self.hostname,
            self.deactivated,
            self.drain,
            unreachable=self.state is AgentState.UNREACHABLE,
            total=Resources(self.total.scalars),
            is_authenticated=self.is_authenticated,
        )

    def place_of(self, status: TaskStatus) -> tuple[FrameworkId, Key] | None:
        """Return framework, role and shape of a submitted task; None if it is none."""
        task = self.tasks.get((status.framework_id, status.task_id))
        return None if task is None or task.kind is None else (task.framework_id, task.kind)

    def check_suitable(self, task: TaskInfo) -> None:
        """Check that the agent can be sent the task, and can enforce all that the task asks for.

        Raises InvalidRequest if it cannot.
        """
        missing = task.needs() - self.features
        if missing:
            able = ", ".join(feature_names(self.features)) or "nothing"
            if Feature.MESOS_EXECUTORS in missing:
                able += "; agents started with --mesos-listen run executors of Mesos"
            raise InvalidRequest(
                f"agent {self.agent_id} cannot enforce {', '.join(feature_names(missing))}, which"
                f" the task asks for; it enforces {able}"
            )
        if task.command.secrets and not self.takes_secrets:
            raise InvalidRequest(
                f"agent {self.agent_id} gets no secrets: they need TLS between agents and masters,"
                " or --insecure on the master"
            )

    def describe(self) -> AgentDescription:
        """Return its description for frameworks; the same object until it registers again."""
        if self._description is None:
            self._description = AgentDescription(
                self.agent_id,
                self.hostname,
                self.attributes,
                self.http_address,
                self.features,
                () if self.inventory is None else self.inventory.devices,
            )
        return self._description

    def introduce(
        self,
        hostname: str,
        attributes: Attributes,
        http_address: str,
        features: Features = NO_FEATURES,
        inventory: Inventory | None = None,
    ) -> None:
        """Replace the description that frameworks get."""
        self.hostname, self.attributes, self.http_address = hostname, attributes, http_address
        self.features, self.inventory, self._description = features, inventory, None

    def is_certain(self, amount: Resources) -> bool:
        """Return whether an amount names as many devices as it has."""
        return self.inventory is None or self.inventory.is_certain(amount)

    def certain(
        self, amount: Resources, rooms: Iterable[Resources], request: DeviceRequest | None = None
    ) -> Resources:
        """Return `amount` with certain named devices of the first of `rooms` that has enough.

        Raises InvalidRequest if none has, or the amount names devices that it does not ask for.
        """
        if self.inventory is None:
            return amount
        found = (self.inventory.certain(amount, room, request) for room in rooms)
        certain = next((each for each in found if each is not None), None)
        if certain is None:
            raise InvalidRequest(
                f"too few devices of agent {self.agent_id} are free or offered for"
                f" {request or amount}"
            )
        return certain
