"""Commands beside tasks through a real master, with callers and agents that break every rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.master.access.rate_limits import Pace
from croupier.master.services import execs
from croupier.master.services.exec_bridge import LEAST_COST
from croupier.master.services.exec_messages import INPUT_WINDOW, MAX_CHUNK
from croupier.model.errors import FailedOver
from croupier.v1 import agent_pb2, exec_pb2, framework_pb2, operator_pb2, task_pb2
from tests.harness.eventually import eventually
from tests.harness.exec_scene import Scene, Side, scene_of
from tests.harness.masters import running_master

_STATUS = grpc.StatusCode


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with running_master() as master, scene_of(master) as made:
        yield made


async def test_a_command_with_input_output_and_a_window(scene: Scene) -> None:
    terminal = exec_pb2.WindowSize(rows=24, columns=80)
    caller = await scene.caller(argv=["sh", "-c", "x"], has_input=True, terminal=terminal)
    agent = await scene.called_back()
    start = (await agent.next()).start
    assert (start.framework_id, start.task_id) == (scene.framework.framework_id, "t1")
    assert list(start.command.argv) == ["sh", "-c", "x"]
    assert (start.command.has_input, start.command.terminal) == (True, terminal)
    await agent.send(started=exec_pb2.ExecStarted())
    assert (await caller.next()).started.agent_id == "a1"
    await caller.send(input=b"in")
    assert (await agent.next()).input == b"in"
    await caller.send(window=exec_pb2.WindowSize(rows=5, columns=6))
    assert (await agent.next()).window.columns == 6
    await caller.send(input_end=exec_pb2.ExecInputEnd())
    assert (await agent.next()).HasField("input_end")
    await agent.send(output=b"out")
    assert (await caller.next()).output == b"out"
    await agent.send(errors=b"err")
    assert (await caller.next()).errors == b"err"
    await agent.send(end=exec_pb2.ExecEnd(exit_code=3))
    assert (await caller.next()).end.exit_code == 3
    assert (await caller.ended())[0] is _STATUS.OK
    assert (await agent.ended())[0] is _STATUS.OK


async def test_the_end_of_the_callers_stream_is_the_end_of_its_input(scene: Scene) -> None:
    caller, agent = await scene.begun(has_input=True)
    await caller.stream.done_writing()
    assert (await agent.next()).HasField("input_end")
    await agent.send(output=b"still")
    assert (await caller.next()).output == b"still"


@pytest.mark.parametrize(
    ("command", "about"),
    [
        ({"argv": []}, "name the command"),
        ({"argv": [""]}, "program is empty"),
        ({"argv": ["a\0b"]}, "NUL"),
        ({"argv": ["a"] * 10_001}, "more than"),
        ({"argv": ["a" * 131_073]}, "longer than"),
        ({"terminal": exec_pb2.WindowSize(rows=0, columns=80)}, "rows and columns"),
        ({"terminal": exec_pb2.WindowSize(rows=1, columns=70_000)}, "rows and columns"),
        ({"terminal_type": "a\nb"}, "type of a terminal"),
    ],
)
async def test_a_malformed_command_is_refused(
    scene: Scene, command: dict[str, Any], about: str
) -> None:
    code, text = await (await scene.caller(**command)).ended()
    assert (code, about in text) == (_STATUS.INVALID_ARGUMENT, True), text


async def test_the_first_message_must_be_a_start(scene: Scene) -> None:
    wrong: tuple[dict[str, Any], ...] = ({"input": b"x"}, {"input_end": {}}, {"window": {}}, {})
    for first in wrong:
        side = scene.opened()
        await side.send(**first)
        assert (await side.ended())[0] is _STATUS.INVALID_ARGUMENT
    side = scene.opened()
    await side.stream.done_writing()
    assert (await side.ended())[0] is _STATUS.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ({}, {"input": b"x"}),
        ({}, {"window": exec_pb2.WindowSize(rows=1, columns=1)}),
        ({"has_input": True}, {"input": b"x" * (MAX_CHUNK + 1)}),
        ({"has_input": True}, {"start": exec_pb2.ExecStart(task_id="t1")}),
        ({"has_input": True}, {}),
    ],
)
async def test_a_caller_that_breaks_the_rules_ends_its_command(
    scene: Scene, command: dict[str, Any], message: dict[str, Any]
) -> None:
    caller, agent = await scene.begun(**command)
    await caller.send(**message)
    assert (await caller.ended())[0] is _STATUS.INVALID_ARGUMENT
    assert (await agent.ended())[0] is _STATUS.OK


async def test_input_after_its_end_is_refused(scene: Scene) -> None:
    caller, _ = await scene.begun(has_input=True)
    await caller.send(input_end=exec_pb2.ExecInputEnd())
    await caller.send(input=b"x")
    assert (await caller.ended())[0] is _STATUS.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "message",
    [
        {"exec_id": "again"},
        {"started": exec_pb2.ExecStarted()},
        {"refused": framework_pb2.Error(message="late")},
        {"output": b"x" * (MAX_CHUNK + 1)},
        {"input_taken": 1},
        {"end": exec_pb2.ExecEnd(exit_code=256)},
        {},
    ],
)
async def test_an_agent_that_breaks_the_rules_loses_its_command(
    scene: Scene, message: dict[str, Any]
) -> None:
    caller, agent = await scene.begun()
    await agent.send(**message)
    code, text = await caller.ended()
    assert (code, "agent a1 breaks the protocol" in text) == (_STATUS.UNAVAILABLE, True), text
    assert (await agent.ended())[0] is _STATUS.OK


async def test_output_before_the_start_is_not_passed_on(scene: Scene) -> None:
    caller = await scene.caller()
    agent = await scene.called_back()
    await agent.send(output=b"x")
    code, text = await caller.ended()
    assert (code, "agent a1 breaks the protocol" in text) == (_STATUS.UNAVAILABLE, True), text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (framework_pb2.ERROR_CODE_NOT_FOUND, _STATUS.NOT_FOUND),
        (framework_pb2.ERROR_CODE_INVALID, _STATUS.INVALID_ARGUMENT),
        # An agent cannot make its caller believe that the master refuses the credential.
        (framework_pb2.ERROR_CODE_UNAUTHENTICATED, _STATUS.UNAVAILABLE),
        (framework_pb2.ERROR_CODE_NOT_LEADER, _STATUS.UNAVAILABLE),
    ],
)
async def test_a_refusal_of_the_agent_reaches_the_caller(
    scene: Scene, code: Any, expected: Any
) -> None:
    caller = await scene.caller()
    agent = await scene.called_back()
    error = framework_pb2.Error(code=code, message="no " + "x" * 1000, leader="192.0.2.1:1")
    await agent.send(refused=error)
    found, text = await caller.ended()
    assert (found, text[:12], len(text) < 500) == (expected, "agent a1: no", True)


async def test_tasks_that_run_no_commands(scene: Scene) -> None:
    unknown = await (await scene.caller(task_id="t2")).ended()
    assert unknown == (_STATUS.NOT_FOUND, "no task 't2'")
    task = task_pb2.TaskStatus(
        framework_id=scene.framework.framework_id,
        task_id="t1",
        agent_id="a1",
        state=task_pb2.TASK_FINISHED,
        source=task_pb2.SOURCE_AGENT,
        sequence=1,
    )
    await scene.agent.send(agent_pb2.Report(updates=agent_pb2.StatusUpdates(statuses=[task])))
    await scene.framework.next("update")
    code, text = await (await scene.caller()).ended()
    assert (code, "croupier logs t1" in text) == (_STATUS.FAILED_PRECONDITION, True), text


async def test_an_agent_that_refuses_commands() -> None:
    async with running_master() as master, scene_of(master, takes_exec=False) as scene:
        code, text = await (await scene.caller()).ended()
        assert (code, "--exec refuse" in text) == (_STATUS.FAILED_PRECONDITION, True), text


async def test_an_agent_that_never_calls_back(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execs, "CALL_BACK_S", 0.05)
    caller = await scene.caller()
    code, text = await caller.ended()
    assert (code, "did not call back" in text) == (_STATUS.UNAVAILABLE, True), text
    # The id is void then.
    assert (await (await scene.called_back()).ended())[0] is _STATUS.NOT_FOUND


async def test_a_caller_that_never_sends_a_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execs, "FIRST_S", 0.05)
    caller = scene.opened()
    assert (await caller.ended())[0] is _STATUS.RESOURCE_EXHAUSTED


async def test_an_id_is_valid_once(scene: Scene) -> None:
    caller = await scene.caller()
    exec_id = (await scene.agent.next("exec")).exec.exec_id
    agent = await scene.called_back(exec_id=exec_id)
    assert (await agent.next()).HasField("start")
    for wrong in (exec_id, "", exec_id[:-1], "x" * 100_000):
        code, text = await (await scene.called_back(exec_id=wrong)).ended()
        assert (code, text) == (_STATUS.NOT_FOUND, "no command waits for this agent under this id")
    await agent.send(started=exec_pb2.ExecStarted())
    assert (await caller.next()).HasField("started")


async def test_a_lost_agent_ends_the_command(scene: Scene) -> None:
    caller, agent = await scene.begun(has_input=True)
    agent.stream.cancel()
    code, text = await caller.ended()
    assert (code, "connection to agent a1 broke" in text) == (_STATUS.UNAVAILABLE, True), text


async def test_an_agent_that_ends_its_stream_without_an_end(scene: Scene) -> None:
    caller, agent = await scene.begun()
    await agent.stream.done_writing()
    assert (await caller.ended())[0] is _STATUS.UNAVAILABLE
    assert (await agent.ended())[0] is _STATUS.OK


async def test_a_lost_caller_ends_the_agents_stream_although_input_was_not_taken(
    scene: Scene,
) -> None:
    caller, agent = await scene.begun(has_input=True)
    # More than any window: the master does not read all of it.
    writing = asyncio.create_task(_write_on(caller))
    received = 0
    while received < INPUT_WINDOW:
        received += len((await agent.next()).input)
    # No more comes, although there is more: the next thing that the agent sees is the end.
    for _ in range(20):
        await agent.send(output=b"x")
        await caller.next()
    caller.stream.cancel()
    await asyncio.wait([writing])
    with pytest.raises(AssertionError, match="ended in order"):
        await agent.next()
    assert (received, (await agent.ended())[0]) == (INPUT_WINDOW, _STATUS.OK)


async def _write_on(caller: Side) -> None:
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
        while True:
            await caller.stream.write(operator_pb2.ExecTaskRequest(input=b"x" * MAX_CHUNK))


async def test_input_goes_on_as_it_is_taken(scene: Scene) -> None:
    caller, agent = await scene.begun(has_input=True)
    writing = asyncio.create_task(_write_on(caller))
    received = 0
    while received < 8 * INPUT_WINDOW:
        size = len((await agent.next()).input)
        received += size
        await agent.send(input_taken=size)
    await agent.send(end=exec_pb2.ExecEnd(exit_code=0))
    assert (await caller.next()).HasField("end")
    # The end is not lost, but perhaps the status: gRPC's client tells INTERNAL of a stream that the
    # server has ended while a message was being sent.
    assert (await caller.ended())[0] in (_STATUS.OK, _STATUS.INTERNAL)
    caller.stream.cancel()
    await asyncio.wait([writing])


async def test_a_caller_that_never_reads_makes_the_agent_wait(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.master.services.exec_bridge.UNREAD_S", 0.5)
    caller, agent = await scene.begun()
    sent = 0
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError, asyncio.CancelledError):
        while True:
            await agent.stream.write(agent_pb2.AgentServiceExecRequest(output=b"x" * MAX_CHUNK))
            sent += MAX_CHUNK
    assert sent < 4 << 20
    # The agent is free at once (INTERNAL: as above), the caller once it reads.
    assert (await agent.ended())[0] in (_STATUS.OK, _STATUS.INTERNAL)
    assert (await caller.ended())[0] is _STATUS.RESOURCE_EXHAUSTED


async def test_messages_that_are_not_passed_on_count_for_the_pace(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs: list[int] = []

    async def passed(pace: Pace, size: int) -> None:
        costs.append(size)

    monkeypatch.setattr(Pace, "passed", passed)
    caller, agent = await scene.begun(has_input=True)
    before = len(costs)
    for _ in range(3):
        await caller.send(input=b"")
        await agent.send(input_taken=0)
    await caller.send(input_end=exec_pb2.ExecInputEnd())
    await caller.send(input_end=exec_pb2.ExecInputEnd())
    await eventually(lambda: len(costs) >= before + 8)
    assert set(costs) == {LEAST_COST}


async def test_too_many_commands(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execs, "EXECS_PER_CALLER", 2)
    begun = [await scene.begun() for _ in range(2)]
    # It is refused before it sends anything: a write that fails would hide the status.
    code, text = await scene.opened().ended()
    assert (code, "2 commands already" in text) == (_STATUS.UNAVAILABLE, True), text
    await begun[0][1].send(end=exec_pb2.ExecEnd(exit_code=0))
    assert (await begun[0][0].ended())[0] is _STATUS.OK
    monkeypatch.setattr(execs, "MAX_EXECS", 1)
    code, text = await (await scene.caller()).ended()
    assert (code, "too many commands" in text) == (_STATUS.UNAVAILABLE, True), text


async def test_the_end_of_the_term_ends_a_command(scene: Scene) -> None:
    caller, agent = await scene.begun()
    term = scene.master.leadership.current
    assert term is not None
    term.journal.close(FailedOver("another master leads"))
    assert await caller.ended() == (_STATUS.ABORTED, "another master leads")
    assert (await agent.ended())[0] is _STATUS.OK


async def test_a_follower_names_the_leader(scene: Scene) -> None:
    term = scene.master.leadership.current
    assert term is not None
    scene.master.leadership.end()
    try:
        code, text = await (await scene.caller()).ended()
        assert (code, "not the leader" in text) == (_STATUS.UNAVAILABLE, True), text
    finally:
        scene.master.leadership.begin(term, 0)


async def test_metrics(scene: Scene) -> None:
    def sample(name: str, **labels: str) -> float | None:
        return scene.master._registry.get_sample_value(f"croupier_{name}", labels)

    caller, agent = await scene.begun()
    assert sample("execs_running") == 1
    await agent.stream.done_writing()
    await caller.ended()
    assert (sample("execs_running"), sample("execs_total", outcome="agent_lost")) == (0, 1)
    assert sample("execs_total", outcome="ended") == 0
