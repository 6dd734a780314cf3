"""The TLS settings of servers: what gRPC and HTTP listeners show to their peers.

TLS 1.2 or newer; gRPC's own default is the same. Client certificates are required (mutual TLS) or
not asked for by a gRPC listener, and optional for an HTTP listener with authorities.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import grpc

from croupier.model.errors import InvalidRequest
from croupier.net.certificate import Certificate, parse_certificates
from croupier.net.credentials import check_pair, read_pem
from croupier.net.trust_domain import identity_uri, master_dns_name

# Another program may replace the files while they are read.
_MAX_READS = 5

Signature = tuple[tuple[int, int, int, int] | None, ...]


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The PEM files of a server: `cert` with intermediates, `ca` of clients, None for none."""

    cert: Path
    key: Path
    ca: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files."""
        return (self.cert, self.key) if self.ca is None else (self.cert, self.key, self.ca)


@dataclass(frozen=True, slots=True)
class ServerTls:
    """The contents of a server's files at one time; `authorities` are those of its clients."""

    files: TlsFiles
    certificate: Certificate
    authorities: tuple[Certificate, ...]
    http: ssl.SSLContext
    grpc: grpc.ServerCertificateConfiguration

    @property
    def authority_expires_at(self) -> float | None:
        """Unix seconds at which the authority of its own certificate, or the last, expires."""
        own = [each for each in self.authorities if each.subject == self.certificate.issuer]
        return max((each.expires_at for each in own or self.authorities), default=None)

    @classmethod
    def load(cls, files: TlsFiles, now_s: float) -> ServerTls:
        """Read and check the files at `now_s`, Unix seconds; raises InvalidRequest if unusable."""
        for _ in range(_MAX_READS):
            before = signature_of(files.paths)
            try:
                loaded = cls._read(files)
            except InvalidRequest:
                if signature_of(files.paths) == before:
                    raise
                continue
            if signature_of(files.paths) == before:
                loaded.certificate.check_valid(files.cert, now_s)
                return loaded
        raise InvalidRequest(f"{files.cert} or {files.key} changes all the time")

    @classmethod
    def _read(cls, files: TlsFiles) -> ServerTls:
        check_pair(files.cert, files.key)
        cert, key = read_pem(files.cert), read_pem(files.key)
        ca = None if files.ca is None else read_pem(files.ca)
        return cls(
            files,
            parse_certificates(cert, files.cert)[0],
            () if files.ca is None or ca is None else parse_certificates(ca, files.ca),
            _http_context(files, ca),
            grpc.ssl_server_certificate_configuration([(key, cert)], ca),
        )


def server_credentials(
    current: Callable[[], ServerTls], *, requires_certificate: bool
) -> grpc.ServerCredentials:
    """Return gRPC credentials that each handshake asks `current` for.

    gRPC calls it in a thread of its own, one call at a time. A server that requires a certificate
    ends handshakes without a valid one; another does not ask for one.
    """
    given = current()

    def renewed() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        latest = current()
        if latest is given:
            return None
        given = latest
        return latest.grpc

    # The stubs leave out that None means no change.
    fetch = cast("Callable[[], grpc.ServerCertificateConfiguration]", renewed)
    return grpc.dynamic_ssl_server_credentials(given.grpc, fetch, requires_certificate)


def check_master(tls: ServerTls, name: str = "") -> None:
    """Check that clients will accept the certificate as that of a master.

    They verify `name`; if that is empty, the name that follows from the trust domain. Raises
    InvalidRequest if they will not, or the master could not tell its clients' identities.
    """
    certificate, file = tls.certificate, tls.files.cert
    domain = certificate.trust_domain
    verified = name or (master_dns_name(domain) if domain else "")
    if verified and verified not in certificate.dns:
        raise InvalidRequest(
            f"{file} is not the certificate of a master, but of"
            f" {certificate.identity or certificate.subject}: it lacks the DNS name {verified}"
        )
    if not domain and tls.files.ca is not None:
        raise InvalidRequest(
            f"{file} does not name its cluster; with --tls-ca it needs a SAN URI such as"
            f" {identity_uri('CLUSTER', 'master/NAME')}"
        )


def signature_of(paths: tuple[Path, ...]) -> Signature:
    """Return a value that differs once one of the files was replaced or changed."""
    return tuple(_signature(path.expanduser()) for path in paths)


def _signature(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _http_context(files: TlsFiles, ca: bytes | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # Compression and renegotiation by clients cost the server more than the client.
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # A resumed session would outlive its certificate.
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    try:
        context.load_cert_chain(files.cert.expanduser(), files.key.expanduser())
        if ca is not None:
            context.load_verify_locations(cadata=ca.decode("ascii", errors="replace"))
            context.verify_mode = ssl.CERT_OPTIONAL
    except (ssl.SSLError, OSError) as error:
        raise InvalidRequest(f"cannot use {', '.join(map(str, files.paths))}: {error}") from None
    return context
