"""Calls are numbered, resent and answered once, whatever happens to the connection."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.sdk.core.calls import CallLedger


class TestLedger:
    def test_numbers_rise_by_one(self) -> None:
        ledger = CallLedger[str]()
        assert [ledger.open(name).seq for name in "abc"] == [1, 2, 3]
        ledger.check()

    def test_seen_stops_before_the_first_open_call(self) -> None:
        ledger = CallLedger[str]()
        for name in "abc":
            ledger.open(name)
        ledger.close(2)
        assert ledger.seen == 0
        ledger.close(1)
        assert ledger.seen == 2
        ledger.close(3)
        assert ledger.seen == 3
        ledger.check()

    def test_a_verdict_counts_once(self) -> None:
        ledger = CallLedger[str]()
        ledger.open("a")
        first, second = ledger.close(1), ledger.close(1)
        assert first is not None
        assert second is None
        assert ledger.close(7) is None

    def test_a_new_stream_carries_open_calls_and_keeps_their_first_stream(self) -> None:
        ledger = CallLedger[str]()
        ledger.open("a")
        ledger.open("b")
        ledger.carry(1)
        ledger.close(1)
        ledger.open("c")
        assert [(e.call, e.stream) for e in ledger.carry(2)] == [("b", 1), ("c", 2)]

    def test_each_kind_of_call_has_its_own_limit(self) -> None:
        ledger = CallLedger[str](limit=3, internal_limit=1)
        ledger.open("a")
        ledger.open("b")
        assert not ledger.has_room()
        assert ledger.has_room(internal=True)
        ledger.open("ack", internal=True)
        assert not ledger.has_room(internal=True)
        with pytest.raises(AssertionError):
            ledger.open("c")
        ledger.close(1)
        assert ledger.has_room()
        ledger.check()


@dataclass
class Wire:
    """A client, a master, and the messages in flight between them on one stream."""

    ledger: CallLedger[int] = field(default_factory=lambda: CallLedger[int](8, 2))
    up: list[int] = field(default_factory=list)
    down: list[int] = field(default_factory=list)
    done: list[int] = field(default_factory=list)
    remembered: set[int] = field(default_factory=set)
    answered: list[int] = field(default_factory=list)
    streams: int = 0

    def connect(self) -> None:
        """Lose the old stream with its messages, and send the open calls on a new one."""
        self.streams += 1
        self.up = [entry.seq for entry in self.ledger.carry(self.streams)]
        self.down = []

    def call(self, internal: bool) -> None:
        if self.ledger.has_room(internal):
            self.up.append(self.ledger.open(0, internal=internal).seq)

    def decide(self) -> None:
        """Let the master read one call, which names the verdicts that the client has seen."""
        if not self.up:
            return
        self.remembered -= {seq for seq in self.remembered if seq <= self.ledger.seen}
        seq = self.up.pop(0)
        due = len(self.done) + 1
        assert seq <= due, "a gap in the numbers"
        if seq == due:
            self.done.append(seq)
            self.remembered.add(seq)
        else:
            assert seq in self.remembered, "the client asks again for a verdict that it has seen"
        self.down.append(seq)

    def answer(self, index: int, twice: bool) -> None:
        """Deliver one verdict of those in flight."""
        if not self.down:
            return
        seq = self.down.pop(index % len(self.down))
        for _ in range(1 + twice):
            if self.ledger.close(seq) is not None:
                self.answered.append(seq)


STEPS = st.one_of(
    st.tuples(st.just("call"), st.booleans()),
    st.tuples(st.just("decide"), st.just(False)),
    st.tuples(st.just("connect"), st.just(False)),
    st.tuples(st.integers(0, 7), st.booleans()),
)


@given(st.lists(STEPS, max_size=120))
def test_every_call_is_done_once_and_answered_once(steps: list[tuple[str | int, bool]]) -> None:
    wire = Wire()
    wire.connect()
    for step, flag in steps:
        match step:
            case "call":
                wire.call(flag)
            case "decide":
                wire.decide()
            case "connect":
                wire.connect()
            case int(index):
                wire.answer(index, flag)
        wire.ledger.check()
    wire.connect()
    while wire.up:
        wire.decide()
    while wire.down:
        wire.answer(0, False)
    wire.ledger.check()
    everything = list(range(1, wire.ledger._next))
    assert wire.done == everything
    assert sorted(wire.answered) == everything
    assert wire.ledger.seen == len(everything)
    assert len(wire.ledger) == 0
