"""Errors on the wire: the tables from the error tree to `ErrorCode` and to gRPC's codes."""

from __future__ import annotations

import grpc

from croupier.model import errors
from croupier.model.errors import CroupierError
from croupier.v1 import framework_pb2 as pb

_CODES: dict[type[CroupierError], pb.ErrorCode.ValueType] = {
    errors.InvalidRequest: pb.ERROR_CODE_INVALID,
    errors.NotFound: pb.ERROR_CODE_NOT_FOUND,
    errors.Conflict: pb.ERROR_CODE_CONFLICT,
    errors.Unavailable: pb.ERROR_CODE_UNAVAILABLE,
    errors.NotLeader: pb.ERROR_CODE_NOT_LEADER,
    errors.FailedOver: pb.ERROR_CODE_FAILED_OVER,
    errors.Removed: pb.ERROR_CODE_REMOVED,
    errors.TooSlow: pb.ERROR_CODE_TOO_SLOW,
    errors.ProtocolViolation: pb.ERROR_CODE_PROTOCOL,
}
_ERRORS = {code: kind for kind, code in _CODES.items()}

STATUS: dict[type[CroupierError], grpc.StatusCode] = {
    errors.InvalidRequest: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.NotLeader: grpc.StatusCode.UNAVAILABLE,
    errors.FailedOver: grpc.StatusCode.ABORTED,
    errors.Removed: grpc.StatusCode.ABORTED,
    errors.TooSlow: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.ProtocolViolation: grpc.StatusCode.INVALID_ARGUMENT,
}


def error_to_wire(error: CroupierError) -> pb.Error:
    """Return the message that carries `error`."""
    wire = pb.Error(code=_CODES.get(type(error), pb.ERROR_CODE_INVALID), message=str(error))
    if isinstance(error, errors.NotLeader):
        wire.leader = error.leader
    return wire


def error_from_wire(error: pb.Error) -> CroupierError:
    """Return the error in `error`; an unknown code, as from a newer peer, is a CroupierError."""
    if error.code == pb.ERROR_CODE_NOT_LEADER:
        return errors.NotLeader(error.message, error.leader)
    return _ERRORS.get(error.code, CroupierError)(error.message)


def error_from_rpc(error: grpc.RpcError) -> CroupierError:
    """Return the error of the tree that a failed gRPC call means."""
    code = error.code() if isinstance(error, grpc.aio.AioRpcError) else None
    details = (error.details() if isinstance(error, grpc.aio.AioRpcError) else "") or str(error)
    match code:
        case grpc.StatusCode.INVALID_ARGUMENT:
            return errors.InvalidRequest(details)
        case grpc.StatusCode.NOT_FOUND:
            return errors.NotFound(details)
        case grpc.StatusCode.FAILED_PRECONDITION:
            return errors.Conflict(details)
        case grpc.StatusCode.ABORTED:
            return errors.Removed(details)
        case _:
            return errors.Unavailable(details)
