"""One framework's stream at a fake master."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from croupier.model.errors import CroupierError
from croupier.net.errors import error_to_wire
from croupier.net.outbox import Outbox
from croupier.v1 import framework_pb2 as pb

Request = pb.FrameworkServiceConnectRequest
Response = pb.FrameworkServiceConnectResponse
Context = grpc.aio.ServicerContext[Any, Any]

_OUTBOX_LIMIT = 100_000


class Stream:
    """What is to be sent to one session, until it is closed or dropped."""

    def __init__(self) -> None:
        """Start open."""
        self._outbox = Outbox[pb.Event](_OUTBOX_LIMIT)
        self.is_muted = False

    @property
    def is_open(self) -> bool:
        """Whether more may be sent."""
        return not self._outbox.is_closed

    def send(self, event: pb.Event) -> None:
        """Queue `event`; nothing happens if the stream is muted or over."""
        if not self.is_muted:
            self._outbox.put(event)

    def close(self, error: CroupierError | None = None) -> None:
        """End the stream once all that is queued was sent, `error` last."""
        self._outbox.close(pb.Event(error=error_to_wire(error)) if error else None)

    def drop(self) -> None:
        """End the stream now: what is queued is lost."""
        self._outbox.drop()
        self._outbox.close()

    async def responses(self) -> AsyncIterator[Response]:
        """What to send, as long as the stream lasts."""
        while events := await self._outbox.take():
            yield Response(events=events)
