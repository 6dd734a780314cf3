"""Failures of TLS in words for users, from what gRPC says."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity
from croupier.net.errors import tls_problem
from tests.harness.certificates import HOUR, authority

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
    def problem(**more: object) -> str:
        files = authority().issue(tmp_path, "client/alice", **more)  # type: ignore[arg-type]
        return tls_problem(CLOSED, AT, ClientSecurity(files.ca, files.cert, files.key)) or ""

    assert "does it trust the authority that signed" in problem()
    assert "refused this client's certificate" in problem(valid=(-2 * HOUR, -HOUR))
    assert "is not valid before" in problem(valid=(HOUR, 2 * HOUR))
    ca = tmp_path / "ca.pem"
    assert "does it require a certificate" in (tls_problem(CLOSED, AT, ClientSecurity(ca)) or "")
