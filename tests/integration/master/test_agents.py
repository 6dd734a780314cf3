"""The agent protocol over real gRPC: valid and invalid use."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from croupier.master.config import StoreChoice
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, resources_pb2, task_pb2
from tests.harness.masters import RawAgent, RawFramework, StreamEnded, running_master
from tests.integration.master.test_frameworks import launch, make_task


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"resources": resources_pb2.Resources()}, "no resources"),
        ({"resources": resources_pb2.Resources(cpus_milli=-1)}, "negative"),
        ({"hostname": ""}, "hostname"),
        ({"agent_id": "../x"}, "must not have"),
        ({"attributes": [resources_pb2.Attribute(name="a")]}, "no value"),
        ({"attributes": [resources_pb2.Attribute(name="", text="x")]}, "not the name"),
    ],
)
async def test_invalid_registration_is_refused_with_the_field(
    fields: dict[str, object], expected: str, agent: RawAgent
) -> None:
    with pytest.raises(StreamEnded):
        await agent.register(**fields)  # type: ignore[arg-type]
    assert expected in await agent._stream.details()
    assert await agent._stream.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_report_before_register_ends_the_stream(agent: RawAgent) -> None:
    await agent.send(pb.Report(updates=pb.StatusUpdates()))
    assert (await agent.next("error")).error.code == framework_pb2.ERROR_CODE_PROTOCOL


async def test_update_for_another_agent_ends_the_stream(agent: RawAgent) -> None:
    await agent.register()
    status = task_pb2.TaskStatus(
        framework_id="f",
        task_id="t",
        agent_id="another",
        sequence=1,
        state=task_pb2.TASK_FINISHED,
        source=task_pb2.SOURCE_AGENT,
    )
    await agent.send(pb.Report(updates=pb.StatusUpdates(statuses=[status])))
    assert (await agent.next("error")).error.code == framework_pb2.ERROR_CODE_PROTOCOL


async def test_field_reserved_for_the_master_is_dropped_from_an_update(
    framework: RawFramework, agent: RawAgent
) -> None:
    agent_id = await agent.register()
    subscribed = await framework.subscribe()
    offer = await framework.offer()
    await framework.call(accept=launch([offer.offer_id], make_task("t1")))
    await agent.next("launch")
    status = task_pb2.TaskStatus(
        framework_id=subscribed.framework_id,
        task_id="t1",
        agent_id=agent_id,
        sequence=1,
        state=task_pb2.TASK_FINISHED,
        source=task_pb2.SOURCE_AGENT,
        decided_in_ms=2**64 - 1,
    )
    await agent.send(pb.Report(updates=pb.StatusUpdates(statuses=[status])))
    update = (await framework.next("update")).update.statuses[0]
    assert update.state == task_pb2.TASK_FINISHED
    assert not update.HasField("decided_in_ms")


async def test_ids_survive_a_master_restart(tmp_path: Path) -> None:
    store = StoreChoice(tmp_path / "master.db")
    async with running_master(store=store) as master:
        async with RawAgent(master.address) as agent, RawFramework(master.address) as framework:
            agent_id = await agent.register()
            framework_id = (await framework.subscribe(roles=["ads"])).framework_id
        async with RawFramework(master.address) as gone:
            removed_id = (await gone.subscribe()).framework_id
            await gone.call(teardown=framework_pb2.Teardown())
    async with running_master(store=store) as master:
        known = await master.driver.read(lambda state: (set(state.agents), set(state.frameworks)))
        assert known == ({agent_id}, {framework_id})
        async with RawAgent(master.address) as agent, RawFramework(master.address) as framework:
            assert await agent.register(agent_id=agent_id) == agent_id
            subscribed = await framework.subscribe(roles=["ads"], framework_id=framework_id)
            assert subscribed.framework_id == framework_id
            offer = await framework.offer()
            assert offer.offer_id.startswith(subscribed.master_id)
        async with RawFramework(master.address) as gone:
            with pytest.raises(StreamEnded):
                await gone.subscribe(framework_id=removed_id)
        # Ids are never reused.
        async with RawFramework(master.address) as new:
            assert (await new.subscribe()).framework_id not in (framework_id, removed_id)
