"""The outbox: bounded, in order, taken in batches."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from croupier.model.errors import PermissionDenied
from croupier.model.ids import AgentId, FrameworkId, TaskId
from croupier.net.outbox import ENCODED_OVERHEAD, Budget, Encoded, Outbox, joined
from croupier.net.output_links import (
    SKEW_S,
    VALID_S,
    check_link,
    derive_key,
    output_path,
    sign,
    signed_link,
)
from croupier.v1 import framework_pb2


@dataclass
class Letter:
    number: int
    size: int = 10

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        return self.size


def numbers(batch: list[Letter]) -> list[int]:
    return [letter.number for letter in batch]


async def test_all_that_is_queued_is_one_batch_in_order() -> None:
    outbox: Outbox[Letter] = Outbox(limit=10)
    assert all(outbox.put(Letter(i)) for i in range(3))
    assert len(outbox) == 3
    assert numbers(await outbox.take()) == [0, 1, 2]
    assert len(outbox) == 0


async def test_a_full_outbox_accepts_no_message() -> None:
    outbox: Outbox[Letter] = Outbox(limit=2)
    assert [outbox.put(Letter(i)) for i in range(3)] == [True, True, False]
    assert numbers(await outbox.take()) == [0, 1]
    assert outbox.put(Letter(3))


async def test_a_batch_is_bounded_in_bytes_but_never_empty() -> None:
    outbox: Outbox[Letter] = Outbox(limit=10, batch_bytes=25)
    for i, size in enumerate((10, 10, 10, 99, 1)):
        outbox.put(Letter(i, size))
    assert [numbers(await outbox.take()) for _ in range(4)] == [[0, 1], [2], [3], [4]]


async def test_take_waits_for_a_message() -> None:
    outbox: Outbox[Letter] = Outbox(limit=10)
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    assert not taking.done()
    outbox.put(Letter(1))
    assert numbers(await asyncio.wait_for(taking, 30)) == [1]


async def test_a_take_that_is_cancelled_loses_nothing() -> None:
    outbox: Outbox[Letter] = Outbox(limit=10)
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    outbox.put(Letter(1))
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking
    assert numbers(await outbox.take()) == [1]


async def test_a_closed_outbox_is_drained_and_then_empty() -> None:
    outbox: Outbox[Letter] = Outbox(limit=1)
    outbox.put(Letter(1))
    outbox.close(last=Letter(2))
    outbox.close(last=Letter(3))
    assert outbox.is_closed
    assert not outbox.put(Letter(4))
    assert numbers(await outbox.take()) == [1, 2]
    assert await outbox.take() == []
    assert await outbox.take() == []


async def test_closing_wakes_the_reader() -> None:
    outbox: Outbox[Letter] = Outbox(limit=1)
    taking = asyncio.create_task(outbox.take())
    await asyncio.sleep(0)
    outbox.close()
    assert await asyncio.wait_for(taking, 30) == []


async def test_dropped_messages_are_not_sent() -> None:
    outbox: Outbox[Letter] = Outbox(limit=1)
    outbox.put(Letter(1))
    outbox.drop()
    assert outbox.put(Letter(2))
    assert numbers(await outbox.take()) == [2]


async def test_an_outbox_is_bounded_in_bytes_too() -> None:
    outbox: Outbox[Letter] = Outbox(limit=100, limit_bytes=25)
    assert [outbox.put(Letter(i)) for i in range(5)] == [True, True, True, False, False]
    assert numbers(await outbox.take()) == [0, 1, 2]
    assert outbox.put(Letter(5))
    outbox.drop()
    assert [outbox.put(Letter(i)) for i in range(4)] == [True, True, True, False]


async def test_joined_messages_are_the_message_that_repeats_them() -> None:
    large = framework_pb2.Event(error=framework_pb2.Error(message="x" * 100_000))
    verdict = framework_pb2.Event(verdict=framework_pb2.Verdict(seq=300))
    events = [verdict, large, framework_pb2.Event(), verdict]
    encoded = [Encoded(event.SerializeToString()) for event in events]
    whole = framework_pb2.FrameworkServiceConnectResponse(events=events)
    assert joined(encoded) == whole.SerializeToString()


async def test_a_budget_counts_queued_bytes_and_those_being_written() -> None:
    budget = Budget(1_000)
    one, other = (Outbox[Encoded](10, batch_bytes=1, budget=budget) for _ in range(2))
    for outbox in (one, other, one):
        outbox.put(Encoded(b"x" * 300))
    assert budget.used == 3 * (300 + ENCODED_OVERHEAD)
    assert budget.is_over
    assert one.held_bytes == 2 * other.held_bytes
    await one.take()
    # It is not written yet: a peer that reads nothing holds it here.
    assert budget.is_over
    await one.take()
    assert budget.used == 2 * (300 + ENCODED_OVERHEAD)
    one.drop()
    other.drop()
    assert budget.used == 0


# A link is good for one path on one agent, and for about a minute.


NOW = 1_700_000_000
EXPIRES = NOW + VALID_S
KEY = derive_key("secret of the cluster", AgentId("A1"))
PATH = output_path(FrameworkId("F1"), TaskId("t 1"), "stdout")


def test_a_fresh_link_is_valid_by_clocks_that_differ_a_little() -> None:
    parts = urlsplit(signed_link(KEY, PATH, EXPIRES))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    assert (unquote(parts.path), parts.path) == (PATH, "/output/F1/t%201/stdout")
    for clock in (NOW, NOW - SKEW_S, EXPIRES, EXPIRES + SKEW_S):
        check_link(KEY, PATH, query["expires"], query["signature"], clock)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"now_s": EXPIRES + SKEW_S + 1}, "expired 31 s ago by the clock"),
        ({"now_s": NOW - SKEW_S - 1}, "expires in 91 s by the clock"),
        ({"now_s": NOW + 3600}, "expired"),
        ({"now_s": NOW - 3600}, "clocks of this agent and of the master differ"),
        ({"path": PATH.replace("stdout", "stderr")}, "signature"),
        ({"path": PATH.replace("F1", "F2")}, "signature"),
        ({"key": derive_key("secret of the cluster", AgentId("A2"))}, "signature"),
        ({"key": derive_key("another secret", AgentId("A1"))}, "signature"),
        ({"expires": str(EXPIRES + 1)}, "signature"),
        ({"expires": ""}, "signature"),
        ({"expires": "9" * 5000}, "signature"),
        ({"expires": "-1"}, "signature"),
        ({"expires": "\u0661"}, "signature"),
        ({"signature": ""}, "signature"),
        ({"signature": "\udcff"}, "signature"),
        ({"expires": "", "signature": sign(KEY, PATH, 0)}, "signature"),
    ],
)
def test_any_change_of_a_link_is_refused(change: dict[str, object], reason: str) -> None:
    link: dict[str, object] = {
        "key": KEY, "path": PATH, "expires": str(EXPIRES),
        "signature": sign(KEY, PATH, EXPIRES), "now_s": NOW,
    }  # fmt: skip
    with pytest.raises(PermissionDenied, match=reason):
        check_link(**(link | change))  # type: ignore[arg-type]
