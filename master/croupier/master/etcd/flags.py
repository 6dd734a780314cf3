"""Flags for the credentials for etcd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from croupier.master.etcd.target import EtcdAccess, EtcdTarget
from croupier.model.errors import InvalidRequest


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
        """Read the credentials.

        Raises:
            InvalidRequest: if a file cannot be read, or one of a pair is missing.
        """
        if (self.etcd_cert is None) != (self.etcd_key is None):
            raise InvalidRequest("a certificate for etcd needs its key, and a key its certificate")
        file = self.etcd_password_file
        if bool(self.etcd_user) != (file is not None):
            raise InvalidRequest("a user of etcd needs a password file, and a password file a user")
        text = "" if file is None else _read(file).decode(errors="replace")
        password = text.partition("\n")[0].rstrip("\r")
        ca, cert, key = map(_pem, (self.etcd_ca, self.etcd_cert, self.etcd_key))
        return EtcdAccess(ca, cert, key, self.etcd_user, password)

    def check_protected(self, target: EtcdTarget, *, is_insecure: bool) -> None:
        """Check that traffic to an etcd on another machine is encrypted, or may be `is_insecure`.

        Raises:
            InvalidRequest: if it is not, or the files cannot be used.
        """
        if self.read().is_encrypted or is_insecure:
            return
        for member in target.endpoints:
            if not member.is_loopback:
                raise InvalidRequest(
                    f"traffic to etcd at {member} would not be encrypted; give --etcd-ca,"
                    " or --insecure to accept that"
                )


def _pem(path: Path | None) -> bytes | None:
    if path is None:
        return None
    text = _read(path)
    if b"-----BEGIN " not in text:
        raise InvalidRequest(f"{path} is not a PEM file")
    return text


def _read(path: Path) -> bytes:
    try:
        return path.expanduser().read_bytes()
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from error
