"""Flags for TLS, the same for masters and agents, and the refusal to listen without it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address
from croupier.net.credentials import ClientSecurity

if TYPE_CHECKING:  # gRPC
    from croupier.net.server_tls import TlsFiles


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFlags:
    """Files of a daemon's certificate, which are reread when they change.

    Raises InvalidRequest if a flag is given without another that it needs.
    """

    tls_cert: Path | None = None
    """Certificate (PEM) of this daemon, for its listeners and for connections to masters. Enables
    TLS. It is reread when it changes."""

    tls_key: Path | None = None
    """Private key (PEM) of --tls-cert."""

    tls_ca: Path | None = None
    """Certificates (PEM) of the authorities to trust. A master with it requires a certificate of
    each client (mutual TLS)."""

    tls_name: str = ""
    """DNS name that the certificates of all masters have. Default: master.CLUSTER.croupier if
    --tls-ca was made by `croupier cert init`; else the host that a client connects to."""

    def __post_init__(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidRequest("--tls-cert needs --tls-key, and --tls-key needs --tls-cert")
        if self.tls_name and self.tls_ca is None:
            raise InvalidRequest("--tls-name is for TLS: give --tls-ca")

    @property
    def has_certificate(self) -> bool:
        """Whether the daemon's listeners use TLS."""
        return self.tls_cert is not None

    def files(self) -> TlsFiles | None:
        """Return the files of the listeners; None for plain text."""
        from croupier.net.server_tls import TlsFiles

        if self.tls_cert is None or self.tls_key is None:
            return None
        return TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)

    def client(self) -> ClientSecurity:
        """Return the credentials of connections to masters; without --tls-ca plain text."""
        if self.tls_ca is None:
            return ClientSecurity()
        return ClientSecurity(self.tls_ca, self.tls_cert, self.tls_key, self.tls_name)


def check_exposed(address: Address, *, is_encrypted: bool, is_authenticated: bool) -> None:
    """Raise InvalidRequest if other machines can reach a listener that is not protected."""
    if address.is_loopback or (is_encrypted and is_authenticated):
        return
    lacking = [] if is_encrypted else ["encrypted"]
    lacking += [] if is_authenticated else ["authenticated"]
    needed = "--tls-cert and --tls-key" if not is_encrypted else "--auth"
    raise InvalidRequest(
        f"{address} can be reached from other machines, and nothing would be"
        f" {' or '.join(lacking)}; give {needed}, or --insecure to accept that"
    )
