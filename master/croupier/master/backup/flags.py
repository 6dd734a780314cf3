"""Flags of `croupier-master backup` and `restore`: the store, and credentials for etcd."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from croupier.master.config import StoreChoice
from croupier.master.etcd.target import EtcdFiles
from croupier.model.errors import InvalidRequest
from croupier.process.cli import read_by

AcceptedCopy = Literal["strict", "old-store"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFlags:
    """The store of the masters, named as in their own command line.

    Raises:
        InvalidRequest: if it is no store that lasts, or would be reached unprotected.
    """

    store: Annotated[StoreChoice, read_by(StoreChoice.parse)] = field(
        default_factory=lambda: StoreChoice(Path("croupier-master.db"))
    )
    """Store of the masters: sqlite:PATH or etcd://HOST:PORT,.../PREFIX."""

    etcd_ca: Path | None = None
    """CA certificates (PEM) that signed the certificates of etcd's members. Enables TLS."""

    etcd_cert: Path | None = None
    """Client certificate (PEM) for etcd."""

    etcd_key: Path | None = None
    """Private key (PEM) of --etcd-cert."""

    etcd_user: str = ""
    """User name in etcd, if etcd requires authentication."""

    etcd_password_file: Path | None = None
    """File with the password of --etcd-user on its first line."""

    insecure: bool = False
    """Allow unencrypted traffic to etcd on another machine."""

    def __post_init__(self) -> None:
        if self.store.path is None and self.store.etcd is None:
            raise InvalidRequest("a store in memory ends with its master: there is nothing to copy")
        if self.store.etcd is not None:
            self.etcd_files().check_protected(self.store.etcd, is_insecure=self.insecure)

    def etcd_files(self) -> EtcdFiles:
        """Return the files of the credentials for etcd."""
        return EtcdFiles(
            self.etcd_ca, self.etcd_cert, self.etcd_key, self.etcd_user, self.etcd_password_file
        )
