"""A master sends traces of tasks to a collector, and runs on without one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from croupier.master.flags import TracingFlags
from croupier.model.errors import InvalidRequest
from croupier.sdk import Framework, Resources, Task, TaskStatus
from tests.harness.agents import running_agent
from tests.harness.eventually import eventually
from tests.harness.masters import running_master

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
