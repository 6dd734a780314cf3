"""Elections in etcd: one master leads, and the others know its address."""

from __future__ import annotations

import asyncio
import time

import pytest

from croupier.etcd.v3 import etcd_pb2 as pb
from croupier.master.etcd.methods import TXN
from croupier.model.errors import Unavailable
from tests.harness.eventually import eventually
from tests.integration.etcd.conftest import Masters


async def forever(_: object) -> str:
    await asyncio.Event().wait()
    return ""


async def cancel(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_one_of_three_candidates_leads_and_the_others_follow(masters: Masters) -> None:
    elections = [masters.election(f"{name}:1", lease_s=60) for name in "abc"]
    tasks = [asyncio.create_task(election.win()) for election in elections]
    await eventually(lambda: any(task.done() for task in tasks))
    (first,) = (election for election in elections if election.is_won)
    others = [election for election in elections if election is not first]
    await eventually(lambda: all(each.leader == first.leader for each in others))
    assert not any(each.is_won for each in others)

    await first.resign()
    assert not first.is_won
    # In less than the lease: the others do not wait for a leader that resigned.
    await eventually(lambda: any(each.is_won for each in others))
    (second,) = (each for each in others if each.is_won)
    assert second.token > 0
    await cancel(*tasks)


async def test_a_leader_that_stops_renewing_is_followed_by_another(
    masters: Masters, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = masters.election("a:1")
    monkeypatch.setattr(first, "_renewed", forever)
    await first.win()
    began = time.monotonic()
    second = masters.election("b:1")
    waiting = asyncio.create_task(second.win())
    await eventually(lambda: second.leader == "a:1")

    await asyncio.wait_for(first.lost(), 5)
    stepped_down = time.monotonic() - began
    assert not first.is_won
    assert not waiting.done(), "the old leader stops before a new one begins"
    await asyncio.wait_for(waiting, 5)
    assert 1.0 < stepped_down < 2.0
    assert time.monotonic() - began < 2 + 1.5
    assert second.token > first.token
    assert second.leader == "b:1"


async def test_leadership_lasts_while_it_is_renewed(masters: Masters) -> None:
    election = masters.election()
    await election.win()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(election.lost(), 3.0)
    assert election.is_won
    await election.win()  # changes nothing


async def test_a_deposed_leader_becomes_a_candidate_again_at_once(masters: Masters) -> None:
    """Its earlier key, which etcd would keep for the rest of the lease, is deleted."""
    election = masters.election(lease_s=30)
    await election.win()
    token = election.token
    election.fenced()
    await asyncio.wait_for(election.lost(), 10)
    assert election.leader is None
    await asyncio.wait_for(election.win(), 10)
    assert election.token > token


async def test_a_deleted_key_ends_the_leadership(masters: Masters) -> None:
    election = masters.election(lease_s=30)
    await election.win()
    key = f"/{masters.prefix}/leader".encode()
    delete = pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=key))
    await masters.client().call(TXN, pb.TxnRequest(success=[delete]))
    await asyncio.wait_for(election.lost(), 10)
    assert not election.is_won


async def test_a_revoked_lease_ends_the_leadership(masters: Masters) -> None:
    election = masters.election(lease_s=30)
    await election.win()
    assert election._term is not None
    await election._revoke(election._term.lease)
    await asyncio.wait_for(election.lost(), 10)


async def test_two_prefixes_elect_two_leaders(masters: Masters) -> None:
    first, second = masters.election("a:1"), masters.election("b:1")
    second._keys = type(second._keys)(masters.prefix + "b")
    await first.win()
    await asyncio.wait_for(second.win(), 10)
    assert first.is_won
    assert second.is_won


async def test_waiting_survives_a_compaction(masters: Masters) -> None:
    first, second = masters.election("a:1", 30), masters.election("b:1", 30)
    await first.win()
    waiting = asyncio.create_task(second.win())
    await eventually(lambda: second.leader == "a:1")
    await asyncio.to_thread(masters.etcd.compact)
    client = masters.client()
    # Revision 1 was compacted long ago.
    await asyncio.wait_for(client.change_of(f"/{masters.prefix}/leader".encode(), 1, 20), 10)
    await first.resign()
    await asyncio.wait_for(waiting, 10)


async def test_a_candidate_waits_for_etcd_and_then_leads(three: Masters) -> None:
    three.etcd.kill(0, 1, 2)
    election = three.election()
    waiting = asyncio.create_task(election.win())
    with pytest.raises(Unavailable):
        await three.client().check()
    assert not waiting.done()
    for number in range(3):
        three.etcd.launch(number)
    await asyncio.wait_for(waiting, 20)
    assert election.is_won
