"""The address of an etcd, the prefix of a cluster's keys, and the credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cyclopts import Parameter

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address, parse_addresses
from croupier.net.credentials import read_pem
from croupier.process.durable_files import os_errors_as

SCHEME: Final = "etcd://"
DEFAULT_PORT: Final = 2379
DEFAULT_PREFIX: Final = "croupier"

_COMPONENT = re.compile(r"[A-Za-z0-9._-]{1,100}")
# Names of our own keys: the keys of a cluster `a/records` would be records of the cluster `a`.
_OURS = frozenset({"leader", "head", "schema", "records", "staged"})


@dataclass(frozen=True, slots=True)
class EtcdTarget:
    """The members of an etcd, and the `prefix` of a cluster's keys, without outer slashes."""

    endpoints: tuple[Address, ...]
    prefix: str

    @classmethod
    def parse(cls, text: str) -> EtcdTarget:
        """Read `etcd://HOST[:PORT],.../PREFIX`; raises InvalidRequest for any other form."""
        if not text.startswith(SCHEME):
            raise InvalidRequest(f"{text!r} is not {SCHEME}HOST:PORT,.../PREFIX")
        hosts, _, path = text.removeprefix(SCHEME).partition("/")
        prefix = path.strip("/") or DEFAULT_PREFIX
        for component in prefix.split("/"):
            if not _COMPONENT.fullmatch(component) or component in {".", ".."} | _OURS:
                raise InvalidRequest(f"{text!r}: {component!r} cannot be part of a prefix")
        return cls(parse_addresses(hosts, DEFAULT_PORT), prefix)

    def __str__(self) -> str:
        return f"{SCHEME}{','.join(map(str, self.endpoints))}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Credentials for etcd; by default none, over plain text.

    Attributes:
        ca: the certificates that etcd's certificate must be signed by. Without `ca` and `cert`,
            connections are plain text.
        cert: the master's client certificate, with its `key`; None for none.
        user: a user of etcd's own authentication; empty for none.
    """

    ca: bytes | None = field(default=None, repr=False)
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Return whether connections use TLS."""
        return self.ca is not None or self.cert is not None

    @property
    def certificate_expires_at(self) -> float | None:
        """Return the Unix time, in seconds, at which `cert` expires; None without one."""
        from croupier.net.certificate import parse_certificates

        try:
            return None if self.cert is None else parse_certificates(self.cert)[0].expires_at
        except InvalidRequest:
            # etcd refuses it with a reason.
            return None


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdFlags:
    """The files of credentials for etcd; the default is none, for plain text."""

    etcd_ca: Path | None = None
    """CA certificates (PEM) that signed the certificates of etcd's members. Enables TLS. Masters
    reread the files of credentials for etcd when they change."""

    etcd_cert: Path | None = None
    """Client certificate (PEM) for etcd."""

    etcd_key: Path | None = None
    """Private key (PEM) of --etcd-cert."""

    etcd_user: str = ""
    """User name in etcd, if etcd requires authentication."""

    etcd_password_file: Path | None = None
    """File with the password of --etcd-user on its first line."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are set."""
        found = (self.etcd_ca, self.etcd_cert, self.etcd_key, self.etcd_password_file)
        return tuple(path for path in found if path is not None)

    def read(self) -> EtcdAccess:
        """Read the credentials; raises InvalidRequest if one is unreadable, or lacks its pair."""
        if (self.etcd_cert is None) != (self.etcd_key is None):
            raise InvalidRequest("a certificate for etcd needs its key, and a key its certificate")
        file = self.etcd_password_file
        if bool(self.etcd_user) != (file is not None):
            raise InvalidRequest("a user of etcd needs a password file, and a password file a user")
        text = "" if file is None else _read(file).decode(errors="replace")
        password = text.partition("\n")[0].rstrip("\r")
        files = (self.etcd_ca, self.etcd_cert, self.etcd_key)
        ca, cert, key = (None if path is None else read_pem(path) for path in files)
        return EtcdAccess(ca, cert, key, self.etcd_user, password)

    def check_protected(self, target: EtcdTarget, *, is_insecure: bool) -> None:
        """Raise InvalidRequest if traffic to other machines is not encrypted, nor `is_insecure`."""
        if self.read().is_encrypted or is_insecure:
            return
        for member in target.endpoints:
            if not member.is_loopback:
                raise InvalidRequest(
                    f"traffic to etcd at {member} would not be encrypted; give --etcd-ca,"
                    " or --insecure to accept that"
                )


def _read(path: Path) -> bytes:
    with os_errors_as(InvalidRequest, f"cannot read {path}"):
        return path.expanduser().read_bytes()
