"""Extreme numbers from peers are bounded or refused, and never end the master.

Every numeric field of every message from a peer is set to each extreme of its type. After that the
master's messages and records must still be encodable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from croupier.master.core.agent_commands import Drain, OperateAgent
from croupier.master.core.agent_status import agent_status
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentReported
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.step import Event
from croupier.master.services import views
from croupier.master.session import AgentSession, FrameworkSession
from croupier.master.store.rows import decode, encode
from croupier.master.wire.from_framework import subscribe_from_wire
from croupier.master.wire.from_operator import changes_from_wire, drain_from_wire
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.task import MASTER_SEQUENCE, Source
from croupier.v1 import agent_pb2, framework_pb2, operator_pb2, resources_pb2, task_pb2
from tests.harness.off_the_wire import call_from_wire, report_from_wire
from tests.harness.role_statuses import role_statuses
from tests.harness.world import World

EXTREMES = {
    FieldDescriptor.CPPTYPE_UINT64: (0, 1, 2**31, 2**62, 2**63 - 1, 2**63, 2**64 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), -1, 0, 2**53, 2**63 - 1),
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), -1, 0, 2**31 - 1),
    FieldDescriptor.CPPTYPE_ENUM: (0, 1, 99, 2**31 - 1),
}
M = TypeVar("M", bound=Message)
SESSION, FRAMEWORK = SessionId(100), SessionId(200)


def extremes(message: M) -> Iterator[tuple[str, M]]:
    """Yield copies of `message`, each with one number in it set to an extreme of its type."""
    for path, field in _numbers(message, ()):
        for value in EXTREMES[field.cpp_type]:
            changed = type(message)()
            changed.CopyFrom(message)
            inner: Any = changed
            for step in path:
                inner = inner[step] if isinstance(step, int) else getattr(inner, step)
            setattr(inner, field.name, value)
            yield f"{'.'.join(map(str, (*path, field.name)))}={value}", changed


def _numbers(
    message: Any, path: tuple[str | int, ...]
) -> Iterator[tuple[tuple[str | int, ...], FieldDescriptor]]:
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.cpp_type in EXTREMES and not field.is_repeated:
            yield path, field
        elif field.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
            continue
        elif not field.is_repeated:
            if message.HasField(field.name):
                yield from _numbers(value, (*path, field.name))
        elif not field.message_type.GetOptions().map_entry:
            for index, each in enumerate(value):
                yield from _numbers(each, (*path, field.name, index))


def amount() -> resources_pb2.Resources:
    wire = resources_pb2.Resources(cpus_milli=1000, mem_milli=1, disk_milli=1, gpus_milli=1000)
    wire.scalars.add(name="x", milli=1)
    wire.ranges.add(name="ports", ranges=[resources_pb2.Range(begin=1, end=2)])
    return wire


def status(state: task_pb2.TaskState.ValueType, sequence: int) -> task_pb2.TaskStatus:
    return task_pb2.TaskStatus(
        framework_id="f", task_id="t", agent_id="a", state=state, source=task_pb2.SOURCE_AGENT,
        sequence=sequence, time_ms=1, pid=1,
    )  # fmt: skip


def info() -> task_pb2.TaskInfo:
    return task_pb2.TaskInfo(
        task_id="t",
        command=task_pb2.Command(shell="true"),
        resources=amount(),
        kill_policy=task_pb2.KillPolicy(grace_ms=1),
    )


def register() -> agent_pb2.Register:
    running = status(task_pb2.TASK_RUNNING, 1)
    task = agent_pb2.AgentTask(
        framework_id="f", task=info(), latest=running, unacknowledged=[running]
    )
    described = resources_pb2.Attribute(name="n", scalar_milli=1)
    ranged = resources_pb2.Attribute(name="r", ranges=resources_pb2.NamedRanges(name="r"))
    ranged.ranges.ranges.add(begin=1, end=2)
    return agent_pb2.Register(
        agent_id="a", hostname="h", resources=amount(), tasks=[task], attributes=[described, ranged]
    )


def subscribe() -> framework_pb2.Subscribe:
    named = framework_pb2.FrameworkInfo(framework_id="f", name="f", roles=["*"])
    unit = resources_pb2.Resources(cpus_milli=1000)
    demand = framework_pb2.Demand(unit=unit, count=3, min_per_offer=1, max_per_offer=2)
    return framework_pb2.Subscribe(framework=named, client_id="c", demands=[demand])


def check_encodable(world: World) -> None:
    """Encode all messages and records of the master."""
    for session, messages in world.sent.items():
        for message in messages:
            kind = AgentSession if session in _agents(world) else FrameworkSession
            kind(session).put(message)  # type: ignore[arg-type]
    for record in world.saved:
        row = encode(record)
        if row.body is not None:
            assert decode(row.kind, row.body) == record
    for agent in world.state.agents.values():
        views.view_agent(agent_status(world.state, agent, world.now))
    for framework in world.state.frameworks.values():
        views.view_framework(world.state, framework, world.now)
    views.view_master(world.state, world.now)


def _agents(world: World) -> set[SessionId]:
    return {
        session
        for session, messages in world.sent.items()
        if any(type(m).__name__ == "Registered" for m in messages)
    }


def deliver(world: World, read: Callable[[SessionId, Any], Event], wire: Message) -> None:
    """Deliver a peer's message, unless it is refused."""
    session = SESSION if read is report_from_wire else FRAMEWORK
    try:
        event = read(session, wire)
    except CroupierError:
        return
    world.do(event)


