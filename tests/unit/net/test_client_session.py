"""A client session against a scripted server."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import grpc.aio
import pytest

from croupier.model.errors import (
    CroupierError,
    FailedOver,
    InvalidRequest,
    NotLeader,
    PermissionDenied,
    TooSlow,
    Unauthenticated,
    Unavailable,
)
from croupier.net import client_session
from croupier.net.address import Address
from croupier.net.client_session import ClientSession, Disconnection, SessionTimes
from croupier.net.credentials import ClientSecurity
from croupier.net.errors import error_from_wire, error_to_wire
from croupier.net.leader_search import Masters
from croupier.net.transport import bind, free_addresses, make_server
from croupier.v1 import framework_pb2 as pb
from croupier.v1 import framework_pb2_grpc as rpc
from tests.harness.eventually import eventually

Response = pb.FrameworkServiceConnectResponse
TIMES = SessionTimes(
    backoff_first_s=0.02, backoff_cap_s=0.05, election_first_s=0.02, least_silence_s=0.2
)


@pytest.fixture(autouse=True)
def stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell a loop that had to wait for a processor from a master that is silent for 0.2 s."""
    monkeypatch.setattr(client_session, "_STALL_S", 0.1)


def error_message(error: CroupierError) -> pb.FrameworkServiceConnectResponse:
    return Response(events=[pb.Event(error=error_to_wire(error))])


SERVICE = pb.DESCRIPTOR.services_by_name["FrameworkService"].full_name
SUBSCRIBED = Response(events=[pb.Event(subscribed=pb.Subscribed(heartbeat_ms=20))])
BEAT = Response(events=[pb.Event(heartbeat=pb.Heartbeat())])


class Owner:
    """Joins on SUBSCRIBED; an ERROR ends its stream."""

    def __init__(self, addresses: list[Address], times: SessionTimes = TIMES, **more: Any) -> None:
        self.trace: list[str] = []
        self.disconnections: list[Disconnection] = []
        self.joins = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.session: ClientSession[
            pb.Call, pb.FrameworkServiceConnectRequest, pb.FrameworkServiceConnectResponse
        ] = ClientSession(
            self,
            Masters(addresses),
            times,
            random.Random(1),
            is_fatal=lambda error: not isinstance(error, Unavailable | TooSlow),
            outbox_messages=10,
            outbox_bytes=1000,
            **more,
        )

    def connect(self, channel: grpc.aio.Channel) -> Any:
        return rpc.FrameworkServiceStub(channel).Connect

    def request_of(self, batch: list[pb.Call]) -> pb.FrameworkServiceConnectRequest:
        return pb.FrameworkServiceConnectRequest(calls=batch)

    def on_open(self) -> None:
        self.trace.append("open")
        assert self.session.send(pb.Call(subscribe=pb.Subscribe()))

    async def on_message(self, message: pb.FrameworkServiceConnectResponse) -> None:
        for event in message.events:
            if event.HasField("subscribed"):
                self.session.join(event.subscribed.heartbeat_ms / 1000)
                self.joins += 1
            if event.HasField("error"):
                raise error_from_wire(event.error)
        await self.gate.wait()

    def beat(self) -> None:
        self.trace.append("beat")
        self.session.send(pb.Call(heartbeat=pb.Heartbeat()))

    def on_closed(self) -> None:
        self.trace.append("closed")
        assert not self.session.is_open
        assert not self.session.is_joined
        assert not self.session.send(pb.Call(heartbeat=pb.Heartbeat()))

    def on_disconnected(self, disconnection: Disconnection) -> None:
        self.disconnections.append(disconnection)


Script = Callable[[Any, Any], Awaitable[None]]


class Service(rpc.FrameworkServiceServicer):
    """Runs the script for each stream."""

    def __init__(self, script: Script) -> None:
        self.script, self.streams = script, 0

    async def Connect(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]  # noqa: N802
        self.streams += 1
        await self.script(request_iterator, context)


@asynccontextmanager
async def master(script: Script) -> AsyncIterator[tuple[Address, Service]]:
    service, server = Service(script), make_server()
    rpc.add_FrameworkServiceServicer_to_server(service, server)
    address = Address("127.0.0.1", bind(server, Address("127.0.0.1", 0)))
    await server.start()
    try:
        yield address, service
    finally:
        await server.stop(None)


