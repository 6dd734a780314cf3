"""A master leads in terms and follows in between, on the same ports."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from croupier.master.app import MasterDaemon, run_master
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.core.records import MasterRecord
from croupier.master.flags import EventLogFlags
from croupier.master.leadership.lineage import Lineage, Names, next_record
from croupier.master.leadership.term import Term
from croupier.model.errors import CroupierError, FailedOver, InvalidRequest, Unavailable
from croupier.net.transport import make_channel
from croupier.v1 import agent_pb2, framework_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from croupier.wire.store_position import position_to_wire
from tests.harness.elections import FakeElection, FakeStore, elected_master, follows, leads
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, RawFramework, StreamEnded

OTHER = "127.0.0.1:7"


@pytest.fixture
def election() -> FakeElection:
    return FakeElection()


@pytest.fixture
def store() -> FakeStore:
    return FakeStore()


@pytest.fixture
async def leading(election: FakeElection, store: FakeStore) -> AsyncIterator[MasterDaemon]:
    """Return a master that leads in its first term."""
    async with elected_master(election, store) as master:
        await election.elect()
        await leads(master, 1)
        yield master


@asynccontextmanager
async def operator(master: MasterDaemon) -> AsyncIterator[OperatorServiceStub]:
    async with make_channel(master.address) as channel:
        yield OperatorServiceStub(channel)


async def get(master: MasterDaemon, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{master.http_address}{path}") as response,
    ):
        return response.status, await response.text()


async def refusal_of(peer: RawFramework | RawAgent) -> framework_pb2.Error:
    """Return the NOT_LEADER error that ends the stream of `peer`."""
    error: framework_pb2.Error = (await peer.next("error")).error
    assert error.code == framework_pb2.ERROR_CODE_NOT_LEADER
    with pytest.raises(StreamEnded, match=r"UNAVAILABLE.*not the leader"):
        await peer.next("none")
    return error


async def test_follower_names_the_leader() -> None:
    election = FakeElection()
    async with elected_master(election) as master, operator(master) as ask:
        for leader, text in ((OTHER, f"{OTHER} leads"), (None, "no master leads now")):
            await election.elect_other(leader)
            async with RawFramework(master.address) as framework, RawAgent(master.address) as agent:
                assert (await refusal_of(framework)).leader == (leader or "")
                assert (await refusal_of(agent)).message == f"not the leader; {text}"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask.ListAgents(pb.ListAgentsRequest())
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert refused.value.details() == f"not the leader; {text}"
            answer = await ask.GetMaster(pb.GetMasterRequest())
            assert (answer.leader, answer.leader_address) == (False, leader or "")
            # Anyone may ask this, so it does not name the leader.
            known = "another master leads" if leader else text
            assert await get(master, "/readyz") == (503, f"a follower; {known}\n")
            assert (await get(master, "/healthz"))[0] == 200
        metrics = (await get(master, "/metrics"))[1]
        assert "croupier_master_leader 0.0" in metrics
        assert "croupier_agents{" not in metrics


async def test_master_leads_when_elected_and_again_after_it_was_deposed() -> None:
    election = FakeElection()
    async with elected_master(election) as master, operator(master) as ask:
        for epoch in (1, 2):
            await election.elect()
            await leads(master, epoch)
            answer = await ask.GetMaster(pb.GetMasterRequest())
            assert (answer.leader, answer.leader_address) == (True, str(master.address))
            assert answer.epoch == epoch
            assert (await get(master, "/readyz"))[0] == 200
            async with RawFramework(master.address) as framework, RawAgent(master.address) as agent:
                subscribed = await framework.subscribe()
                await agent.register()
                assert subscribed.master_id.endswith(f"-{epoch}")
                offer = await framework.offer()
                assert offer.offer_id.startswith(subscribed.master_id)
                await election.elect_other(OTHER)
                assert (await refusal_of(framework)).leader == OTHER
                assert (await refusal_of(agent)).leader == OTHER
            await follows(master)
        async with aiohttp.ClientSession() as session:
            # The last scrape is cached for a second.
            async def scraped() -> bool:
                url = f"http://{master.http_address}/metrics"
                async with session.get(url) as response:
                    text = await response.text()
                return "croupier_master_terms_total 2.0" in text

            await eventually(scraped)
        assert election.resigned >= 2


async def test_new_term_reports_missing_agents() -> None:
    election = FakeElection()
    async with elected_master(election) as master, operator(master) as ask:
        await election.elect()
        await leads(master, 1)
        async with RawAgent(master.address) as one, RawAgent(master.address) as other:
            names = [await one.register(), await other.register()]
            await election.elect_other(None)
            await follows(master)
        await election.elect()
        await leads(master, 2)
        answer = await ask.GetMaster(pb.GetMasterRequest())
        assert answer.agents_missing == 2
        assert 0 < answer.decided_in_ms <= 600_000
        metrics = (await get(master, "/metrics"))[1]
        assert "croupier_recovery_agents 2.0" in metrics
        assert "croupier_agents_missing 2.0" in metrics
        assert "croupier_recovery_seconds" not in metrics
        recovery = master.leadership.term().recovery
        assert recovery is not None
        async with RawAgent(master.address) as one, RawAgent(master.address) as other:
            await one.register(agent_id=names[0])
            assert (await ask.GetMaster(pb.GetMasterRequest())).agents_missing == 1
            assert recovery.complete_s is None
            await other.register(agent_id=names[1])
            await eventually(lambda: recovery.complete_s is not None)
            answer = await ask.GetMaster(pb.GetMasterRequest())
            assert (answer.agents_missing, answer.decided_in_ms) == (0, 0)


async def test_every_message_to_an_agent_carries_the_epoch() -> None:
    election = FakeElection()
    async with elected_master(election, heartbeat=0.1) as master:
        await election.elect()
        await leads(master, 1)
        await election.elect_other(None)
        await follows(master)
        await election.elect()
        await leads(master, 2)
        async with RawAgent(master.address) as agent:
            await agent.register()
            await agent.next("heartbeat")
            assert agent.epochs == {2}


async def test_heartbeats_do_not_wait_for_a_commit() -> None:
    election, store = FakeElection(), FakeStore()
    async with elected_master(election, store, heartbeat=0.1) as master:
        await election.elect()
        await leads(master, 1)
        async with RawAgent(master.address) as agent, RawFramework(master.address) as framework:
            await agent.register()
            store.gate.clear()
            subscribing = asyncio.create_task(framework.subscribe())
            await eventually(lambda: master.driver.state.frameworks)
            for _ in range(5):
                await agent.next("heartbeat")
            assert not subscribing.done()
            store.gate.set()
            await subscribing


async def test_batch_committed_after_the_term_ended_is_not_performed(
    election: FakeElection, store: FakeStore, leading: MasterDaemon
) -> None:
    store.gate.clear()
    async with RawFramework(leading.address) as framework:
        subscribing = asyncio.create_task(framework.subscribe())
        await eventually(lambda: leading.driver.state.frameworks)
        await election.elect_other(OTHER)
        store.gate.set()
        with pytest.raises(StreamEnded):
            await subscribing
        assert [event.WhichOneof("event") for event in framework.heard] == ["error"]


@pytest.mark.parametrize("failure", [FailedOver("the fence"), Unavailable("no quorum")])
async def test_failed_commit_ends_the_term_and_a_new_one_begins(
    failure: Exception, election: FakeElection, store: FakeStore, leading: MasterDaemon
) -> None:
    async with RawFramework(leading.address) as framework:
        store.failures.append(failure)
        with pytest.raises(StreamEnded, match="UNAVAILABLE"):
            await framework.subscribe()
    # The election was not lost: after resigning, the leading wins again at once.
    await leads(leading, 2)
    assert election.resigned == 1
    async with RawFramework(leading.address) as framework:
        await framework.subscribe()


async def test_store_that_fails_at_the_start_of_a_term_is_retried() -> None:
    election, store = FakeElection(), FakeStore()
    store.failures += [Unavailable("no quorum"), Unavailable("no quorum")]
    async with elected_master(election, store) as master:
        await election.elect()
        await leads(master, 1)
        assert election.resigned == 2


async def claim_of_another_master(
    store: FakeStore, record: MasterRecord
) -> tuple[MasterRecord, dict[str, Any]]:
    """Return the next master's record, and the claim of an agent that has heard that master."""
    names = Names("", "", "another")
    newer = next_record(record, store.commits, names)
    position = Lineage(newer, lambda: store.commits + 1).position()
    claim = {"master_epoch": position.epoch, "position": position_to_wire(position)}
    return newer, {"cluster": newer.cluster, **claim}