def subscribed(world: World) -> None:
    world.do(subscribe_from_wire(FRAMEWORK, subscribe()))


def test_extreme_numbers_in_register() -> None:
    for name, wire in extremes(register()):
        world = World()
        subscribed(world)
        try:
            deliver(world, report_from_wire, agent_pb2.Report(register=wire))
            if "a" in world.state.agents:
                world.do(OperateAgent(1, "a", Drain()))
            world.pass_time(1.0)
            check_encodable(world)
        except Exception as error:
            raise AssertionError(name) from error


def test_extreme_numbers_in_an_update() -> None:
    update = status(task_pb2.TASK_FINISHED, 2)
    update.decided_in_ms, update.exit_code, update.signal = 1, 0, 9
    for name, wire in extremes(agent_pb2.StatusUpdates(statuses=[update])):
        world = World()
        subscribed(world)
        world.do(report_from_wire(SESSION, agent_pb2.Report(register=register())))
        try:
            deliver(world, report_from_wire, agent_pb2.Report(updates=wire))
            world.end_session(SESSION)
            world.restart()
            check_encodable(world)
        except Exception as error:
            raise AssertionError(name) from error


def calls() -> Iterator[framework_pb2.Call]:
    ids = ["m-O1"]
    filters = framework_pb2.Filters(refuse_ms=1)
    launch = framework_pb2.Operation(launch=framework_pb2.Launch(tasks=[info()]))
    accept = framework_pb2.Accept(offer_ids=ids, operations=[launch], filters=filters)
    yield framework_pb2.Call(seq=1, accept=accept)
    yield framework_pb2.Call(seq=1, decline=framework_pb2.Decline(offer_ids=ids, filters=filters))
    demands = subscribe().demands
    yield framework_pb2.Call(seq=1, update_demand=framework_pb2.UpdateDemand(demands=demands))
    policy = task_pb2.KillPolicy(grace_ms=1)
    yield framework_pb2.Call(seq=1, kill=framework_pb2.Kill(task_id="t", kill_policy=policy))
    update = framework_pb2.Acknowledge.Update(agent_id="a", task_id="t", sequence=1)
    yield framework_pb2.Call(seq=1, acknowledge=framework_pb2.Acknowledge(updates=[update]))


@pytest.mark.parametrize("call", list(calls()), ids=lambda call: call.WhichOneof("call"))
def test_extreme_numbers_in_a_call(call: framework_pb2.Call) -> None:
    for name, wire in extremes(call):
        world = World()
        subscribed(world)
        world.do(report_from_wire(SESSION, agent_pb2.Report(register=register())))
        try:
            deliver(world, call_from_wire, wire)
            world.pass_time(1.0)
            world.end_session(SESSION)
            check_encodable(world)
        except Exception as error:
            raise AssertionError(name) from error


def test_extreme_numbers_in_subscribe() -> None:
    for name, wire in extremes(subscribe()):
        world = World()
        world.do(report_from_wire(SESSION, agent_pb2.Report(register=register())))
        try:
            deliver(world, subscribe_from_wire, wire)
            world.pass_time(100.0)
            check_encodable(world)
        except Exception as error:
            raise AssertionError(name) from error


@pytest.mark.parametrize("number", [MASTER_SEQUENCE, 2**63, 2**64 - 1])
def test_agent_cannot_use_sequences_of_the_master(number: int) -> None:
    """A terminal status with such a sequence could never be acknowledged."""
    end = status(task_pb2.TASK_FINISHED, number)
    with pytest.raises(InvalidRequest, match="reserved for the master"):
        report_from_wire(SESSION, agent_pb2.Report(updates=agent_pb2.StatusUpdates(statuses=[end])))
    listed = register()
    listed.tasks[0].latest.CopyFrom(end)
    with pytest.raises(InvalidRequest, match="reserved for the master"):
        report_from_wire(SESSION, agent_pb2.Report(register=listed))


def test_fields_reserved_for_the_master_are_dropped() -> None:
    update = status(task_pb2.TASK_RUNNING, 1)
    update.decided_in_ms, update.source = 5, task_pb2.SOURCE_MASTER
    wire = agent_pb2.Report(updates=agent_pb2.StatusUpdates(statuses=[update]))
    event = report_from_wire(SESSION, wire)
    assert isinstance(event, AgentReported)
    assert event.statuses[0].decided_in_s is None
    assert event.statuses[0].source is Source.AGENT


def role_change() -> operator_pb2.RoleChange:
    named = resources_pb2.NamedScalar(name="cpus", milli=1)
    settings = operator_pb2.RoleSettings(
        weight_milli=1000, resource_weights=[named], guarantee=[named], limit=[named]
    )
    return operator_pb2.RoleChange(role="ads", settings=settings)


def test_extreme_numbers_from_an_operator() -> None:
    for name, wire in extremes(role_change()):
        world = World()
        world.do(report_from_wire(SESSION, agent_pb2.Report(register=register())))
        try:
            with suppress(CroupierError):
                changes = changes_from_wire([wire])
                world.do(UpdateRoles(1, changes, force=True))
            for role in role_statuses(world.state).values():
                views.view_role(role)
            check_encodable(world)
        except Exception as error:
            raise AssertionError(name) from error
    for _, drain in extremes(operator_pb2.DrainAgentRequest(agent="a", grace_ms=1)):
        world = World()
        world.do(report_from_wire(SESSION, agent_pb2.Report(register=register())))
        world.do(OperateAgent(1, "a", drain_from_wire(drain)))
        check_encodable(world)
