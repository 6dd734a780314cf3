"""What stands behind a master: where its records are, and how it comes to lead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client.registry import Collector

from croupier.master.election import Election, SoleElection
from croupier.master.etcd.target import EtcdTarget
from croupier.master.store import MemoryStore, SqliteStore, Store
from croupier.net.address import Address

if TYPE_CHECKING:  # cyclopts
    from croupier.master.config import MasterConfig


@dataclass(frozen=True, slots=True)
class HaBackend:
    """A store and an election.

    Attributes:
        election: decides when this master leads.
        open_store: makes the store of one term; nothing is opened before `load`.
        close: lets go of all that they share; the election is over then.
        collectors: tell how what they share fares.
        is_shared: other masters may lead while this one cannot. Alone, a master that cannot
            lead ends.
    """

    election: Election
    open_store: Callable[[], Store]
    close: Callable[[], Awaitable[None]]
    is_shared: bool
    collectors: Sequence[Collector] = ()


OpenHaBackend = Callable[["MasterConfig", Address], HaBackend]


def open_ha_backend(config: MasterConfig, address: Address) -> HaBackend:
    """What `config` asks for; others find this master at `address`."""
    if config.store.etcd is not None:
        return _shared(config, config.store.etcd, address)
    path = config.store.path

    def open_store() -> Store:
        if path is None:
            return MemoryStore()
        return SqliteStore(path, may_begin_anew=config.recover == "new-cluster")

    election = SoleElection(address)
    return HaBackend(election, open_store, election.close, is_shared=False)


def _shared(config: MasterConfig, target: EtcdTarget, address: Address) -> HaBackend:
    # Imported here: most masters have no etcd.
    from croupier.master.etcd.client import EtcdClient
    from croupier.master.etcd.election import EtcdElection
    from croupier.master.etcd.metrics import EtcdCollector
    from croupier.master.store.etcd import EtcdStore

    client = EtcdClient(target.endpoints, config.etcd_access())
    election = EtcdElection(client, target.prefix, str(address), config.lease)

    async def close() -> None:
        await election.close()
        await client.close()

    def open_store() -> Store:
        return EtcdStore(client, target.prefix, election)

    return HaBackend(election, open_store, close, True, [EtcdCollector(client)])
