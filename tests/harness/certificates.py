"""Certificates for tests: authorities with EC P-256 keys, and what they sign."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CLUSTER = "test"
MASTER_NAME = f"master.{CLUSTER}.croupier"
HOUR = dt.timedelta(hours=1)


@dataclass(frozen=True)
class PemFiles:
    """A certificate and its key; `ca` are the authorities that its holder trusts."""

    ca: Path
    cert: Path
    key: Path


class Authority:
    """A certificate authority with a trust domain."""

    def __init__(
        self, cluster: str = CLUSTER, valid: tuple[dt.timedelta, dt.timedelta] = (-HOUR, HOUR)
    ) -> None:
        self.cluster = cluster
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{cluster} CA")])
        self._serials = iter(range(1, 1_000_000))
        san = [x509.UniformResourceIdentifier(f"croupier://{cluster}")] if cluster else []
        self._certificate = self._sign(self._name, self._key.public_key(), san, valid, is_ca=True)
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(
        self,
        directory: Path,
        role: str,
        *,
        valid: tuple[dt.timedelta, dt.timedelta] = (-HOUR, HOUR),
        dns: Iterable[str] = (),
        trusting: bytes | None = None,
        cluster: str | None = None,
    ) -> PemFiles:
        """Write a certificate of `role`, such as `agent/a1`, its key and the trusted authorities.

        Args:
            directory: is made; a second certificate replaces the first.
            role: the path of the SAN URI; a master also gets the name that clients verify.
            valid: the times from now at which it begins and ends to be valid.
            dns: further DNS names.
            trusting: PEM of the authorities that the holder trusts; None is this one.
            cluster: the trust domain of the certificate; None is that of this authority.
        """
        cluster = self.cluster if cluster is None else cluster
        names: list[x509.GeneralName] = [
            x509.UniformResourceIdentifier(f"croupier://{cluster or 'none'}/{role}"),
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            *map(x509.DNSName, dns),
        ]
        if role.startswith("master/"):
            names.append(x509.DNSName(f"master.{cluster}.croupier"))
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role)])
        certificate = self._sign(subject, key.public_key(), names, valid)
        directory.mkdir(parents=True, exist_ok=True)
        files = PemFiles(directory / "ca.pem", directory / "cert.pem", directory / "key.pem")
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        _replace(files.key, secret)
        _replace(files.cert, certificate.public_bytes(serialization.Encoding.PEM))
        _replace(files.ca, self.pem if trusting is None else trusting)
        return files

    def _sign(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        names: Iterable[x509.GeneralName],
        valid: tuple[dt.timedelta, dt.timedelta] = (-HOUR, HOUR),
        *,
        is_ca: bool = False,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(next(self._serials))
            .not_valid_before(now + valid[0])
            .not_valid_after(now + valid[1])
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        )
        # They tell authorities of the same name apart.
        by = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(by, critical=False)
        own = x509.SubjectKeyIdentifier.from_public_key(public)
        builder = builder.add_extension(own, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if not is_ca:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        return builder.sign(self._key, hashes.SHA256())


@cache
def authority(cluster: str = CLUSTER) -> Authority:
    """Return the authority of `cluster` for the whole test run."""
    return Authority(cluster)


def _replace(path: Path, data: bytes) -> None:
    scratch = path.with_name(path.name + ".new")
    scratch.write_bytes(data)
    scratch.replace(path)
