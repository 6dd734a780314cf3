"""A pretend agent: it runs tasks for as long as they take, reports, crashes and returns.

Like the real one it numbers its updates of each task, keeps those that were not acknowledged,
and lists every task when it registers again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported, AgentTask, Heard, Register, SessionEnded
from croupier.master.core.messages import (
    AcknowledgeUpdate,
    KillTask,
    LaunchTask,
    Registered,
    ResendUpdates,
    ToAgent,
    ToFramework,
)
from croupier.model.attributes import Attributes
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Reason, Source, TaskInfo, TaskState, TaskStatus
from croupier.sim.kernel import Kernel
from croupier.sim.machine import Machine
from croupier.sim.work import Work

TaskKey = tuple[FrameworkId, TaskId]


@dataclass(slots=True)
class _Task:
    """A task that its agent knows: until its last update is acknowledged."""

    info: TaskInfo
    work: Work
    latest: TaskStatus | None = None
    unacknowledged: list[TaskStatus] = field(default_factory=list)


class PretendAgent:
    """One node's agent.

    Attributes:
        agent_id: empty until the master gave one.
        machine: what really runs there.
        launched: how many tasks it was told to run.
        error: why the master ended its session, if it did.
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
        on_change: Callable[[PretendAgent], None] | None = None,
    ) -> None:
        """It is not there before `connect`.

        Args:
            kernel: its world.
            hostname: its name.
            total: what it advertises, which need not be what the machine has.
            machine: the node.
            works: what each task will do, by task; it takes its own out.
            attributes: what it says of itself.
            tick_s: if above 0, it notices the end of tasks at multiples of this only.
            on_change: told when a task has started or ended on the machine.
        """
        self.kernel = kernel
        self.hostname = hostname
        self.total = total
        self.machine = machine
        self.attributes = attributes or {}
        self.agent_id = AgentId("")
        self.launched = 0
        self.error: CroupierError | None = None
        self._works = works
        self._tick_s = tick_s
        self._on_change = on_change
        self._session: SessionId | None = None
        self._tasks: dict[TaskKey, _Task] = {}
        self._to_report: list[TaskStatus] = []
        self._wakes_at: float | None = None
        self._has_changed = False

    def connect(self) -> None:
        """Register, with every task that is known."""
        self._session = self.kernel.open_session(self)
        # What is listed is not reported beside it.
        self._to_report.clear()
        reports = tuple(
            AgentTask(key[0], task.info, task.latest, tuple(task.unacknowledged))
            for key, task in self._tasks.items()
            if task.latest is not None
        )
        self.kernel.tell(
            Register(
                self._session,
                self.agent_id,
                self.hostname,
                self.total,
                self.attributes,
                tasks=reports,
            )
        )

    def crash(self, down_s: float, tasks_survive: bool = False) -> None:
        """Break the session, and connect again after `down_s`.

        With the machine itself (`tasks_survive` false) every task that runs is gone without a
        word. What was to be reported of others is on disk.
        """
        self.disconnect("it crashed")
        if not tasks_survive:
            self._tasks = {
                key: task for key, task in self._tasks.items() if key not in self.machine
            }
            self.machine.clear(self.kernel.now)
            self._changed()
        self.kernel.at(self.kernel.now + down_s, self._return)

    def disconnect(self, message: str) -> None:
        """Break the session."""
        if self._session is not None:
            session, self._session = self._session, None
            self.kernel.end_session(session)
            self.kernel.tell(SessionEnded(session, message))

    def beat(self) -> None:
        """Say that it is there."""
        if self._session is not None:
            self.kernel.tell(Heard(self._session))

    def take(self, message: ToAgent | ToFramework) -> None:
        """Take in a message from the master."""
        match message:
            case LaunchTask(framework_id, task):
                self._launch((framework_id, task.task_id), task)
            case AcknowledgeUpdate(framework_id, task_id, sequence):
                self._acknowledged((framework_id, task_id), sequence)
            case KillTask(framework_id, task_id):
                self._kill((framework_id, task_id), message.reason)
            case Registered(agent_id):
                self.agent_id = agent_id
            case ResendUpdates(framework_id):
                self._resend(framework_id)
            case _:
                pass

    def speak(self) -> None:
        """Report every update that has not been reported."""
        if self._has_changed:
            self._changed()
        if self._session is not None and self._to_report:
            statuses, self._to_report = tuple(self._to_report), []
            self.kernel.tell(AgentReported(self._session, statuses))

    def closed(self, error: CroupierError | None) -> None:
        """The master has given the agent up; it tries again at once."""
        self._session = None
        self.error = error
        self.kernel.at(self.kernel.now, self._return)

    def _return(self) -> None:
        if self._session is None:
            self.connect()

    def _launch(self, key: TaskKey, info: TaskInfo) -> None:
        work = self._works.pop(key)
        now = self.kernel.now
        work.started_at = now
        self.launched += 1
        self._tasks[key] = _Task(info, work)
        self.machine.start(key, work.shape.use, work.seconds, now)
        self._report(key, TaskState.RUNNING)
        self._has_changed = True

    def _kill(self, key: TaskKey, reason: Reason) -> None:
        if key in self._tasks and key in self.machine:
            self.machine.stop(key, self.kernel.now)
            self._report(key, TaskState.KILLED, reason)
            self._has_changed = True

    def _wake(self) -> None:
        """Report what is done. A wake-up that a later change made needless does nothing."""
        now = self.kernel.now
        if self._wakes_at is None or now < self._wakes_at:
            return
        self._wakes_at = None
        for key in self.machine.done(now):
            self.machine.stop(key, now)
            failed = self._tasks[key].work.fails
            self._report(key, TaskState.FAILED if failed else TaskState.FINISHED)
        self._has_changed = True
        self.kernel.will_speak(self)

    def _changed(self) -> None:
        """Wake up for the next task that will be done, and tell who watches."""
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

    def _report(self, key: TaskKey, state: TaskState, reason: Reason = Reason.NONE) -> None:
        task = self._tasks[key]
        sequence = task.latest.sequence + 1 if task.latest else 1
        framework_id, task_id = key
        task.latest = TaskStatus(
            framework_id,
            task_id,
            self.agent_id,
            state,
            Source.EXECUTOR,
            reason,
            sequence=sequence,
        )
        task.unacknowledged.append(task.latest)
        self._to_report.append(task.latest)
        self.kernel.will_speak(self)

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
            self.kernel.will_speak(self)
