"""A store that was lost or restored: an old copy is refused, and a restored one goes on."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from croupier.master.app import MasterDaemon
from croupier.master.backup.commands import back_up, restore
from croupier.master.backup.flags import StoreFlags
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.flags import EventLogFlags
from croupier.model.errors import CroupierError, InvalidRequest, Unavailable
from croupier.net.address import Address
from croupier.v1 import agent_pb2 as pb
from croupier.v1 import framework_pb2, task_pb2
from croupier.v1.storage_pb2 import MasterRecord
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, RawFramework, StreamEnded, running_master
from tests.integration.master.test_frameworks import launch, make_task


class Scene:
    """A master on a file that was copied, and an agent that has run a task since."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "master.db"
        self.copy = folder / "copy"
        self.store = StoreChoice(self.path)
        self.claim: dict[str, Any] = {}
        self.framework_id = ""
        self.task: pb.AgentTask | None = None

    def put_back(self, source: Path) -> None:
        """Restore the database and its log as an operator would; the marker file stays."""
        for name in ("master.db", "master.db-wal"):
            (self.path.parent / name).unlink(missing_ok=True)
            if (source / name).exists():
                shutil.copy(source / name, self.path.parent / name)

    async def live(self) -> None:
        """Launch a task, copy the database, then end the task and acknowledge the end."""
        async with running_master(store=self.store) as master:
            agent, framework = RawAgent(master.address), RawFramework(master.address)
            async with agent, framework:
                await agent.register()
                await framework.subscribe()
                offer = await framework.offer()
                await framework.call(accept=launch([offer.offer_id], make_task("t1")))
                await agent.next("launch")
                self.copy.mkdir()
                for file in self.path.parent.glob("master.db*"):
                    shutil.copy(file, self.copy)
                self.framework_id = framework.framework_id
                end = self._end(agent.agent_id)
                await agent.send(pb.Report(updates=pb.StatusUpdates(statuses=[end])))
                await framework.next("update")
                update = framework_pb2.Acknowledge.Update(
                    agent_id=agent.agent_id, task_id="t1", sequence=1
                )
                acknowledge = framework_pb2.Acknowledge(updates=[update])
                await framework.call(acknowledge=acknowledge)
                await agent.next("acknowledge")
                self.claim = agent.claim

    def _end(self, agent_id: str) -> task_pb2.TaskStatus:
        return task_pb2.TaskStatus(
            framework_id=self.framework_id,
            task_id="t1",
            agent_id=agent_id,
            sequence=1,
            state=task_pb2.TASK_FINISHED,
            source=task_pb2.SOURCE_AGENT,
        )


async def refusal(store: StoreChoice, claim: dict[str, Any]) -> str:
    """Let the agent register with a master, and return the error that ends the master."""
    master = MasterDaemon(MasterConfig(listen=ANY_PORT, http=ANY_PORT, store=store))
    try:
        await master.start()
        async with RawAgent(master.address) as agent:
            with pytest.raises(StreamEnded):
                await agent.register(**claim)
            orders = [order.WhichOneof("order") for order in agent._orders]
            assert "launch" not in orders
        await asyncio.wait_for(master.run(asyncio.Event()), 30)
    except CroupierError as error:
        return str(error)
    finally:
        await master.stop()
    raise AssertionError("the master did not end")


