"""Recorder of the event log while the master runs.

Rule: `decided` only remembers an event, and `flush` runs after all effects are performed, so the
log delays no decision. If the process dies, the log may lack the last events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from croupier.master.core.effects import Effect
from croupier.master.core.events import Read
from croupier.master.core.state import State
from croupier.master.core.step import Event
from croupier.master.eventlog.codec import event_encoder, write_event, write_line
from croupier.master.eventlog.digest import Digest, outcomes_of
from croupier.master.eventlog.lines import Head, summarise
from croupier.master.eventlog.writer import Writer
from croupier.model.clock import Clock
from croupier.process.metric_families import Family


class FileRecorder:
    """Keeps the log in files; `dropped` counts events not logged because it was given up."""

    def __init__(self, writer: Writer, file_size: int, head: Head, clock: Clock) -> None:
        """Begin the log with `head`; start a new file after `file_size` bytes."""
        self.dropped = 0
        self._writer, self._file_size = writer, file_size
        self._head, self._clock = replace(head, registry=None), clock
        self._encode = event_encoder()
        self._digest = Digest()
        self._part, self._events, self._bytes_in_file = 1, 0, 0
        self._pending: list[tuple[Event, float, Sequence[Effect]]] = []
        writer.put(write_line(head))

    @property
    def written(self) -> int:
        """Return the number of bytes written."""
        return self._writer.written

    def decided(self, event: Event, now: float, effects: Sequence[Effect]) -> None:
        """Remember an event that the core decided at `now`; queries are not logged."""
        if not isinstance(event, Read):
            self._pending.append((event, now, effects))

    def flush(self, state: State) -> None:
        """Write the events of a batch whose effects are performed."""
        now = self._write()
        if now is not None and self._bytes_in_file >= self._file_size:
            self._begin_file(state, now)

    def close(self) -> None:
        """Write all pending events; block for at most 5 s."""
        self._write()
        self._writer.close()

    def _write(self) -> float | None:
        """Queue all pending events, and return the time of the last; None if there is none."""
        pending, self._pending = self._pending, []
        if not pending:
            return None
        if self._writer.failure is not None:
            self.dropped += len(pending)
            return None
        try:
            data = b"".join([self._line(*each) for each in pending])
        except Exception as error:
            self._writer.give_up(f"an event that cannot be written: {error!r}")
            self.dropped += len(pending)
            return None
        self._events += len(pending)
        self._bytes_in_file += len(data)
        self._writer.put(data)
        return pending[-1][1]

    def _line(self, event: Event, now: float, effects: Sequence[Effect]) -> bytes:
        entry = {"at": now, "event": self._encode(event)}
        if effects:
            did = outcomes_of(effects)
            if did:
                entry["did"] = did
            entry["decided"] = self._digest.add(effects)
        return write_event(entry)

    def _begin_file(self, state: State, now: float) -> None:
        self._part += 1
        self._bytes_in_file = 0
        head = replace(
            self._head,
            part=self._part,
            at=now,
            wall_ms=self._clock.wall_ms(),
            events=self._events,
            digest=str(self._digest),
        )
        self._writer.begin_file(map(write_line, chain([head], summarise(state)())))


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
