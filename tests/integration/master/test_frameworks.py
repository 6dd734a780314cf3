"""The framework protocol over real gRPC: valid and invalid use."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Any

import grpc
import pytest

from croupier.master.app import MasterDaemon
from croupier.net.task_scope import end
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import resources_pb2, task_pb2
from tests.harness.eventually import eventually
from tests.harness.masters import RawFramework, StreamEnded


def make_task(task_id: str, cpus_milli: int = 1000) -> task_pb2.TaskInfo:
    return task_pb2.TaskInfo(
        task_id=task_id,
        command=task_pb2.Command(shell="true"),
        resources=resources_pb2.Resources(cpus_milli=cpus_milli, mem_milli=64_000),
    )


def launch(offer_ids: list[str], *tasks: task_pb2.TaskInfo) -> pb.Accept:
    return pb.Accept(offer_ids=offer_ids, operations=[pb.Operation(launch=pb.Launch(tasks=tasks))])


def demand(**more: Any) -> pb.Demand:
    return pb.Demand(unit=resources_pb2.Resources(cpus_milli=1000), **more)


def matches(pattern: str) -> resources_pb2.Constraint:
    return resources_pb2.Constraint(
        attribute="hostname", operator=resources_pb2.Constraint.OPERATOR_MATCHES, value=pattern
    )


ILLEGAL_ROLES = ["/a", "a/", "a//b", "a/../b", "-x", "a b", "a/*"]


async def test_the_first_call_must_be_subscribe(framework: RawFramework) -> None:
    await framework.send(pb.Call(seq=1, suppress=pb.Suppress()))
    error = (await framework.next("error")).error
    assert error.code == pb.ERROR_CODE_PROTOCOL
    assert "SUBSCRIBE" in error.message
    code, _ = await framework.ended()
    assert code is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"roles": []}, "at least one role"),
        ({"roles": ["a", "b", "a"]}, "'a' is given twice"),
        ({"roles": [f"r{number}" for number in range(33)]}, "at most 32 roles"),
        *(({"roles": ["ok", role]}, "illegal component") for role in ILLEGAL_ROLES),
        ({"roles": ["ok", ""]}, "the role is empty"),
        ({"roles": ["r" * 1_000_000]}, "longer than"),
        ({"roles": ["r" * 2_000_000]}, "at most 1048576"),
        ({"roles": ["a"], "suppressed_roles": ["b"]}, "not one of the framework's"),
        ({"roles": ["a"], "demands": [demand(role="b")]}, "the framework does not have"),
        ({"demands": [demand()] * 2}, "twice"),
        ({"demands": [demand(role="*"), demand()]}, "twice"),
        ({"demands": [demand(min_per_offer=0)]}, "units per offer"),
        ({"demands": [demand(min_per_offer=3, max_per_offer=2)]}, "units per offer"),
        ({"demands": [demand(constraints=[matches("(")])]}, "cannot be used"),
        ({"demands": [demand(constraints=[matches("a")] * 10_000)]}, "100 constraints"),
        ({"name": ""}, "name"),
        ({"client_id": ""}, "client_id"),
        ({"framework_id": "a/b"}, "must not have"),
        ({"framework_id": "x" * 300}, "longer than"),
        ({"failover_timeout_ms": 2**63}, "failover timeout"),
    ],
)
async def test_invalid_subscribe_is_refused_with_the_field(
    fields: dict[str, object], expected: str, framework: RawFramework
) -> None:
    with pytest.raises(StreamEnded):
        await framework.subscribe(**fields)
    code, details = await framework.ended()
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert expected in details


async def test_second_subscribe_ends_the_stream(framework: RawFramework) -> None:
    await framework.subscribe()
    await framework.send(
        pb.Call(
            subscribe=pb.Subscribe(framework=pb.FrameworkInfo(name="x", roles=["*"]), client_id="c")
        )
    )
    assert (await framework.next("error")).error.code == pb.ERROR_CODE_PROTOCOL


async def test_invalid_calls_get_verdicts_and_the_stream_stays_open(
    framework: RawFramework,
) -> None:
    await framework.subscribe()
    negative = resources_pb2.Resources(cpus_milli=-5)
    twice = resources_pb2.Resources(
        scalars=[resources_pb2.NamedScalar(name="cpus", milli=1)], cpus_milli=1
    )
    bad: list[dict[str, Any]] = [
        {"accept": pb.Accept(offer_ids=["nope"])},
        {"accept": pb.Accept()},
        {"accept": pb.Accept(offer_ids=["a"], operations=[pb.Operation()])},
        {"decline": pb.Decline(offer_ids=["nope"])},
        {"decline": pb.Decline(offer_ids=["nope"], reason="x" * 300)},
        {"kill": pb.Kill(task_id="nope")},
        {"update_demand": pb.UpdateDemand(demands=[pb.Demand(unit=negative)])},
        {"update_demand": pb.UpdateDemand(demands=[pb.Demand(unit=twice)])},
        {"update_demand": pb.UpdateDemand(demands=[pb.Demand()])},
        {"update_demand": pb.UpdateDemand(demands=[pb.Demand(), pb.Demand()])},
        {"update_demand": pb.UpdateDemand(demands=[demand(role="other")])},
        {"update_demand": pb.UpdateDemand(demands=[demand(role="a/../b")])},
        {"update_demand": pb.UpdateDemand(demands=[demand(max_per_offer=0)])},
        {"suppress": pb.Suppress(roles=["other"])},
        {"revive": pb.Revive(roles=["*", "other"])},
        {"revive": pb.Revive(roles=["/a"])},
        {"suppress": pb.Suppress(roles=[f"r{number}" for number in range(33)])},
        {},
    ]
    for call in bad:
        verdict = await framework.call(**call)
        assert verdict.HasField("error"), call
        assert verdict.error.code in (pb.ERROR_CODE_INVALID, pb.ERROR_CODE_NOT_FOUND)
    assert not (await framework.call(suppress=pb.Suppress())).HasField("error")


async def test_oversize_call_is_refused_and_the_stream_stays_open(framework: RawFramework) -> None:
    assert (await framework.subscribe()).max_message_bytes == 1024 * 1024
    huge = make_task("t1")
    huge.command.shell = "x" * (1024 * 1024 + 1)
    verdict = await framework.call(accept=launch(["o1"], huge))
    assert "at most 1048576" in verdict.error.message
    assert [task.task_id for task in verdict.tasks] == ["t1"]
    assert not (await framework.call(revive=pb.Revive())).HasField("error")


async def test_call_without_a_sequence_number_ends_the_stream(framework: RawFramework) -> None:
    await framework.subscribe()
    await framework.send(pb.Call(suppress=pb.Suppress()))
    assert (await framework.next("error")).error.code == pb.ERROR_CODE_PROTOCOL


async def test_framework_that_does_not_read_is_disconnected(
    master: MasterDaemon, framework: RawFramework
) -> None:
    await framework.subscribe()
    ids = [f"unknown-task-{number}" for number in range(10_000)]

    async def ask() -> None:
        for seq in count(1):
            await framework.send(pb.Call(seq=seq, reconcile=pb.Reconcile(task_ids=ids)))

    async def is_disconnected() -> bool:
        return await master.driver.read(lambda state: not state.peers)

    asking = asyncio.create_task(ask())
    await eventually(is_disconnected, 60)
    # It ends with the stream, or waits until what is on the way is read.
    await end(asking)
    assert master.leadership.term().sessions.queued() <= 1
