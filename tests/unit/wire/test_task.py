"""Values over the wire and back: tasks, statuses, demand, resources, constraints and roles."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from croupier.master.core.records import TaskRecord
from croupier.master.store.rows import decode, encode
from croupier.model.attributes import (
    Constraint,
    Operator,
    equals,
    matches,
    not_matches,
    parse_attributes,
)
from croupier.model.demand import Demand
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.ranges import MAX_NUMBER
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings
from croupier.model.scalar import MAX_MILLI
from croupier.model.secrets import SecretValues
from croupier.model.task import (
    DEFAULT_GRACE_MS,
    MAX_MESSAGE,
    MAX_TAGS,
    Command,
    Reason,
    Source,
    TaskInfo,
    TaskState,
    TaskStatus,
)
from croupier.v1 import framework_pb2, operator_pb2, task_pb2
from croupier.v1 import resources_pb2 as pb
from croupier.v1.resources_pb2 import NamedScalar
from croupier.v1.storage_pb2 import TaskRecord as WireRecord
from croupier.v1.task_pb2 import TaskInfo as WireTask
from croupier.wire.resources import (
    attributes_from_wire,
    attributes_to_wire,
    constraint_from_wire,
    constraint_to_wire,
    resources_from_wire,
    resources_to_wire,
)
from croupier.wire.roles import settings_from_wire, settings_to_wire
from croupier.wire.task import (
    demand_to_wire,
    demands_from_wire,
    status_from_wire,
    status_to_wire,
    task_from_wire,
    task_to_bytes,
    task_to_wire,
)

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
def test_tasks_survive_the_wire(task: TaskInfo) -> None:
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
def test_statuses_survive_the_wire(status: TaskStatus) -> None:
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


@pytest.mark.parametrize(
    "demand",
    [
        Demand(UNIT),
        Demand(UNIT, 0),
        Demand(UNIT, 7, (equals("rack", "r1"), matches("hostname", "h.*"))),
        Demand(UNIT, 7, (), 2),
        Demand(UNIT, 7, (), 1, 3),
        Demand(UNIT, 7, (not_matches("rack", "r[12]"),), 2, 3, Role("ads/prod")),
    ],
)
def test_demand_survives_the_wire(demand: Demand) -> None:
    wire = framework_pb2.Demand.FromString(demand_to_wire(demand).SerializeToString())
    assert demands_from_wire([wire]) == (demand,)


def test_several_demands_keep_their_order() -> None:
    several = tuple(Demand(UNIT, 1, role=Role(role)) for role in ("b", "a", "c"))
    assert demands_from_wire([demand_to_wire(demand) for demand in several]) == several
    assert demands_from_wire([]) == ()


def demand(**more: Any) -> framework_pb2.Demand:
    return framework_pb2.Demand(unit=resources_to_wire(UNIT), **more)


@pytest.mark.parametrize(
    ("wire", "why"),
    [
        ([framework_pb2.Demand()], "made of scalars"),
        ([demand(), demand(count=3)], "twice"),
        ([demand(count=2**64 - 1)], "count"),
        ([demand(min_per_offer=0)], "units per offer"),
        ([demand(max_per_offer=0)], "units per offer"),
        ([demand(min_per_offer=3, max_per_offer=2)], "units per offer"),
        ([demand(min_per_offer=2**64 - 1)], "units per offer"),
        *(
            ([demand(role=role)], "role")
            for role in ("a/../b", "a//b", "/a", "a/", "-x", "x" * 2**20)
        ),
    ],
)
def test_malformed_demands_are_refused(wire: list[framework_pb2.Demand], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        demands_from_wire(wire)


def test_too_long_lists_are_refused_before_they_are_read() -> None:
    """A call may be 1 MiB of patterns; those beyond the bound are not compiled."""
    costly = pb.Constraint(
        attribute="hostname", operator=pb.Constraint.OPERATOR_MATCHES, value="(.*a){60}"
    )
    shapes = [demand(constraints=[costly] * 100) for _ in range(60)]
    many = [demand(constraints=[costly] * 10_000)]
    for wire, why in ((shapes, "too complex together"), (many, "100 constraints")):
        began = time.thread_time()
        with pytest.raises(InvalidRequest, match=why):
            demands_from_wire(wire)
        assert time.thread_time() - began < 0.1


@pytest.mark.parametrize("pattern", ["(", "a{1000}", "x" * 2**20])
def test_a_bad_pattern_is_refused(pattern: str) -> None:
    bad = pb.Constraint(
        attribute="hostname", operator=pb.Constraint.OPERATOR_NOT_MATCHES, value=pattern
    )
    with pytest.raises(InvalidRequest, match="constraint on hostname"):
        demands_from_wire([demand(constraints=[bad])])


# A task's description keeps the bytes as which it came, and nobody writes it again.


INFO = TaskInfo(TaskId("t"), Command(("true",)), Resources.parse("cpus:1"))
# Field 100 with the text "new", of a newer release.
NEWER = b"\xa2\x06\x03new"


def newer_task() -> TaskInfo:
    return task_from_wire(WireTask.FromString(task_to_bytes(INFO) + NEWER))


def test_fields_of_a_newer_release_reach_ledger_and_order() -> None:
    info = newer_task()
    assert info == INFO
    assert task_to_bytes(info).endswith(NEWER)
    assert task_to_wire(info).SerializeToString().endswith(NEWER)
    row = encode(TaskRecord(FrameworkId("F"), info, AgentId("A"), Role("r")))
    assert row.body is not None
    assert WireRecord.FromString(row.body).task.endswith(NEWER)
    again = decode("task", row.body)
    assert isinstance(again, TaskRecord)
    assert again.info.encoded == info.encoded


def test_a_changed_copy_is_written_anew() -> None:
    other = replace(newer_task(), name="other")
    assert other.encoded == b""
    assert task_to_wire(other).name == "other"


def test_bytes_that_hold_secrets_or_much_that_nobody_knows_are_not_kept() -> None:
    values = SecretValues({"KEY": "x"})
    command = Command(("true",), secrets=values.withheld())
    secret = task_from_wire(task_to_wire(replace(INFO, command=command), values))
    assert secret.encoded == b""
    padding = NEWER * (MAX_TAGS // len(NEWER) + 1)
    assert task_from_wire(WireTask.FromString(task_to_bytes(INFO) + padding)).encoded == b""


def test_tasks_of_one_shape_share_its_resources() -> None:
    assert newer_task().resources is newer_task().resources


# Resources, attributes and constraints over the wire and back.


def test_zero_amounts_are_an_empty_message() -> None:
    assert resources_to_wire(NOTHING) == pb.Resources()
    assert resources_from_wire(pb.Resources()) == NOTHING


def test_the_same_amount_is_the_same_bytes() -> None:
    one, other = Resources.parse("zones:{a,b,c,d,e}"), Resources.parse("zones:{e,d,c,b,a}")
    assert resources_to_wire(one) == resources_to_wire(other)


def ranges(*pairs: tuple[int, int], name: str = "ports") -> pb.NamedRanges:
    return pb.NamedRanges(name=name, ranges=[pb.Range(begin=b, end=e) for b, e in pairs])


@pytest.mark.parametrize(
    "wire",
    [
        pb.Resources(cpus_milli=-1),
        pb.Resources(mem_milli=MAX_MILLI + 1),
        pb.Resources(scalars=[pb.NamedScalar(name="cpus", milli=1)]),
        pb.Resources(scalars=[pb.NamedScalar(name="x", milli=1)] * 2),
        pb.Resources(scalars=[pb.NamedScalar(name="x", milli=-1)]),
        pb.Resources(scalars=[pb.NamedScalar(name="../x", milli=1)]),
        pb.Resources(scalars=[pb.NamedScalar(name="", milli=1)]),
        pb.Resources(scalars=[pb.NamedScalar(name=f"r{i}", milli=1) for i in range(65)]),
        pb.Resources(ranges=[ranges((1, 3), (3, 4))]),
        pb.Resources(ranges=[ranges((3, 1))]),
        pb.Resources(ranges=[ranges((0, MAX_NUMBER + 1))]),
        pb.Resources(ranges=[ranges((1, 1)), ranges((2, 2))]),
        pb.Resources(ranges=[ranges((1, 1), name="cpus")], cpus_milli=1),
        pb.Resources(sets=[pb.NamedSet(name="z", items=["a", "a"])]),
        pb.Resources(sets=[pb.NamedSet(name="z", items=["a"])] * 2),
        pb.Resources(sets=[pb.NamedSet(name="z", items=[""])]),
        pb.Resources(sets=[pb.NamedSet(name="z", items=["a;cpus:9"])]),
        pb.Resources(sets=[pb.NamedSet(name="z", items=["a"])], ranges=[ranges((1, 1), name="z")]),
    ],
)
def test_malformed_amounts_are_refused(wire: pb.Resources) -> None:
    with pytest.raises(InvalidRequest):
        resources_from_wire(wire)


def test_attributes_survive_the_wire() -> None:
    attributes = parse_attributes("rack:r1;cores:8;slots:[1-4,9]")
    assert attributes_from_wire(attributes_to_wire(attributes)) == attributes


@pytest.mark.parametrize(
    "wire",
    [
        [pb.Attribute(name="a")],
        [pb.Attribute(name="1", text="x")],
        [pb.Attribute(name="a", text="x")] * 2,
        [pb.Attribute(name="a", text="x" * 1025)],
        [pb.Attribute(name="a", scalar_milli=-1)],
        [pb.Attribute(name="a", ranges=ranges((2, 1)))],
    ],
)
def test_malformed_attributes_are_refused(wire: list[pb.Attribute]) -> None:
    with pytest.raises(InvalidRequest):
        attributes_from_wire(wire)


@pytest.mark.parametrize("operator", list(Operator))
def test_constraints_survive_the_wire(operator: Operator) -> None:
    constraint = Constraint("rack", operator, "r1")
    assert constraint_from_wire(constraint_to_wire(constraint)) == constraint


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="unknown operator"):
        constraint_from_wire(pb.Constraint(attribute="rack"))


# Settings of roles survive the wire, and malformed ones are refused.


@pytest.mark.parametrize(
    "settings",
    [
        RoleSettings(),
        RoleSettings(
            1, {"gpus": 5000}, {"cpus": 4000, "mem": 0}, {"cpus": 4000, "disk": 0}, preemption=True
        ),
        RoleSettings(preemption=False),
    ],
)
def test_settings_survive_the_wire(settings: RoleSettings) -> None:
    wire = operator_pb2.RoleSettings.FromString(settings_to_wire(settings).SerializeToString())
    assert settings_from_wire(wire) == settings


def test_an_empty_message_is_the_default() -> None:
    assert settings_from_wire(operator_pb2.RoleSettings()) == RoleSettings()


@pytest.mark.parametrize(
    "wire",
    [
        operator_pb2.RoleSettings(weight_milli=0),
        operator_pb2.RoleSettings(weight_milli=-5),
        operator_pb2.RoleSettings(weight_milli=2**63 - 1),
        operator_pb2.RoleSettings(preemption=operator_pb2.Preemption.ValueType(7)),
        operator_pb2.RoleSettings(limit=[NamedScalar(name="cpus", milli=-1)]),
        operator_pb2.RoleSettings(limit=[NamedScalar(name="", milli=1)]),
        operator_pb2.RoleSettings(limit=[NamedScalar(name="cpus", milli=1)] * 2),
        operator_pb2.RoleSettings(
            guarantee=[NamedScalar(name=f"r{i}", milli=1) for i in range(70)]
        ),
        operator_pb2.RoleSettings(resource_weights=[NamedScalar(name="cpus", milli=0)]),
        operator_pb2.RoleSettings(
            guarantee=[NamedScalar(name="cpus", milli=2)], limit=[NamedScalar(name="cpus", milli=1)]
        ),
    ],
)
def test_malformed_settings_are_refused(wire: operator_pb2.RoleSettings) -> None:
    with pytest.raises(InvalidRequest):
        settings_from_wire(wire)
