"""Checks of the credentials on this machine: found, private, valid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from croupier.ctl.doctor.finding import Finding, fail, ok, warn
from croupier.model.durations import duration_text
from croupier.model.errors import InvalidRequest
from croupier.net.certificate import Certificate, read_certificates, utc
from croupier.net.credential_search import FoundCredentials
from croupier.net.credentials import privacy_problem

DAY_S: Final = 86_400.0
SOON_S: Final = 7 * DAY_S


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


_RENEW: Final = "renew it: croupier cert renew"


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
