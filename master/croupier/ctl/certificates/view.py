"""Certificates for people and programs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID

from croupier.cli.terminal import View
from croupier.ctl.certificates.certificate import hosts, is_authority, to_pem, uris
from croupier.ctl.certificates.directory import read_certificates
from croupier.model.durations import duration_text
from croupier.model.errors import InvalidRequest
from croupier.net.certificate import parse_certificates

_USES = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}
_DAY_S = 86_400.0


def certificate_views(path: Path, now: datetime) -> list[View]:
    """Return the certificates in a file, or in all `.crt` files of a directory.

    Raises:
        InvalidRequest: if there are none.
    """
    paths = sorted(path.glob("*.crt")) if path.is_dir() else [path]
    if not paths:
        raise InvalidRequest(f"there is no .crt file in {path}")
    return [
        certificate_view(certificate, file, now)
        for file in paths
        for certificate in read_certificates(file)
    ]


def certificate_view(certificate: x509.Certificate, file: Path, now: datetime) -> View:
    """Return the contents of a certificate."""
    left_s = (certificate.not_valid_after_utc - now).total_seconds()
    is_begun = certificate.not_valid_before_utc <= now
    return {
        "file": str(file),
        "is_authority": is_authority(certificate),
        "uris": uris(certificate),
        "hosts": hosts(certificate),
        "issuer": certificate.issuer.rfc4514_string(),
        "uses": _uses(certificate),
        "valid_from": _iso(certificate.not_valid_before_utc),
        "valid_until": _iso(certificate.not_valid_after_utc),
        "days_left": round(left_s / _DAY_S, 2),
        "state": "expired" if left_s <= 0 else "valid" if is_begun else "not valid yet",
        "sha256": certificate.fingerprint(hashes.SHA256()).hex(),
        "key_id": parse_certificates(to_pem([certificate]), file)[0].key_id,
    }


def certificate_lines(view: View) -> Iterator[str]:
    """Yield the lines that show a certificate."""
    yield view["file"]
    yield f"  name      {', '.join(view['uris']) or '-'}"
    if view["hosts"]:
        yield f"  hosts     {', '.join(view['hosts'])}"
    uses = "authority: signs certificates" if view["is_authority"] else ", ".join(view["uses"])
    yield f"  use       {uses or 'any'}"
    yield f"  issuer    {view['issuer']}"
    yield f"  validity  {view['valid_from']} to {view['valid_until']}: {validity_text(view)}"
    yield f"  SHA-256   {view['sha256']}"
    yield f"  key       {view['key_id']}"


def validity_text(view: View) -> str:
    """Return whether the certificate is valid, and for how long."""
    if view["state"] != "valid":
        return str(view["state"])
    days = view["days_left"]
    return f"{days:.0f} days left" if days >= 2 else f"{duration_text(days * _DAY_S)} left"


def _uses(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return []
    return [_USES.get(each, each.dotted_string) for each in found]


def _iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
