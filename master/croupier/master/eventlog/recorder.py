"""Keeps the event log while the master runs.

Rule: `decided` costs next to nothing and `flush` comes after everybody was told, so that the
log delays no decision. What is logged is what happened; that it was seen by others first,
or that the last of it is lost with the process, does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from croupier.master.core.effects import Effect
from croupier.master.core.events import Read
from croupier.master.core.state import State
from croupier.master.core.step import Event
from croupier.master.eventlog.codec import event_encoder, write_event, write_line
from croupier.master.eventlog.digest import Digest
from croupier.master.eventlog.lines import Head, Known
from croupier.master.eventlog.outcome import outcome
from croupier.master.eventlog.summary import summarise
from croupier.master.eventlog.writer import Writer
from croupier.model.clock import Clock


class Recorder(Protocol):
    """Told by the driver of all that it gives the core."""

    def decided(self, event: Event, now: float, effects: Sequence[Effect]) -> None:
        """`event` was given to the core at `now`, and `effects` are what must happen."""

    def flush(self, state: State) -> None:
        """A batch is over, and everybody told."""


class NoRecorder:
    """Keeps no log."""

    def decided(self, event: Event, now: float, effects: Sequence[Effect]) -> None:
        """Nothing."""

    def flush(self, state: State) -> None:
        """Nothing."""


@dataclass(slots=True)
class _Tally:
    """How far the log is."""

    part: int = 1
    events: int = 0
    bytes_in_file: int = 0


class FileRecorder:
    """Keeps the log in files.

    Attributes:
        dropped: how many events were not logged, as the log was given up.
    """

    def __init__(self, writer: Writer, file_size: int, head: Head, clock: Clock) -> None:
        """Begin the log with `head`, of part 1; a new file is begun after `file_size` bytes."""
        self.dropped = 0
        self._writer, self._file_size = writer, file_size
        self._head, self._clock = replace(head, registry=None), clock
        self._encode = event_encoder()
        self._digest = Digest()
        self._tally = _Tally()
        self._pending: list[tuple[Event, float, Sequence[Effect]]] = []
        writer.put(write_line(head))

    @property
    def written(self) -> int:
        """How many bytes were written so far."""
        return self._writer.written

    def decided(self, event: Event, now: float, effects: Sequence[Effect]) -> None:
        """See `Recorder`. Events that only look are no part of the log."""
        if not isinstance(event, Read):
            self._pending.append((event, now, effects))

    def flush(self, state: State) -> None:
        """See `Recorder`."""
        now = self._write()
        if now is not None and self._tally.bytes_in_file >= self._file_size:
            self._begin_file(state, now)

    def close(self) -> None:
        """Write what waits, for at most 5 s. Blocks."""
        self._write()
        self._writer.close()

    def _write(self) -> float | None:
        """Hand over what is pending; the time of the last of it, None if there is none."""
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
        self._tally.events += len(pending)
        self._tally.bytes_in_file += len(data)
        self._writer.put(data)
        return pending[-1][1]

    def _line(self, event: Event, now: float, effects: Sequence[Effect]) -> bytes:
        told = {"at": now, "event": self._encode(event)}
        if effects:
            did = outcome(effects)
            if did:
                told["did"] = did
            told["decided"] = self._digest.add(effects)
        return write_event(told)

    def _begin_file(self, state: State, now: float) -> None:
        self._tally.part += 1
        self._tally.bytes_in_file = 0
        head = replace(
            self._head,
            part=self._tally.part,
            at=now,
            wall_ms=self._clock.wall_ms(),
            events=self._tally.events,
            decided=str(self._digest),
        )
        self._writer.begin_file(_opening(head, summarise(state)()))


def _opening(head: Head, known: Iterable[Known]) -> Iterator[bytes]:
    yield write_line(head)
    for each in known:
        yield write_line(each)
