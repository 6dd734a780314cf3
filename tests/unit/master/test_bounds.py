"""Everything that the core remembers is bounded."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.events import AgentTask, Received
from croupier.master.core.messages import Updated
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.agent_orders import KillTask
from croupier.model.errors import Removed
from croupier.model.ids import AgentId, TaskId
from croupier.model.task import TaskState, TaskStatus
from tests.harness.world import CLUSTER, World, make_task


@pytest.mark.parametrize("chosen", ["", "mine", "another-3-F7"])
def test_removed_id_is_refused_after_many_removals(chosen: str) -> None:
    world = World(state=State(f"{CLUSTER}-1", Settings(removed_frameworks=3), Allocator()))
    session = world.framework(framework_id=chosen)
    framework_id = world.framework_id(session)
    world.call(session, calls.Teardown())
    for number in range(8):
        for other in ("", f"other-{number}"):
            session = world.framework(framework_id=other)
            if session not in world.closed:
                world.call(session, calls.Teardown())
    for _ in range(2):
        again = world.framework(framework_id=framework_id)
        assert isinstance(world.closed[again], Removed)
        assert world.framework() not in world.closed
        # An agent that still runs a task of it cannot restore it.
        running = TaskStatus(
            framework_id, TaskId("t1"), AgentId("a1"), TaskState.RUNNING, sequence=1
        )
        tasks = (AgentTask(framework_id, make_task("t1"), running),)
        back = world.agent("cpus:1;mem:1GB", agent_id=running.agent_id, tasks=tasks)
        killed = [each.task_id for each in world.sent[back] if isinstance(each, KillTask)]
        assert killed == ["t1"]
        world.report(back, framework_id, "t1", TaskState.KILLED, 2)
        world.end_session(back)
        world.restart()
    remembered = list(world.state.removed)
    assert len(remembered) <= 6


def test_frameworks_of_a_lost_store_reconnect_with_ids_that_are_not_assigned_later() -> None:
    world = World(state=State(f"{CLUSTER}-1", Settings(), Allocator()))
    for framework_id in ("mine", "another-3-F7", f"{CLUSTER}-0-F5"):
        session = world.framework(framework_id=framework_id)
        assert world.framework_id(session) == framework_id


def test_ended_tasks_and_used_ids_are_bounded() -> None:
    world = World(settings=Settings(completed_tasks=3, used_task_ids=2))
    agent = world.agent("cpus:4;mem:4GB")
    session = world.framework()
    framework_id = world.framework_id(session)
    for number in range(5):
        name = f"t{number}"
        assert world.accept(session, make_task(name)).tasks[0].error is None
        world.finish(agent, framework_id, name)
        world.call(session, calls.Acknowledge(((world.agent_id(agent), TaskId(name), 2),)))
    assert [task.info.task_id for task in world.state.ended] == ["t2", "t3", "t4"]
    assert list(world.state.frameworks[framework_id].used_ids) == ["t3", "t4"]
    verdict = world.accept(session, make_task("t4"))
    assert verdict.tasks[0].error is not None


def test_large_reconcile_is_answered_in_few_messages() -> None:
    world = World()
    session = world.framework()
    ids = tuple(TaskId(f"t{number}") for number in range(1_201))
    world.call(session, calls.Reconcile(ids))
    updates = [message for message in world.sent[session] if isinstance(message, Updated)]
    assert [len(message.statuses) for message in updates] == [500, 500, 201]
    assert {status.state for status in world.updates(session)} == {TaskState.UNKNOWN}


def test_many_missed_updates_are_sent_in_few_messages() -> None:
    world = World()
    agent = world.agent("cpus:2000;mem:2000GB")
    agent_id = world.agent_id(agent)
    session = world.framework()
    owner = world.framework_id(session)
    tasks = [make_task(f"t{number}", "cpus:1;mem:1MB") for number in range(1_201)]
    assert world.accept(session, *tasks[:1_000]).error is None
    world.pass_time(6.0)
    assert world.accept(session, *tasks[1_000:]).error is None
    world.end_session(session)
    world.do(OperateAgent(7, agent_id, MarkGone(), "me"))
    session = world.framework(framework_id=owner)
    updates = [message for message in world.sent[session] if isinstance(message, Updated)]
    assert [len(message.statuses) for message in updates] == [500, 500, 201]
    assert {status.state for status in world.updates(session)} == {TaskState.GONE_BY_OPERATOR}


def test_verdicts_marked_as_seen_are_forgotten() -> None:
    world = World()
    session = world.framework()
    for _ in range(10):
        world.call(session, calls.Revive())
    framework = world.state.frameworks[world.framework_id(session)]
    assert list(framework.verdicts) == list(range(1, 11))
    world.do(Received(session, verdicts_seen=7))
    assert list(framework.verdicts) == [8, 9, 10]
