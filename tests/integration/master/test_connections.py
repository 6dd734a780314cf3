"""Bounds on connections and sessions, and floods of messages."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from croupier.master.access.rate_limits import HELD_BYTES, OVERHEAD, RateLimiter, Usage
from croupier.master.sessions import SessionLimits
from croupier.model.access import Action
from croupier.model.token_bucket import Bucket
from croupier.net.transport import bind, make_channel, make_server
from croupier.v1 import agent_pb2, framework_pb2
from tests.fuzz.contract import all_methods
from tests.fuzz.floods import heartbeats, list_floods
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT, RawAgent, RawFramework, StreamEnded, running_master
from tests.harness.secured import SecuredMaster, bearing, secured_master

SOON = SessionLimits(first_call_s=1.0)


async def refusal_of(peer: RawFramework | RawAgent) -> str:
    """Return why the master ends the stream: from its last message or its status."""
    try:
        return (await peer.next("error")).error.message
    except StreamEnded as ended:
        return str(ended)


async def test_framework_without_a_first_call_is_disconnected() -> None:
    """Others that have subscribed or registered may be silent for longer."""
    async with running_master(limits=SOON) as master, RawFramework(master.address) as framework:
        await framework.subscribe()
        async with (
            RawAgent(master.address) as agent,
            RawFramework(master.address) as silent,
            RawFramework(master.address) as beating,
        ):
            await agent.register()
            with suppress(StreamEnded):
                await beating.send(framework_pb2.Call(heartbeat=framework_pb2.Heartbeat()))
            for each in (silent, beating):
                error = (await each.next("error")).error
                assert error.code == framework_pb2.ERROR_CODE_UNAVAILABLE
                assert error.message.startswith("the first call did not come within 1 s")
                assert (await each.ended())[0] is grpc.StatusCode.UNAVAILABLE
            await agent.send(agent_pb2.Report(heartbeat=framework_pb2.Heartbeat()))
            assert (await framework.call(suppress=framework_pb2.Suppress())).seq == 1
            assert await master.driver.read(lambda state: len(state.peers)) == 2


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
                try:
                    await another.send(framework_pb2.Call(subscribe=framework_pb2.Subscribe()))
                except StreamEnded:  # The refusal came before the call was written.
                    return False
                return "sessions are open" not in await refusal_of(another)

        await eventually(is_taken)


async def test_connection_above_the_limit_is_closed() -> None:
    server = make_server(most_connections=2)
    port = bind(server, ANY_PORT)
    await server.start()
    writers = []
    try:
        for taken in (True, True, False):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            async with asyncio.timeout(30):
                # The server sends SETTINGS, or closes the connection.
                assert bool(await reader.read(1)) == taken
    finally:
        for writer in writers:
            writer.close()
        await server.stop(None)


CONNECT = next(each for each in all_methods() if each.path.endswith("FrameworkService/Connect"))
FLOOD = next(heartbeats(CONNECT)).data


SUBSCRIBE = framework_pb2.FrameworkServiceConnectRequest(
    calls=[
        framework_pb2.Call(
            subscribe=framework_pb2.Subscribe(
                framework=framework_pb2.FrameworkInfo(name="flood", roles=["mallory"]),
                client_id="flood",
            )
        )
    ]
).SerializeToString()


async def _send(stream: Any, *messages: bytes) -> None:
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        for data in messages:
            await stream.write(data)


def party(secured: SecuredMaster, name: str) -> Any:
    """Return the credentials of a principal that may register frameworks in its own role."""
    secured.allow(f"client/{name}", [Action.REGISTER], f"role:{name}")
    return bearing(secured.token_for(f"client/{name}"))


def usage_of(secured: SecuredMaster, name: str) -> Usage:
    assert secured.master._security is not None
    return secured.master._security.limiter.usage(f"client/{name}")


async def test_floods_are_refused_and_leave_nothing_held(secured: SecuredMaster) -> None:
    mallory, alice = party(secured, "mallory"), party(secured, "alice")
    statuses = []

    async def flood(channel: grpc.aio.Channel) -> None:
        stream: Any = channel.stream_stream(CONNECT.path)()
        sending = asyncio.create_task(_send(stream, SUBSCRIBE, FLOOD, FLOOD))
        with suppress(grpc.aio.AioRpcError):
            while await stream.read() is not grpc.aio.EOF:
                pass
        await sending
        statuses.append((await stream.code(), await stream.details()))

    async with (
        RawFramework(secured.master.address, alice) as honest,
        make_channel(secured.master.address, mallory) as channel,
    ):
        await honest.subscribe(roles=["alice"])
        async with asyncio.TaskGroup() as group:
            for _ in range(6):
                group.create_task(flood(channel))
                assert not (await honest.call(revive=framework_pb2.Revive())).HasField("error")
    assert len(statuses) == 6
    # gRPC's client reports INTERNAL if it was still writing as the master ended the stream.
    assert {code for code, _ in statuses} <= {
        grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL,
    }  # fmt: skip
    await eventually(lambda: usage_of(secured, "mallory").held == 0)


@pytest.mark.parametrize("kind", ["heartbeat", "unknown", "unset"])
async def test_every_call_is_charged_before_it_is_parsed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mutant "heartbeats are free" fails here."""
    entry = {
        "heartbeat": b"\x0a\x02\x62\x00",
        "unknown": b"\x0a\x04\xfa\x3f\x01x",
        "unset": b"\x0a\x00",
    }
    taken = 0.0
    take = Bucket.take

    def counted(bucket: Bucket, amount: float, now: float) -> None:
        nonlocal taken
        if bucket is usage.units:
            taken += amount
        take(bucket, amount, now)

    async with secured_master(tmp_path) as secured:
        mallory, usage = party(secured, "mallory"), usage_of(secured, "mallory")
        monkeypatch.setattr(Bucket, "take", counted)
        async with make_channel(secured.master.address, mallory) as channel:
            stream: Any = channel.stream_stream(CONNECT.path)()
            await stream.write(entry[kind] * 50)
            await eventually(lambda: taken >= 50 * OVERHEAD)
            stream.cancel()


