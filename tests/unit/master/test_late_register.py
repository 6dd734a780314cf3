"""A REGISTER that arrives after one that its agent has sent later."""

from __future__ import annotations

import pytest

from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentTask, Register
from croupier.master.core.facts import AgentRefused
from croupier.model.errors import Unavailable
from croupier.model.ids import AgentId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.task import TaskState, TaskStatus
from tests.harness.world import World, make_task

AGENT, TOTAL = AgentId("A1"), Resources.parse("cpus:4;mem:8GB")


class Reconnecting(World):
    """The agent `A1`, whose streams may overtake each other."""

    def register(self, sent_ms: int, boot_id: str = "b1") -> SessionId:
        session = SessionId(next(self._sessions))
        self.do(Register(session, AGENT, "host", TOTAL, {}, boot_id=boot_id, sent_ms=sent_ms))
        return session

    @property
    def session(self) -> SessionId | None:
        return self.state.agents[AGENT].session


def test_a_late_register_ends_neither_the_session_nor_its_tasks() -> None:
    world = Reconnecting()
    second = world.register(sent_ms=2_000)
    framework = world.framework()
    world.accept(framework, make_task("t1", "cpus:1"))
    framework_id = world.framework_id(framework)
    world.report(second, framework_id, "t1", TaskState.RUNNING, 1)

    first = world.register(sent_ms=1_000)

    assert isinstance(world.closed[first], Unavailable)
    assert world.session == second
    assert second not in world.closed
    assert [task.state for task in world.state.agents[AGENT].tasks.values()] == [TaskState.RUNNING]
    assert [each.agent_id for each in world.facts if isinstance(each, AgentRefused)] == [AGENT]


@pytest.mark.parametrize(
    ("sent_ms", "boot_id"),
    [(2_001, "b1"), (2_000, "b1"), (0, "b1"), (1_000, "b2")],
    ids=["later", "in the same millisecond", "of an earlier release", "after a reboot"],
)
def test_another_register_takes_over(sent_ms: int, boot_id: str) -> None:
    world = Reconnecting()
    before = world.register(sent_ms=2_000)
    after = world.register(sent_ms, boot_id)
    assert world.session == after
    assert before in world.closed


def test_an_unreachable_agent_returns_whatever_its_clock_says() -> None:
    world = Reconnecting()
    world.register(sent_ms=2_000)
    world.pass_time(world.state.settings.agent_timeout_s + 1)
    assert world.session is None
    assert world.register(sent_ms=1_000) == world.session


def test_a_task_whose_agent_has_not_returned_to_a_new_master_says_so() -> None:
    world = World()
    agent_id = world.agent_id(world.agent("cpus:4;mem:4GB"))
    session = world.framework()
    key = (world.framework_id(session), TaskId("t1"))
    world.accept(session, make_task("t1"))
    world.restart()

    def shown() -> tuple[TaskState, str]:
        task = world.state.frameworks[key[0]].tasks[key[1]]
        status = world.state.snapshot(task).status
        return status.state, status.message

    assert shown() == (TaskState.STAGING, "its agent has not returned since the failover")
    latest = TaskStatus(*key, agent_id, TaskState.RUNNING, sequence=1)
    listed = AgentTask(key[0], make_task("t1"), latest, (), Role("*"))
    world.agent("cpus:4;mem:4GB", agent_id=agent_id, tasks=(listed,))
    assert shown() == (TaskState.RUNNING, "")
