"""The master's core in memory, with agents that run nothing and report on the test's request."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from croupier.master.allocator import Allocator
from croupier.master.core.agents import Agent
from croupier.master.core.effects import Close, Save, Send, SessionId, Step
from croupier.master.core.events import AgentReported, AgentTask, Register
from croupier.master.core.messages import Subscribed
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
from croupier.master.core.step import Event, step
from croupier.master.core.tasks import Task
from croupier.master.session import FrameworkSession
from croupier.master.sessions import Sessions
from croupier.master.wire.to_framework import event_to_wire
from croupier.model.agent_orders import LaunchGroup, LaunchTask, ResendUpdates
from croupier.model.clock import Clock
from croupier.model.errors import Conflict, CroupierError
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.isolation import Feature, known_features
from croupier.model.resources import NOTHING, Resources
from croupier.model.secrets import SealedValue
from croupier.model.task import Source, TaskInfo, TaskState, TaskStatus
from croupier.net.outbox import Encoded

# A fake master disconnects no peer for its silence.
_SILENCE_S = 365 * 24 * 3600.0


class _Box:
    """Seals nothing: no agent runs the tasks, and tests read values from recorded calls."""

    def seal(self, _place: object, _value: str) -> SealedValue:
        return SealedValue("fake", "-")

    def open(self, _place: object, _sealed: SealedValue) -> str:
        raise AssertionError("a fake master has no agent to open a secret for")


class Streams(Sessions):
    """The master's sessions, which a test can cut off. Those in `muted` are sent nothing."""

    def __init__(self, max_message_bytes: int) -> None:
        """Announce `max_message_bytes` to frameworks."""
        super().__init__(box=_Box())
        self.muted: set[SessionId] = set()
        self._max_message_bytes = max_message_bytes

    def open(self) -> list[SessionId]:
        """Return the open sessions."""
        return list(self._sessions)

    def send(self, effect: Send) -> None:
        """Queue a message, unless the session is muted."""
        if isinstance(effect.message, Subscribed):
            event = event_to_wire(effect.message, {})
            event.subscribed.max_message_bytes = self._max_message_bytes
            session = self._sessions[effect.session]
            if isinstance(session, FrameworkSession):
                session.framework_id = effect.message.framework_id
            session.outbox.put(Encoded(event.SerializeToString()))
        elif effect.session not in self.muted:
            super().send(effect)

    def beat_all(self) -> None:
        """Send a heartbeat on every stream that is not muted."""
        for session_id, session in self._sessions.items():
            if session_id not in self.muted:
                session.beat()

    def cut(self, session_id: SessionId, error: CroupierError | None) -> None:
        """End a stream with `error` after all that is queued, or at once and without one."""
        session = self._sessions[session_id]
        if error is None:
            session.outbox.drop()
        session.end(error)


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Options of a fake master; see `FakeMaster`."""

    clock: Clock
    auto_run: bool
    heartbeat_s: float
    max_message_bytes: int
    resend_s: float


@dataclass(slots=True)
class Durable:
    """The state that outlives a master's term.

    Attributes:
        updates: all updates of each task by its agent, oldest first; the first has number 1.
        ended: tasks that ended in earlier terms, with their states. The registry drops them.
    """

    registry: Registry = field(default_factory=Registry)
    updates: dict[tuple[FrameworkId, TaskId], list[TaskStatus]] = field(default_factory=dict)
    ended: dict[tuple[FrameworkId, TaskId], TaskState] = field(default_factory=dict)
    epoch: int = 0


class Core:
    """One term of a fake master.

    Attributes:
        state: the state of the master's core.
        durable: shared with later terms.
    """

    def __init__(
        self, streams: Streams, behaviour: Behaviour, durable: Durable, agents: Iterable[Agent] = ()
    ) -> None:
        """Begin with the registry. `agents` return at once, if they are connected."""
        self._streams, self._behaviour, self.durable = streams, behaviour, durable
        durable.epoch += 1
        self._events: deque[Event] = deque()
        self._is_deciding = False
        # Agents have negative sessions.
        self._last_session = 0
        settings = Settings(
            heartbeat_s=behaviour.heartbeat_s,
            agent_timeout_s=_SILENCE_S,
            suspect_beats=_SILENCE_S,
            resend_s=behaviour.resend_s,
            # Another fake master may have assigned the id of a framework.
            adopt_unproven_s=math.inf,
        )
        self.state = recover_state(
            durable.registry, f"fake-{durable.epoch}", settings, Allocator(), self.now()
        )
        for agent in agents:
            if agent.session is not None:
                self._reconnect(agent)

    def now(self) -> float:
        """Return seconds on the master's clock."""
        return self._behaviour.clock.now()

    def decide(self, *events: Event) -> None:
        """Decide events, and the reports of agents on them."""
        self._events.extend(events)
        if self._is_deciding:
            return
        self._is_deciding = True
        try:
            while self._events:
                self.perform(step(self.state, self._events.popleft(), self.now()))
        finally:
            self._is_deciding = False

    def perform(self, effects: Iterable[Step]) -> None:
        """Perform all effects, once the last is decided."""
        for effect in list(effects):
            match effect:
                case Save(record):
                    self.durable.registry.apply(record)
                case Send(session, LaunchTask(framework_id, info)) if session < 0:
                    self._run(framework_id, info)
                case Send(session, LaunchGroup(orders)) if session < 0:
                    for order in orders:
                        self._run(order.framework_id, order.task)
                case Send(session, ResendUpdates(framework_id)) if session < 0:
                    self.resend(framework_id)
                case Send(session) if session > 0:
                    self._streams.send(effect)
                case Close(session, CroupierError() as error) if session < 0:
                    raise error
                case Close():
                    self._streams.close(effect)

    def agent(self, described: Register) -> Agent:
        """Return the connected agent of that id; add it as `described` if it is new."""
        known = self.state.agents.get(described.agent_id)
        if known is None:
            self._connect(described)
        elif known.session is None:
            self._reconnect(known)
        return self.state.agents[described.agent_id]

    def report(self, status: TaskStatus) -> int:
        """Report an update by the task's agent, which reconnects if it was lost; return its number.

        Raises:
            Conflict: if the task has ended.
        """
        framework = self.state.frameworks.get(status.framework_id)
        task = framework.tasks.get(status.task_id) if framework is not None else None
        if task is None or task.is_orphan:
            raise Conflict(f"task {status.task_id} has ended")
        agent = self.state.agents[task.agent_id]
        if agent.session is None:
            self._reconnect(agent)
        updates = self._updates_of(task)
        updates.append(replace(status, agent_id=agent.agent_id, sequence=len(updates) + 1))
        assert agent.session is not None
        self.decide(AgentReported(agent.session, (updates[-1],)))
        return len(updates)

    def resend(self, framework_id: FrameworkId | None = None) -> None:
        """Report again the updates that a framework, or any framework, has not acknowledged."""
        for agent in self.state.agents.values():
            tasks = (t for (f, _), t in agent.tasks.items() if framework_id in (None, f))
            waiting = tuple(status for task in tasks for status in self._waiting(task))
            if agent.session is not None and waiting:
                self.decide(AgentReported(agent.session, waiting))

    def _reconnect(self, agent: Agent) -> None:
        said = (agent.agent_id, agent.hostname, agent.total, agent.attributes, agent.http_address)
        self._connect(Register(SessionId(0), *said, features=agent.features), agent.tasks.values())

    def _connect(self, agent: Register, tasks: Iterable[Task] = ()) -> None:
        """Register an agent with those of its tasks that it has reported updates of."""
        self._last_session -= 1
        listed = tuple(
            AgentTask(task.framework_id, task.info, updates[-1], self._waiting(task), task.role)
            for task in tasks
            if (updates := self._updates_of(task))
        )
        session = SessionId(self._last_session)
        self.decide(replace(agent, session=session, tasks=listed, takes_secrets=True))

    def _run(self, framework_id: FrameworkId, info: TaskInfo) -> None:
        if not self._behaviour.auto_run or (framework_id, info.task_id) in self.durable.updates:
            return
        ids, now_ms = (framework_id, info.task_id, AgentId("")), self._behaviour.clock.wall_ms()
        for state in (TaskState.STARTING, TaskState.RUNNING, TaskState.FINISHED):
            code = 0 if state is TaskState.FINISHED else None
            self.report(TaskStatus(*ids, state, Source.EXECUTOR, time_ms=now_ms, exit_code=code))

    def _updates_of(self, task: Task) -> list[TaskStatus]:
        return self.durable.updates.setdefault((task.framework_id, task.task_id), [])

    def _waiting(self, task: Task) -> tuple[TaskStatus, ...]:
        return tuple(self._updates_of(task)[task.acknowledged :])


