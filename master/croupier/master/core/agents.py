"""An agent, as the master knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from croupier.master.core.effects import SessionId
from croupier.master.core.messages import AgentDescription
from croupier.master.core.offers import Offer
from croupier.master.core.records import AgentRecord, DrainRequest
from croupier.master.core.tasks import Task
from croupier.model.attributes import Attributes
from croupier.model.errors import Conflict
from croupier.model.health import Problem
from croupier.model.ids import AgentId, FrameworkId, OfferId, TaskId
from croupier.model.resources import NOTHING, Resources


class AgentState(Enum):
    """Where an agent stands.

    A SUSPECT agent's stream stands, but it has been silent for a while: it is offered no more
    until it is heard of. A DISCONNECTED agent's tasks are taken to run. An UNREACHABLE agent's
    resources do not count any more.
    """

    CONNECTED = "connected"
    SUSPECT = "suspect"
    DISCONNECTED = "disconnected"
    UNREACHABLE = "unreachable"


TRANSITIONS: dict[AgentState, frozenset[AgentState]] = {
    AgentState.CONNECTED: frozenset(
        {AgentState.CONNECTED, AgentState.SUSPECT, AgentState.DISCONNECTED}
    ),
    AgentState.SUSPECT: frozenset({AgentState.CONNECTED, AgentState.DISCONNECTED}),
    AgentState.DISCONNECTED: frozenset({AgentState.CONNECTED, AgentState.UNREACHABLE}),
    AgentState.UNREACHABLE: frozenset({AgentState.CONNECTED}),
}


@dataclass(slots=True)
class Agent:
    """An agent that was admitted.

    Attributes:
        session: its stream, while it is connected.
        total: what it has; of an agent that has not returned to this master, the scalars that
            the last one saved.
        last_heard: when anything came from it; monotonic seconds.
        in_pool: whether its resources count; they do from registration until it is
            unreachable.
        deactivated: not to be offered, on behalf of an operator.
        drain: its tasks are to end, on behalf of an operator.
        is_recovering: whether it has not come back since this master began to lead.
        problems: what keeps the agent from launching tasks, as it says itself while connected.
    """

    agent_id: AgentId
    hostname: str
    state: AgentState = AgentState.DISCONNECTED
    total: Resources = NOTHING
    attributes: Attributes = field(default_factory=dict)
    http_address: str = ""
    session: SessionId | None = None
    last_heard: float = 0.0
    in_pool: bool = False
    deactivated: bool = False
    drain: DrainRequest | None = None
    is_recovering: bool = False
    problems: tuple[Problem, ...] = ()
    tasks: dict[tuple[FrameworkId, TaskId], Task] = field(default_factory=dict)
    offers: dict[OfferId, Offer] = field(default_factory=dict)
    _description: AgentDescription | None = None

    def move(self, state: AgentState) -> None:
        """Go to `state`.

        Raises:
            Conflict: if an agent cannot go there from where it is.
        """
        if state not in TRANSITIONS[self.state]:
            raise Conflict(f"agent {self.agent_id} cannot go from {self.state} to {state}")
        self.state = state

    @property
    def is_dealt(self) -> bool:
        """Whether what it has free is to be offered."""
        wanted = not self.deactivated and self.drain is None and not self.problems
        return wanted and self.state is AgentState.CONNECTED

    @property
    def is_forgettable(self) -> bool:
        """Whether nobody would miss it: no task, and no wish of an operator's."""
        return not self.tasks and not self.deactivated and self.drain is None

    @property
    def is_empty(self) -> bool:
        """Whether no task is left that has not ended. O(tasks)."""
        return all(task.state.is_terminal for task in self.tasks.values())

    def record(self) -> AgentRecord:
        """What must outlive the master."""
        is_lost = self.state is AgentState.UNREACHABLE
        return AgentRecord(
            self.agent_id,
            self.hostname,
            self.deactivated,
            self.drain,
            unreachable=is_lost,
            total=Resources(self.total.scalars),
        )

    def describe(self) -> AgentDescription:
        """What frameworks may know of it; the same object until it registers anew."""
        if self._description is None:
            self._description = AgentDescription(
                self.agent_id, self.hostname, self.attributes, self.http_address
            )
        return self._description

    def introduce(self, hostname: str, attributes: Attributes, http_address: str) -> None:
        """Take on what it said of itself when it registered."""
        self.hostname, self.attributes, self.http_address = hostname, attributes, http_address
        self._description = None
