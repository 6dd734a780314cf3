"""How the event log fares."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from croupier.master.eventlog.recorder import FileRecorder


class EventLogCollector(Collector):
    """Reads the counts at each scrape."""

    def __init__(self, recorder: FileRecorder) -> None:
        """Of this log."""
        self._recorder = recorder

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        yield CounterMetricFamily(
            "croupier_event_log_dropped",
            "Events that were not logged, since the event log was given up.",
            value=self._recorder.dropped,
        )
        yield CounterMetricFamily(
            "croupier_event_log_bytes",
            "Bytes written to the event log.",
            value=self._recorder.written,
        )
