"""Errors on the wire: the one table between the error tree, `ErrorCode` and gRPC's codes."""

from __future__ import annotations

import grpc

from croupier.model import errors
from croupier.model.errors import CroupierError
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