def description(
    agent_id: str,
    hostname: str,
    attributes: Mapping[str, str] | None,
    http_address: str,
    isolation: Iterable[str] | None,
) -> Register:
    """Return the registration of an agent; an `isolation` of None is all features."""
    features = known_features(isolation) if isolation is not None else frozenset(Feature)
    said = (AgentId(agent_id), hostname, NOTHING, dict(attributes or {}), http_address)
    return Register(SessionId(0), *said, features=features)


def with_room(core: Core, described: Register, amount: Resources) -> Agent:
    """Return the connected agent with `amount` free, whatever it had free before.

    Raises:
        Conflict: if it has offered or runs some of these ports or items already.
        InvalidRequest: if the description is malformed.
    """
    allocator = core.state.allocator
    agent_id, hostname, attributes = described.agent_id, described.hostname, described.attributes
    agent = core.agent(replace(described, total=amount))
    try:
        total = agent.total - allocator.queries.free(agent_id) + amount
    except ValueError as error:
        raise Conflict(f"agent {agent_id} has that in use: {error}") from None
    allocator.change_agent(agent_id, total, hostname, attributes, described.features)
    agent.total = total
    said = (hostname, attributes, described.http_address, described.features)
    if said != (agent.hostname, agent.attributes, agent.http_address, agent.features):
        agent.introduce(*said)
    return agent
