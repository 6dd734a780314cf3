"""A channel whose calls all carry the same metadata: the client's token.

gRPC's own call credentials refuse plain text, even on loopback, and its interceptors replace the
call objects of streams by others.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from croupier.net.credentials import Metadata


class TokenChannel(grpc.aio.Channel):
    """Passes everything to another channel, and adds metadata to each call."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata) -> None:
        """Own `channel`: closing this one closes it."""
        self._channel, self._metadata = channel, metadata

    def unary_unary(self, method: str, *args: Any, **more: Any) -> Any:
        """Return a unary call."""
        return self._with_metadata(self._channel.unary_unary(method, *args, **more))

    def unary_stream(self, method: str, *args: Any, **more: Any) -> Any:
        """Return a call that is answered by a stream."""
        return self._with_metadata(self._channel.unary_stream(method, *args, **more))

    def stream_unary(self, method: str, *args: Any, **more: Any) -> Any:
        """Return a call by a stream."""
        return self._with_metadata(self._channel.stream_unary(method, *args, **more))

    def stream_stream(self, method: str, *args: Any, **more: Any) -> Any:
        """Return a call by a stream that is answered by a stream."""
        return self._with_metadata(self._channel.stream_stream(method, *args, **more))

    def _with_metadata(self, call: Callable[..., Any]) -> Callable[..., Any]:
        own = self._metadata

        def called(*args: Any, metadata: Any = None, **more: Any) -> Any:
            return call(*args, metadata=(*own, *(metadata or ())), **more)

        return called

    async def close(self, grace: float | None = None) -> None:
        """Close the channel."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait for another state."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait for the connection."""
        await self._channel.channel_ready()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        await self.close()
        return None
