"""Flags of `croupier-master backup` and `restore`: the store, and credentials for etcd."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from croupier.master.config import StoreChoice
from croupier.master.etcd.target import EtcdFlags
from croupier.model.errors import InvalidRequest
from croupier.process.cli import read_by

AcceptedCopy = Literal["strict", "old-store"]


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFlags:
    """The store of the masters, named as in their own command line.

    Raises InvalidRequest if it is no store that lasts, or would be reached unprotected.
    """

    store: Annotated[StoreChoice, read_by(StoreChoice.parse)] = field(
        default_factory=lambda: StoreChoice(Path("croupier-master.db"))
    )
    """Store of the masters: sqlite:PATH or etcd://HOST:PORT,.../PREFIX."""

    etcd: EtcdFlags = EtcdFlags()  # noqa: RUF009 - frozen

    insecure: bool = False
    """Allow unencrypted traffic to etcd on another machine."""

    def __post_init__(self) -> None:
        if self.store.path is None and self.store.etcd is None:
            raise InvalidRequest("a store in memory ends with its master: there is nothing to copy")
        if self.store.etcd is not None:
            self.etcd.check_protected(self.store.etcd, is_insecure=self.insecure)
