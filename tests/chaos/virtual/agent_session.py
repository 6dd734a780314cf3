"""The session of an agent with a master: connect, redirect, silence, heartbeats, messages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, assert_never

from croupier.agent.core import events as ev
from croupier.agent.core.events import Event
from croupier.agent.core.state import AgentState
from croupier.agent.core.tasks import Key
from croupier.agent.fencing import NewestMaster
from croupier.master.core import messages as to
from croupier.master.core.events import (
    AgentHealth,
    AgentReported,
    AgentStopped,
    AgentTask,
    ExecutorSaid,
    Received,
    RefusedLaunch,
    Register,
    TasksReturned,
)
from croupier.model.agent_orders import (
    AcknowledgeUpdate,
    ExecutorMessage,
    KillTask,
    LaunchGroup,
    LaunchTask,
    RecallTask,
    ResendUpdates,
    SetVolume,
)
from croupier.model.errors import CroupierError, NotLeader, Removed
from croupier.model.health import Problem
from croupier.model.ids import DEFAULT_ROLE, FrameworkId, TaskId
from croupier.model.task import Command, Source, TaskInfo, TaskState, TaskStatus
from croupier.net.backoff import Backoff
from tests.chaos.virtual.network import End, Ended
from tests.chaos.virtual.term import Introduced, Ordered

if TYPE_CHECKING:
    from tests.chaos.virtual.agent import AgentProcess

JOIN_S = 8.0
SILENT_BEATS = 5
# Ids of tasks that an agent invents begin so.
INVENTED = "invented-"


class AgentSession:
    """The session of one run of an agent; it is the reactor's `Session`.

    Attributes:
        end: the stream to the master; None while there is none.
        next_master: the master to connect to next; empty for a random one.
        heeds_epochs: for a mutant: False obeys any master.
        is_orderly: for a mutant: False sends the newest updates first.
    """

    heeds_epochs = True
    is_orderly = True

    def __init__(self, process: AgentProcess, state: AgentState) -> None:
        self.end: End | None = None
        self.next_master = ""
        self._process = process
        self._newest = NewestMaster(state.cluster, state.master_epoch, state.position)
        self._session = 0
        self._sessions = count(1)
        self._is_registered = False
        self._heard_at = 0.0
        self._heartbeat_s = 1.0
        self._hops = 0
        self._backoff = Backoff(0.1, 3.0, process.random)

    def leave(self) -> None:
        """Notify the master that the agent stops."""
        if self.end is not None and self._is_registered:
            self.end.send(partial(AgentStopped, message="asked to stop"))

    def connect(self, master: str) -> None:
        process = self._process
        self._session = next(self._sessions)
        self.end = self._process.network.connect(process.name, master, process)
        self._is_registered = False
        self._heard_at = self._process.clock.now()
        self._process.put(ev.Connected(self._session))
        session = self._session
        self._process.later(JOIN_S, lambda: self._watch(session))

    def _watch(self, session: int) -> None:
        if session != self._session or self.end is None:
            return
        patience_s = SILENT_BEATS * self._heartbeat_s if self._is_registered else JOIN_S
        if self._process.clock.now() - self._heard_at >= patience_s:
            self._lost("")
        else:
            self._process.later(1.0, lambda: self._watch(session))

    def _beat(self, session: int) -> None:
        if session == self._session and self.end is not None:
            self.end.send(partial(Received))
            self._process.later(self._heartbeat_s, lambda: self._beat(session))

    def _lost(self, leader: str) -> None:
        if self.end is not None:
            self.end.close()
            self.end = None
        self._process.put(ev.Disconnected(self._session))
        session = self._session
        if leader and self._hops < 3:
            self._hops += 1
            wait_s, master = 0.0, leader
        else:
            self._hops = 0
            wait_s, master = (
                self._backoff.next_s(),
                self._process.random.choice(self._process.masters),
            )
        master, self.next_master = self.next_master or master, ""

        def again() -> None:
            if session == self._session:
                self.connect(master)

        self._process.later(wait_s, again)

    def events_of(self, message: object) -> list[Event]:
        self._heard_at = self._process.clock.now()
        if isinstance(message, Ended):
            error = message.error
            self._lost(error.leader if isinstance(error, NotLeader) else "")
            return [ev.Removed()] if isinstance(error, Removed) else []
        assert isinstance(message, Ordered)
        if self.heeds_epochs:
            newest = self._newest
            try:
                registered = self._is_registered or isinstance(message.message, to.Registered)
                is_new = newest.admit(message.heading, is_registered=registered)
            except CroupierError:
                self._lost("")
                return []
            if is_new:
                seen = ev.MasterSeen(newest.epoch, newest.cluster, newest.position)
                return [seen, *self._on_order(message.message)]
        return self._on_order(message.message)

    def _on_order(self, order: to.ToAgent) -> list[Event]:
        match order:
            case to.Registered(agent_id, heartbeat_s):
                self._hops, self._is_registered, self._heartbeat_s = 0, True, heartbeat_s
                self._backoff.reset()
                self._beat(self._session)
                return [ev.Registered(agent_id)]
            case KillTask(_, task_id) if task_id.startswith(INVENTED):
                return []
            case LaunchTask() | LaunchGroup() | KillTask() | RecallTask():
                return [order]
            case AcknowledgeUpdate() | ResendUpdates() | ExecutorMessage() | SetVolume():
                return [order]
            case to.Heartbeat():
                return []
            case _:
                assert_never(order)

    def _send(self, session: int | None, message: object) -> None:
        if session == self._session and self.end is not None:
            self.end.send(message)

    def send_register(self, session: int, state: AgentState) -> None:
        listed = tuple(
            AgentTask(
                task.framework_id, task.info, task.status, tuple(task.updates.waiting), task.role
            )
            for task in state.tasks.values()
        )
        proofs = tuple(task.proof for task in state.tasks.values())
        if self._process.invents and state.free:
            listed, proofs = (*listed, self._invented(state)), (*proofs, "00" * 16)
        newest = (state.cluster, state.master_epoch, state.position)
        register = partial(
            Register,
            agent_id=state.agent_id,
            hostname=self._process.name,
            total=self._process.machine.total,
            attributes={},
            volumes=tuple(sorted(state.volumes, key=str)),
            tasks=listed,
            incomplete=state.incomplete,
            problems=state.health.problems,
            lines_up=True,
            boot_id=self._process.machine.boot_id,
            sent_ms=int(self._process.clock.now() * 1000),
            features=state.features,
            devices=() if state.inventory is None else state.inventory.devices,
        )
        known = newest if self.heeds_epochs else ("", 0, None)
        self._send(session, Introduced(register, *known, proofs))

    def _invented(self, state: AgentState) -> AgentTask:
        """Return a running task that no master launched, with all that is free."""
        framework_id, self._process.invents = self._process.invents, FrameworkId("")
        info = TaskInfo(TaskId(f"{INVENTED}{self._session}"), Command(), state.free)
        key = (framework_id, info.task_id, state.agent_id)
        status = TaskStatus(*key, TaskState.RUNNING, Source.EXECUTOR, sequence=1)
        return AgentTask(framework_id, info, status, (status,), DEFAULT_ROLE)

    def send_updates(self, session: int, statuses: Sequence[TaskStatus]) -> None:
        ordered = tuple(statuses if self.is_orderly else reversed(statuses))
        self._send(session, partial(AgentReported, statuses=ordered))

    def send_refusals(self, session: int, refused: Sequence[tuple[Key, str]]) -> None:
        launches = tuple(RefusedLaunch(*key, message) for key, message in refused)
        problems = self._process.state.health.problems
        self._send(session, partial(AgentHealth, problems=problems, refused=launches))

    def send_returned(self, session: int, keys: Sequence[Key]) -> None:
        self._send(session, partial(TasksReturned, tasks=tuple(keys)))

    def send_message(self, session: int, message: ExecutorMessage) -> None:
        self._send(session, partial(ExecutorSaid, message=message))

    def send_health(self, session: int | None, problems: tuple[Problem, ...]) -> None:
        self._send(session, partial(AgentHealth, problems=problems, refused=()))
