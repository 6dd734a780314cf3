"""When acknowledgements are sent, and with what."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.model.task import MASTER_SEQUENCE, Source, TaskState, TaskStatus
from croupier.process.clock import SystemClock
from croupier.sdk import Framework
from croupier.sdk.calls import ACKNOWLEDGED_AT_ONCE, Calls
from croupier.sdk.core.offers import OfferBook
from croupier.sdk.core.subscription import Subscription
from croupier.sdk.dispatch import Dispatcher, Inbox
from croupier.sdk.settings import Settings
from croupier.v1 import framework_pb2 as pb
from tests.harness.eventually import eventually


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
