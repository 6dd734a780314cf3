"""What a client needs to connect: authorities to trust, its certificate, its token.

Rule: a file with a token that its group or others can read is refused, and one is never
overwritten. Files are read for each channel, so that a renewed certificate or token is used from
the next connection on. gRPC is imported only when a channel is made: command lines read these
flags.
"""

from __future__ import annotations

import os
import secrets
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from croupier.model.errors import InvalidRequest
from croupier.model.token import SECRET_BYTES, BearerToken
from croupier.net.address import Address
from croupier.net.trust_domain import master_dns_name, trust_domains

if TYPE_CHECKING:
    import grpc

Metadata = tuple[tuple[str, str], ...]

AUTHORIZATION: Final = "authorization"
BEARER: Final = "Bearer "
MAX_TOKEN_BYTES: Final = 8192
MAX_FILE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    """The credentials of a client and its trusted authorities; by default plain text, no token.

    Attributes:
        ca: file (PEM) of the authorities that sign masters' certificates; None for plain text.
        cert, key: files (PEM) of the client's certificate and its key; None for none.
        name: DNS name that a master's certificate must have. If empty, it is that of the cluster
            that `ca` names (`master.CLUSTER.croupier`), else the host that the client connects to.
        token: bearer token; empty for none.
        token_file: file with a bearer token on its first line; `token` overrides it.
    """

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    name: str = ""
    token: str = field(default="", repr=False)
    token_file: Path | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether connections use TLS."""
        return self.ca is not None

    @property
    def has_token(self) -> bool:
        """Whether calls carry a bearer token."""
        return bool(self.token) or self.token_file is not None

    def check(self) -> None:
        """Read every file once; raises InvalidRequest if unusable, or if settings contradict."""
        if self.ca is None and (self.cert is not None or self.name):
            raise InvalidRequest(
                "a client certificate (--tls-cert) and the master's name (--tls-name) are for TLS;"
                " give --tls-ca, the certificates of the authorities to trust"
            )
        if (self.cert is None) != (self.key is None):
            raise InvalidRequest("--tls-cert needs --tls-key, and --tls-key needs --tls-cert")
        if self.ca is not None:
            self.target_name()
        if self.cert is not None and self.key is not None:
            check_pair(self.cert, self.key)
        self.metadata()

    def channel_credentials(self) -> grpc.ChannelCredentials | None:
        """Read the files; None for plain text. Raises InvalidRequest if one cannot be used."""
        if self.ca is None:
            return None
        import grpc

        self.check()
        cert = None if self.cert is None else read_pem(self.cert)
        key = None if self.key is None else read_pem(self.key)
        return grpc.ssl_channel_credentials(read_pem(self.ca), key, cert)

    def target_name(self) -> str:
        """Return the name in masters' certificates, empty for the host's; raises InvalidRequest."""
        if self.name or self.ca is None:
            return self.name
        domains = self.trust_domains()
        if len(domains) > 1:
            found = ", ".join(sorted(domains))
            raise InvalidRequest(f"{self.ca} is for several clusters ({found}); give --tls-name")
        return "".join(map(master_dns_name, domains))

    def trust_domains(self) -> frozenset[str]:
        """Return the clusters that `ca` names, none without it; raises InvalidRequest."""
        return frozenset() if self.ca is None else trust_domains(_authority_uris(self.ca))

    def metadata(self, address: Address | None = None) -> Metadata:
        """Return what every call to the master at `address` carries: the token, if there is one.

        Raises InvalidRequest if the token cannot be read, or would cross a network unencrypted.
        """
        token = self.token or ("" if self.token_file is None else read_token(self.token_file))
        if not token:
            return ()
        check_token(token)
        if address is not None and not self.is_encrypted and not address.is_loopback:
            raise InvalidRequest(
                f"the token would cross the network to {address} unencrypted; give --tls-ca"
            )
        return ((AUTHORIZATION, BEARER + token),)


def read_token(path: Path) -> str:
    """Return the token on a file's first line; raises InvalidRequest unless the file is private."""
    data = read_file(path, is_private=True)
    first = data.decode(errors="replace").partition("\n")[0].strip()
    if not first:
        raise InvalidRequest(f"there is no token on the first line of {path}")
    return first


def check_token(token: str) -> None:
    """Raise InvalidRequest, without quoting `token`, if no call can carry it."""
    if len(token) > MAX_TOKEN_BYTES or not all("!" <= char <= "~" for char in token):
        raise InvalidRequest(
            f"a token has at most {MAX_TOKEN_BYTES} printable ASCII characters and no white space"
        )


def read_pem(path: Path) -> bytes:
    """Return the contents of a PEM file; raises InvalidRequest if it cannot be read, or is none."""
    data = read_file(path)
    if b"-----BEGIN " not in data:
        raise InvalidRequest(f"{path} is not a PEM file")
    return data


def read_file(path: Path, *, is_private: bool = False) -> bytes:
    """Return the contents of a small file; raises InvalidRequest if unreadable, large or public."""
    try:
        # A pipe must not block.
        fd = os.open(path.expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise InvalidRequest(f"{path} is not a file")
            if is_private and (problem := privacy_problem(status)):
                raise InvalidRequest(f"{path} holds a token, but {problem}")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise InvalidRequest(f"{path} is too large")
    return data


def privacy_problem(status: os.stat_result) -> str:
    """Return why another user could read or replace a file; empty if none can."""
    if status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        return f"other users may read or write it (mode {mode:04o}): chmod 600"
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to another user (uid {status.st_uid})"
    return ""


def check_pair(cert: Path, key: Path) -> None:
    """Raise InvalidRequest unless `key`, which can be read, is the private key of `cert`."""
    for path in (cert, key):
        read_pem(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        # Without a password OpenSSL would ask the terminal for one.
        context.load_cert_chain(cert.expanduser(), key.expanduser(), password=lambda: b"")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise InvalidRequest(f"{key} is not the key of {cert}") from None
        raise InvalidRequest(
            f"{cert} is not a certificate, or {key} is not its unencrypted private key"
        ) from None
    except OSError as error:
        raise InvalidRequest(f"cannot read {cert} or {key}: {error.strerror}") from None


def _authority_uris(ca: Path) -> list[str]:
    data = read_pem(ca)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=data.decode("ascii", errors="replace"))
        authorities: list[Any] = context.get_ca_certs()
    except (ssl.SSLError, ValueError):
        authorities = []
    if not authorities:
        raise InvalidRequest(f"{ca} has no certificate of an authority")
    names = [each for authority in authorities for each in authority.get("subjectAltName", ())]
    return [str(value) for kind, value in names if kind == "URI"]


def make_token() -> BearerToken:
    """Return a new token."""
    return BearerToken(secrets.token_hex(4), secrets.token_urlsafe(SECRET_BYTES))


def read_token_file(path: Path) -> BearerToken:
    """Return the token in the file; raises InvalidRequest if there is none, or not private."""
    try:
        return BearerToken.parse(read_token(path))
    except InvalidRequest as error:
        text = str(error)
        raise InvalidRequest(text if str(path) in text else f"{path}: {text}") from None


def create_token_file(path: Path, token: BearerToken, rest: str = "") -> None:
    """Write a new file, 0600, synced: the token, then `rest`; raises OSError also if it exists."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(f"{token.text}\n{rest}".encode())
        file.flush()
        os.fsync(fd)
