"""Failures of TLS in words for users: gRPC's messages name the library function that failed."""

from __future__ import annotations

import time
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.net.certificate import read_certificates
from croupier.net.credentials import ClientSecurity

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


def tls_problem(details: str, address: Address, security: ClientSecurity | None) -> str | None:
    """Return why a connection failed, from gRPC's `details`; None if TLS is not the reason.

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
    return f"cannot reach a master at {address}: {_refusal(security)}"


def _refusal(security: ClientSecurity | None) -> str:
    if security is None or not security.is_encrypted:
        return "it closed the connection; does it require TLS (--tls-ca)?"
    if security.cert is None:
        return (
            "it closed the connection; does it require a certificate (--tls-cert, --tls-key)?"
            " Tokens are for its --token-listen"
        )
    try:
        read_certificates(security.cert)[0].check_valid(security.cert, time.time())
    except InvalidRequest as error:
        return f"it refused this client's certificate; {error}"
    return f"it closed the connection; does it trust the authority that signed {security.cert}?"


def _verified_name(security: ClientSecurity | None) -> str:
    try:
        return "" if security is None else security.target_name()
    except InvalidRequest:
        return ""
