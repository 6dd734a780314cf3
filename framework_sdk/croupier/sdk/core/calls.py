"""Calls that wait for their verdict.

Rule: numbers start at 1 and rise by one. A call stays open until its verdict arrives; each new
stream carries it again under its number, unless it is made at most once. A verdict counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

CallT = TypeVar("CallT")


@dataclass(slots=True)
class OpenCall(Generic[CallT]):
    """A call without a verdict.

    Attributes:
        internal: whether the SDK made it; counted separately, so that neither kind starves.
        once: whether only one stream may carry it.
        stream: number of the stream that carried it first; 0 while none has.
    """

    seq: int
    call: CallT
    internal: bool
    once: bool = False
    stream: int = 0


class CallLedger(Generic[CallT]):
    """The open calls of one client, in order of their numbers. All is O(1) unless noted."""

    def __init__(self, limit: int = 512, internal_limit: int = 16) -> None:
        """Hold at most `limit` calls at once; reserve `internal_limit` of them for the SDK."""
        assert 0 < internal_limit < limit
        self._limits = {False: limit - internal_limit, True: internal_limit}
        self._counts = {False: 0, True: 0}
        self._open: dict[int, OpenCall[CallT]] = {}
        self._next = 1

    def __len__(self) -> int:
        return len(self._open)

    @property
    def seen(self) -> int:
        """The highest number such that all verdicts up to it have arrived."""
        return next(iter(self._open), self._next) - 1

    def has_room(self, internal: bool = False) -> bool:
        """Return whether another call of that kind may be opened."""
        return self._counts[internal] < self._limits[internal]

    def open(self, call: CallT, *, internal: bool = False, once: bool = False) -> OpenCall[CallT]:
        """Give `call` the next number and keep it. Needs room."""
        assert self.has_room(internal)
        entry = OpenCall(self._next, call, internal, once)
        self._open[entry.seq] = entry
        self._counts[internal] += 1
        self._next += 1
        return entry

    def close(self, seq: int) -> OpenCall[CallT] | None:
        """Remove and return the call whose verdict arrived; None if it had arrived before."""
        entry = self._open.pop(seq, None)
        if entry is not None:
            self._counts[entry.internal] -= 1
        return entry

    def give_up(self) -> list[OpenCall[CallT]]:
        """Remove and return the calls that no further stream may carry; O(open calls)."""
        given_up = [entry for entry in self.open_calls() if entry.once and entry.stream]
        for entry in given_up:
            self.close(entry.seq)
        return given_up

    def carry(self, stream: int) -> list[OpenCall[CallT]]:
        """Return the calls that a new stream must carry, in order; O(open calls)."""
        for entry in self._open.values():
            entry.stream = entry.stream or stream
        return self.open_calls()

    def open_calls(self) -> list[OpenCall[CallT]]:
        """Return all open calls, in order; O(open calls)."""
        return list(self._open.values())

    def check(self) -> None:
        """Assert every invariant; O(open calls)."""
        seqs = list(self._open)
        assert seqs == sorted(seqs)
        assert all(self.seen < seq < self._next for seq in seqs)
        assert not seqs or self.seen == seqs[0] - 1
        assert all(entry.seq == seq for seq, entry in self._open.items())
        for internal, count in self._counts.items():
            assert count == sum(e.internal is internal for e in self._open.values())
            assert 0 <= count <= self._limits[internal]
