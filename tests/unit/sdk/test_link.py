"""What a stream takes in before it is connected."""

from __future__ import annotations

from croupier.net.address import Address
from croupier.process.clock import SystemClock
from croupier.sdk.link import Link
from croupier.sdk.settings import Settings
from croupier.v1 import framework_pb2 as pb


class Nobody:
    """An owner that is told nothing."""

    is_full = False
    verdicts_seen = 0

    def on_event(self, event: pb.Event) -> None:
        raise AssertionError(event)

    def on_tick(self) -> None:
        return

    async def room(self) -> None:
        return


async def test_all_unanswered_calls_fit_however_large_they_are() -> None:
    settings = Settings()
    link = Link(Nobody(), Address("127.0.0.1", 1), settings, SystemClock())
    large = pb.Call(accept=pb.Accept(offer_ids=["o" * 1_000_000]))
    for _ in range(settings.unanswered_limit):
        link.send(large)
