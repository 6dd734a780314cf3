"""Repeated fields are counted before any entry is read."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.wire import from_agent, from_framework
from croupier.master.wire.from_operator import changes_from_wire
from croupier.model.errors import InvalidRequest
from croupier.v1 import agent_pb2, framework_pb2, operator_pb2, resources_pb2, task_pb2
from croupier.wire import resources as resources_wire
from croupier.wire import task as task_wire
from tests.harness.off_the_wire import call_from_wire, report_from_wire

SESSION = SessionId(1)
MANY = 100_000


@pytest.fixture(autouse=True)
def _nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("an entry was read")

    def read_all(pairs: Iterable[object], *_: object) -> None:
        for pair in pairs:
            read(pair)

    monkeypatch.setattr(resources_wire, "by_name", read_all)
    for module, name in (
        (from_framework, "task_from_wire"),
        (from_framework, "AgentId"),
        (from_framework, "OfferId"),
        (from_agent, "task_from_wire"),
        (from_agent, "status_from_wire"),
        (resources_wire, "make_ranges"),
        (task_wire, "resources_from_wire"),
    ):
        monkeypatch.setattr(module, name, read)


def _accept(operations: int, tasks: int) -> framework_pb2.Call:
    call = framework_pb2.Call(seq=1)
    for _ in range(operations):
        call.accept.operations.add().launch.tasks.extend([task_pb2.TaskInfo()] * tasks)
    return call


@cache
def _named() -> list[framework_pb2.Call]:
    updates = [framework_pb2.Acknowledge.Update()] * MANY
    return [
        _accept(1, MANY),
        _accept(MANY, 0),
        _accept(500, 3),
        framework_pb2.Call(seq=1, accept=framework_pb2.Accept(offer_ids=[""] * MANY)),
        framework_pb2.Call(seq=1, decline=framework_pb2.Decline(offer_ids=[""] * MANY)),
        framework_pb2.Call(seq=1, acknowledge=framework_pb2.Acknowledge(updates=updates)),
        framework_pb2.Call(seq=1, reconcile=framework_pb2.Reconcile(task_ids=[""] * MANY)),
    ]


@pytest.mark.parametrize("number", range(len(_named())))
def test_a_call_that_names_too_much_is_not_read(number: int) -> None:
    call = call_from_wire(SESSION, _named()[number]).call
    assert isinstance(call, calls.Malformed)
    assert "more than" in str(call.error)
    assert len(call.task_ids) <= 1_000


def test_an_agent_that_lists_too_much_is_not_read() -> None:
    updates = agent_pb2.StatusUpdates(statuses=[task_pb2.TaskStatus()] * MANY)
    with pytest.raises(InvalidRequest, match="updates in one report"):
        report_from_wire(SESSION, agent_pb2.Report(updates=updates))
    register = agent_pb2.Register(tasks=[agent_pb2.AgentTask()] * (MANY + 1))
    with pytest.raises(InvalidRequest, match="tasks of one agent"):
        report_from_wire(SESSION, agent_pb2.Report(register=register))


def test_parts_of_a_role_are_counted() -> None:
    change = operator_pb2.RoleChange(role="r", parts=[operator_pb2.RoleChange.PART_WEIGHT] * MANY)
    with pytest.raises(InvalidRequest, match="parts of a role"):
        changes_from_wire([change])


def test_amounts_and_tasks_are_counted() -> None:
    scalars = [resources_pb2.NamedScalar(name="a")] * MANY
    for wire in (
        resources_pb2.Resources(scalars=scalars),
        resources_pb2.Resources(ranges=[resources_pb2.NamedRanges()] * MANY),
        resources_pb2.Resources(sets=[resources_pb2.NamedSet()] * MANY),
    ):
        with pytest.raises(InvalidRequest, match="more than 64"):
            resources_wire.resources_from_wire(wire)
    ranges = resources_pb2.NamedRanges(ranges=[resources_pb2.Range()] * MANY)
    with pytest.raises(InvalidRequest, match="more than 1000 ranges"):
        resources_wire._ranges_from_wire(ranges)
    for task in (
        task_pb2.TaskInfo(command=task_pb2.Command(argv=[""] * MANY)),
        task_pb2.TaskInfo(command=task_pb2.Command(environment={str(n): "" for n in range(MANY)})),
        task_pb2.TaskInfo(labels=[task_pb2.Label()] * MANY),
    ):
        with pytest.raises(InvalidRequest, match="more than"):
            task_wire.task_from_wire(task)
    with pytest.raises(InvalidRequest, match="demands"):
        task_wire.demands_from_wire([framework_pb2.Demand()] * MANY)
