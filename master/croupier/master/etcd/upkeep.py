"""Upkeep of the connection to etcd: probes of its members, and renewal of credentials.

Calls of a master go to one member while that answers, and tell nothing of the others. So it reads
from every member, and metrics show each one that fails or is back.

Rule: the client keeps its connections until a member of etcd has answered over new ones. So files
that are wrong, or half renewed, cost no term.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.target import EtcdFlags
from croupier.model.errors import CroupierError
from croupier.process.logging import get_logger
from croupier.process.metric_families import Family
from croupier.process.tls.renewal import Renewal

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

# Further time between two attempts to use changed files.
AGAIN_S: Final = 5.0

_log = get_logger("croupier.master.etcd")


async def probe_on(client: EtcdClient, key: bytes) -> NoReturn:
    """Read `key`, which the client's user may read, from every member, until cancelled."""
    while True:
        await asyncio.sleep(PROBE_S)
        await client.probe(key)


class EtcdRenewal(Renewal):
    """Watches the files of a client's credentials."""

    def __init__(self, client: EtcdClient, files: EtcdFlags) -> None:
        """Watch `files`, which the credentials of `client` were read from just now."""
        super().__init__(files.paths, AGAIN_S)
        self._client, self._files = client, files

    async def _take(self) -> None:
        await self._client.renew(await asyncio.to_thread(self._files.read))
        _log.info("etcd_credentials_renewed", files=[str(path) for path in self._files.paths])

    def _log_refused(self, error: CroupierError) -> None:
        _log.error("etcd_credentials_not_renewed", error=str(error))
