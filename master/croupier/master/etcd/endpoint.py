"""One member of etcd and the connection to it."""

from __future__ import annotations

import grpc
import grpc.aio

from croupier.master.etcd.methods import A, Method, Q
from croupier.master.etcd.target import EtcdAccess
from croupier.net.address import Address

# A page of records may be large.
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_OPTIONS: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.ping_timeout_ms", 3_000),
    # etcd closes connections that ping without a call.
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    ("grpc.max_send_message_length", MAX_ANSWER_BYTES),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
    # It is also the time limit of a connection attempt.
    ("grpc.min_reconnect_backoff_ms", 500),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]

Metadata = tuple[tuple[str, str], ...]


class Endpoint:
    """A member of etcd.

    Attributes:
        is_failing: whether it failed when last asked.
    """

    def __init__(self, address: Address, access: EtcdAccess) -> None:
        """Connect with the first request."""
        self.address = address
        self.is_failing = False
        if access.is_encrypted:
            credentials = grpc.ssl_channel_credentials(access.ca, access.key, access.cert)
            self._channel = grpc.aio.secure_channel(str(address), credentials, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(str(address), options=_OPTIONS)

    async def ask(
        self, method: Method[Q, A], question: Q, metadata: Metadata, timeout_s: float
    ) -> A:
        """Send one request.

        Raises:
            grpc.aio.AioRpcError: if it fails, or does not answer within `timeout_s`.
        """
        stub = self._channel.unary_unary(
            method.path,
            request_serializer=method.question.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        return await stub(question, timeout=timeout_s, metadata=metadata)

    def stream(
        self, method: Method[Q, A], metadata: Metadata, timeout_s: float
    ) -> grpc.aio.StreamStreamCall[Q, A]:
        """Open a stream that ends after `timeout_s`."""
        stub: grpc.aio.StreamStreamMultiCallable[Q, A] = self._channel.stream_stream(
            method.path,
            request_serializer=method.question.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        return stub(timeout=timeout_s, metadata=metadata)

    async def close(self) -> None:
        """Disconnect."""
        await self._channel.close()
