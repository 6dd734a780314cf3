"""Peers that lie, repeat themselves or exceed limits are refused, and nothing else changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from croupier.master.core import calls
from croupier.master.core.events import AgentReported, AgentStopped, AgentTask, SessionEnded
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.messages import Updated
from croupier.master.core.settings import Settings
from croupier.model.agent_orders import KillTask
from croupier.model.attributes import matches
from croupier.model.demand import Demand
from croupier.model.errors import Conflict, InvalidRequest, ProtocolViolation, Removed
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import Source, TaskState, TaskStatus
from tests.harness.world import World, make_task


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


@pytest.mark.parametrize(
    "state",
    [TaskState.UNREACHABLE, TaskState.LOST, TaskState.ERROR, TaskState.STAGING, TaskState.UNKNOWN],
)
def test_agent_cannot_send_states_of_the_master(state: TaskState) -> None:
    world = World()
    agent = world.agent("cpus:4;mem:4GB")
    session = world.framework()
    framework_id = world.framework_id(session)
    world.accept(session, make_task("t1"))
    update = status(world.agent_id(agent), framework_id, "t1", state)
    world.do(AgentReported(agent, (update,)))
    assert isinstance(world.closed[agent], ProtocolViolation)
    world.call(session, calls.Teardown())


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


def test_removed_task_is_killed_when_its_agent_returns() -> None:
    """Its framework was removed, but another of its tasks still runs."""
    world = World()
    one = world.agent("cpus:1;mem:1GB", "h1")
    two = world.agent("cpus:1;mem:1GB", "h2")
    session = world.framework()
    framework_id = world.framework_id(session)
    away = world.agent_id(one)
    world.accept(session, make_task("t1"))
    world.accept(session, make_task("t2"))
    world.report(one, framework_id, "t1", TaskState.RUNNING, 1)
    world.end_session(one)
    world.state.peers[two].last_received = world.state.peers[session].last_received = 80.0
    world.pass_time(80.0)
    world.call(session, calls.Teardown())
    running = status(away, framework_id, "t1", TaskState.RUNNING)
    back = world.agent(
        "cpus:1;mem:1GB",
        "h1",
        agent_id=away,
        tasks=(AgentTask(framework_id, make_task("t1"), running),),
    )
    killed = [message.task_id for message in world.sent[back] if isinstance(message, KillTask)]
    assert killed == ["t1"]
    assert not world.state.allocator.queries.free(away)
    world.report(back, framework_id, "t1", TaskState.KILLED, 2)
    assert world.state.allocator.queries.free(away) == Resources.parse("cpus:1;mem:1GB")


def test_removed_framework_with_tasks_cannot_reconnect() -> None:
    world = World(settings=Settings(removed_frameworks=1))
    world.agent("cpus:4;mem:4GB")
    session = world.framework()
    framework_id = world.framework_id(session)
    world.accept(session, make_task("t1"))
    world.call(session, calls.Teardown())
    for _ in range(3):
        world.call(world.framework(), calls.Teardown())
    assert framework_id not in list(world.state.removed)
    again = world.framework(framework_id=framework_id)
    assert isinstance(world.closed[again], Removed)


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


def test_second_end_of_a_task_does_not_replace_the_first() -> None:
    world = World()
    host = world.agent("cpus:4;mem:4GB")
    agent_id = world.agent_id(host)
    session = world.framework()
    framework_id = world.framework_id(session)
    world.accept(session, make_task("t1"))
    first = status(agent_id, framework_id, "t1", TaskState.FINISHED, 1)
    second = replace(first, sequence=2, message="it ended once more")
    world.do(AgentReported(host, (first,)))
    world.do(AgentReported(host, (second,)))
    task = world.state.frameworks[framework_id].tasks[TaskId("t1")]
    assert (task.status, task.sequence) == (first, 2)
    assert world.call(session, calls.Acknowledge(((agent_id, TaskId("t1"), 2),))).error is None
    assert not world.state.frameworks[framework_id].tasks


def test_unsent_end_is_sent_when_the_agent_returns_without_the_task() -> None:
    """The framework missed the end of its task, and the agent was away when it returned."""
    world = World()
    host = world.agent("cpus:4;mem:4GB")
    agent_id = world.agent_id(host)
    session = world.framework()
    framework_id = world.framework_id(session)
    world.accept(session, make_task("t1"))
    world.report(host, framework_id, "t1", TaskState.RUNNING, 1)
    world.do(SessionEnded(session, "the stream broke"))
    world.report(host, framework_id, "t1", TaskState.FINISHED, 2)
    world.do(SessionEnded(host, "the stream broke"))
    again = world.framework(framework_id=framework_id, client_id="c2")
    world.agent("cpus:4;mem:4GB", agent_id=agent_id)
    update = [m for m in world.sent[again] if isinstance(m, Updated)]
    assert [[s.state for s in update.statuses] for update in update] == [[TaskState.FINISHED]]
    acknowledged = calls.Acknowledge(((agent_id, TaskId("t1"), 2),))
    assert world.call(again, acknowledged).error is None
    assert not world.state.frameworks[framework_id].tasks


def test_sent_end_is_not_resent_when_the_agent_stops() -> None:
    world = World()
    host = world.agent("cpus:4;mem:4GB")
    session = world.framework()
    framework_id = world.framework_id(session)
    world.accept(session, make_task("t1"))
    world.report(host, framework_id, "t1", TaskState.KILLED, 1)
    world.do(AgentStopped(host, "it was update to"))
    update = [s for m in world.sent[session] if isinstance(m, Updated) for s in m.statuses]
    assert [status.state for status in update] == [TaskState.KILLED]
    world.call(session, calls.Acknowledge(((update[0].agent_id, TaskId("t1"), 1),)))
    assert not world.state.frameworks[framework_id].tasks
