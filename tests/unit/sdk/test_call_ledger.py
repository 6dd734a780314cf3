"""Calls are numbered, resent and answered once, whatever happens to the connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from croupier.model.errors import Unavailable
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import MASTER_SEQUENCE, Source, TaskState, TaskStatus
from croupier.process.clock import SystemClock
from croupier.sdk import Framework
from croupier.sdk.calls import ACKNOWLEDGED_AT_ONCE, Calls
from croupier.sdk.core.calls import CallLedger
from croupier.sdk.core.offers import OfferBook
from croupier.sdk.core.subscription import Subscription
from croupier.sdk.dispatch import Dispatcher, Inbox
from croupier.sdk.settings import Settings
from croupier.v1 import framework_pb2 as pb
from tests.harness.eventually import eventually


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

    def test_a_call_made_at_most_once_is_given_up_after_one_stream(self) -> None:
        ledger = CallLedger[str]()
        ledger.open("a")
        ledger.open("b", once=True)
        assert ledger.give_up() == []
        ledger.carry(1)
        ledger.open("c", once=True)
        assert [entry.call for entry in ledger.give_up()] == ["b"]
        assert [entry.call for entry in ledger.carry(2)] == ["a", "c"]
        ledger.check()

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


# When acknowledgements are sent, and with what.


def status(task_id: str, sequence: int) -> TaskStatus:
    return TaskStatus(
        FrameworkId("F1"),
        TaskId(task_id),
        AgentId("A1"),
        TaskState.RUNNING,
        Source.EXECUTOR,
        sequence=sequence,
    )


def connected() -> tuple[Calls, list[pb.Call]]:
    sent: list[pb.Call] = []
    calls = Calls(Subscription("F1", ()), Settings(), SystemClock())
    calls.attach(sent.append, 0)
    return calls, sent


def acknowledged(call: pb.Call) -> dict[str, int]:
    return {update.task_id: update.sequence for update in call.acknowledge.updates}


async def test_they_are_one_call_in_which_the_latest_covers_the_earlier() -> None:
    calls, sent = connected()
    for sequence in (1, 2):
        for task_id in ("t1", "t2"):
            calls.acknowledge(status(task_id, sequence))
        await asyncio.sleep(0)
    assert not sent
    await eventually(lambda: sent)
    assert [acknowledged(call) for call in sent] == [{"t1": 2, "t2": 2}]


async def test_a_task_that_ended_and_is_queued_again_is_withdrawn() -> None:
    calls, sent = connected()
    inbox = Inbox(10)
    dispatcher = Dispatcher(Framework("127.0.0.1:1"), inbox, OfferBook(), calls, SystemClock())
    ended = replace(status("t1", MASTER_SEQUENCE), state=TaskState.KILLED)
    inbox.put(ended)
    # An operator has restored an older copy of the store.
    inbox.put(replace(status("t1", 0), state=TaskState.QUEUED))
    running = asyncio.create_task(dispatcher.run())
    await eventually(lambda: any(call.HasField("withdraw") for call in sent))
    inbox.close()
    await running
    assert [list(call.withdraw.task_ids) for call in sent if call.HasField("withdraw")] == [["t1"]]


async def test_they_go_with_the_next_call() -> None:
    calls, sent = connected()
    calls.acknowledge(status("t1", 3))
    calls.post(pb.Call(kill=pb.Kill(task_id="t1")))
    assert [call.WhichOneof("call") for call in sent] == ["kill", "acknowledge"]
    calls.acknowledge(status("t2", 1))
    calls.on_verdict(pb.Verdict(seq=sent[0].seq))
    assert len(sent) == 2, "a verdict is no message to share"
    await eventually(lambda: len(sent) == 3)


async def test_many_do_not_wait() -> None:
    calls, sent = connected()
    for number in range(ACKNOWLEDGED_AT_ONCE):
        calls.acknowledge(status(f"t{number}", 1))
    assert len(sent) == 1


async def test_without_room_they_follow_the_next_verdict() -> None:
    calls, sent = connected()
    while calls._ledger.has_room(internal=True):
        calls.post(pb.Call(kill=pb.Kill(task_id="t1")))
    full = len(sent)
    calls.acknowledge(status("t1", 1))
    await eventually(lambda: calls._flush_timer is None)
    assert len(sent) == full
    calls.on_verdict(pb.Verdict(seq=sent[0].seq))
    assert acknowledged(sent[-1]) == {"t1": 1}


async def test_they_are_sent_before_the_framework_ends() -> None:
    calls, sent = connected()
    calls.acknowledge(status("t1", 1))
    ending = asyncio.create_task(calls.drained())
    await eventually(lambda: sent)
    calls.on_verdict(pb.Verdict(seq=sent[0].seq))
    await ending


async def test_a_message_is_not_sent_again_on_another_stream() -> None:
    calls, sent = connected()
    message = pb.Call(send_message=pb.SendMessage(task_id="e1", data=b"once"))
    making = asyncio.create_task(calls.make(message))
    await eventually(lambda: sent)
    calls.detach()
    again: list[pb.Call] = []
    calls.attach(again.append, 0)
    with pytest.raises(Unavailable, match="may be lost"):
        await making
    assert again == []
