"""Reads from every member of etcd, so that metrics show each one that fails or is back.

Calls of a master go to one member while that answers, and tell nothing of the others.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from croupier.master.etcd.client import EtcdClient

# Time between two reads.
PROBE_S: Final = 5.0


class EtcdProbe:
    """Probes the members that a client knows, from `start` to `stop`."""

    def __init__(self, client: EtcdClient, key: bytes) -> None:
        """Read `key`, which the client's user may read."""
        self._client, self._key = client, key
        self._probing: asyncio.Task[NoReturn] | None = None

    def start(self) -> None:
        """Probe from now on."""
        self._probing = asyncio.create_task(self._probe_on(), name="etcd-probe")

    def stop(self) -> None:
        """Probe no longer."""
        if self._probing is not None:
            self._probing.cancel()

    async def _probe_on(self) -> NoReturn:
        while True:
            await asyncio.sleep(PROBE_S)
            await self._client.probe(self._key)
