"""Errors over the wire and back."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from croupier.model import errors
from croupier.model.errors import CroupierError
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.errors import (
    STATUS,
    error_from_rpc,
    error_from_wire,
    error_to_wire,
    nearest_status,
    tls_problem,
)
from croupier.v1 import framework_pb2 as pb
from tests.harness.certificates import HOUR, authority


def _below(kind: type[CroupierError]) -> list[type[CroupierError]]:
    return [each for child in kind.__subclasses__() for each in (child, *_below(child))]


# Other packages have further errors, which are never on the wire.
KINDS = [kind for kind in _below(CroupierError) if kind.__module__ == CroupierError.__module__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_survives_the_wire(kind: type[CroupierError]) -> None:
    back = error_from_wire(error_to_wire(kind("why")))
    assert (type(back), str(back)) == (kind, "why")


def test_every_error_has_a_grpc_code() -> None:
    assert set(STATUS) == set(KINDS)


def test_an_error_of_another_package_has_the_status_of_its_kind() -> None:
    class Missing(errors.NotFound): ...

    assert nearest_status(Missing("why")) is grpc.StatusCode.NOT_FOUND
    assert type(error_from_wire(error_to_wire(Missing("why")))) is errors.NotFound


def test_an_unknown_code_of_a_newer_peer_is_a_croupier_error() -> None:
    back = error_from_wire(pb.Error(code=pb.ErrorCode.ValueType(99), message="why"))
    assert (type(back), str(back)) == (CroupierError, "why")


def test_not_leader_carries_the_leaders_address() -> None:
    back = error_from_wire(error_to_wire(errors.NotLeader("not the leader", "h:5050")))
    assert isinstance(back, errors.NotLeader)
    assert back.leader == "h:5050"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, errors.InvalidRequest),
        (grpc.StatusCode.NOT_FOUND, errors.NotFound),
        (grpc.StatusCode.FAILED_PRECONDITION, errors.Conflict),
        (grpc.StatusCode.ABORTED, errors.Removed),
        (grpc.StatusCode.UNAVAILABLE, errors.Unavailable),
        (grpc.StatusCode.DEADLINE_EXCEEDED, errors.Unavailable),
        (grpc.StatusCode.INTERNAL, errors.Unavailable),
    ],
)
def test_a_failed_grpc_call_is_a_croupier_error(
    code: grpc.StatusCode, kind: type[CroupierError]
) -> None:
    nothing = grpc.aio.Metadata()
    back = error_from_rpc(grpc.aio.AioRpcError(code, nothing, nothing, details="why"))
    assert (type(back), str(back)) == (kind, "why")


@pytest.mark.parametrize("code", pb.ErrorCode.values())
def test_an_error_without_a_message_has_a_text(code: pb.ErrorCode.ValueType) -> None:
    assert "gave no reason" in str(error_from_wire(pb.Error(code=code)))


# Failures of TLS in words for users, from what gRPC says.


AT = Address("10.0.0.1", 5050)
CLOSED = "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:10.0.0.1: Socket closed"


@pytest.mark.parametrize(
    ("details", "meaning"),
    [
        ("CERTIFICATE_VERIFY_FAILED: certificate has expired: OK", "10.0.0.1:5050 has expired"),
        ("CERTIFICATE_VERIFY_FAILED: certificate is not yet valid: OK", "is not valid yet"),
        ("CERTIFICATE_VERIFY_FAILED: unable to get local issuer", "no authority in --tls-ca"),
        ("BAD_SIGNATURE: certificate signature failure: OK", "no authority in --tls-ca"),
        ("error: UNAUTHENTICATED: Hostname Verification Check failed.", "not that of a master"),
        ("OPENSSL_internal:WRONG_VERSION_NUMBER", "does not use TLS"),
        ("Failed to create security handshaker.", "this client's certificate cannot be used"),
        (CLOSED, "does it require TLS (--tls-ca)?"),
    ],
)
def test_each_failure_has_a_meaning(details: str, meaning: str) -> None:
    found = tls_problem(details, AT, None)
    assert found is not None
    assert meaning in found


@pytest.mark.parametrize("details", ["Socket closed", "GOAWAY received", "not the leader", ""])
def test_a_connection_that_breaks_later_is_no_problem_of_tls(details: str) -> None:
    assert tls_problem(details, AT, None) is None


def test_a_client_looks_at_its_own_certificate_first(tmp_path: Path) -> None:
    def problem(*, has_worked: bool = False, **more: object) -> str:
        files = authority().issue(tmp_path, "client/alice", **more)  # type: ignore[arg-type]
        security = ClientSecurity(files.ca, files.cert, files.key)
        return tls_problem(CLOSED, AT, security, has_worked=has_worked) or ""

    assert "does it trust the authority that signed" in problem()
    assert "refused this client's certificate" in problem(valid=(-2 * HOUR, -HOUR))
    assert "is not valid before" in problem(valid=(HOUR, 2 * HOUR))
    assert problem(has_worked=True).endswith("it may have ended, or its TLS settings have changed")
    assert "is not valid before" in problem(valid=(HOUR, 2 * HOUR), has_worked=True)
    ca = tmp_path / "ca.pem"
    assert "does it require a certificate" in (tls_problem(CLOSED, AT, ClientSecurity(ca)) or "")
