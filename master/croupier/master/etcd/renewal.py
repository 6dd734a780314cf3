"""Credentials for etcd, renewed when their files change, within a term.

Rule: the client keeps its connections until a member of etcd has answered over new ones. So files
that are wrong, or half renewed, cost no term.
"""

from __future__ import annotations

import asyncio
from typing import Final, NoReturn

from croupier.master.etcd.client import EtcdClient
from croupier.master.etcd.flags import EtcdFlags
from croupier.model.errors import CroupierError
from croupier.net.server_tls import Signature, signature_of
from croupier.process.logging import get_logger

# Time between two looks at the files, and between two attempts to use changed ones.
LOOK_S: Final = 1.0
AGAIN_S: Final = 5.0

_log = get_logger("croupier.master.etcd")


class EtcdRenewal:
    """Watches the files of a client's credentials, from `start` to `stop`.

    Attributes:
        renewals, failures: numbers of changed files that were taken, and that could not be used.
        problem: why changed files are not in use now; empty if they are.
    """

    def __init__(self, client: EtcdClient, files: EtcdFlags, look_s: float = LOOK_S) -> None:
        """Watch `files`, which the credentials of `client` were read from just now."""
        self._client, self._files, self._look_s = client, files, look_s
        self._used = signature_of(files.paths)
        self._refused: Signature | None = None
        self.renewals = self.failures = 0
        self.problem = ""
        self._looking: asyncio.Task[NoReturn] | None = None

    def start(self) -> None:
        """Look at the files from now on, if there are any."""
        if self._files.paths:
            self._looking = asyncio.create_task(self._look_on(), name="etcd-renewal")

    def stop(self) -> None:
        """Look at the files no longer."""
        if self._looking is not None:
            self._looking.cancel()

    async def look(self) -> bool:
        """Use changed files; return False if that failed, and is worth another attempt."""
        signature = await asyncio.to_thread(signature_of, self._files.paths)
        if signature == self._used:
            self.problem = ""
            return True
        try:
            await self._client.renew(await asyncio.to_thread(self._files.read))
        except CroupierError as error:
            self.problem = str(error)
            if signature != self._refused:
                self._refused = signature
                self.failures += 1
                _log.error("etcd_credentials_not_renewed", error=str(error))
            return False
        self._used, self._refused = signature, None
        self.renewals += 1
        self.problem = ""
        _log.info("etcd_credentials_renewed", files=[str(path) for path in self._files.paths])
        return True

    async def _look_on(self) -> NoReturn:
        while True:
            await asyncio.sleep(self._look_s)
            if not await self.look():
                await asyncio.sleep(AGAIN_S)
