"""Credentials for etcd, renewed when their files change, within a term.

Rule: the client keeps its connections until a member of etcd has answered over new ones. So files
that are wrong, or half renewed, cost no term.
"""

from __future__ import annotations

import asyncio
from typing import Final

from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.flags import EtcdFlags
from croupier.model.errors import CroupierError
from croupier.process.logging import get_logger
from croupier.process.tls.renewal import Renewal

# Further time between two attempts to use changed files.
AGAIN_S: Final = 5.0

_log = get_logger("croupier.master.etcd")


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
