"""Peers that connect without a first call, and too many connections."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from croupier.master.sessions import SessionLimits
from croupier.net.transport import bind, make_server
from croupier.v1 import agent_pb2, framework_pb2
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, RawFramework, StreamEnded, running_master

SOON = SessionLimits(first_call_s=0.2)


async def refusal_of(peer: RawFramework | RawAgent) -> str:
    """Return why the master ends the stream: from its last message or its status."""
    try:
        return (await peer.next("error")).error.message
    except StreamEnded as ended:
        return str(ended)


@pytest.mark.parametrize("sends_heartbeat", [False, True])
async def test_framework_without_a_first_call_is_disconnected(sends_heartbeat: bool) -> None:
    async with running_master(limits=SOON) as master, RawFramework(master.address) as framework:
        if sends_heartbeat:
            await framework.send(framework_pb2.Call(heartbeat=framework_pb2.Heartbeat()))
        error = (await framework.next("error")).error
        assert error.code == framework_pb2.ERROR_CODE_UNAVAILABLE
        assert error.message.startswith("the first call did not come within 0.2 s")
        assert (await framework.ended())[0] is grpc.StatusCode.UNAVAILABLE


async def test_sessions_that_were_not_accepted_are_counted() -> None:
    limits = SessionLimits(most=1)
    async with running_master(limits=limits) as master:
        counts = master.leadership.term().sessions.not_accepted
        async with RawFramework(master.address) as framework:
            await framework.subscribe()
            async with RawAgent(master.address) as agent:
                await refusal_of(agent)
            assert counts == {"full": 1, "refused": 0, "left": 0}
        await eventually(lambda: not master.leadership.term().sessions._sessions)
        async with RawFramework(master.address) as framework:
            await framework.send(framework_pb2.Call(seq=1, revive=framework_pb2.Revive()))
            await framework.next("error")
        await eventually(lambda: counts["refused"] == 1)
        async with RawAgent(master.address) as agent:
            await agent.send(agent_pb2.Report(heartbeat=framework_pb2.Heartbeat()))
            await eventually(lambda: master.leadership.term().sessions._sessions)
        # One that was accepted counts nowhere.
        await eventually(lambda: counts == {"full": 1, "refused": 1, "left": 1})


async def test_subscribed_and_registered_peers_may_be_silent() -> None:
    async with (
        running_master(limits=SOON) as master,
        RawFramework(master.address) as framework,
        RawAgent(master.address) as agent,
    ):
        await framework.subscribe()
        await agent.register()
        await asyncio.sleep(0.3)
        assert (await framework.call(suppress=framework_pb2.Suppress())).seq == 1


@pytest.mark.parametrize("limits", [SessionLimits(most=2), SessionLimits(most_per_host=2)])
async def test_session_above_the_limit_is_refused_until_one_ends(limits: SessionLimits) -> None:
    async with running_master(limits=limits) as master, RawFramework(master.address) as framework:
        await framework.subscribe()
        async with RawAgent(master.address) as agent:
            await agent.register()
            async with RawAgent(master.address) as third:
                assert "2 sessions are open" in await refusal_of(third)

        async def is_taken() -> bool:
            async with RawFramework(master.address) as another:
                await another.send(framework_pb2.Call(subscribe=framework_pb2.Subscribe()))
                return "sessions are open" not in await refusal_of(another)

        await eventually(is_taken, 5)


async def test_connection_above_the_limit_is_closed() -> None:
    server = make_server(most_connections=2)
    port = bind(server, ANY_PORT)
    await server.start()
    writers = []
    try:
        for taken in (True, True, False):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            async with asyncio.timeout(5):
                # The server sends SETTINGS, or closes the connection.
                assert bool(await reader.read(1)) == taken
    finally:
        for writer in writers:
            writer.close()
        await server.stop(None)
