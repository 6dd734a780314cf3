"""How the event log fares."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from croupier.master.eventlog.recorder import FileRecorder


class EventLogCollector(Collector):
    """Reads the counts at each scrape."""

    def __init__(self, recorder: Callable[[], FileRecorder | None]) -> None:
        """Of the log that is kept now, if there is one."""
        self._recorder = recorder

    def collect(self) -> Iterable[Metric]:
        """All of them."""
        recorder = self._recorder()
        if recorder is None:
            return
        yield CounterMetricFamily(
            "croupier_event_log_dropped",
            "Events that were not logged, since the event log was given up.",
            value=recorder.dropped,
        )
        yield CounterMetricFamily(
            "croupier_event_log_bytes",
            "Bytes written to the event log.",
            value=recorder.written,
        )
