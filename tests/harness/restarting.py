"""An agent, a framework, and a master that restarts between them."""

from __future__ import annotations

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentTask, Claim, Register
from croupier.master.core.records import TaskRecord
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.health import Problem
from croupier.model.ids import TaskId
from croupier.model.resources import Resources
from croupier.model.task import Source, TaskInfo, TaskState, TaskStatus
from tests.harness.world import CLUSTER, World, make_task

ALL = "cpus:4;mem:4GB"
T1 = TaskId("t1")


class Scene(World):
    """One agent and one framework that launched `t1`, before a master that restarts."""

    def __init__(self, settings: Settings | None = None) -> None:
        super().__init__(state=State(f"{CLUSTER}-1", settings or Settings(), Allocator()))
        self.host = self.agent(ALL)
        self.host_id = self.agent_id(self.host)
        self.session = self.framework()
        self.owner = self.framework_id(self.session)

    def launch(self, *tasks: TaskInfo) -> None:
        verdict = self.accept(self.session, *(tasks or (make_task("t1"),)))
        assert verdict.error is None

    def agent_back(
        self,
        *states: TaskState,
        waiting: int = 0,
        first: int = 1,
        incomplete: bool = False,
        claim: Claim = Claim.KNOWN,
        problems: tuple[Problem, ...] = (),
    ) -> None:
        """Register the agent, with `t1` if `states` are its updates from number `first`.

        Of them, the last `waiting` ones are unacknowledged.
        """
        tasks: tuple[AgentTask, ...] = ()
        if states:
            statuses = tuple(
                TaskStatus(self.owner, T1, self.host_id, state, Source.EXECUTOR, sequence=n)
                for n, state in enumerate(states, first)
            )
            unacknowledged = statuses[len(statuses) - waiting :]
            info = make_task("t1")
            tasks = (AgentTask(self.owner, info, statuses[-1], unacknowledged),)
        self.host = SessionId(next(self._sessions))
        total = Resources.parse(ALL)
        event = Register(
            self.host,
            self.host_id,
            "host",
            total,
            {},
            tasks=tasks,
            incomplete=incomplete,
            claim=claim,
            problems=problems,
        )
        self.do(event)

    def framework_back(self, client_id: str = "c1") -> None:
        self.session = self.framework(framework_id=self.owner, client_id=client_id)

    def task_updates(self, task_id: str = "t1") -> list[TaskStatus]:
        return [status for status in self.updates(self.session) if status.task_id == task_id]

    def acknowledge(self, sequence: int, seq: int) -> None:
        updates = ((self.host_id, T1, sequence),)
        assert self.call(self.session, calls.Acknowledge(updates), seq).error is None

    @property
    def records(self) -> list[TaskRecord]:
        return [record for record in self.saved if isinstance(record, TaskRecord)]
