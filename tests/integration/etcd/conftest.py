"""An etcd for tests, with clients, elections and stores of masters."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import count

import pytest

from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.election import EtcdElection
from croupier.master.etcd.target import EtcdAccess
from croupier.master.store.etcd import EtcdStore
from tests.harness.etcd import Etcd, running_etcd

_prefixes = count(1)


class Masters:
    """Clients, elections and stores of one cluster."""

    def __init__(self, etcd: Etcd, prefix: str, stack: AsyncExitStack) -> None:
        self.etcd, self.prefix = etcd, prefix
        self._stack = stack

    def client(
        self, access: EtcdAccess | None = None, kind: type[EtcdClient] = EtcdClient
    ) -> EtcdClient:
        """Return a client that is closed after the test."""
        client = kind(self.etcd.addresses, access or self.etcd.access(), random.Random(1))
        self._stack.push_async_callback(client.close)
        return client

    def election(
        self, name: str = "a:1", lease_s: float = 30.0, client: EtcdClient | None = None
    ) -> EtcdElection:
        """Return an election that is closed after the test."""
        client = client or self.client()
        election = EtcdElection(client, self.prefix, name, lease_s, rng=random.Random(name))
        self._stack.push_async_callback(election.resign)
        return election

    async def leading(
        self, name: str = "a:1", lease_s: float = 30.0, client: EtcdClient | None = None
    ) -> tuple[EtcdElection, EtcdStore]:
        """Return the election and the loaded store of a leading master."""
        client = client or self.client()
        election = self.election(name, lease_s, client)
        await election.win()
        store = EtcdStore(client, self.prefix, election)
        await store.load()
        return election, store


@pytest.fixture(scope="session")
def one_member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with running_etcd(tmp_path_factory.mktemp("etcd")) as etcd:
        yield etcd


@pytest.fixture
async def masters(one_member: Etcd) -> AsyncIterator[Masters]:
    """Masters on a shared etcd of one member, under a prefix of the test's own."""
    async with AsyncExitStack() as stack:
        yield Masters(one_member, f"t{next(_prefixes)}", stack)


@pytest.fixture
async def three(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Masters]:
    """Masters on an etcd of three members of the test's own."""
    with running_etcd(tmp_path_factory.mktemp("etcd"), members=3) as etcd:
        async with AsyncExitStack() as stack:
            yield Masters(etcd, "croupier", stack)
            for number, member in enumerate(etcd.members):
                if member.process is not None:
                    etcd.thaw(number)