@asynccontextmanager
async def running(owner: Owner) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(owner.session.run())
    try:
        async with asyncio.timeout(30):
            yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def serve(calls: Any, context: Any) -> None:
    """Subscribe the client and send heartbeats."""
    await context.write(SUBSCRIBED)
    while True:
        await asyncio.sleep(0.02)
        await context.write(BEAT)


async def test_heartbeats_have_the_interval_that_the_master_names() -> None:
    async with master(serve) as (address, _):
        owner = Owner([address])
        async with running(owner):
            await eventually(lambda: owner.trace.count("beat") >= 3)
        assert owner.trace[:2] == ["open", "beat"]
        assert owner.trace.count("open") == 1


async def test_a_silent_master_is_left_and_nothing_is_sent_after_the_end() -> None:
    async def script(calls: Any, context: Any) -> None:
        await context.write(SUBSCRIBED)
        await asyncio.sleep(60)

    async with master(script) as (address, service):
        owner = Owner([address])
        async with running(owner):
            await eventually(lambda: service.streams == 2)
        [end, *_] = owner.disconnections
        assert end.event == "master_lost"
        assert "was silent for 0.2 s" in str(end.error)


async def test_a_pause_of_the_reader_does_not_count_as_silence_of_the_master() -> None:
    async with master(serve) as (address, service):
        owner = Owner([address])
        async with running(owner):
            await eventually(lambda: owner.joins == 1)
            owner.gate.clear()
            await asyncio.sleep(0.5)
            owner.gate.set()
            await asyncio.sleep(0.05)
        assert service.streams == 1
        assert owner.disconnections == []


@pytest.mark.parametrize("error", [FailedOver("another took over"), TooSlow("read faster")])
async def test_the_last_error_of_the_master_wins_over_the_broken_stream(
    error: CroupierError,
) -> None:
    async def script(calls: Any, context: Any) -> None:
        await context.write(SUBSCRIBED)
        await context.write(error_message(error))
        await context.abort(grpc.StatusCode.UNAVAILABLE, "going away")

    async with master(script) as (address, _):
        owner = Owner([address])
        async with running(owner) as task:
            await eventually(lambda: task.done() or bool(owner.disconnections))
            if isinstance(error, FailedOver):
                with pytest.raises(FailedOver, match="another took over"):
                    await task
            else:
                assert str(owner.disconnections[0].error) == "read faster"


async def test_a_malformed_message_ends_the_stream_and_not_the_client(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def script(calls: Any, context: Any) -> None:
        await context.write(SUBSCRIBED.SerializeToString())
        await context.write(b"\xff\xff")
        await asyncio.sleep(30)

    server = make_server()
    method: Any = grpc.stream_stream_rpc_method_handler(script)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(SERVICE, {"Connect": method})]
    )
    address = Address("127.0.0.1", bind(server, Address("127.0.0.1", 0)))
    await server.start()
    owner = Owner([address])
    async with running(owner) as task:
        await eventually(lambda: task.done() or len(owner.disconnections) > 1)
        assert not task.done()
    await server.stop(None)
    assert {str(each.error) for each in owner.disconnections} == {
        "the master has sent a message that cannot be parsed"
    }
    # gRPC logs the error; daemons print it as one line.
    caplog.clear()


async def test_credentials_are_looked_up_for_each_stream() -> None:
    found = [InvalidRequest("half written")]

    def find() -> ClientSecurity:
        if found:
            raise found.pop()
        return ClientSecurity(token="new")

    async with master(serve) as (address, _):
        owner = Owner([address], find_security=find)
        async with running(owner):
            await eventually(lambda: owner.joins == 1)
    assert [str(each.error) for each in owner.disconnections] == ["half written"]


async def test_a_named_leader_is_tried_next_at_once() -> None:
    slow = replace(TIMES, backoff_first_s=60.0, backoff_cap_s=60.0, election_cap_s=60.0)
    async with master(serve) as (leader, _):

        async def script(calls: Any, context: Any) -> None:
            await context.write(error_message(NotLeader("ask the other", str(leader))))

        async with master(script) as (follower, _):
            owner = Owner([follower], slow)
            async with running(owner):
                await eventually(lambda: owner.joins == 1)
            [end] = owner.disconnections
            assert (end.event, end.address, end.retry_in_s) == ("master_follows", follower, 0.0)
            assert owner.session.address == leader


