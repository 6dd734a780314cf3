"""Checks of each listed master: reachable, and by TLS the one that it should be."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from croupier.ctl.doctor.credentials import validity
from croupier.ctl.doctor.finding import Finding, fail, ok
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.net.certificate import parse_certificates
from croupier.net.credentials import ClientSecurity

CONNECT_S: Final = 3.0


async def master_findings(
    address: Address, security: ClientSecurity, now_s: float
) -> AsyncIterator[Finding]:
    """Yield findings about the listener at `address`; `now_s` is Unix time."""
    name = f"master {address}"
    try:
        async with asyncio.timeout(CONNECT_S):
            certificate = await _shake_hands(address, security)
    except ssl.SSLCertVerificationError as error:
        yield fail("tls", f"{name}: {_reason(error)}", _advice(error))
        return
    except ssl.SSLError as error:
        yield fail("tls", f"{name}: {_reason(error)}", "does it use TLS? see its --tls-cert")
        return
    except (OSError, TimeoutError) as error:
        text = "no answer within 3 s" if isinstance(error, TimeoutError) else _strerror(error)
        yield fail("reachable", f"{name}: {text}", "is it running, and is the address right?")
        return
    yield ok("reachable", name)
    if certificate is None:
        if not address.is_loopback:
            yield fail("tls", f"{name}: plain text between machines", "give --tls-ca")
        return
    yield ok("tls", f"{name}: verified as {_verified(address, security)}")
    with suppress(InvalidRequest):
        parsed = parse_certificates(ssl.DER_cert_to_PEM_cert(certificate).encode(), Path(name))
        yield validity("tls", f"certificate of {name}", parsed[0], now_s)


async def _shake_hands(address: Address, security: ClientSecurity) -> bytes | None:
    """Connect; return the certificate of the master (DER), None in plain text.

    Raises:
        OSError: if it cannot be reached, or is not the master (`ssl.SSLError`).
    """
    if security.ca is None:
        _, writer = await asyncio.open_connection(address.host, address.port)
        writer.close()
        return None
    context = ssl.create_default_context(cafile=str(security.ca.expanduser()))
    context.set_alpn_protocols(["h2"])
    if security.cert is not None and security.key is not None:
        context.load_cert_chain(security.cert.expanduser(), security.key.expanduser())
    _, writer = await asyncio.open_connection(
        address.host, address.port, ssl=context, server_hostname=_verified(address, security)
    )
    certificate: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    # It may be refused already, which the first call reports.
    writer.transport.abort()
    return certificate


def _verified(address: Address, security: ClientSecurity) -> str:
    return security.target_name() or address.host


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message.rstrip(".")
    return f"no TLS connection ({(error.reason or 'closed').replace('_', ' ').lower()})"


def _advice(error: ssl.SSLCertVerificationError) -> str:
    text = error.verify_message
    if "expired" in text or "not yet valid" in text:
        return "renew the master's certificate (croupier cert renew), or compare the clocks"
    if "mismatch" in text:
        return "it is no master of this cluster, or --tls-name is wrong"
    return "--tls-ca is of another cluster, or this is a false master"


def _strerror(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
