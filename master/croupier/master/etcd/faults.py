"""Errors of etcd, by what to do next: try another member, log in again, or give up."""

from __future__ import annotations

import grpc
import grpc.aio

from croupier.model.errors import Conflict, CroupierError, InvalidRequest, NotFound, Unavailable

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


class StaleLogin(CroupierError):
    """The token of the login has expired: get a new one."""


class Full(Unavailable):
    """etcd's database is full: it writes nothing until an operator makes room."""


class TooLarge(CroupierError):
    """The answer exceeds the limit: request less at once."""


class Untrusted(Unavailable):
    """One side does not accept the other's certificate: usually a wrong file."""


def fault_of(error: grpc.aio.AioRpcError, endpoint: object, user: str) -> CroupierError:
    """Convert `error`, which a call to the member at `endpoint` raised.

    Returns:
        `Unavailable` if another member, or the same one later, may answer. `InvalidRequest` if
        every member would always refuse. `Conflict` if the requested revision was compacted.
        `NotFound` if there is no such lease. `StaleLogin` or `TooLarge`.
    """
    text = _words(error)
    message = f"etcd at {endpoint}: {text}"
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
            return InvalidRequest(f"{message}: user {user!r} must be granted the cluster's prefix")
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
                f"{message}: TLS fails; are ca, certificate and key the right files? etcd reads a"
                " new authority only at its start: restart its members one by one"
            )
        case _:
            return Unavailable(message)


def _words(error: grpc.aio.AioRpcError) -> str:
    details = error.details() or ""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "no answer in time"
    return details.removeprefix("etcdserver: ")[:300] or error.code().name
