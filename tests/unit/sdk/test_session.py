"""The bounds of a framework's connection."""

from __future__ import annotations

from croupier.net.outbox import Outbox
from croupier.sdk import Framework
from croupier.v1 import framework_pb2 as pb


async def test_all_unanswered_calls_fit_however_large_they_are() -> None:
    framework = Framework(master="127.0.0.1:1")
    outbox: Outbox[pb.Call] = framework._session._connection.make_outbox()
    large = pb.Call(accept=pb.Accept(offer_ids=["o" * 1_000_000]))
    for _ in range(Framework._settings.unanswered_limit):
        assert outbox.put(large)
