"""Certificates: their keys, names and times.

Rule: a certificate names one principal of one cluster. Only a master's has the DNS name that
clients verify.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from croupier.model.errors import InvalidRequest
from croupier.net.trust_domain import MASTER_DOMAIN, agent_dns_name, identity_uri, master_dns_name

ExtensionT = TypeVar("ExtensionT", bound=x509.ExtensionType)
# Other machines' clocks may be behind by this much.
BACKDATED: Final = timedelta(hours=1)
MAX_DAYS: Final = 36_500
_MAX_COMMON_NAME: Final = 64


@dataclass(frozen=True, slots=True)
class Signer:
    """A certificate with its key: an authority that signs, or a certificate that it signed."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def key_pem(self) -> bytes:
        """The key, not encrypted."""
        return self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    @property
    def pem(self) -> bytes:
        """The certificate."""
        return to_pem([self.certificate])


@dataclass(frozen=True, slots=True)
class Leaf:
    """The purpose of a certificate.

    Attributes:
        kind: `master`, `agent`, `client`, or `etcd`, which is no principal.
        name: of the master, agent, client or member.
        hosts: DNS names and IP addresses at which it listens.
    """

    kind: str
    name: str
    hosts: tuple[str, ...] = ()

    def names(self, cluster: str) -> list[x509.GeneralName]:
        """Return the names in the certificate; raises InvalidRequest if a host is malformed."""
        names: list[x509.GeneralName] = []
        if self.kind != "etcd":
            uri = identity_uri(cluster, f"{self.kind}/{self.name}")
            names.append(x509.UniformResourceIdentifier(uri))
        if self.kind == "master":
            names.append(x509.DNSName(master_dns_name(cluster)))
        if self.kind == "agent":
            names.append(x509.DNSName(agent_dns_name(cluster)))
        return [*names, *map(_host_name, self.hosts)]

    @property
    def usage(self) -> list[x509.ObjectIdentifier]:
        """The purposes of the certificate: agents serve output, masters and agents connect."""
        client = [ExtendedKeyUsageOID.CLIENT_AUTH]
        return client if self.kind == "client" else [ExtendedKeyUsageOID.SERVER_AUTH, *client]


def make_authority(cluster: str, days: int, now: datetime) -> Signer:
    """Return a new authority of a cluster; a second one has another subject."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    subject = _subject(f"Croupier CA {cluster[:24]} {now:%Y-%m-%d} {serial & 0xFFFF:04x}")
    name = x509.UniformResourceIdentifier(identity_uri(cluster, ""))
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        _builder(subject, subject, key.public_key(), days, now, serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
    )
    return Signer(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Signer, cluster: str, leaf: Leaf, days: int, now: datetime) -> Signer:
    """Return a new certificate with a new key; raises InvalidRequest if a host is malformed."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(f"{leaf.kind} {leaf.name}")
    names, usage = leaf.names(cluster), leaf.usage
    return _sign(
        authority,
        subject,
        key,
        x509.SubjectAlternativeName(names),
        x509.ExtendedKeyUsage(usage),
        days,
        now,
    )


def renew(authority: Signer, old: Signer, days: int, now: datetime) -> Signer:
    """Return a certificate with the names, uses and key of `old`."""
    found = old.certificate.extensions
    names = found.get_extension_for_class(x509.SubjectAlternativeName).value
    usage = found.get_extension_for_class(x509.ExtendedKeyUsage).value
    return _sign(authority, old.certificate.subject, old.key, names, usage, days, now)


def to_pem(certificates: Iterable[x509.Certificate]) -> bytes:
    """Return certificates as the contents of one file."""
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def uris(certificate: x509.Certificate) -> list[str]:
    """Return the SAN URIs of a certificate."""
    return _names(certificate).get_values_for_type(x509.UniformResourceIdentifier)


def hosts(certificate: x509.Certificate) -> list[str]:
    """Return the DNS names and IP addresses of a certificate."""
    names = _names(certificate)
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def is_authority(certificate: x509.Certificate) -> bool:
    """Return whether the certificate may sign others."""
    found = extension(certificate, x509.BasicConstraints)
    return found is not None and found.ca


def extension(certificate: x509.Certificate, kind: type[ExtensionT]) -> ExtensionT | None:
    """Return an extension of a certificate; None if there is none."""
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def _names(certificate: x509.Certificate) -> x509.SubjectAlternativeName:
    return extension(certificate, x509.SubjectAlternativeName) or x509.SubjectAlternativeName([])


def _sign(
    authority: Signer,
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    names: x509.SubjectAlternativeName,
    usage: x509.ExtendedKeyUsage,
    days: int,
    now: datetime,
) -> Signer:
    issuer, serial = authority.certificate, x509.random_serial_number()
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _builder(subject, issuer.subject, key.public_key(), days, now, serial)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(names, critical=False)
        .add_extension(usage, critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), False
        )
    )
    return Signer(builder.sign(authority.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    days: int,
    now: datetime,
    serial: int,
) -> x509.CertificateBuilder:
    if not 1 <= days <= MAX_DAYS:
        raise InvalidRequest(f"--days is between 1 and {MAX_DAYS}, not {days}")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _subject(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:_MAX_COMMON_NAME])])


def _host_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    is_plain = host.isascii() and all(char.isalnum() or char in "-._*" for char in host)
    if not host or len(host) > 253 or not is_plain:
        raise InvalidRequest(f"--address {host[:80]!r} is no host name or IP address")
    # The names by which clients know masters, and wildcards that match them.
    _, dot, last = host.lower().rstrip(".").rpartition(".")
    if (dot and last == MASTER_DOMAIN) or last == "*":
        raise InvalidRequest(
            f"--address {host!r}: names that end in .{MASTER_DOMAIN} tell masters from others"
        )
    return x509.DNSName(host)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)
