"""A master leads in terms, and follows in between, on the same ports."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest

from croupier.master.app import Master, run_master
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.core.records import MasterRecord
from croupier.master.lineage import Lineage, Names, next_record
from croupier.master.term import Term
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


@asynccontextmanager
async def operator(master: Master) -> AsyncIterator[OperatorServiceStub]:
    async with make_channel(master.address) as channel:
        yield OperatorServiceStub(channel)


async def get(master: Master, path: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://{master.http_address}{path}") as response,
    ):
        return response.status, await response.text()


async def refusal_of(peer: RawFramework | RawAgent) -> framework_pb2.Error:
    """The NOT_LEADER that ends the stream of `peer`."""
    error: framework_pb2.Error = (await peer.next("error")).error
    assert error.code == framework_pb2.ERROR_CODE_NOT_LEADER
    with pytest.raises(StreamEnded, match=r"UNAVAILABLE.*not the leader"):
        await peer.next("none")
    return error


async def test_a_follower_says_who_leads() -> None:
    election = FakeElection()
    async with elected_master(election) as master, operator(master) as ask:
        for leader, word in ((OTHER, f"{OTHER} leads"), (None, "no master leads now")):
            await election.elect_other(leader)
            async with RawFramework(master.address) as framework, RawAgent(master.address) as agent:
                assert (await refusal_of(framework)).leader == (leader or "")
                assert (await refusal_of(agent)).message == f"not the leader; {word}"
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await ask.ListAgents(pb.ListAgentsRequest())
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
            assert refused.value.details() == f"not the leader; {word}"
            told = await ask.GetMaster(pb.GetMasterRequest())
            assert (told.leader, told.leader_address) == (False, leader or "")
            assert await get(master, "/readyz") == (503, f"a follower; {word}\n")
            assert (await get(master, "/healthz"))[0] == 200
        metrics = (await get(master, "/metrics"))[1]
        assert "croupier_master_leader 0.0" in metrics
        assert "croupier_agents{" not in metrics


async def test_it_leads_when_elected_and_again_after_it_was_deposed() -> None:
    election = FakeElection()
    async with elected_master(election) as master, operator(master) as ask:
        for epoch in (1, 2):
            await election.elect()
            await leads(master, epoch)
            told = await ask.GetMaster(pb.GetMasterRequest())
            assert (told.leader, told.leader_address) == (True, str(master.address))
            assert told.epoch == epoch
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
            # What was rendered for the last scrape serves for a second.
            async def scraped() -> bool:
                url = f"http://{master.http_address}/metrics"
                async with session.get(url) as response:
                    text = await response.text()
                return "croupier_master_terms_total 2.0" in text

            await eventually(scraped)
        assert election.resigned >= 2


async def test_a_new_term_says_what_it_does_not_know_yet() -> None:
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
        told = await ask.GetMaster(pb.GetMasterRequest())
        assert told.agents_missing == 2
        assert 0 < told.decided_in_ms <= 600_000
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
            told = await ask.GetMaster(pb.GetMasterRequest())
            assert (told.agents_missing, told.decided_in_ms) == (0, 0)


async def test_every_word_to_an_agent_carries_the_epoch() -> None:
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


async def test_heartbeats_do_not_wait_for_the_disk() -> None:
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


async def test_nothing_is_said_of_what_was_decided_before_and_is_durable_after() -> None:
    election, store = FakeElection(), FakeStore()
    async with elected_master(election, store) as master:
        await election.elect()
        await leads(master, 1)
        store.gate.clear()
        async with RawFramework(master.address) as framework:
            subscribing = asyncio.create_task(framework.subscribe())
            await eventually(lambda: master.driver.state.frameworks)
            await election.elect_other(OTHER)
            store.gate.set()
            with pytest.raises(StreamEnded):
                await subscribing
            assert [event.WhichOneof("event") for event in framework.heard] == ["error"]


@pytest.mark.parametrize("failure", [FailedOver("the fence"), Unavailable("no quorum")])
async def test_a_failed_commit_ends_the_term_and_a_new_one_begins(failure: Exception) -> None:
    election, store = FakeElection(), FakeStore()
    async with elected_master(election, store) as master:
        await election.elect()
        await leads(master, 1)
        async with RawFramework(master.address) as framework:
            store.failures.append(failure)
            with pytest.raises(StreamEnded, match="UNAVAILABLE"):
                await framework.subscribe()
        # The election was not lost: after it has resigned it wins at once.
        await leads(master, 2)
        assert election.resigned == 1
        async with RawFramework(master.address) as framework:
            await framework.subscribe()


async def test_a_store_that_fails_at_the_beginning_is_asked_again() -> None:
    election, store = FakeElection(), FakeStore()
    store.failures += [Unavailable("no quorum"), Unavailable("no quorum")]
    async with elected_master(election, store) as master:
        await election.elect()
        await leads(master, 1)
        assert election.resigned == 2


async def claim_of_another_master(
    store: FakeStore, record: MasterRecord
) -> tuple[MasterRecord, dict[str, Any]]:
    """The record of a master that leads next, and what an agent says that has heard it."""
    names = Names("", "", "another")
    newer = next_record(record, store.commits, names)
    told = Lineage(newer, lambda: store.commits + 1).position()
    claim = {"master_epoch": told.epoch, "position": position_to_wire(told)}
    return newer, {"cluster": newer.cluster, **claim}


async def known_to(store: FakeStore) -> MasterRecord:
    record = (await store.load()).master
    assert record is not None
    return record


async def test_an_agent_that_has_heard_a_newer_master_ends_the_term() -> None:
    election, store = FakeElection(), FakeStore()
    async with elected_master(election, store) as master:
        await election.elect()
        await leads(master, 1)
        newer, claim = await claim_of_another_master(store, await known_to(store))
        # As another master does that leads meanwhile.
        await store.commit([newer])
        async with RawAgent(master.address) as agent:
            with pytest.raises(StreamEnded, match="UNAVAILABLE"):
                await agent.register(**claim)
        await leads(master, 3)


async def test_a_newer_master_that_the_store_does_not_know_of_ends_the_process() -> None:
    """It is no newer master: the store is an older copy, as of a snapshot of etcd."""
    election, store = FakeElection(), FakeStore()
    async with elected_master(election, store) as master:
        await election.elect()
        await leads(master, 1)
        _, claim = await claim_of_another_master(store, await known_to(store))
        async with RawAgent(master.address) as agent:
            with pytest.raises(StreamEnded, match="UNAVAILABLE"):
                await agent.register(**claim)
        with pytest.raises(InvalidRequest, match="is an old copy: an agent knows commit"):
            await asyncio.wait_for(master.run(asyncio.Event()), 10)


@pytest.mark.parametrize("epoch", [2, 3, 2**32 + 1, 2**64 - 1])
async def test_a_claim_without_proof_ends_no_term(epoch: int) -> None:
    election, store = FakeElection(), FakeStore()
    async with elected_master(election, store) as master:
        await election.elect()
        await leads(master, 1)
        _, claim = await claim_of_another_master(store, await known_to(store))
        claim["master_epoch"] = epoch
        forged = agent_pb2.StorePosition(epoch=epoch, term="another", commit=9, proof=bytes(16))
        for position in (None, forged):
            async with RawAgent(master.address) as agent:
                with pytest.raises(StreamEnded, match="FAILED_PRECONDITION"):
                    await agent.register(**{**claim, "position": position})
        assert master.leadership.term().epoch == 1
        # Whoever claims nothing is taken in as ever.
        async with RawAgent(master.address) as agent:
            await agent.register(cluster=claim["cluster"], master_epoch=1)


async def test_an_agent_of_another_cluster_is_refused_and_ends_nothing() -> None:
    election = FakeElection()
    async with elected_master(election) as master:
        await election.elect()
        await leads(master, 1)
        async with RawAgent(master.address) as agent:
            with pytest.raises(StreamEnded, match="belongs to cluster 'other'"):
                await agent.register(master_epoch=3, cluster="other")
        assert master.leadership.term().epoch == 1


async def test_a_lease_that_ran_out_unnoticed_tells_nobody_anything() -> None:
    """As after SIGSTOP: the driver runs before whoever watches the lease."""
    election = FakeElection()
    async with elected_master(election) as master:
        await election.elect()
        await leads(master, 1)
        async with RawFramework(master.address) as framework:
            election.is_won = False
            with pytest.raises(StreamEnded):
                await framework.subscribe()
            assert [event.WhichOneof("event") for event in framework.heard] == ["error"]


async def test_what_cannot_be_read_ends_the_process() -> None:
    election, store = FakeElection(), FakeStore()
    store.failures.append(InvalidRequest("a record that cannot be read"))
    async with elected_master(election, store) as master:
        await election.elect()
        with pytest.raises(InvalidRequest, match="cannot be read"):
            await asyncio.wait_for(master.run(asyncio.Event()), 10)


async def test_questions_under_way_are_answered_when_the_term_ends() -> None:
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
                await asyncio.wait_for(question, 5)
            with pytest.raises(StreamEnded):
                await subscribing


async def test_each_term_has_an_event_log_of_its_own(tmp_path: Path) -> None:
    election = FakeElection()
    async with elected_master(election, event_log=tmp_path / "log") as master:
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


@pytest.mark.parametrize("turns", range(8))
async def test_a_term_is_ended_though_the_master_is_told_to_stop_just_then(
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


async def test_a_master_alone_ends_when_its_store_fails(tmp_path: Path) -> None:
    config = MasterConfig(
        listen=ANY_PORT, http=ANY_PORT, store=StoreChoice(tmp_path / "no" / "such" / "place.db")
    )
    with pytest.raises(Unavailable, match="cannot open the store"):
        await asyncio.wait_for(run_master(config, asyncio.Event()), 10)


async def _list(ask: OperatorServiceStub) -> pb.ListAgentsResponse:
    return await ask.ListAgents(pb.ListAgentsRequest())