async def known_to(store: FakeStore) -> MasterRecord:
    record = (await store.load()).master
    assert record is not None
    return record


async def test_agent_that_proves_a_newer_epoch_ends_the_term(
    store: FakeStore, leading: MasterDaemon
) -> None:
    newer, claim = await claim_of_another_master(store, await known_to(store))
    # Another leading leads meanwhile.
    await store.commit([newer])
    async with RawAgent(leading.address) as agent:
        with pytest.raises(StreamEnded, match="UNAVAILABLE"):
            await agent.register(**claim)
    await leads(leading, 3)


async def test_proven_commit_missing_from_the_store_ends_the_process(
    store: FakeStore, leading: MasterDaemon
) -> None:
    """The store is an older copy, such as a restored snapshot of etcd."""
    _, claim = await claim_of_another_master(store, await known_to(store))
    async with RawAgent(leading.address) as agent:
        with pytest.raises(StreamEnded, match="UNAVAILABLE"):
            await agent.register(**claim)
    with pytest.raises(InvalidRequest, match="is an old copy: an agent knows commit"):
        await asyncio.wait_for(leading.run(asyncio.Event()), 30)


@pytest.mark.parametrize("epoch", [2, 3, 2**32 + 1, 2**64 - 1])
async def test_unproven_epoch_does_not_end_the_term(
    epoch: int, store: FakeStore, leading: MasterDaemon
) -> None:
    _, claim = await claim_of_another_master(store, await known_to(store))
    claim["master_epoch"] = epoch
    forged = agent_pb2.StorePosition(epoch=epoch, term="another", commit=9, proof=bytes(16))
    for position in (None, forged):
        async with RawAgent(leading.address) as agent:
            with pytest.raises(StreamEnded, match="FAILED_PRECONDITION"):
                await agent.register(**{**claim, "position": position})
    assert leading.leadership.term().epoch == 1
    # An agent without a claim is registered.
    async with RawAgent(leading.address) as agent:
        await agent.register(cluster=claim["cluster"], master_epoch=1)


