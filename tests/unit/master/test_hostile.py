"""Hostile peers, and bounds of what the core remembers."""

from __future__ import annotations

import pytest

from croupier.master.allocator import Allocator
from croupier.master.core import calls
from croupier.master.core.agent_commands import MarkGone, OperateAgent
from croupier.master.core.events import AgentTask, Received
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.messages import Updated
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.model.agent_orders import KillTask
from croupier.model.attributes import matches
from croupier.model.demand import Demand
from croupier.model.errors import Conflict, InvalidRequest, Removed
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Source, TaskState, TaskStatus
from tests.harness.world import CLUSTER, World, make_task


def status(
    agent: str, framework: str, task: str, state: TaskState, sequence: int = 1
) -> TaskStatus:
    return TaskStatus(
        FrameworkId(framework),
        TaskId(task),
        AgentId(agent),
        state,
        Source.EXECUTOR,
        sequence=sequence,
    )


def test_chosen_ids_that_equal_the_next_ones_are_skipped() -> None:
    world = World()
    world.framework(framework_id="m-F1")
    world.agent("cpus:1", agent_id="m-A1")
    assert world.framework_id(world.framework()) == "m-F2"
    assert world.agent_id(world.agent("cpus:1")) == "m-A2"


def test_inconsistent_registrations_are_refused() -> None:
    def listed(latest: TaskStatus, *waiting: TaskStatus) -> InvalidRequest | object:
        task = AgentTask(FrameworkId("f"), make_task("t"), latest, waiting)
        world = World()
        return world.closed.get(
            world.agent("cpus:4;mem:4GB", agent_id="a", tasks=(task,)), "accepted"
        )

    running = status("a", "f", "t", TaskState.RUNNING, 2)
    ended = status("a", "f", "t", TaskState.FINISHED, 3)
    assert listed(running) == "accepted"
    assert listed(ended, running, ended) == "accepted"
    for latest, waiting in (
        (ended, ()),
        (ended, (running,)),
        (ended, (ended, running)),
        (status("b", "f", "t", TaskState.RUNNING), ()),
        (status("a", "g", "t", TaskState.RUNNING), ()),
        (status("a", "f", "u", TaskState.RUNNING), ()),
        (status("a", "f", "t", TaskState.UNREACHABLE), ()),
        (status("a", "f", "t", TaskState.RUNNING, 0), ()),
    ):
        assert isinstance(listed(latest, *waiting), InvalidRequest), (latest, waiting)


def test_silent_session_is_closed_exactly_at_its_deadline() -> None:
    world = World()
    world.now = 210.0111891144907
    session = world.framework()
    world.pass_time(200.0)
    assert session in world.closed


def test_long_errors_are_shortened_in_verdicts() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    session = world.framework()
    many = tuple(make_task(f"t{number}") for number in range(5_000))
    verdict = world.accept(session, *many, offers=["x" * 100_000])
    assert len(str(verdict.error)) < 500
    assert len(verdict.tasks) <= 1_000
    verdict = world.call(session, calls.Kill(TaskId("\x01" * 100_000)))
    assert len(str(verdict.error)) < 500


def test_calls_above_the_limits_are_refused() -> None:
    world = World()
    session = world.framework()
    ids = tuple(TaskId(f"t{number}") for number in range(10_001))
    for call in (
        calls.Reconcile(ids),
        calls.Acknowledge(tuple((AgentId("a"), task_id, 1) for task_id in ids)),
        calls.Kill(TaskId("t"), 2**60),
        calls.Reconcile((TaskId("x" * 1000),)),
    ):
        assert isinstance(world.call(session, call).error, InvalidRequest)
    world.do(OperatorKill(1, TaskId("t"), FrameworkId(""), 2**60))


def test_unknown_earlier_call_number_is_refused() -> None:
    world = World()
    session = world.framework()
    world.call(session, calls.Revive(), seq=2**63)
    assert isinstance(world.call(session, calls.Revive(), seq=1).error, Conflict)


def test_wakeups_and_deadlines_do_not_accumulate() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    session = world.framework(offer_lease_s=60.0)
    for _ in range(500):
        world.decline(session, 3600.0)
        world.call(session, calls.Revive())
    assert len(world.state.allocator._agents._wakeups._heap) < 100
    assert len(world.state.deadlines._heap) < 200


def test_visit_with_many_ranges_and_demands_is_bounded() -> None:
    """A visit stops after some work and continues later; all is offered in the end."""
    world = World()
    ports = ",".join(str(2 * number + 1) for number in range(1_000))
    world.agent(f"cpus:64;ports:[{ports}]", allocate=False)
    for number in range(50):
        world.framework(f"r{number}", demand="gpus:1", allocate=False)
    world.framework("p", demand="ports:1", allocate=False)
    slices = []
    while world.state.allocator.has_dirty_agents:
        slices.append(
            sum(n for grant in world.state.allocator.run(0.0, 1000) for _, n in grant.units)
        )
    assert sum(slices) == 1_000
    assert slices[0] < 50
    assert max(slices) <= 500


def test_pass_with_costly_patterns_is_bounded() -> None:
    """Matching counts as work, and each agent is matched once."""
    world = World()
    for number in range(60):
        world.agent("cpus:1", f"n{number}-".ljust(255, "a"), allocate=False)
    costly = tuple(
        matches("hostname", f"n[0-9]+-((a{{0,7}}){{0,7}}){{0,7}}a*{'a?' * number}")
        for number in range(12)
    )
    unit = Resources.parse("cpus:1")
    world.framework("r1", demands=(Demand(unit, None, costly),), allocate=False)
    never = (*costly, matches("hostname", "no such host"))
    world.framework("r2", demands=(Demand(unit, None, never),), allocate=False)
    slices = grants_of_passes(world)
    assert sum(slices) == 60
    assert max(slices) <= 10
    for agent_id in world.state.agents:
        world.state.allocator.activate_agent(agent_id, True)
    assert len(grants_of_passes(world)) <= 2


def grants_of_passes(world: World) -> list[int]:
    """Return the number of grants of each slice until all agents are settled."""
    slices = []
    while world.state.allocator.has_dirty_agents:
        slices.append(len(world.state.allocator.run(0.0, 1000)))
    return slices


# Everything that the core remembers is bounded.


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