async def test_old_copy_is_refused_when_an_agent_knows_a_newer_commit(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.live()
    newest = tmp_path / "newest"
    newest.mkdir()
    for file in tmp_path.glob("master.db*"):
        shutil.copy(file, newest)
    scene.put_back(scene.copy)
    error = await refusal(scene.store, scene.claim)
    assert f"{scene.path} is an old copy: an agent knows commit" in error
    assert "--recover=old-store" in error
    assert len(error.splitlines()) == 1
    # The marker file remembers it: the next master does not wait for an agent.
    with pytest.raises(InvalidRequest, match="is an old copy: the file that names its cluster"):
        async with running_master(store=scene.store):
            pass
    scene.put_back(newest)
    async with running_master(store=scene.store) as master, RawAgent(master.address) as agent:
        await agent.register(**scene.claim)


async def test_old_copy_is_accepted_with_recover_old_store(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.live()
    scene.put_back(scene.copy)
    async with running_master(store=scene.store, recover="old-store") as master:
        async with RawAgent(master.address) as agent:
            with pytest.raises(StreamEnded):
                await agent.register(**scene.claim)
        await eventually(lambda: master.leadership.is_leader)
        async with RawAgent(master.address) as agent, RawFramework(master.address) as framework:
            await agent.register(**scene.claim)
            assert agent.heard.position.generation == 1
            assert agent.heard.master_epoch > scene.claim["master_epoch"]
            await framework.subscribe(framework_id=scene.framework_id)
            updates = (await framework.next("update")).update.statuses
            # The agent has run the task and the store lacks it; it is not launched again.
            assert [(s.task_id, s.state) for s in updates] == [("t1", task_pb2.TASK_GONE)]
            assert not [o for o in agent._orders if o.WhichOneof("order") == "launch"]
            claim = agent.claim
    # The copy is now the store of the cluster: no flag is needed.
    async with running_master(store=scene.store) as master:
        for known in (claim, scene.claim):
            async with RawAgent(master.address) as agent:
                await agent.register(**known)


async def test_missing_store_is_refused_without_recover_new_cluster(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    await scene.live()
    for file in (scene.path, tmp_path / "master.db-wal"):
        file.unlink(missing_ok=True)
    for _ in range(2):
        with pytest.raises(InvalidRequest, match=r"is empty or missing, .*--recover=new-cluster"):
            async with running_master(store=scene.store):
                pass
        assert not scene.path.exists()
    async with running_master(store=scene.store, recover="new-cluster") as master:
        assert master.driver.state.cluster != scene.claim["cluster"]
        async with RawAgent(master.address) as agent:
            with pytest.raises(StreamEnded, match="belongs to cluster"):
                await agent.register(**scene.claim)
        async with RawAgent(master.address) as agent:
            await agent.register()
    async with running_master(store=scene.store):
        pass


@pytest.mark.parametrize("name", ["master.db", "master.db-wal"])
async def test_removed_database_ends_the_master_at_the_next_write(
    tmp_path: Path, name: str
) -> None:
    store = StoreChoice(tmp_path / "master.db")
    master = MasterDaemon(MasterConfig(listen=ANY_PORT, http=ANY_PORT, store=store))
    try:
        await master.start()
        (tmp_path / name).rename(tmp_path / "away")
        async with RawFramework(master.address) as framework:
            with pytest.raises(StreamEnded):
                await framework.subscribe()
        with pytest.raises(Unavailable, match=f"{name} was removed or replaced while this master"):
            await asyncio.wait_for(master.run(asyncio.Event()), 30)
    finally:
        await master.stop()


async def test_removed_database_ends_the_master_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croupier.master.leadership.term.CHECK_STORE_S", 0.05)
    store = StoreChoice(tmp_path / "master.db")
    master = MasterDaemon(MasterConfig(listen=ANY_PORT, http=ANY_PORT, store=store))
    try:
        await master.start()
        (tmp_path / "master.db").unlink()
        with pytest.raises(Unavailable, match="was removed or replaced"):
            await asyncio.wait_for(master.run(asyncio.Event()), 30)
    finally:
        await master.stop()


async def test_logs_do_not_contain_the_cluster_secret(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, log = StoreChoice(tmp_path / "master.db"), tmp_path / "events.log"
    for _ in range(2):
        async with (
            running_master(store=store, recording=EventLogFlags(event_log=log)) as master,
            RawAgent(master.address) as agent,
        ):
            await agent.register()
    kept = sqlite3.connect(tmp_path / "master.db")
    row = kept.execute("SELECT body FROM records WHERE kind = 'master'").fetchone()
    kept.close()
    known = MasterRecord.FromString(row[0]).secret
    assert len(known) == 64
    logged = "".join(file.read_text() for file in tmp_path.glob("events.log*"))
    assert "registry" in logged
    assert known not in logged + capsys.readouterr().out


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


async def states(address: Address, framework_id: str, claim: dict[str, Any]) -> dict[str, str]:
    """Return the states of t1 and t2 once the agent and the framework are back."""
    async with RawAgent(address) as agent, RawFramework(address) as framework:
        await agent.register(**claim)
        await framework.subscribe(framework_id=framework_id)
        await framework.call(reconcile=framework_pb2.Reconcile())
        found: dict[str, str] = {}
        async with asyncio.timeout(30):
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
