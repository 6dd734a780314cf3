"""The health of etcd: reads from every member show each one that fails, or is back, in metrics.

Calls of a master go to one member while that answers, and tell nothing of the others.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from croupier.master.etcd.client import EtcdClient
from croupier.process.metric_families import Family

# Time between two reads.
PROBE_S: Final = 5.0

ETCD: Final[tuple[Family[EtcdClient], ...]] = (
    Family(
        "etcd_silent_seconds",
        "Time since etcd last answered this master.",
        lambda client: client.silent_s,
    ),
    Family(
        "etcd_members_failing",
        "Members of etcd that failed when this master last asked them.",
        lambda client: client.failing,
    ),
    Family(
        "etcd_certificate_expiry_time_seconds",
        "Time at which this master's certificate for etcd expires, in seconds since the Unix"
        " epoch.",
        lambda client: client.certificate_expires_at,
    ),
    Family(
        "etcd_requests",
        "Requests to members of etcd by outcome: answered or failed.",
        lambda client: {"answered": client.answers, "failed": client.failures},
        ("outcome",),
        is_counter=True,
    ),
)


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
