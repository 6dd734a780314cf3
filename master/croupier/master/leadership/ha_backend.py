"""The store of a master's records, and the election by which it leads.

A single master always leads; several elect one of them. Leadership is a *term*, with a beginning
and an end. A deposed leader leads again only after a new election, and starts from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

from prometheus_client.registry import Collector

from croupier.master.core.access_records import TokenId, TokenRecord
from croupier.master.store import MemoryStore, SqliteStore, Store
from croupier.net.address import Address
from croupier.process.metric_families import FamilyCollector

if TYPE_CHECKING:  # cyclopts, etcd
    from croupier.master.config import MasterConfig
    from croupier.master.etcd.presence import EtcdPresence
    from croupier.master.etcd.target import EtcdTarget
    from croupier.master.etcd.upkeep import EtcdRenewal


class Election(Protocol):
    """One master's part in the election of a leader."""

    @property
    def leader(self) -> str | None:
        """HOST:PORT of the leader; None if it is not known."""

    @property
    def is_won(self) -> bool:
        """Whether this master can prove that it leads now; asked before each effect."""

    async def win(self) -> None:
        """Wait until this master leads; without a deadline."""

    async def lost(self) -> None:
        """Wait until this master no longer leads, or can no longer prove it."""

    async def resign(self) -> None:
        """Give up leadership, so that the next leader need not wait for the lease to expire."""


class SoleElection:
    """The election of a single master, which has always won."""

    def __init__(self, address: Address) -> None:
        self._address = address

    @property
    def leader(self) -> str | None:
        """HOST:PORT of the only master."""
        return str(self._address)

    @property
    def is_won(self) -> bool:
        """Always."""
        return True

    async def win(self) -> None:
        """Return at once."""

    async def lost(self) -> None:
        """Never return."""
        await asyncio.Event().wait()

    async def resign(self) -> None:
        """Do nothing: there is no other master."""


@dataclass(frozen=True, slots=True)
class HaBackend:
    """A store and an election, which may share a client of etcd.

    Attributes:
        open_store: makes the store of one term, which opens nothing before `load`.
        close: closes the election and the client.
        is_shared: whether other masters may lead. A single master that cannot lead ends.
        collectors: metrics of the client.
        presence: tells other masters of this one, and knows them; None if there are no others.
        renewal: of the files of the client's credentials; None if it has none.
        find_token: reads a token from a shared store; None if there are no other masters.
    """

    election: Election
    open_store: Callable[[], Store]
    close: Callable[[], Awaitable[None]]
    is_shared: bool
    collectors: Sequence[Collector] = ()
    presence: EtcdPresence | None = None
    renewal: EtcdRenewal | None = None
    find_token: Callable[[TokenId], Awaitable[TokenRecord | None]] | None = None


OpenHaBackend = Callable[["MasterConfig", Address], HaBackend]


def open_ha_backend(config: MasterConfig, address: Address) -> HaBackend:
    """Open the store and the election of `config`; peers find this master at `address`."""
    if config.store.etcd is not None:
        return _shared(config, config.store.etcd, address)
    path = config.store.path

    def open_store() -> Store:
        if path is None:
            return MemoryStore()
        return SqliteStore(path, may_begin_anew=config.recover == "new-cluster")

    election = SoleElection(address)
    return HaBackend(election, open_store, election.resign, is_shared=False)


def _shared(config: MasterConfig, target: EtcdTarget, address: Address) -> HaBackend:
    # Imported here: most masters have no etcd.
    from croupier.master.etcd.client import EtcdClient
    from croupier.master.etcd.election import EtcdElection
    from croupier.master.etcd.operations import Keys
    from croupier.master.etcd.presence import EtcdPresence
    from croupier.master.etcd.upkeep import ETCD, EtcdRenewal, probe_on
    from croupier.master.store.etcd import EtcdStore, find_token

    client = EtcdClient(target.endpoints, config.etcd.read())
    renewal = EtcdRenewal(client, config.etcd)
    renewal.start()
    probing = asyncio.create_task(probe_on(client, Keys(target.prefix).leader), name="etcd-probe")
    election = EtcdElection(client, target.prefix, str(address), config.lease)
    presence = EtcdPresence(client, target.prefix, config.lease)

    async def close() -> None:
        renewal.stop()
        await presence.close()
        probing.cancel()
        await election.resign()
        await client.close()

    def open_store() -> Store:
        return EtcdStore(client, target.prefix, election)

    collectors = [FamilyCollector(ETCD, lambda: client)]
    watched = renewal if config.etcd.paths else None
    find = partial(find_token, client, target.prefix)
    return HaBackend(election, open_store, close, True, collectors, presence, watched, find)
