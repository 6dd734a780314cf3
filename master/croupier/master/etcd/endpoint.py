"""One member of etcd, the connection to it, and its errors.

Errors are sorted by what to do next: try another member, log in again, or give up.
"""

from __future__ import annotations

import grpc
import grpc.aio

from croupier.master.etcd.operations import A, Method, Q
from croupier.master.etcd.target import EtcdAccess
from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, Unavailable
from croupier.net.address import Address
from croupier.net.task_scope import reraise_own_cancellation

# Texts of etcd, the same in 3.4, 3.5 and 3.6.
_STALE_LOGIN = ("invalid auth token", "revision of auth store is old")
_BAD_LOGIN = ("authentication failed", "invalid user ID or password")
_NOT_ASKED_FOR = "authentication is not enabled"
_LOGIN_WANTED = "user name is empty"
_FULL = "database space exceeded"
# Texts of gRPC on this side.
_TOO_LARGE = "Received message larger than max"
_TLS = (
    "CERTIFICATE_VERIFY_FAILED",
    "SSL_ERROR",
    "Peer name",
    # The member does not accept our certificate.
    "TSI_DATA_CORRUPTED",
    # Our certificate and key do not match.
    "security handshaker",
)

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


class StaleLogin(CroupierError):
    """The token of the login has expired: get a new one."""


class Full(Unavailable):
    """etcd's database is full: it writes nothing until an operator makes room."""


class TooLarge(CroupierError):
    """The answer exceeds the limit: request less at once."""


class Untrusted(Unavailable):
    """One side does not accept the other's certificate: usually a wrong file."""


def _words(error: grpc.aio.AioRpcError) -> str:
    details = error.details() or ""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    return details.removeprefix("etcdserver: ")[:300] or error.code().name


class Endpoint:
    """A member of etcd; `is_failing` says whether it failed when last asked."""

    def __init__(self, address: Address, access: EtcdAccess) -> None:
        """Connect with the first request."""
        self.address, self._user = address, access.user
        self.is_failing = False
        if access.is_encrypted:
            credentials = grpc.ssl_channel_credentials(access.ca, access.key, access.cert)
            self._channel = grpc.aio.secure_channel(str(address), credentials, options=_OPTIONS)
        else:
            self._channel = grpc.aio.insecure_channel(str(address), options=_OPTIONS)

    async def ask(
        self, method: Method[Q, A], question: Q, metadata: Metadata, timeout_s: float
    ) -> A:
        """Send one request; raises as `fault_of`, also if `timeout_s` pass without an answer."""
        stub = self._channel.unary_unary(
            method.path,
            request_serializer=method.question.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        try:
            return await stub(question, timeout=max(timeout_s, 0.001), metadata=metadata)
        except grpc.aio.AioRpcError as error:
            reraise_own_cancellation()
            raise self.fault_of(error) from error

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

    def fault_of(self, error: grpc.aio.AioRpcError) -> CroupierError:
        """Convert `error`, which a call to this member raised.

        Returns:
            `Unavailable` if another member, or the same one later, may answer. `InvalidRequest` if
            every member would always refuse. `Conflict` if the requested revision was compacted.
            `NotFound` if there is no such lease. `StaleLogin` or `TooLarge`.
        """
        text, user = _words(error), self._user
        message = f"etcd at {self.address}: {text}"
        if any(words in text for words in _STALE_LOGIN):
            return StaleLogin(message)
        if _TOO_LARGE in text:
            return TooLarge(message)
        if any(words in text for words in _BAD_LOGIN):
            return InvalidRequest(f"{message} (the user is {user!r})")
        if _NOT_ASKED_FOR in text:
            return InvalidRequest(f"{message}: give no user, or enable it")
        if _LOGIN_WANTED in text:
            return InvalidRequest(f"{message}: it wants a user and a password")
        match error.code():
            case grpc.StatusCode.PERMISSION_DENIED:
                return InvalidRequest(
                    f"{message}: user {user!r} must be granted the cluster's prefix"
                )
            case grpc.StatusCode.INVALID_ARGUMENT | grpc.StatusCode.UNIMPLEMENTED:
                return InvalidRequest(message)
            case grpc.StatusCode.NOT_FOUND:
                return NotFound(message)
            case grpc.StatusCode.OUT_OF_RANGE:
                return Conflict(message)
            case grpc.StatusCode.RESOURCE_EXHAUSTED if _FULL in text:
                return Full(f"{message}: compact and defragment it, then disarm the alarm")
            case grpc.StatusCode.UNAVAILABLE if any(words in text for words in _TLS):
                return Untrusted(
                    f"{message}: TLS fails; are ca, certificate and key the right files? etcd reads"
                    " a new authority only at its start: restart its members one by one"
                )
            case _:
                return Unavailable(message)

    async def close(self) -> None:
        """Disconnect."""
        await self._channel.close()
