"""Tasks, statuses and demand over the wire and back."""

from __future__ import annotations

import pytest

from croupier.model.attributes import equals
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.resources import Resources
from croupier.model.task import (
    DEFAULT_GRACE_MS,
    MAX_MESSAGE,
    Command,
    Reason,
    Source,
    TaskInfo,
    TaskState,
    TaskStatus,
)
from croupier.rpc.task_wire import (
    demand_from_wire,
    demand_to_wire,
    status_from_wire,
    status_to_wire,
    task_from_wire,
    task_to_wire,
)
from croupier.v1 import framework_pb2, task_pb2

UNIT = Resources.parse("cpus:1;mem:1GB")


@pytest.mark.parametrize(
    "task",
    [
        TaskInfo(TaskId("t1"), Command(argv=("echo", "")), UNIT),
        TaskInfo(
            TaskId("t2"),
            Command(shell="exit 1", environment={"A": "", "B": "c=d"}, user="nobody"),
            UNIT,
            name="second",
            grace_ms=0,
            labels=(("k", "v"), ("k", "w")),
        ),
    ],
)
def test_tasks_come_back_as_they_went(task: TaskInfo) -> None:
    assert task_from_wire(task_to_wire(task)) == task


def test_a_task_without_a_kill_policy_has_the_default_grace() -> None:
    assert task_from_wire(task_pb2.TaskInfo(task_id="t")).grace_ms == DEFAULT_GRACE_MS


@pytest.mark.parametrize(
    "status",
    [
        TaskStatus(FrameworkId("f"), TaskId("t"), AgentId(""), TaskState.DROPPED),
        TaskStatus(
            FrameworkId("f"),
            TaskId("t"),
            AgentId("a"),
            TaskState.FINISHED,
            Source.AGENT,
            Reason.COMMAND_EXECUTOR_FAILED,
            "message",
            sequence=3,
            time_ms=1_700_000_000_000,
            exit_code=0,
            pid=42,
        ),
        TaskStatus(FrameworkId("f"), TaskId("t"), AgentId("a"), TaskState.KILLED, signal=9),
    ],
)
def test_statuses_come_back_as_they_went(status: TaskStatus) -> None:
    wire = status_to_wire(status)
    assert status_from_wire(task_pb2.TaskStatus.FromString(wire.SerializeToString())) == status


@pytest.mark.parametrize("state", list(TaskState))
def test_states_keep_their_names_on_the_wire(state: TaskState) -> None:
    assert task_pb2.TaskState.Name(task_pb2.TaskState.ValueType(state)) == f"TASK_{state.name}"


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.NONE])
def test_reasons_keep_their_names_on_the_wire(reason: Reason) -> None:
    assert task_pb2.Reason.Name(task_pb2.Reason.ValueType(reason)) == f"REASON_{reason.name}"


def wire_status(state: int = 2, source: int = 2, reason: int = 0) -> task_pb2.TaskStatus:
    return task_pb2.TaskStatus(
        task_id="t",
        state=task_pb2.TaskState.ValueType(state),
        source=task_pb2.Source.ValueType(source),
        reason=task_pb2.Reason.ValueType(reason),
        message="x" * (MAX_MESSAGE + 1),
    )


def test_a_newer_reason_is_read_as_none_and_a_long_message_is_cut() -> None:
    status = status_from_wire(wire_status(reason=99))
    assert status.reason is Reason.NONE
    assert len(status.message) == MAX_MESSAGE


@pytest.mark.parametrize("wire", [wire_status(state=0), wire_status(state=99),
                                  wire_status(source=0), wire_status(source=99)])  # fmt: skip
def test_an_unknown_state_or_source_is_refused(wire: task_pb2.TaskStatus) -> None:
    with pytest.raises(InvalidRequest, match="unknown state"):
        status_from_wire(wire)


@pytest.mark.parametrize("count", [None, 0, 7])
def test_demand_comes_back_as_it_went(count: int | None) -> None:
    demand = Demand(UNIT, count, (equals("rack", "r1"),))
    assert demand_from_wire([demand_to_wire(demand)]) == demand


def test_no_demand_is_none_and_several_are_refused() -> None:
    assert demand_from_wire([]) is None
    with pytest.raises(InvalidRequest, match="one shape"):
        demand_from_wire([demand_to_wire(Demand(UNIT))] * 2)
    with pytest.raises(InvalidRequest, match="made of scalars"):
        demand_from_wire([framework_pb2.Demand()])