async def test_a_master_that_never_accepts_the_client_is_left() -> None:
    async def script(calls: Any, context: Any) -> None:
        await asyncio.sleep(60)

    async with master(script) as (address, service):
        owner = Owner([address], replace(TIMES, join_s=0.1))
        async with running(owner):
            await eventually(lambda: service.streams == 3)
        [end] = owner.disconnections
        assert end.event == "master_unreachable", "and it is reported once"
        assert "did not accept the session in time" in str(end.error)


async def test_waits_are_short_again_after_a_settled_stream() -> None:
    async def script(calls: Any, context: Any) -> None:
        await context.write(SUBSCRIBED)
        await asyncio.sleep(0.05)

    for settled_s, is_reset in ((0.0, True), (60.0, False)):
        times = replace(TIMES, backoff_first_s=0.001, backoff_cap_s=10.0, settled_s=settled_s)
        async with master(script) as (address, _):
            owner = Owner([address], times)
            async with running(owner):
                await eventually(lambda owner=owner: len(owner.disconnections) >= 7)  # type: ignore[misc]
            longest = max(end.retry_in_s for end in owner.disconnections)
            assert (longest <= 0.001) is is_reset


@pytest.mark.parametrize(
    ("error", "is_slow"),
    [(Unauthenticated("revoked"), True), (PermissionDenied("no"), True), (Unavailable("x"), False)],
)
async def test_a_rejected_client_tries_again_slowly(error: CroupierError, is_slow: bool) -> None:
    owner = Owner([Address("127.0.0.1", 9)], SessionTimes(backoff_cap_s=0.2))
    owner.session._masters.next()
    waits = [owner.session._wait_s(error) for _ in range(50)]
    assert (min(waits) >= 0.5) == is_slow
    assert (10 < max(waits) <= 60) == is_slow


async def test_what_precedes_a_stream_fails_like_the_stream() -> None:
    owner = Owner([Address("127.0.0.1", 9)])
    prepared: list[Address] = []

    async def prepare(address: Address) -> None:
        prepared.append(address)
        raise (Unavailable if len(prepared) == 1 else InvalidRequest)("not now")

    owner.session._prepare = prepare
    with pytest.raises(InvalidRequest):
        await owner.session.run()
    assert len(prepared) == 2
    assert [each.event for each in owner.disconnections] == ["master_unreachable"]
    assert owner.trace == []


async def test_leaving_sends_the_last_message_and_ends_with_the_stream() -> None:
    seen: list[str] = []

    async def script(calls: Any, context: Any) -> None:
        await context.write(SUBSCRIBED)
        async for request in calls:
            seen.extend(str(call.WhichOneof("call")) for call in request.calls)

    async with master(script) as (address, _):
        owner = Owner([address])
        async with running(owner) as task:
            await eventually(lambda: owner.joins == 1)
            assert owner.session.send(pb.Call(revive=pb.Revive()))
            owner.session.leave(pb.Call(teardown=pb.Teardown()))
            assert not owner.session.send(pb.Call(revive=pb.Revive()))
            await task
    assert [call for call in seen if call != "heartbeat"] == ["subscribe", "revive", "teardown"]


async def test_leaving_without_a_reachable_master_ends_the_session() -> None:
    [unused] = free_addresses(1)
    owner = Owner([unused])
    async with running(owner) as task:
        await eventually(lambda: bool(owner.disconnections))
        owner.session.leave(pb.Call(teardown=pb.Teardown()))
        await task


async def test_send_fails_when_the_outbox_is_full_or_no_stream_is_open() -> None:
    owner = Owner([Address("127.0.0.1", 1)])
    assert not owner.session.send(pb.Call(revive=pb.Revive()))
    assert owner.session.queued == 0

    async def script(calls: Any, context: Any) -> None:
        await asyncio.sleep(60)

    async with master(script) as (address, _):
        owner = Owner([address])
        async with running(owner):
            await eventually(lambda: owner.session.is_open)
            large = pb.Call(accept=pb.Accept(offer_ids=["o" * 600]))
            assert [owner.session.send(large) for _ in range(3)][-1] is False
            assert owner.session.is_open
