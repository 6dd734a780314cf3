"""Flags of a master for traces."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from urllib.parse import urlsplit

from cyclopts import Parameter

from croupier.model.errors import InvalidRequest


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TracingFlags:
    """Where a master sends traces of the lives of tasks.

    Raises:
        InvalidRequest: if a value is out of bounds.
    """

    otel_endpoint: str = ""
    """URL of an OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318, for a
    trace of each task's life. Needs the extra croupier[otel]."""

    otel_ratio: float = 1.0
    """Part of the tasks that are traced, 0 to 1. A task with a label `traceparent` belongs to that
    trace, and is traced if it is sampled."""

    def __post_init__(self) -> None:
        if not 0 <= self.otel_ratio <= 1:
            raise InvalidRequest("--otel-ratio must be between 0 and 1")
        if not self.otel_endpoint:
            return
        if find_spec("opentelemetry") is None:
            raise InvalidRequest(
                "--otel-endpoint needs OpenTelemetry: pip install 'croupier[otel]'"
            )
        url = urlsplit(self.otel_endpoint)
        if url.scheme not in ("http", "https") or not url.hostname or url.username or url.query:
            raise InvalidRequest(
                "--otel-endpoint must be a URL such as http://127.0.0.1:4318, without credentials;"
                " OTEL_EXPORTER_OTLP_HEADERS may hold headers"
            )
