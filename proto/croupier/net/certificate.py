"""Certificates in PEM files, with names and validity, and verification of an agent's."""

from __future__ import annotations

import datetime as dt
import ssl
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from croupier.model.access import KEY_DIGITS, KeyId
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId
from croupier.model.principal import PrincipalKind
from croupier.net.credentials import ClientSecurity, read_pem
from croupier.net.trust_domain import split_uri


@dataclass(frozen=True, slots=True)
class Certificate:
    """The parts of a certificate that Croupier uses.

    Attributes:
        uris, dns: names of its holder (SAN).
        starts_at, expires_at: bounds of its validity, in Unix seconds.
        key_id: the beginning of the SHA-256 of its public key; the same after a renewal.
    """

    subject: str
    issuer: str
    uris: tuple[str, ...]
    dns: tuple[str, ...]
    starts_at: float
    expires_at: float
    key_id: KeyId

    @property
    def trust_domain(self) -> str:
        """The trust domain that it names; empty for none."""
        return self._identity()[0]

    @property
    def identity(self) -> str:
        """The name of its principal, such as `agent/A1`; empty for none."""
        return self._identity()[1]

    def check_valid(self, source: Path, now_s: float) -> None:
        """Raise InvalidRequest, which names `source`, unless valid at `now_s`, Unix seconds."""
        if now_s >= self.expires_at:
            raise InvalidRequest(f"the certificate {source} expired on {utc(self.expires_at)}")
        if now_s < self.starts_at:
            raise InvalidRequest(
                f"the certificate {source} is not valid before {utc(self.starts_at)}; the clock of"
                f" this machine says {utc(now_s)}"
            )

    def _identity(self) -> tuple[str, str]:
        found = [names for uri in self.uris if (names := split_uri(uri)) is not None]
        return found[0] if found else ("", "")


def read_certificates(path: Path) -> tuple[Certificate, ...]:
    """Return the certificates in a PEM file, at least one; raises InvalidRequest if unusable."""
    return parse_certificates(read_pem(path), path)


def parse_certificates(data: bytes, source: Path = Path()) -> tuple[Certificate, ...]:
    """Return the certificates in PEM `data` of `source`, at least one; raises InvalidRequest."""
    # Takes 0.1 s to import, and only TLS needs it.
    from cryptography import x509

    malformed = (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType)
    try:
        found = x509.load_pem_x509_certificates(data)
        return tuple(map(_certificate, found))
    except malformed:
        raise InvalidRequest(f"{source} has no certificate, or a malformed one") from None


def _certificate(raw: object) -> Certificate:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    assert isinstance(raw, x509.Certificate)
    key = raw.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        names = raw.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        dns = names.get_values_for_type(x509.DNSName)
    except x509.ExtensionNotFound:
        uris, dns = [], []
    return Certificate(
        raw.subject.rfc4514_string(),
        raw.issuer.rfc4514_string(),
        tuple(uris),
        tuple(dns),
        raw.not_valid_before_utc.timestamp(),
        raw.not_valid_after_utc.timestamp(),
        KeyId(sha256(key).hexdigest()[:KEY_DIGITS]),
    )


def utc(unix_s: float) -> str:
    """Return a time as text, such as `2030-01-31 12:00:00 UTC`."""
    return f"{dt.datetime.fromtimestamp(unix_s, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"


def agent_context(security: ClientSecurity, agent_id: AgentId) -> ssl.SSLContext:
    """Return the TLS settings for connections to an agent; the file of authorities is read now.

    The certificate must be that of the agent whose output is read: its SAN URI is
    `croupier://CLUSTER/agent/ID`. No other certificate of the same authority passes for the
    agent's, and the agent may listen on any address. If the authorities name no cluster, the host's
    name is verified instead. Raises InvalidRequest if there are no authorities, or their file
    cannot be used.
    """
    if security.ca is None:
        raise InvalidRequest("the agent serves its output over TLS; give --tls-ca")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_verify_locations(cadata=read_pem(security.ca).decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise InvalidRequest(f"{security.ca} has no certificate of an authority") from None
    domains = security.trust_domains()
    if domains:
        context.check_hostname = False
        context.sslobject_class = _verifying(domains, agent_id)
    return context


def _verifying(domains: frozenset[str], agent_id: AgentId) -> type[ssl.SSLObject]:
    """Return a class whose handshake ends with a check of the peer's identity."""
    expected = f"{PrincipalKind.AGENT.value}/{agent_id}"

    class Verifying(ssl.SSLObject):
        def do_handshake(self) -> None:
            """Do the handshake, and check the identity of the peer."""
            super().do_handshake()
            names = (self.getpeercert() or {}).get("subjectAltName", ())
            uris = [split_uri(str(each[1])) for each in names if each[0] == "URI"]
            found = [uri[1] for uri in uris if uri is not None and uri[0] in domains]
            if expected not in found:
                raise ssl.SSLCertVerificationError(
                    f"the certificate is of {', '.join(found) or 'no principal of this cluster'},"
                    f" not of {expected}"
                )

    return Verifying