async def test_a_principal_holds_a_bounded_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that wait for their turn count over all streams, and more are refused."""
    is_stopped, counted = asyncio.Event(), RateLimiter.counted

    async def stopped(limiter: RateLimiter, usage: Usage | None, calls: int) -> None:
        await is_stopped.wait()
        await counted(limiter, usage, calls)

    monkeypatch.setattr(RateLimiter, "counted", stopped)
    reason = framework_pb2.Decline(reason="x" * 2_000_000)
    large = framework_pb2.FrameworkServiceConnectRequest(
        calls=[framework_pb2.Call(seq=1, decline=reason)]
    ).SerializeToString()
    streams = HELD_BYTES // len(large) + 3
    async with secured_master(tmp_path) as secured:
        mallory, usage = party(secured, "mallory"), usage_of(secured, "mallory")
        async with make_channel(secured.master.address, mallory) as channel:
            calls: list[Any] = [channel.stream_stream(CONNECT.path)() for _ in range(streams)]
            for call in calls:
                await call.write(large)
            limiter = secured.master._security.limiter  # type: ignore[union-attr]
            await eventually(lambda: limiter.refused == 3)
            assert usage.held == len(large) * (streams - 3) <= HELD_BYTES
            is_stopped.set()
            for call in calls:
                call.cancel()
        await eventually(lambda: usage.held == 0)


async def test_requests_of_operators_are_bounded_too(tmp_path: Path) -> None:
    unary = [each for each in all_methods() if not each.is_stream]
    floods = [next(list_floods(method, 1024 * 1024), None) for method in unary]
    async with (
        secured_master(tmp_path) as secured,
        make_channel(secured.master.address, bearing(secured.admin)) as channel,
    ):
        for flood in filter(None, floods):
            if flood.method.path.endswith("/Join"):
                continue
            ask: Any = channel.unary_unary(flood.method.path)
            with pytest.raises(grpc.aio.AioRpcError, match=r"more than \d+ "):
                await ask(flood.data, timeout=10)