async def test_agent_of_another_cluster_is_refused(leading: MasterDaemon) -> None:
    async with RawAgent(leading.address) as agent:
        with pytest.raises(StreamEnded, match="belongs to cluster 'other'"):
            await agent.register(master_epoch=3, cluster="other")
    assert leading.leadership.term().epoch == 1


async def test_no_effect_is_performed_after_the_lease_expired(
    election: FakeElection, leading: MasterDaemon
) -> None:
    """After a SIGSTOP the driver may run before the task that watches the lease."""
    async with RawFramework(leading.address) as framework:
        election.is_won = False
        with pytest.raises(StreamEnded):
            await framework.subscribe()
        assert {event.WhichOneof("event") for event in framework.heard} <= {"error"}


async def test_unreadable_store_ends_the_process() -> None:
    election, store = FakeElection(), FakeStore()
    store.failures.append(InvalidRequest("a record that cannot be read"))
    async with elected_master(election, store) as master:
        await election.elect()
        with pytest.raises(InvalidRequest, match="cannot be read"):
            await asyncio.wait_for(master.run(asyncio.Event()), 30)


async def test_pending_questions_fail_when_the_term_ends() -> None:
    election, store = FakeElection(), FakeStore()
    async with elected_master(election, store) as master, operator(master) as ask:
        await election.elect()
        await leads(master, 1)
        store.gate.clear()
        async with RawFramework(master.address) as framework:
            subscribing = asyncio.create_task(framework.subscribe())
            await eventually(lambda: master.driver.state.frameworks)
            question = asyncio.create_task(_list(ask))
            await eventually(lambda: len(master.driver.inbox))
            await election.elect_other(OTHER)
            with pytest.raises(grpc.aio.AioRpcError, match=f"{OTHER} leads"):
                await asyncio.wait_for(question, 30)
            with pytest.raises(StreamEnded):
                await subscribing


async def test_each_term_begins_an_event_log(tmp_path: Path) -> None:
    election = FakeElection()
    async with elected_master(
        election, recording=EventLogFlags(event_log=tmp_path / "log")
    ) as master:
        for epoch in (1, 2):
            await election.elect()
            await leads(master, epoch)
            assert "croupier_event_log_bytes_total" in (await get(master, "/metrics"))[1]
            async with RawAgent(master.address) as agent:
                await agent.register()
                await election.elect_other(None)
            await follows(master)
    heads = [log.read_text().splitlines()[0] for log in tmp_path.iterdir()]
    found = [re.search(r'"master_id":\s*"\w+-(\d)"', head) for head in heads]
    assert sorted(match[1] for match in found if match) == ["1", "2"]


async def test_the_event_log_of_a_registry_that_cannot_be_recovered_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("unrecoverable")

    monkeypatch.setattr("croupier.master.leadership.term.recover_state", fail)
    log = tmp_path / "log"
    config = MasterConfig(
        listen=ANY_PORT,
        http=ANY_PORT,
        store=StoreChoice(None),
        recording=EventLogFlags(event_log=log),
    )
    before = threading.enumerate()
    with pytest.raises(ValueError, match="unrecoverable"):
        await run_master(config, asyncio.Event(), lambda: config)
    assert '"master_id"' in log.read_text()
    begun = [each for each in threading.enumerate() if each not in before]
    assert "event-log" not in [each.name for each in begun]


@pytest.mark.parametrize("turns", range(8))
async def test_term_is_ended_when_the_master_stops_at_the_same_time(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, really_end = [], Term.end

    async def end(term: Term, error: CroupierError) -> None:
        await really_end(term, error)
        ended.append(term.epoch)

    monkeypatch.setattr(Term, "end", end)
    election = FakeElection()
    async with elected_master(election) as master:
        await election.elect()
        await leads(master, 1)
        await election.elect_other(None)
        for _ in range(turns):
            await asyncio.sleep(0)
    assert ended == [1]


async def test_single_master_ends_when_its_store_fails(tmp_path: Path) -> None:
    config = MasterConfig(
        listen=ANY_PORT, http=ANY_PORT, store=StoreChoice(tmp_path / "no" / "such" / "place.db")
    )
    with pytest.raises(Unavailable, match="cannot open the store"):
        await asyncio.wait_for(run_master(config, asyncio.Event(), lambda: config), 30)


async def _list(ask: OperatorServiceStub) -> pb.ListAgentsResponse:
    return await ask.ListAgents(pb.ListAgentsRequest())
