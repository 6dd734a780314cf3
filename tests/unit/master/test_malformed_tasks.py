"""A malformed task of an ACCEPT gets its own verdict, like other invalid tasks."""

from __future__ import annotations

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.model.agent_orders import LaunchTask
from croupier.model.errors import InvalidRequest
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from croupier.wire.task import task_to_wire
from tests.harness.off_the_wire import call_from_wire
from tests.harness.world import World, make_task

NEGATIVE = resources_pb2.Resources(cpus_milli=-1)
TWICE = resources_pb2.Resources(
    cpus_milli=1, scalars=[resources_pb2.NamedScalar(name="cpus", milli=1)]
)


def accept(offer_id: str, *tasks: task_pb2.TaskInfo) -> calls.Call:
    """Return an ACCEPT in two operations, converted from protobuf."""
    wire = framework_pb2.Call(seq=1)
    wire.accept.offer_ids.append(offer_id)
    wire.accept.operations.add().launch.tasks.extend(tasks[:2])
    wire.accept.operations.add().launch.tasks.extend(tasks[2:])
    return call_from_wire(SessionId(1), wire).call


@pytest.mark.parametrize("amount", [NEGATIVE, TWICE])
def test_malformed_amount_refuses_its_task_only(amount: resources_pb2.Resources) -> None:
    world = World()
    agent = world.agent("cpus:4;mem:4GB")
    session = world.framework()
    (offer,) = world.offers(session)
    bad = task_pb2.TaskInfo(task_id="bad", resources=amount)
    worse = task_pb2.TaskInfo(task_id="worse" * 100, resources=amount)
    good = [task_to_wire(make_task(f"t{number}")) for number in range(2)]
    verdict = world.call(session, accept(offer.offer_id, good[0], bad, good[1], worse))
    assert verdict.error is None
    verdicts = [(each.task_id, type(each.error)) for each in verdict.tasks]
    none = type(None)
    assert verdicts == [
        ("t0", none), ("bad", InvalidRequest), ("t1", none), (("worse" * 100)[:255], InvalidRequest)
    ]  # fmt: skip
    launched = [each for each in world.sent[agent] if isinstance(each, LaunchTask)]
    assert [each.task.task_id for each in launched] == ["t0", "t1"]


def test_offer_returns_when_all_tasks_are_malformed() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    session = world.framework()
    (offer,) = world.offers(session)
    bad = task_pb2.TaskInfo(task_id="bad", resources=NEGATIVE)
    verdict = world.call(session, accept(offer.offer_id, bad))
    assert [each.task_id for each in verdict.tasks] == ["bad"]
    assert isinstance(verdict.tasks[0].error, InvalidRequest)
    assert not world.offers(session)
    world.pass_time(6.0)
    assert world.offers(session)


def test_invalid_offer_refuses_every_task() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    session = world.framework()
    good, bad = task_to_wire(make_task("t0")), task_pb2.TaskInfo(task_id="b", resources=NEGATIVE)
    verdict = world.call(session, accept("nosuch", bad, good))
    assert verdict.error is not None
    assert [(each.task_id, each.error) for each in verdict.tasks] == [
        ("b", verdict.error),
        ("t0", verdict.error),
    ]


def test_tasks_accepted_by_an_earlier_master_are_confirmed() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    session = world.framework()
    good, bad = task_to_wire(make_task("t0")), task_pb2.TaskInfo(task_id="b", resources=NEGATIVE)
    framework = world.state.frameworks[world.framework_id(session)]
    framework.accepted[1] = {make_task("t0").task_id}
    verdict = world.call(session, accept("gone", bad, good), 1)
    assert [(each.task_id, each.error is None) for each in verdict.tasks] == [
        ("b", False),
        ("t0", True),
    ]
