"""Metrics of the event log."""

from __future__ import annotations

from typing import Final

from croupier.master.eventlog.recorder import FileRecorder
from croupier.process.metric_families import Family

EVENT_LOG: Final[tuple[Family[FileRecorder], ...]] = (
    Family(
        "event_log_dropped",
        "Events missing from the event log because writing it failed.",
        lambda recorder: recorder.dropped,
        is_counter=True,
    ),
    Family(
        "event_log_bytes",
        "Bytes written to the event log.",
        lambda recorder: recorder.written,
        is_counter=True,
    ),
)
