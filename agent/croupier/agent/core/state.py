"""Everything an agent knows. Only `step` changes it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from croupier.agent.core.health import Health
from croupier.agent.core.records import AgentRecord
from croupier.agent.core.tasks import Key, Task, Void
from croupier.model.deadlines import Deadlines
from croupier.model.ids import AgentId, FrameworkId
from croupier.model.resources import Resources
from croupier.model.store_position import StorePosition
from croupier.model.task import TaskState

NO_AGENT_ID = AgentId("")

Deadline = tuple[Literal["resend", "kill"], Key]


@dataclass(slots=True)
class AgentState:
    """The agent's tasks, what they leave free, and who is to be told of them.

    Attributes:
        total: what the agent has.
        free: what its live tasks leave of that.
        agent_id: empty until the agent's life begins; then it names itself.
        life: the prefix of the names of runs; no two lives of any agents have the same.
        boot_id: of the machine's present run.
        recorded_boot_id: of the run in which its processes were last looked for.
        master_epoch: the newest master that was heard; an older one is not to be obeyed.
        cluster: which cluster that master leads.
        position: how far its store was, at the latest; None: no master has said that.
        is_position_new: whether it is not yet among the records.
        incomplete: records were lost, and no master was told yet.
        to_forget: tasks of which the first record is lost, or whose agent was removed; what else
            there is of them is to be forgotten.
        to_void: tasks that cannot have lived on, by what the records tell; now void.
        epochs: of each framework that was heard, its program's newest run, oldest news first.
        session: the session that has had REGISTER; updates go there. None: nobody listens.
        joining: a session that is open and waits for REGISTER.
        live: how many of `tasks` are live.
        runs: how many runs were named in this life.
        names: how many names the agent has given itself in this life.
        adopting: tasks of an earlier life whose processes are being looked for.
        voided: tasks that a removal made void; their processes are being killed, and nobody
            is told how that went.
        health: what keeps the agent from launching tasks.
        takes_refusals: whether the master of the session knows what a refused launch is.
        stopping: whether the daemon is ending, so that nothing new is started.
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
    epochs: dict[FrameworkId, int] = field(default_factory=dict)
    session: int | None = None
    joining: int | None = None
    tasks: dict[Key, Task] = field(default_factory=dict)
    live: int = 0
    runs: int = 0
    names: int = 0
    adopting: set[Key] = field(default_factory=set)
    voided: dict[Key, Void] = field(default_factory=dict)
    health: Health = field(default_factory=Health)
    takes_refusals: bool = True
    stopping: bool = False
    deadlines: Deadlines[Deadline] = field(default_factory=Deadlines)

    @classmethod
    def of(
        cls, total: Resources, agent_id: AgentId = NO_AGENT_ID, *, life: str = "0"
    ) -> AgentState:
        """An agent without tasks."""
        return cls(total, total, agent_id, life)

    @property
    def is_idle(self) -> bool:
        """Whether no process runs or is about to."""
        return not self.live and not self.voided

    @property
    def was_rebooted(self) -> bool:
        """Whether the machine was started anew since the records were made."""
        recorded, present = self.recorded_boot_id, self.boot_id
        return bool(recorded and present) and recorded != present

    @property
    def record(self) -> AgentRecord:
        """The agent itself, as it is to be remembered."""
        return AgentRecord(
            self.agent_id, self.recorded_boot_id, self.master_epoch, self.incomplete, self.cluster
        )

    def is_live(self, key: Key) -> bool:
        """Whether the task has not ended; False if it is not known."""
        task = self.tasks.get(key)
        return task is not None and task.is_live

    def wants_process(self, key: Key) -> bool:
        """Whether the task is still to be started."""
        task = self.tasks.get(key)
        if task is None or not task.is_live or task.pid or task.kill is not None:
            return False
        return key not in self.adopting

    def is_outdated(self, framework_id: FrameworkId, framework_epoch: int) -> bool:
        """Whether an order is of an older run of its framework's program than the newest."""
        return 0 < framework_epoch < self.epochs.get(framework_id, 0)

    def waiting(self) -> int:
        """How many updates wait for an acknowledgement. O(tasks)."""
        return sum(len(task.updates.waiting) for task in self.tasks.values())

    def next_deadline(self) -> float | None:
        """Return when `DeadlinePassed` is due, on the agent's monotonic clock; None: never."""
        return self.deadlines.next()

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
                killing = task.kill is not None and task.pid and key not in self.adopting
                assert not killing or task.state is TaskState.KILLING
            resends = self.session is not None and bool(task.updates.waiting)
            assert (("resend", key) in self.deadlines) == resends
            assert task.is_live or ("kill", key) not in self.deadlines
        assert held == self.total, "a unit is in two places, or in none"
        assert live == self.live
        self.health.check()
        assert self.session is None or self.joining is None
        assert self.session is None or not (self.voided or self.adopting)
        for key in self.adopting:
            assert self.is_live(key) or key in self.voided
        for _, key in self.deadlines:
            assert key in self.tasks
