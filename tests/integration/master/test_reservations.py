"""Reservations of agents, by the calls of operators and the HTTP API."""

from __future__ import annotations

import time

import aiohttp
import grpc.aio

from croupier.master.app import MasterDaemon
from croupier.v1 import framework_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.masters import RawAgent, RawFramework
from tests.integration.master.test_frameworks import make_task

HOUR_MS = 3_600_000


async def test_an_agent_is_for_one_role_alone(
    master: MasterDaemon, channel: grpc.aio.Channel, agent: RawAgent
) -> None:
    operator = OperatorServiceStub(channel)
    agent_id = await agent.register()
    now_ms = time.time_ns() // 10**6
    request = pb.CreateReservationRequest(
        role="mine", agents=1, begin_time_ms=now_ms, end_time_ms=now_ms + HOUR_MS
    )
    made = (await operator.CreateReservation(request)).reservation
    assert made.state == "active"
    assert [each.agent_id for each in made.agents] == [agent_id]
    listed = (await operator.ListReservations(pb.ListReservationsRequest(text="MINE"))).reservations
    assert list(listed) == [made]
    demands = [framework_pb2.Demand(unit=make_task("x").resources)]
    async with RawFramework(master.address) as other, RawFramework(master.address) as mine:
        other_id = (await other.subscribe(demands=demands)).framework_id
        await mine.subscribe(demands=demands, roles=["mine"])
        offer = await mine.offer()
        await mine.call(decline=framework_pb2.Decline(offer_ids=[offer.offer_id]))
        why = await operator.Explain(pb.ExplainRequest(framework_id=other_id))
        assert [(each.cause, each.about_role) for each in why.reasons] == [("reserved", "mine")]
        # The other one is offered the agent as soon as the reservation is deleted.
        url = f"http://{master.http_address}/api/v1/reservations/{made.reservation_id}/delete"
        async with aiohttp.ClientSession(headers={"X-Croupier": "1"}) as http:
            answer = await http.post(url, json={})
            assert answer.status == 200
        assert (await other.offer()).agent_id == agent_id
    assert not (await operator.ListReservations(pb.ListReservationsRequest())).reservations
