"""Groups from the wire, and of refused launches; `scenarios/groups.txt` tells the rest."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AgentHealth, LaunchUnsent, RefusedLaunch
from croupier.model.agent_orders import LaunchGroup, LaunchTask
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, OfferId, TaskId
from croupier.model.isolation import Isolation
from croupier.model.task import TaskInfo
from croupier.model.task_checks import check_task
from croupier.v1 import framework_pb2, task_pb2
from croupier.wire.task import task_to_wire
from tests.harness.off_the_wire import call_from_wire
from tests.harness.world import World, in_group, make_task

LARGE = "cpus:2;mem:1GB"


def group(*task_ids: str, group_id: str = "g", each: str = LARGE) -> list[TaskInfo]:
    return [in_group(group_id, make_task(task_id, each)) for task_id in task_ids]


def on_wire(tasks: Sequence[TaskInfo]) -> list[task_pb2.TaskInfo]:
    return [task_to_wire(task) for task in tasks]


def accepted(
    offer_id: str, *groups: Sequence[TaskInfo], alone: Sequence[TaskInfo] = ()
) -> calls.Call:
    """Return an ACCEPT of groups, and of tasks by LAUNCH, converted from protobuf."""
    wire = framework_pb2.Call(seq=1)
    wire.accept.offer_ids.append(offer_id)
    for each in groups:
        wire.accept.operations.add().launch_group.tasks.extend(on_wire(each))
    if alone:
        wire.accept.operations.add().launch.tasks.extend(on_wire(alone))
    return call_from_wire(SessionId(1), wire).call


def submitted(tasks: Sequence[TaskInfo], *, is_group: bool = True) -> calls.Call:
    submit = framework_pb2.Submit(tasks=on_wire(tasks), group=is_group)
    return call_from_wire(SessionId(1), framework_pb2.Call(seq=1, submit=submit)).call


def launches(world: World, agent: SessionId) -> list[list[str]]:
    """Return the tasks of each order to launch."""
    found: list[list[str]] = []
    for message in world.sent[agent]:
        if isinstance(message, LaunchGroup):
            found.append([order.task.task_id for order in message.tasks])
        elif isinstance(message, LaunchTask):
            found.append([message.task.task_id])
    return found


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def agent(world: World) -> SessionId:
    return world.agent("cpus:8;mem:8GB", features="groups")


@pytest.fixture
def session(world: World, agent: SessionId) -> SessionId:
    return world.framework()


def offer_of(world: World, session: SessionId) -> OfferId:
    (offer,) = world.offers(session)
    return offer.offer_id


def test_each_operation_has_its_order(world: World, agent: SessionId, session: SessionId) -> None:
    other, alone = group("c", group_id="h", each="cpus:1"), [make_task("d")]
    call = accepted(offer_of(world, session), group("a", "b"), other, alone=alone)
    verdict = world.call(session, call)
    assert [task.error for task in verdict.tasks] == [None] * 4
    assert launches(world, agent) == [["a", "b"], ["c"], ["d"]]


def test_a_bad_group_affects_no_other_task(
    world: World, agent: SessionId, session: SessionId
) -> None:
    bad = group("a", "b")
    bad[1] = in_group("g", make_task("b", "cpus:100"))
    call = accepted(offer_of(world, session), bad, alone=[make_task("c")])
    verdict = world.call(session, call)
    assert [task.error is None for task in verdict.tasks] == [False, False, True]
    assert launches(world, agent) == [["c"]]


def test_a_task_that_cannot_be_parsed_refuses_its_group(
    world: World, agent: SessionId, session: SessionId
) -> None:
    wire = framework_pb2.Call(seq=1)
    wire.accept.offer_ids.append(offer_of(world, session))
    tasks = wire.accept.operations.add().launch_group.tasks
    tasks.extend(on_wire(group("a", "b", "c")))
    tasks[1].resources.cpus_milli = -1
    verdict = world.call(session, call_from_wire(SessionId(1), wire).call)
    assert "task b" in str(verdict.tasks[0].error)
    assert str(verdict.tasks[0].error) == str(verdict.tasks[2].error) != str(verdict.tasks[1].error)
    assert not launches(world, agent)


def test_tasks_name_the_group_that_they_are_launched_in(
    world: World, agent: SessionId, session: SessionId
) -> None:
    mixed = [*group("a"), *group("b", group_id="h")]
    verdict = world.call(session, accepted(offer_of(world, session), mixed))
    assert "does not name group 'g'" in str(verdict.tasks[1].error)
    assert all(task.error for task in verdict.tasks)
    verdict = world.call(session, submitted(group("a", "b"), is_group=False))
    assert all("launch it by LAUNCH_GROUP" in str(task.error) for task in verdict.tasks)
    assert not launches(world, agent)


@pytest.mark.parametrize("call", [accepted("o", [make_task("a")]), submitted([make_task("a")])])
def test_a_group_without_an_id_is_refused_as_a_whole(call: calls.Call) -> None:
    assert isinstance(call, calls.Malformed)
    assert "must name it" in str(call.error)


def test_a_group_has_no_task_without_network() -> None:
    (task,) = group("a")
    object.__setattr__(task, "isolation", Isolation(no_network=True))
    with pytest.raises(InvalidRequest, match="a task of a group cannot be without network"):
        check_task(task)


def test_a_refused_launch_ends_the_whole_group(
    world: World, agent: SessionId, session: SessionId
) -> None:
    framework_id = FrameworkId(world.framework_id(session))
    world.call(session, accepted(offer_of(world, session), group("a", "b")))
    refused = RefusedLaunch(framework_id, TaskId("b"), "the disk is full")
    world.do(AgentHealth(agent, (), (refused,)))
    tasks = world.state.frameworks[framework_id].tasks
    assert [task.state.name for task in tasks.values()] == ["DROPPED", "DROPPED"]


def test_a_secret_that_cannot_be_opened_ends_the_whole_group(
    world: World, agent: SessionId, session: SessionId
) -> None:
    framework_id = FrameworkId(world.framework_id(session))
    world.call(session, accepted(offer_of(world, session), group("a", "b")))
    world.do(LaunchUnsent(agent, framework_id, TaskId("a"), "no key"))
    tasks = world.state.frameworks[framework_id].tasks
    assert [task.state.name for task in tasks.values()] == ["DROPPED", "DROPPED"]
