"""A simulated agent: it runs each task for its duration, and reports.

Like the real one it numbers its updates of each task, keeps the unacknowledged ones, and lists
every task when it registers again. Lined-up tasks start in place of tasks like them that end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, AgentTask, Register, TasksReturned
from croupier.master.core.messages import Registered, ToAgent, ToFramework
from croupier.master.core.step import Event
from croupier.model import agent_orders
from croupier.model.attributes import Attributes
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.isolation import Feature, Features
from croupier.model.resources import Resources
from croupier.model.task import NO_TASK, Reason, Source, TaskState, TaskStatus
from croupier.sim.kernel import Kernel
from croupier.sim.machine import Machine
from croupier.sim.work import Work

TaskKey = tuple[FrameworkId, TaskId]


@dataclass(slots=True)
class _Task:
    """A task until its last update is acknowledged."""

    order: agent_orders.LaunchTask
    work: Work
    latest: TaskStatus | None = None
    unacknowledged: list[TaskStatus] = field(default_factory=list)


def _place_of(order: agent_orders.LaunchTask) -> tuple[FrameworkId, Role, Resources]:
    """Return what a lined-up task must have in common with the one that it succeeds."""
    return (order.framework_id, order.role, order.task.resources)


@dataclass(frozen=True, slots=True)
class Link:
    """The link between the master and simulated agents.

    Attributes:
        delay_s: how long each message takes, either way; REGISTER is always there at once.
        lines_up: whether tasks may be lined up. Then STARTING tells the time of each start.
    """

    delay_s: float = 0.0
    lines_up: bool = False


NEAR = Link()


class SimulatedAgent:
    """The agent of one node.

    Attributes:
        agent_id: empty until the master assigned one.
        total: the resources that the agent advertises; the machine may have others.
        features: what it can enforce, as it tells the master.
        error: the error by which the master ended the last session, if it did.
    """

    def __init__(
        self,
        kernel: Kernel,
        hostname: str,
        total: Resources,
        machine: Machine[TaskKey],
        works: dict[TaskKey, Work],
        attributes: Attributes | None = None,
        tick_s: float = 0.0,
        on_change: Callable[[SimulatedAgent], None] | None = None,
        link: Link = NEAR,
    ) -> None:
        """Create an agent that is not connected. It removes the entries that it takes from `works`.

        If `tick_s` is above 0, ends of tasks are noticed only at multiples of it. `on_change` is
        called when a task has started or ended on the machine.
        """
        self.kernel = kernel
        self.hostname = hostname
        self.total = total
        self.machine = machine
        self.attributes = attributes or {}
        self.features: Features = frozenset({Feature.GANGS})
        self.agent_id = AgentId("")
        self.launched = 0
        self.error: CroupierError | None = None
        self._works = works
        self._tick_s = tick_s
        self._on_change = on_change
        self._link = link
        self._session: SessionId | None = None
        self._tasks: dict[TaskKey, _Task] = {}
        self._line: dict[TaskKey, agent_orders.LaunchTask] = {}
        self._to_report: list[TaskStatus] = []
        self._to_return: list[TaskKey] = []
        self._wakes_at: float | None = None
        self._has_changed = False

    def connect(self) -> None:
        """Register with all tasks, unless a session is open."""
        if self._session is not None:
            return
        self._session = self.kernel.open_session(self)
        # REGISTER lists these updates.
        self._to_report.clear()
        self._to_return.clear()
        self._line.clear()
        tasks = tuple(
            AgentTask(key[0], task.order.task, task.latest, tuple(task.unacknowledged))
            for key, task in self._tasks.items()
            if task.latest is not None
        )
        about = (self.agent_id, self.hostname, self.total, self.attributes)
        self.kernel.step(
            Register(
                self._session,
                *about,
                tasks=tasks,
                features=self.features,
                lines_up=self._link.lines_up,
            )
        )

    def take(self, message: ToAgent | ToFramework) -> None:
        """See `Peer`."""
        if self._link.delay_s and not isinstance(message, Registered):
            at = self.kernel.now + self._link.delay_s
            self.kernel.at(at, partial(self._arrived, self._session, message))
        else:
            self._obey(message)

    def _arrived(self, session: SessionId | None, message: ToAgent | ToFramework) -> None:
        if session == self._session:
            self._obey(message)

    def _obey(self, message: ToAgent | ToFramework) -> None:
        match message:
            case agent_orders.LaunchTask(lined_up=True):
                self._line[message.framework_id, message.task.task_id] = message
            case agent_orders.LaunchTask():
                self._launch(message)
            case agent_orders.LaunchGroup(orders):
                for order in orders:
                    self._launch(order)
            case agent_orders.RecallTask(framework_id, task_id):
                self._return((framework_id, task_id))
            case agent_orders.AcknowledgeUpdate(framework_id, task_id, sequence):
                self._acknowledged((framework_id, task_id), sequence)
            case agent_orders.KillTask(framework_id, task_id):
                self._kill((framework_id, task_id), message.reason)
            case Registered(agent_id):
                self.agent_id = agent_id
            case agent_orders.ResendUpdates(framework_id):
                self._resend(framework_id)
            case _:
                pass

    def send(self) -> None:
        """Report every update that is due."""
        if self._has_changed:
            self._changed()
        if self._session is not None and self._to_report:
            statuses, self._to_report = tuple(self._to_report), []
            self._tell(AgentReported(self._session, statuses))
        if self._session is not None and self._to_return:
            keys, self._to_return = tuple(self._to_return), []
            self._tell(TasksReturned(self._session, keys))

    def _tell(self, event: Event) -> None:
        if self._link.delay_s:
            self.kernel.at(self.kernel.now + self._link.delay_s, partial(self.kernel.step, event))
        else:
            self.kernel.step(event)

    def closed(self, error: CroupierError | None) -> None:
        """Connect again at once."""
        self._session = None
        self.error = error
        self.kernel.at(self.kernel.now, self.connect)

    def _return(self, key: TaskKey) -> None:
        if self._line.pop(key, None) is not None:
            self._to_return.append(key)
            self.kernel.will_send(self)

    def _launch(self, order: agent_orders.LaunchTask) -> None:
        key = (order.framework_id, order.task.task_id)
        work = self._works.pop(key)
        self.launched += 1
        self._tasks[key] = _Task(order, work)
        if self._link.lines_up:
            self._report(key, TaskState.STARTING)
        self._report(key, TaskState.RUNNING)
        if work.gang is None:
            self._begin(key)
        elif not work.gang.join(work, partial(self._begin, key)):
            self.kernel.at(self.kernel.now + work.gang.PATIENCE_S, partial(self._give_up, key))

    def _begin(self, key: TaskKey) -> None:
        """Let a task do its work from now on."""
        work, now = self._tasks[key].work, self.kernel.now
        work.started_at = now
        self.machine.start(key, work.shape.use, work.seconds, now)
        self._has_changed = True
        self.kernel.will_send(self)

    def _give_up(self, key: TaskKey) -> None:
        """End a task that still waits for the others of its gang."""
        task = self._tasks.get(key)
        if task is not None and task.work.gang is not None and task.work.gang.leave(task.work):
            self._report(key, TaskState.FAILED)

    def _kill(self, key: TaskKey, reason: Reason) -> None:
        if key in self._tasks and key in self.machine:
            self.machine.stop(key, self.kernel.now)
            self._report(key, TaskState.KILLED, reason)
            self._has_changed = True

    def _wake(self) -> None:
        """Report tasks that have ended. A wake-up that a later change made needless is ignored."""
        now = self.kernel.now
        if self._wakes_at is None or now < self._wakes_at:
            return
        self._wakes_at = None
        for key in self.machine.done(now):
            self.machine.stop(key, now)
            self._end(key, self._tasks[key])
        self._has_changed = True
        self.kernel.will_send(self)

    def _end(self, key: TaskKey, task: _Task) -> None:
        """Report the end of a task; the first one that is lined up for its place starts."""
        # The line ends with the session.
        line = self._line if self._session is not None else {}
        place = _place_of(task.order)
        found = next((each for each in line if _place_of(line[each]) == place), None)
        self._report(key, task.work.end(), successor=found[1] if found else NO_TASK)
        if found is not None:
            self._launch(self._line.pop(found))

    def _changed(self) -> None:
        """Schedule the next end of a task, and notify the observer."""
        self._has_changed = False
        if self._on_change is not None:
            self._on_change(self)
        end = self.machine.next_end()
        if end is None:
            self._wakes_at = None
            return
        if self._tick_s:
            end = -(-end // self._tick_s) * self._tick_s
        if end != self._wakes_at:
            self._wakes_at = end
            self.kernel.at(end, self._wake)

    def _report(
        self,
        key: TaskKey,
        state: TaskState,
        reason: Reason = Reason.NONE,
        successor: TaskId = NO_TASK,
    ) -> None:
        task = self._tasks[key]
        sequence = (task.latest.sequence if task.latest else task.order.sequence) + 1
        task.latest = TaskStatus(
            *key,
            self.agent_id,
            state,
            Source.EXECUTOR,
            reason,
            sequence=sequence,
            time_ms=round(self.kernel.now * 1000),
            successor=successor,
        )
        task.unacknowledged.append(task.latest)
        self._to_report.append(task.latest)
        self.kernel.will_send(self)

    def _acknowledged(self, key: TaskKey, sequence: int) -> None:
        task = self._tasks.get(key)
        if task is None:
            return
        waiting = task.unacknowledged
        while waiting and waiting[0].sequence <= sequence:
            del waiting[0]
        if not waiting and task.latest is not None and task.latest.state.is_terminal:
            del self._tasks[key]

    def _resend(self, framework_id: FrameworkId) -> None:
        for (owner, _), task in self._tasks.items():
            if owner == framework_id:
                self._to_report += task.unacknowledged
        if self._to_report:
            self.kernel.will_send(self)
