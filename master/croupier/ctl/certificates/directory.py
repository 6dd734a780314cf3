"""The directory of a private authority, and its certificates for people and programs.

`ca.crt` has the authorities to trust and goes to every machine, `ca.key` stays. Beside them are
the certificates that were signed, such as `master-m1.crt` with `master-m1.key`.

Rule: keys have mode 0600, and no file is overwritten unless that was asked for. While an authority
is replaced, `ca.crt` has the new and the old one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from croupier.cli.terminal import View
from croupier.ctl.certificates.certificate import (
    Leaf,
    Signer,
    extension,
    hosts,
    is_authority,
    issue,
    make_authority,
    renew,
    to_pem,
    uris,
)
from croupier.model.durations import duration_text
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import check_id
from croupier.net.certificate import parse_certificates
from croupier.net.credentials import read_pem
from croupier.net.trust_domain import check_trust_domain, trust_domains
from croupier.process.durable_files import os_errors_as, replace_file

_USES = {ExtendedKeyUsageOID.SERVER_AUTH: "server", ExtendedKeyUsageOID.CLIENT_AUTH: "client"}
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class CertificateFiles:
    """The files of one certificate."""

    cert: Path
    key: Path
    certificate: x509.Certificate


class AuthorityDirectory:
    """A directory with an authority."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ca, self.key, self.old_key = path / "ca.crt", path / "ca.key", path / "ca-old.key"

    def init(self, cluster: str, days: int, now: datetime, *, force: bool) -> CertificateFiles:
        """Make a cluster's authority; raises InvalidRequest or, without `force`, Conflict."""
        authority = make_authority(check_trust_domain(cluster), days, now)
        with os_errors_as(InvalidRequest, f"cannot make {self.path}"):
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.key.exists() and not force:
            raise Conflict(
                f"{self.key} exists; croupier cert rotate replaces an authority without a break;"
                " --force voids every certificate that it signed"
            )
        _write(self.key, authority.key_pem, 0o600)
        _write(self.ca, authority.pem, 0o644)
        return CertificateFiles(self.ca, self.key, authority.certificate)

    def issue(self, leaf: Leaf, days: int, now: datetime, *, force: bool) -> CertificateFiles:
        """Write a certificate and its key; raises InvalidRequest or, unless `force`, Conflict."""
        check_id(leaf.kind, leaf.name)
        authority = self.authority()
        stem = f"{leaf.kind}-{leaf.name}"
        files = self.path / f"{stem}.crt", self.path / f"{stem}.key"
        for path in files:
            if path.exists() and not force:
                raise Conflict(
                    f"{path} exists; croupier cert renew {files[0]} renews it, --force replaces it"
                )
        made = issue(authority, self.cluster(), leaf, days, now)
        _write(files[1], made.key_pem, 0o600)
        _write(files[0], made.pem, 0o644)
        return CertificateFiles(*files, made.certificate)

    def renew(self, cert: Path, days: int, now: datetime) -> CertificateFiles:
        """Replace a certificate by its renewal; raises InvalidRequest for unusable files."""
        key = cert.with_suffix(".key")
        found = read_certificates(cert)
        if len(found) != 1 or is_authority(found[0]):
            raise InvalidRequest(f"{cert} is not a certificate of a master, agent or client")
        made = renew(self.authority(), Signer(found[0], read_key(key)), days, now)
        _write(cert, made.pem, 0o644)
        return CertificateFiles(cert, key, made.certificate)

    def leaves(self) -> list[Path]:
        """Return the files of all certificates that were signed here."""
        return [path for path in sorted(self.path.glob("*.crt")) if path != self.ca]

    def rotate(self, days: int, now: datetime) -> CertificateFiles:
        """Make a second authority, which signs from now on; the old one stays trusted.

        Raises InvalidRequest if there is no authority here; Conflict if an earlier rotation is not
        finished.
        """
        old = self.authority()
        if len(self.authorities()) > 1:
            raise Conflict(
                f"{self.ca} has an old authority already; finish that rotation first:"
                f" croupier cert rotate {self.path} --finish"
            )
        new = make_authority(self.cluster(), days, now)
        # The bundle is complete before the new key can sign.
        _write(self.ca, to_pem([new.certificate, old.certificate]), 0o644)
        _write(self.old_key, old.key_pem, 0o600)
        _write(self.key, new.key_pem, 0o600)
        return CertificateFiles(self.ca, self.key, new.certificate)

    def finish_rotation(self) -> CertificateFiles:
        """Remove old authorities; raises InvalidRequest, or Conflict if none is or one is used."""
        current = self.authority().certificate
        if len(self.authorities()) == 1:
            raise Conflict(f"{self.ca} has one authority; there is nothing to finish")
        for path in self.leaves():
            if any(each.issuer != current.subject for each in read_certificates(path)):
                raise Conflict(
                    f"{path} was signed by the old authority, and would lose its trust; renew it"
                    f" first: croupier cert renew {self.path}"
                )
        _write(self.ca, to_pem([current]), 0o644)
        self.old_key.unlink(missing_ok=True)
        return CertificateFiles(self.ca, self.key, current)

    def cluster(self) -> str:
        """Return the cluster's name; raises InvalidRequest if the authorities name none or two."""
        found = trust_domains(uri for each in self.authorities() for uri in uris(each))
        if len(found) != 1:
            raise InvalidRequest(
                f"{self.ca} does not name one cluster; croupier cert init makes one"
            )
        return "".join(found)

    def authorities(self) -> Sequence[x509.Certificate]:
        """Return the authorities that are trusted; raises as `authority`."""
        self._check_exists()
        return [each for each in read_certificates(self.ca) if is_authority(each)]

    def authority(self) -> Signer:
        """Return the authority that signs; raises InvalidRequest if there is none here."""
        self._check_exists()
        key = read_key(self.key)
        for each in self.authorities():
            if each.public_key() == key.public_key():
                return Signer(each, key)
        raise InvalidRequest(f"{self.key} is the key of no certificate in {self.ca}")

    def _check_exists(self) -> None:
        if not (self.ca.exists() and self.key.exists()):
            raise InvalidRequest(
                f"there is no authority (ca.crt and ca.key) in {self.path}; croupier cert init"
                " makes one; --dir names its directory"
            )


def read_certificates(path: Path) -> list[x509.Certificate]:
    """Return the certificates in a file; raises InvalidRequest if it has none, or is unreadable."""
    try:
        return x509.load_pem_x509_certificates(read_pem(path))
    except ValueError:
        raise InvalidRequest(f"{path} has no certificate") from None


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the key in a file; raises InvalidRequest if it cannot be read, or has no such key."""
    try:
        key = serialization.load_pem_private_key(read_pem(path), password=None)
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidRequest(f"{path} is not an unencrypted private key of croupier cert")
    return key


def _write(path: Path, data: bytes, mode: int) -> None:
    with os_errors_as(InvalidRequest, f"cannot write {path}"):
        replace_file(path, data, mode)


def certificate_views(path: Path, now: datetime) -> list[View]:
    """Return the certificates of a file, or of a directory; raises InvalidRequest without any."""
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
    found = extension(certificate, x509.ExtendedKeyUsage) or ()
    return [_USES.get(each, each.dotted_string) for each in found]


def _iso(time: datetime) -> str:
    return f"{time:%Y-%m-%dT%H:%M:%SZ}"
