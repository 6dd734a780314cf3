"""Sends spans to a collector by OTLP over HTTP. Only this module imports OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from logging import CRITICAL, getLogger

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from croupier.master.tracing.tracing import Span

EXPORT_S = 5.0
# Its warnings have no place in our log; the queue logs failures.
getLogger("opentelemetry").setLevel(CRITICAL + 1)
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def otlp_export(endpoint: str, version: str, instance: str) -> Callable[[Sequence[Span]], bool]:
    """Return a function that sends a batch of spans, and returns whether it was accepted.

    `endpoint` is the URL of the collector, without `/v1/traces`; `instance` a name of this master.
    """
    exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=EXPORT_S)
    names = {
        "service.name": "croupier-master",
        "service.version": version,
        "service.instance.id": instance,
    }
    resource = Resource(names)
    scope = InstrumentationScope("croupier", version)

    def export(spans: Sequence[Span]) -> bool:
        readable = [_readable(span, resource, scope) for span in spans]
        return exporter.export(readable) is SpanExportResult.SUCCESS

    return export


def _readable(span: Span, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    parent = None
    if span.parent_id:
        parent = SpanContext(span.trace_id, span.parent_id, span.is_remote, _SAMPLED)
    return ReadableSpan(
        name=span.name,
        context=SpanContext(span.trace_id, span.span_id, False, _SAMPLED),
        parent=parent,
        resource=resource,
        attributes=span.attributes,
        status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=scope,
    )
