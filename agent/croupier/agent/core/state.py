"""The state of an agent. Only `step` changes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from croupier.agent.core.health import Health
from croupier.agent.core.records import AgentRecord
from croupier.agent.core.tasks import (
    Adopting,
    Deadline,
    Due,
    Executor,
    GroupKey,
    InExecutor,
    Key,
    Killing,
    LocalTask,
    Phase,
    Process,
    Running,
    Starting,
)
from croupier.model.agent_orders import LaunchTask
from croupier.model.deadlines import Deadlines
from croupier.model.devices import Inventory
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.isolation import NO_FEATURES, Features
from croupier.model.resources import Resources
from croupier.model.store_position import StorePosition
from croupier.model.task import TaskState
from croupier.model.volume import Volume

NO_AGENT_ID = AgentId("")
# The default time in which an executor has to register again.
REREGISTRATION_S = 15.0


@dataclass(slots=True)
class AgentState:
    """The agent's tasks, its free resources, and its session with the master.

    Attributes:
        free: the resources that no live task holds.
        inventory: the agent's named devices; None if it has none.
        agent_id: empty until the first `AgentStarted`; then the agent names itself.
        given_id: the id in the agent's credential, which it takes in place of a random one.
        is_certified: whether `given_id` is in its certificate, so that it never has another.
        life: the prefix of the names of runs, different in each life of each agent.
        boot_id: identifies the machine's current boot.
        recorded_boot_id: identifies the boot in which the agent last looked for its processes.
        master_epoch: the highest epoch of a master so far.
        position: the newest position of the master's store; None if no master has sent one.
        is_position_new: whether the position is not recorded yet.
        incomplete: records were lost, and no master has taken note of that.
        to_forget: tasks whose launch record is lost, or that belonged to an earlier id; their
            other records are to be forgotten.
        to_void: void tasks whose records are to say so: by the records they cannot be live.
        epochs: the newest epoch of each framework, the latest change last.
        connection: the session with the master; None while there is none.
        has_registered: whether REGISTER was sent in the session, so that updates go there.
        runs: the number of runs named in this life.
        names: the number of ids that the agent has chosen in this life.
        adopting: the number of runs of an earlier life whose `Adopt` has no answer yet.
        voided: the processes of void tasks. The agent kills them and reports nothing about them.
        stopping: whether the daemon is stopping, so that no task is started.
        features: what the agent can enforce on its tasks.
        to_forget_groups: groups of an earlier life whose tasks are all forgotten.
        groups: the known tasks of each group, in order of their launch.
        ended_in_groups: tasks that have ended in this step, for the rules of their groups.
        executors: the streams of live executors.
        reregistration_s: the time in which an executor has to register again.
        volumes: those that the agent has a directory of.
        line: orders of lined-up tasks, which hold nothing and have no records; empty without a
            session.
    """

    total: Resources
    free: Resources
    agent_id: AgentId = NO_AGENT_ID
    life: str = "0"
    boot_id: str = ""
    recorded_boot_id: str = ""
    master_epoch: int = 0
    cluster: str = ""
    position: StorePosition | None = None
    is_position_new: bool = False
    incomplete: bool = False
    to_forget: set[Key] = field(default_factory=set)
    to_void: list[Key] = field(default_factory=list)
    to_forget_groups: set[GroupKey] = field(default_factory=set)
    epochs: dict[FrameworkId, int] = field(default_factory=dict)
    connection: int | None = None
    has_registered: bool = False
    tasks: dict[Key, LocalTask] = field(default_factory=dict)
    live: int = 0
    runs: int = 0
    names: int = 0
    adopting: int = 0
    voided: dict[Key, Process] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    stopping: bool = False
    deadlines: Deadlines[Deadline] = field(default_factory=Deadlines)
    given_id: AgentId = NO_AGENT_ID
    is_certified: bool = False
    features: Features = NO_FEATURES
    executors: dict[Key, Executor] = field(default_factory=dict)
    reregistration_s: float = REREGISTRATION_S
    line: dict[Key, LaunchTask] = field(default_factory=dict)
    groups: dict[GroupKey, dict[Key, None]] = field(default_factory=dict)
    ended_in_groups: list[Key] = field(default_factory=list)
    volumes: set[Volume] = field(default_factory=set)
    inventory: Inventory | None = None

    @classmethod
    def of(
        cls, total: Resources, agent_id: AgentId = NO_AGENT_ID, *, life: str = "0"
    ) -> AgentState:
        """Return the state of an agent without tasks."""
        return cls(total, total, agent_id, life)

    @property
    def session(self) -> int | None:
        """The session that updates go to; None if there is none."""
        return self.connection if self.has_registered else None

    @property
    def is_idle(self) -> bool:
        """Whether no process runs or is about to."""
        return not self.live and not self.voided

    @property
    def was_rebooted(self) -> bool:
        """Whether the machine was rebooted since the records were made."""
        recorded, present = self.recorded_boot_id, self.boot_id
        return bool(recorded and present) and recorded != present

    @property
    def record(self) -> AgentRecord:
        """The record of the agent itself."""
        return AgentRecord(
            self.agent_id, self.recorded_boot_id, self.master_epoch, self.incomplete, self.cluster
        )

    def is_live(self, key: Key) -> bool:
        """Return whether the task is known and has not ended."""
        task = self.tasks.get(key)
        return task is not None and task.is_live

    def live_task(self, key: Key) -> LocalTask | None:
        """Return the task if it is known and has not ended."""
        return self.tasks[key] if self.is_live(key) else None

    def wants_process(self, key: Key) -> bool:
        """Return whether the task is still to be started."""
        task = self.tasks.get(key)
        return task is not None and isinstance(task.phase, Starting) and task.phase.kill is None

    @staticmethod
    def runs_unkilled(task: LocalTask) -> bool:
        """Return whether the task runs and nothing has asked it to end."""
        if isinstance(task.phase, InExecutor):
            return task.state is TaskState.RUNNING and task.kill is None
        return isinstance(task.phase, Running)

    def is_outdated(self, framework_id: FrameworkId, framework_epoch: int) -> bool:
        """Return whether an order comes from an older epoch of its framework than the newest."""
        return 0 < framework_epoch < self.epochs.get(framework_id, 0)

    def known_runs(self) -> set[str]:
        """Return the names of all runs that may have a process. O(tasks)."""
        return {run for _, run in self.live_runs()}

    def live_runs(self) -> Iterator[tuple[Key, str]]:
        """Yield each run that may have a process, with its task. O(tasks)."""
        for key, task in self.tasks.items():
            if task.run:
                yield key, task.run
        for key, process in self.voided.items():
            yield key, process.run

    def unacknowledged(self) -> int:
        """Return the number of updates that wait for an acknowledgement. O(tasks)."""
        return sum(len(task.updates.waiting) for task in self.tasks.values())

    def next_deadline(self) -> float | None:
        """Return when `DeadlinePassed` is due, on the agent's monotonic clock; None: never."""
        return self.deadlines.next()

    def set_phase(self, task: LocalTask, phase: Phase) -> None:
        """Move a task to another phase."""
        self.adopting += isinstance(phase, Adopting) - isinstance(task.phase, Adopting)
        task.phase = phase

    def add(self, task: LocalTask) -> None:
        """Add a task, and to its group if it is in one."""
        self.tasks[task.key] = task
        if task.group is not None:
            self.groups.setdefault(task.group, {})[task.key] = None

    def remove(self, task: LocalTask) -> GroupKey | None:
        """Remove a task; return its group if this was the last task of it."""
        del self.tasks[task.key]
        group = task.group
        if group is None:
            return None
        del self.groups[group][task.key]
        if self.groups[group]:
            return None
        del self.groups[group]
        return group

    def set_void(self, key: Key, process: Process | None) -> None:
        """Record the process of a void task; None if it has ended."""
        before = self.voided.get(key)
        self.adopting += isinstance(process, Adopting) - isinstance(before, Adopting)
        if process is None:
            del self.voided[key]
        else:
            self.voided[key] = process

    def check(self) -> None:
        """Assert every invariant. O(tasks)."""
        held = self.free
        live = 0
        for key, task in self.tasks.items():
            assert key == task.key
            task.check()
            assert key not in self.voided
            if task.is_live:
                live += 1
                held = held + task.info.resources
            resends = self.session is not None and bool(task.updates.waiting)
            assert ((Due.RESEND, key) in self.deadlines) == resends
            assert task.is_live or (Due.KILL, key) not in self.deadlines
            saves = isinstance(task.phase, Killing) and task.info.preemption.checkpoint_signal > 0
            assert saves or (Due.TERMINATE, key) not in self.deadlines
            may_time_out = self.runs_unkilled(task) and task.info.max_completion_ms > 0
            has_deadline = (Due.COMPLETION, key) in self.deadlines
            # One that an earlier life launched in an executor gets its deadline by `AgentStarted`.
            is_new = isinstance(task.phase, InExecutor) and may_time_out
            assert has_deadline == may_time_out or is_new
            self._check_executor(task)
        assert all(self.is_live(key) for key in self.executors)
        assert held == self.total, "each unit of a resource is held exactly once"
        assert live == self.live
        grouped = {(task.group, key) for key, task in self.tasks.items() if task.group is not None}
        assert grouped == {(group, key) for group, keys in self.groups.items() for key in keys}
        assert all(self.groups.values())
        assert not self.ended_in_groups
        phases = [*(task.phase for task in self.tasks.values()), *self.voided.values()]
        assert self.adopting == sum(isinstance(phase, Adopting) for phase in phases)
        self.health.check()
        assert self.session is None or not (self.voided or self.adopting)
        assert self.session is not None or not self.line
        assert not (self.line.keys() & (self.tasks.keys() | self.voided.keys()))
        assert all(key in self.tasks for _, key in self.deadlines)

    def _check_executor(self, task: LocalTask) -> None:
        """Assert that executors and their tasks know each other, and live and end together."""
        executor = self.executors.get(task.key)
        assert (executor is not None) == (task.is_live and task.info.executor is not None)
        awaits = executor is not None and executor.connection is None
        has_deadline = (Due.REGISTRATION, task.key) in self.deadlines
        assert has_deadline == (awaits and isinstance(task.phase, Running))
        for key in executor.tasks if executor is not None else ():
            assert self.tasks[key].executor_key == task.key
        if isinstance(task.phase, InExecutor):
            assert task.executor_key is not None
            assert task.key in self.executors[task.executor_key].tasks
        elif task.executor_key is not None:
            assert not task.is_live
