"""No event blocks the loop: heavy ones are decided in parts, and batches have a cost."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from croupier.master import driver as driver_module
from croupier.master.batch import event_cost
from croupier.master.core import calls
from croupier.master.core.effects import Pause, Send, SessionId
from croupier.master.core.events import AgentTask, FrameworkCalled
from croupier.master.core.messages import Updated
from croupier.master.core.step import Event, steps
from croupier.master.wire.from_framework import PART, split_call
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import TaskState, TaskStatus
from croupier.model.verdict import Verdict
from croupier.process.time_slice import TimeSlice
from croupier.v1 import framework_pb2
from tests.harness.driven import Recorder, ended, make_driver, register, subscribe
from tests.harness.eventually import eventually
from tests.harness.invariants import check_state
from tests.harness.off_the_wire import call_from_wire
from tests.harness.world import World, make_task

MANY = 2_000
IDS = tuple(TaskId(f"t{number}") for number in range(MANY))
UPDATES = tuple((AgentId("a"), task_id, 1) for task_id in IDS)


def running(task_id: str) -> AgentTask:
    status = TaskStatus(
        FrameworkId("f"), TaskId(task_id), AgentId("a"), TaskState.RUNNING, sequence=1
    )
    return AgentTask(FrameworkId("f"), make_task(task_id, "cpus:1;mem:1GB"), status)


def longest_stretch(world: World, event: Event) -> int:
    """Return the most tasks visited between two pauses of the step."""
    parts = sum(isinstance(part, Pause | Send) for part in steps(world.state, event, world.now))
    return MANY // parts


def test_steps_over_many_tasks_can_be_interrupted() -> None:
    world = World()
    world.agent(f"cpus:{MANY};mem:{MANY}GB", agent_id="a", tasks=tuple(map(running, IDS)))
    session = world.framework(framework_id="f")
    for call in (calls.Reconcile(IDS), calls.Reconcile(()), calls.Acknowledge(UPDATES)):
        seq = world.state.frameworks[FrameworkId("f")].last_seq + 1
        assert longest_stretch(world, FrameworkCalled(session, seq, call)) <= 1
    again = world.agent(f"cpus:{MANY};mem:{MANY}GB", agent_id="a", tasks=tuple(map(running, IDS)))
    assert again not in world.closed


def test_a_registration_can_be_interrupted() -> None:
    world = World()
    world.agent(f"cpus:{MANY};mem:{MANY}GB", agent_id="a", tasks=tuple(map(running, IDS)))
    agent = world.state.agents[AgentId("a")]
    event = register(99)
    listed = tuple(map(running, IDS))
    event = type(event)(SessionId(99), AgentId("a"), "h", agent.total, {}, "", listed)
    assert longest_stretch(world, event) == 0
    check_state(world.state)


def test_call_with_many_tasks_is_decided_in_parts_with_one_verdict() -> None:
    world = World()
    world.agent(f"cpus:{MANY};mem:{MANY}GB", agent_id="a", tasks=tuple(map(running, IDS)))
    session = world.framework(framework_id="f")
    world.sent[session].clear()
    whole = FrameworkCalled(session, 1, calls.Reconcile(IDS))
    parts = list(split_call(whole))
    assert [event_cost(part) for part in parts] == [1 + PART // 2] * (MANY // PART)
    for part in parts:
        world.do(part)
    sent = world.sent[session]
    verdicts = [message for message in sent if isinstance(message, Verdict)]
    assert verdicts == [Verdict(1)] == sent[-1:]
    named = [
        each.task_id for update in sent if isinstance(update, Updated) for each in update.statuses
    ]
    assert named == list(IDS)
    # A resent call is answered again and not repeated.
    world.sent[session].clear()
    for part in parts:
        world.do(part)
    assert world.sent[session] == [Verdict(1)]


def test_parts_equal_the_whole_call() -> None:
    few = FrameworkCalled(SessionId(1), 1, calls.Acknowledge(UPDATES[:3]))
    assert list(split_call(few)) == [few]
    for nothing in (calls.Acknowledge(()), calls.Reconcile(()), calls.Suppress()):
        event = FrameworkCalled(SessionId(1), 1, nothing)
        assert list(split_call(event)) == [event]
    parts = list(split_call(FrameworkCalled(SessionId(1), 1, calls.Acknowledge(UPDATES))))
    acknowledged = [part.call for part in parts if isinstance(part.call, calls.Acknowledge)]
    assert [part.more for part in acknowledged] == [True] * (len(parts) - 1) + [False]
    assert tuple(each for part in acknowledged for each in part.updates) == UPDATES


async def test_other_tasks_run_during_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    recorder = Recorder()
    driver = make_driver(recorder)
    # By this clock a slice ends after each effect.
    driver._slice = TimeSlice(1, lambda: next(ticks))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    await driver.inbox.put(register(1))
    await driver.inbox.put(subscribe(2))
    await driver.inbox.put(FrameworkCalled(SessionId(2), 1, calls.Reconcile(IDS)))
    deciding = asyncio.create_task(driver.run())
    await eventually(lambda: Verdict(1) in recorder.performed)
    assert turns > MANY
    await ended(deciding)
    await ended(beside)


@pytest.mark.parametrize("number", [1, 3])
def test_heavy_events_make_short_batches(number: int) -> None:
    driver = make_driver(Recorder())
    for _ in range(number):
        driver.inbox.put_now(FrameworkCalled(SessionId(1), 1, calls.Acknowledge(UPDATES)))
    assert len(driver.inbox.take(driver_module.BATCH)) == 1


def test_every_call_has_a_cost() -> None:
    empty = framework_pb2.Call(seq=1, accept=framework_pb2.Accept())
    assert event_cost(call_from_wire(SessionId(1), empty)) == 1
    accept = calls.Accept((), (make_task("t"),) * 100)
    assert event_cost(FrameworkCalled(SessionId(1), 1, accept)) == 401
    demand = calls.UpdateDemand(())
    assert event_cost(FrameworkCalled(SessionId(1), 1, demand)) == 1
