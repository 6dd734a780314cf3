"""Findings of `croupier doctor`, and its checks of credentials and of each master.

Credentials must be found, private and valid; a master must be reachable, and the right one.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from croupier.model.durations import duration_text
from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.net.certificate import Certificate, parse_certificates, read_certificates, utc
from croupier.net.credential_search import FoundCredentials
from croupier.net.credentials import ClientSecurity, privacy_problem

CONNECT_S: Final = 3.0
DAY_S: Final = 86_400.0
SOON_S: Final = 7 * DAY_S
_RENEW: Final = "renew it: croupier cert renew"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `croupier doctor`; `advice` says what to do, empty if nothing."""

    outcome: Literal["ok", "warn", "fail"]
    check: str
    text: str
    advice: str = ""

    @property
    def line(self) -> str:
        """The finding for people."""
        then = f" -> {self.advice}" if self.advice else ""
        return f"{self.outcome:4}  {self.check:12} {self.text}{then}"


# Findings that need no action, that will need one, and that prevent work.
ok, warn, fail = (partial(Finding, "ok"), partial(Finding, "warn"), partial(Finding, "fail"))


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
    """Connect; return the master's certificate (DER), or None in plain text. Raises OSError."""
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


def credential_findings(found: FoundCredentials, now_s: float) -> Iterator[Finding]:
    """Yield findings about the credentials that were found; `now_s` is Unix time."""
    security = found.security
    if security.cert is None and not security.has_token:
        where = "" if found.file is None else f", or write {found.file}"
        yield warn(
            "credentials",
            "no certificate and no token was found",
            "a cluster with authentication needs one: give --tls-cert and --tls-key, or"
            f" --token-file{where}",
        )
    else:
        yield ok("credentials", found.text)
    if security.ca is not None:
        yield ok("authorities", f"{security.ca} ({found.sources.get('ca', '')})")
    try:
        security.check()
    except InvalidRequest as error:
        yield fail("files", str(error), "renew the file, or name another")
        return
    yield from _private_findings(found)
    for check, path in (("certificate", security.cert), ("authority", security.ca)):
        if path is not None:
            for certificate in read_certificates(path):
                yield validity(check, str(path), certificate, now_s)


def validity(check: str, name: str, certificate: Certificate, now_s: float) -> Finding:
    """Return a finding about the time in which a certificate is valid."""
    who = certificate.identity or certificate.subject
    if now_s < certificate.starts_at:
        begins = utc(certificate.starts_at)
        return fail(check, f"{name} ({who}) is not valid before {begins}", "compare the clocks")
    left_s = certificate.expires_at - now_s
    if left_s <= 0:
        return fail(check, f"{name} ({who}) expired on {utc(certificate.expires_at)}", _RENEW)
    left = f"{left_s / DAY_S:.0f} days" if left_s >= 2 * DAY_S else duration_text(left_s)
    text = f"{name} ({who}) is valid for {left}"
    return warn(check, text, _RENEW) if left_s < SOON_S else ok(check, text)


def _private_findings(found: FoundCredentials) -> Iterator[Finding]:
    """Yield findings about files with secrets; a token in a public file was refused before."""
    for key, path in (("key", found.security.key), ("token_file", found.security.token_file)):
        if key not in found.sources or path is None:
            continue
        problem = privacy_problem(path.expanduser().stat())
        if problem:
            yield warn("files", f"{path} holds a secret, but {problem}")
        else:
            yield ok("files", f"no other user can read {path}")
    if found.file is not None and str(found.file) in found.sources.values():
        yield ok("files", f"no other user can read {found.file}")
