"""Errors on the wire: the one table between the error tree, `ErrorCode` and gRPC's codes.

Failures of TLS are put in words for users: gRPC names the library function that failed.
"""

from __future__ import annotations

import time
from typing import Final

import grpc

from croupier.model import errors
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.net.address import Address
from croupier.net.certificate import read_certificates
from croupier.net.credentials import ClientSecurity
from croupier.v1 import framework_pb2 as pb

_STATUS = grpc.StatusCode
_TABLE: tuple[tuple[type[CroupierError], pb.ErrorCode.ValueType, grpc.StatusCode], ...] = (
    (errors.InvalidRequest, pb.ERROR_CODE_INVALID, _STATUS.INVALID_ARGUMENT),
    (errors.NotFound, pb.ERROR_CODE_NOT_FOUND, _STATUS.NOT_FOUND),
    (errors.Conflict, pb.ERROR_CODE_CONFLICT, _STATUS.FAILED_PRECONDITION),
    (errors.Unauthenticated, pb.ERROR_CODE_UNAUTHENTICATED, _STATUS.UNAUTHENTICATED),
    (errors.PermissionDenied, pb.ERROR_CODE_PERMISSION_DENIED, _STATUS.PERMISSION_DENIED),
    (errors.Unavailable, pb.ERROR_CODE_UNAVAILABLE, _STATUS.UNAVAILABLE),
    (errors.NotLeader, pb.ERROR_CODE_NOT_LEADER, _STATUS.UNAVAILABLE),
    (errors.FailedOver, pb.ERROR_CODE_FAILED_OVER, _STATUS.ABORTED),
    (errors.Removed, pb.ERROR_CODE_REMOVED, _STATUS.ABORTED),
    (errors.TooSlow, pb.ERROR_CODE_TOO_SLOW, _STATUS.RESOURCE_EXHAUSTED),
    (errors.ProtocolViolation, pb.ERROR_CODE_PROTOCOL, _STATUS.INVALID_ARGUMENT),
)
_ROWS = {kind: (code, status) for kind, code, status in _TABLE}
_ERRORS = {code: kind for kind, code, _ in _TABLE}
# Of an error that no row has, and whose base classes none has.
_OTHER = pb.ERROR_CODE_INVALID, _STATUS.INTERNAL
STATUS = {kind: status for kind, _, status in _TABLE}
# The error of a failed call; any other status means Unavailable.
_MEANINGS: dict[grpc.StatusCode, type[CroupierError]] = {
    _STATUS.INVALID_ARGUMENT: errors.InvalidRequest,
    _STATUS.NOT_FOUND: errors.NotFound,
    _STATUS.FAILED_PRECONDITION: errors.Conflict,
    _STATUS.ABORTED: errors.Removed,
    _STATUS.UNAUTHENTICATED: errors.Unauthenticated,
    _STATUS.PERMISSION_DENIED: errors.PermissionDenied,
}
# Parts of gRPC's messages, and what they mean; the first that matches counts.
_SERVER_CERTIFICATE: Final = (
    ("certificate has expired", "the certificate of {at} has expired"),
    (
        "certificate is not yet valid",
        "the certificate of {at} is not valid yet; compare the clocks of both machines",
    ),
    (
        "Hostname Verification Check failed",
        "the certificate of {at} is not that of a master of this cluster{named}",
    ),
    ("CERTIFICATE_VERIFY_FAILED", "no authority in --tls-ca has signed the certificate of {at}"),
    (
        "certificate signature failure",
        "no authority in --tls-ca has signed the certificate of {at}",
    ),
    ("WRONG_VERSION_NUMBER", "{at} does not use TLS"),
    ("Failed to create security handshaker", "this client's certificate cannot be used"),
)
_CLOSED: Final = ("Socket closed", "Connection reset", "recvmsg", "GOAWAY", "HANDSHAKE_FAILURE")
_CONNECTING: Final = ("failed to connect", "Failed to connect")


def nearest_status(error: CroupierError) -> grpc.StatusCode:
    """Return the status of a failed call: that of the nearest kind of `error` in the table."""
    return _row(error)[1]


def _row(error: CroupierError) -> tuple[pb.ErrorCode.ValueType, grpc.StatusCode]:
    return next((_ROWS[kind] for kind in type(error).__mro__ if kind in _ROWS), _OTHER)


def error_to_wire(error: CroupierError) -> pb.Error:
    """Return the message that carries `error`."""
    wire = pb.Error(code=_row(error)[0], message=str(error))
    if isinstance(error, errors.NotLeader):
        wire.leader = error.leader
    return wire


def error_from_wire(error: pb.Error) -> CroupierError:
    """Return the error in `error`; an unknown code, as from a newer peer, is a CroupierError."""
    kind = _ERRORS.get(error.code, CroupierError)
    message = error.message or f"the peer gave no reason ({kind.__name__})"
    if error.code == pb.ERROR_CODE_NOT_LEADER:
        return errors.NotLeader(message, error.leader)
    return kind(message)


def error_from_rpc(error: grpc.RpcError) -> CroupierError:
    """Return the error of the tree that a failed gRPC call means."""
    if not isinstance(error, grpc.aio.AioRpcError):
        return errors.Unavailable(str(error))
    kind = _MEANINGS.get(error.code(), errors.Unavailable)
    return kind(error.details() or str(error))


def tls_problem(
    details: str,
    address: Address,
    security: ClientSecurity | None,
    *,
    has_worked: bool = False,
) -> str | None:
    """Return why a connection failed, from gRPC's `details`; None if TLS is not the reason.

    `has_worked`: an earlier connection with the same settings worked.
    A server with TLS 1.3 that refuses a client's certificate merely closes the connection.
    """
    at = f"the server at {address}"
    name = _verified_name(security)
    named = f": it lacks the name {name}" if name else ""
    for part, meaning in _SERVER_CERTIFICATE:
        if part in details:
            return meaning.format(at=at, named=named)
    is_connecting = any(part in details for part in _CONNECTING)
    if not is_connecting or not any(part in details for part in _CLOSED):
        return None
    return f"cannot reach a master at {address}: {_refusal(security, has_worked=has_worked)}"


def _refusal(security: ClientSecurity | None, *, has_worked: bool) -> str:
    cert = None if security is None else security.cert
    if cert is not None:
        try:
            read_certificates(cert)[0].check_valid(cert, time.time())
        except InvalidRequest as error:
            return f"it refused this client's certificate; {error}"
    if has_worked:
        return "it closed the connection; it may have ended, or its TLS settings have changed"
    if security is None or not security.is_encrypted:
        return "it closed the connection; does it require TLS (--tls-ca)?"
    if cert is None:
        return (
            "it closed the connection; does it require a certificate (--tls-cert, --tls-key)?"
            " Tokens are for its --token-listen"
        )
    return f"it closed the connection; does it trust the authority that signed {cert}?"


def _verified_name(security: ClientSecurity | None) -> str:
    try:
        return "" if security is None else security.target_name()
    except InvalidRequest:
        return ""
