"""The events of a master as a stream, and the lives of tasks as traces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import grpc
import grpc.aio
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from croupier.master.app import MasterDaemon
from croupier.master.core.access_records import TokenId
from croupier.master.flags import TracingFlags
from croupier.master.journal import watch
from croupier.master.services import gate
from croupier.model.access import Action
from croupier.model.errors import InvalidRequest
from croupier.net.credentials import ClientSecurity
from croupier.net.transport import make_channel
from croupier.sdk import Framework, Resources, Task, TaskStatus
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.access_pb2_grpc import AccessServiceStub
from croupier.v1.operator_pb2_grpc import OperatorServiceStub
from tests.harness.agents import running_agent
from tests.harness.elections import FakeElection, elected_master, leads
from tests.harness.eventually import eventually
from tests.harness.masters import RawAgent, RawFramework, running_master
from tests.harness.secured import SecuredMaster, bearing

_STATUS = grpc.StatusCode


@asynccontextmanager
async def watching(
    master: MasterDaemon, security: ClientSecurity | None = None, **request: Any
) -> AsyncIterator[Any]:
    async with make_channel(master.address, security) as channel:
        stream = OperatorServiceStub(channel).WatchEvents(pb.WatchEventsRequest(**request))
        yield stream
        stream.cancel()


async def kinds_of(stream: Any) -> list[str]:
    async with asyncio.timeout(30):
        return [event.kind async for answer in stream for event in answer.events]


async def read_kind(stream: Any, kind: str) -> Any:
    """Return the next event of this kind, and the answer that holds it."""
    async with asyncio.timeout(30):
        async for answer in stream:
            for event in answer.events:
                if event.kind == kind:
                    return event, answer
    raise AssertionError(f"the stream ended before {kind}")


async def ended(stream: Any) -> tuple[Any, str]:
    async with asyncio.timeout(30):
        try:
            async for _ in stream:
                pass
        except grpc.aio.AioRpcError:
            pass
        return await stream.code(), await stream.details()


async def test_events_of_the_past_and_as_they_happen(
    master: MasterDaemon, channel: grpc.aio.Channel, agent: RawAgent, framework: RawFramework
) -> None:
    agent_id = await agent.register(agent_id="a1")
    await framework.subscribe()
    async with watching(master) as stream:
        past = await kinds_of(stream)
    assert past[:2] == ["term-began", "agent-registered"]
    assert "framework-subscribed" in past
    async with watching(master, follow=True, kinds=["agent"], limit=1) as stream:
        event, answer = await read_kind(stream, "agent-registered")
        assert (event.agent_id, event.id[:2], answer.reset) == (agent_id, "1-", "")
        await OperatorServiceStub(channel).DrainAgent(pb.DrainAgentRequest(agent="a1"))
        event, answer = await read_kind(stream, "agent-drained")
        assert "is drained" in event.text
    async with watching(master, since=answer.last_id) as stream:
        later = await kinds_of(stream)
    assert "agent-drained" not in later


@pytest.mark.parametrize("request_", [{"since": "x"}, {"kinds": ["nothing"]}])
async def test_a_wrong_request_is_refused(request_: dict[str, Any], master: MasterDaemon) -> None:
    async with watching(master, **request_) as stream:
        assert (await ended(stream))[0] is _STATUS.INVALID_ARGUMENT


async def test_a_stream_ends_with_the_term() -> None:
    election = FakeElection()
    async with elected_master(election) as master:
        async with watching(master, follow=True) as stream:
            assert (await ended(stream))[0] is _STATUS.UNAVAILABLE
        await election.elect()
        await leads(master, 1)
        async with watching(master, follow=True) as stream:
            event, _ = await read_kind(stream, "term-began")
            await election.elect_other("10.0.0.9:5050")
            status, text = await ended(stream)
            assert (status, "10.0.0.9:5050" in text) == (_STATUS.UNAVAILABLE, True)
        await election.elect()
        await leads(master, 2)
        async with watching(master, since=event.id) as stream:
            async with asyncio.timeout(30):
                answer = await anext(aiter(stream))
            assert "another term" in answer.reset
            assert [each.id for each in answer.events] == ["2-1"]


async def test_a_caller_gets_what_it_may_view_until_its_token_is_revoked(
    secured: SecuredMaster,
) -> None:
    master = secured.master
    async with watching(master) as stream:
        assert (await ended(stream))[0] is _STATUS.UNAUTHENTICATED
    secured.allow("client/f", [Action.REGISTER], "role:**")
    own, other = secured.token_for("client/f"), secured.token_for("client/eve")
    async with (
        RawFramework(master.address, bearing(own)) as framework,
        watching(master, bearing(other), follow=True) as foreign,
        watching(master, bearing(own), follow=True) as stream,
        make_channel(master.address, bearing(secured.admin)) as channel,
    ):
        await framework.subscribe()
        event, _ = await read_kind(stream, "framework-subscribed")
        assert event.framework_id == framework.framework_id
        for token in (own, other):
            request = access_pb2.RevokeTokenRequest(token_id=token.token_id)
            await AccessServiceStub(channel).RevokeToken(request)
        assert (await ended(stream))[0] is _STATUS.UNAUTHENTICATED
        await eventually(lambda: not len(master.leadership.term().readers))
        answer = await anext(aiter(foreign))
        assert [each.kind for each in answer.events] == ["term-began"]
        assert (await ended(foreign))[0] is _STATUS.UNAUTHENTICATED
    assert secured.state.tokens.get(TokenId(own.token_id)) is None


async def test_readers_are_bounded_and_one_that_does_not_read_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watch, "MOST_READERS", 2)
    monkeypatch.setattr(watch, "HEARTBEAT_S", 0.0)
    monkeypatch.setattr(watch, "CHECK_S", 0.0)
    async with running_master() as master:
        term = master.leadership.term()
        async with watching(master, follow=True) as first, watching(master, follow=True) as second:
            await read_kind(first, "term-began")
            await read_kind(second, "term-began")
            await eventually(lambda: len(term.readers) == 2)
            async with watching(master) as third:
                status, text = await ended(third)
                assert (status, "no more" in text) == (_STATUS.UNAVAILABLE, True)
            # Neither reads further; each has a window of some 64 KiB.
            monkeypatch.setattr(gate, "WRITE_TIMEOUT_S", 0.2)
            for _ in range(9_000):
                term.journal._add(term.journal.entry(1).what, (), "")
            await eventually(lambda: len(term.readers) == 0)


PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Collector(BaseHTTPRequestHandler):
    """Takes OTLP requests, as a collector does."""

    spans: ClassVar[list[Span]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        request = ExportTraceServiceRequest.FromString(body)
        assert self.path == "/v1/traces"
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None: ...


@contextmanager
def running_collector() -> Iterator[str]:
    Collector.spans.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class One(Framework):
    """Runs one task with a trace context."""

    async def on_subscribed(self, framework_id: str) -> None:
        unit = Resources.parse("cpus:1;mem:16MB")
        labels = {"traceparent": PARENT}
        await self.submit([Task(["true"], resources=unit, task_id="t1", labels=labels)])

    async def on_update(self, status: TaskStatus) -> None:
        if status.state.is_terminal:
            await self.stop()


async def test_the_life_of_a_task_arrives_at_a_collector(tmp_path: Path) -> None:
    with running_collector() as url:
        flags = TracingFlags(otel_endpoint=url)
        async with (
            running_master(tracing=flags) as master,
            running_agent(tmp_path / "work", master.address),
        ):
            await asyncio.wait_for(One(master=str(master.address)).run(), 20)

            def has_root() -> bool:
                return any(span.name == "task" for span in Collector.spans)

            await eventually(has_root)
    spans = {span.name: span for span in Collector.spans}
    assert set(spans) == {"queued", "placed", "launched", "running", "ended", "task"}
    root = spans.pop("task")
    assert root.trace_id.hex() == PARENT.split("-")[1]
    assert root.parent_span_id.hex() == PARENT.split("-")[2]
    assert {span.parent_span_id for span in spans.values()} == {root.span_id}
    assert {span.trace_id for span in spans.values()} == {root.trace_id}
    attributes = {each.key: each.value.string_value for each in root.attributes}
    assert attributes["croupier.task_id"] == "t1"
    assert attributes["croupier.state"] == "FINISHED"
    assert root.start_time_unix_nano <= min(span.start_time_unix_nano for span in spans.values())


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "ftp://h", "http://a:b@h", "http://h?x=1"])
def test_endpoints_that_are_none(url: str) -> None:
    with pytest.raises(InvalidRequest, match="--otel-endpoint"):
        TracingFlags(otel_endpoint=url)


def test_without_an_endpoint_nothing_is_needed() -> None:
    assert TracingFlags(otel_ratio=0.5).otel_endpoint == ""
    with pytest.raises(InvalidRequest, match="--otel-ratio"):
        TracingFlags(otel_ratio=2)
