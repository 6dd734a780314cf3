"""Elections and stores that a test controls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from croupier.master.app import MasterDaemon
from croupier.master.config import MasterConfig, StoreChoice
from croupier.master.core.records import Record
from croupier.master.leadership.ha_backend import HaBackend
from croupier.master.store import MemoryStore
from croupier.net.address import Address
from tests.harness.eventually import eventually
from tests.harness.masters import ANY_PORT


class FakeElection:
    """An election that is won and lost when the test says so."""

    def __init__(self) -> None:
        self.leader: str | None = None
        self.is_won = False
        self.resigned = 0
        self.closed = False
        self._changed = asyncio.Condition()
        self._address = ""

    def stand(self, address: Address) -> None:
        """Stand for the master at `address`."""
        self._address = str(address)

    async def elect(self) -> None:
        """Let the master win."""
        await self._set(is_won=True, leader=self._address)

    async def elect_other(self, leader: str | None) -> None:
        """Let the master lose, to `leader` or without a new leader."""
        await self._set(is_won=False, leader=leader)

    async def win(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.is_won)

    async def lost(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: not self.is_won)

    async def resign(self) -> None:
        self.resigned += 1

    async def close(self) -> None:
        self.closed = True

    async def _set(self, is_won: bool, leader: str | None) -> None:
        self.is_won, self.leader = is_won, leader
        async with self._changed:
            self._changed.notify_all()


class FakeStore(MemoryStore):
    """A store for all terms, whose commits wait or fail as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures: list[Exception] = []

    async def commit(self, records: Sequence[Record]) -> None:
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop()
        await super().commit(records)


@asynccontextmanager
async def elected_master(
    election: FakeElection, store: FakeStore | None = None, **options: Any
) -> AsyncIterator[MasterDaemon]:
    """Run a master on free ports that leads when `election` says so."""
    kept = store or FakeStore()

    def open_ha_backend(config: MasterConfig, address: Address) -> HaBackend:
        election.stand(address)
        return HaBackend(election, lambda: kept, election.close, is_shared=True)

    options = {"store": StoreChoice(None), **options}
    config = MasterConfig(listen=ANY_PORT, http=ANY_PORT, **options)
    master = MasterDaemon(config, open_ha_backend=open_ha_backend)
    try:
        await master.start()
        yield master
    finally:
        await master.stop()
    assert election.closed


async def leads(master: MasterDaemon, epoch: int) -> None:
    """Wait until `master` leads in term `epoch`."""
    await eventually(lambda: _epoch(master) == epoch, what=f"term {epoch}")


async def follows(master: MasterDaemon) -> None:
    """Wait until `master` follows."""
    await eventually(lambda: _epoch(master) == 0, what="following")


def _epoch(master: MasterDaemon) -> int:
    leadership = master.leadership
    return 0 if leadership.current is None else leadership.current.epoch
