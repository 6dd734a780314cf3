"""A cluster whose store was lost goes on with a copy, and no task is lost or launched twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from croupier.master.app import MasterDaemon
from croupier.master.backup.commands import back_up, restore
from croupier.master.backup.flags import StoreFlags
from croupier.master.config import MasterConfig, StoreChoice
from croupier.model.errors import CroupierError
from croupier.net.address import Address
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, task_pb2
from tests.harness.masters import ANY_PORT, RawAgent, RawFramework, StreamEnded, running_master
from tests.integration.master.test_frameworks import launch, make_task


async def launched(framework: RawFramework, agent: RawAgent, task_id: str) -> pb.AgentTask:
    """Launch a task of one CPU; return what the agent reports of it from then on."""
    offer = await framework.offer()
    await framework.call(accept=launch([offer.offer_id], make_task(task_id)))
    order = (await agent.next("launch")).launch
    status = task_pb2.TaskStatus(
        framework_id=framework.framework_id,
        task_id=task_id,
        agent_id=agent.agent_id,
        sequence=1,
        state=task_pb2.TASK_RUNNING,
        source=task_pb2.SOURCE_AGENT,
    )
    return pb.AgentTask(
        framework_id=order.framework_id,
        task=order.task,
        latest=status,
        role=order.role,
        proof=order.proof,
    )


async def refusal(store: StoreChoice, claim: dict[str, Any]) -> str:
    """Let the agent register with a master, and return the error that ends the master."""
    master = MasterDaemon(MasterConfig(listen=ANY_PORT, http=ANY_PORT, store=store))
    try:
        await master.start()
        async with RawAgent(master.address) as agent:
            with pytest.raises(StreamEnded):
                await agent.register(**claim)
        await asyncio.wait_for(master.run(asyncio.Event()), 10)
    except CroupierError as error:
        return str(error)
    finally:
        await master.stop()
    raise AssertionError("the master did not end")


async def states(address: Address, framework_id: str, claim: dict[str, Any]) -> dict[str, str]:
    """Return the states of t1 and t2 once the agent and the framework are back."""
    async with RawAgent(address) as agent, RawFramework(address) as framework:
        await agent.register(**claim)
        await framework.subscribe(framework_id=framework_id)
        await framework.call(reconcile=framework_pb2.Reconcile())
        found: dict[str, str] = {}
        async with asyncio.timeout(10):
            while len(found) < 2:
                for status in (await framework.next("update")).update.statuses:
                    found[status.task_id] = task_pb2.TaskState.Name(status.state)
        assert not [order for order in agent._orders if order.WhichOneof("order") == "launch"]
        return found


async def test_restored_cluster_goes_on_with_every_task(tmp_path: Path) -> None:
    path, copy = tmp_path / "master.db", tmp_path / "copy"
    store = StoreChoice(path)
    flags = StoreFlags(store=store)
    async with (
        running_master(store=store) as master,
        RawAgent(master.address) as agent,
        RawFramework(master.address) as framework,
    ):
        await agent.register()
        await framework.subscribe()
        tasks = [await launched(framework, agent, "t1")]
        await asyncio.to_thread(back_up, flags, copy)
        tasks.append(await launched(framework, agent, "t2"))
        framework_id, claim = framework.framework_id, agent.claim | {"tasks": tasks}
    # The machine of the master is lost: nothing but the copy is left.
    for file in tmp_path.glob("master.db*"):
        file.unlink()
    given = {"accepts_old": False, "replaces": True, "dry_run": False}
    await asyncio.to_thread(restore, flags, copy, **given)
    # Nothing at hand says that the copy is old, but the agent does.
    assert "is an old copy: an agent knows commit" in await refusal(store, claim)
    with pytest.raises(CroupierError, match="too old"):
        await asyncio.to_thread(restore, flags, copy, **given)
    await asyncio.to_thread(restore, flags, copy, **given | {"accepts_old": True})
    async with running_master(store=store) as master:
        found = await states(master.address, framework_id, claim)
    assert found == {"t1": "TASK_RUNNING", "t2": "TASK_RUNNING"}
