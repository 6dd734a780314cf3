"""An agent that operators drain, deactivate or declare gone."""

from __future__ import annotations

from croupier.master.allocator import Allocator
from croupier.master.core.agent_commands import (
    AgentAction,
    OperateAgent,
)
from croupier.master.core.agent_status import DrainProgress, drain_progress
from croupier.master.core.agents import Agent
from croupier.master.core.effects import Answer, SessionId
from croupier.master.core.events import AgentTask
from croupier.master.core.facts import AgentDrained
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.agent_orders import KillTask
from croupier.model.errors import CroupierError
from croupier.model.ids import TaskId
from croupier.model.task import Reason, Source, TaskInfo, TaskState, TaskStatus
from tests.harness.world import CLUSTER, World, make_task

ALL = "cpus:4;mem:4GB"
T1 = TaskId("t1")


class Scene(World):
    """One agent, on which one framework runs `t1` with a grace of 3 s."""

    def __init__(self, *tasks: TaskInfo, settings: Settings | None = None) -> None:
        super().__init__(state=State(f"{CLUSTER}-1", settings or Settings(), Allocator()))
        self.host = self.agent(ALL)
        self.host_id = self.agent_id(self.host)
        self.session = self.framework()
        self.owner = self.framework_id(self.session)
        verdict = self.accept(self.session, *(tasks or (make_task("t1"),)))
        assert verdict.error is None

    def operate(self, action: AgentAction, agent: str | None = None) -> object:
        """Return the answer to the operator."""
        named = self.host_id if agent is None else agent
        event = OperateAgent(7, named, action, "me")
        (answer,) = [each for each in self.do(event) if isinstance(each, Answer)]
        assert answer.request == 7
        return answer.result

    def refused(self, action: AgentAction, agent: str | None = None) -> CroupierError:
        """Return the error in the operator's answer, and check that nothing changed."""
        before = len(self.saved), len(self.facts)
        error = self.operate(action, agent)
        assert isinstance(error, CroupierError)
        assert (len(self.saved), len(self.facts)) == before
        return error

    @property
    def known(self) -> Agent:
        return self.state.agents[self.host_id]

    @property
    def drain(self) -> DrainProgress:
        found = drain_progress(self.state, self.known, self.now)
        assert found is not None
        return found

    def agent_back(self, *running: TaskInfo) -> None:
        """Register the agent with these tasks, whose first update is unacknowledged."""
        listed = []
        for info in running:
            place = (self.owner, info.task_id, self.host_id)
            status = TaskStatus(*place, TaskState.RUNNING, Source.EXECUTOR, sequence=1)
            listed.append(AgentTask(self.owner, info, status, (status,)))
        self.host = self.agent(ALL, agent_id=self.host_id, tasks=tuple(listed))

    def killed(self, session: SessionId | None = None) -> list[tuple[str, int | None, Reason]]:
        """Return the kills that were sent to the agent on its latest session."""
        sent = self.sent.get(session or self.host, [])
        kills = [message for message in sent if isinstance(message, KillTask)]
        return [(kill.task_id, kill.grace_ms, kill.reason) for kill in kills]

    def drained(self) -> int:
        """Return how often a drain was reported as done."""
        return sum(isinstance(fact, AgentDrained) for fact in self.facts)


def graceful(task_id: str, grace_ms: int) -> TaskInfo:
    task = make_task(task_id)
    return TaskInfo(task.task_id, task.command, task.resources, grace_ms=grace_ms)
