"""An HTTP server that is loaded with its first connection.

Loading it, and aiohttp with it, takes 10 MiB and a third of a daemon's start. Many daemons are
never asked over HTTP.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from croupier.net.address import Address
from croupier.net.task_scope import end
from croupier.process.garbage import LONG_COLLECTIONS
from croupier.process.http.listening import Listening
from croupier.process.logging import get_logger

if TYPE_CHECKING:  # aiohttp
    from croupier.process.http.server import HttpServer

RETRY_S: Final = 1.0

_log = get_logger("croupier.http")


class LateHttpServer:
    """Listens from its start; connections wait until its `server` is loaded."""

    def __init__(self, make: Callable[[], HttpServer], *modules: str) -> None:
        """Call `make` once, after the first connection has arrived, and `modules` are loaded."""
        self._make, self._modules = make, (*modules, "croupier.process.http.server")
        self._listening: Listening | None = None
        self.server: HttpServer | None = None
        self._loading: asyncio.Task[None] | None = None

    async def start(self, address: Address) -> int:
        """Listen on `address`, return the port; raises Unavailable if that is not possible."""
        self._listening = await Listening.open(address)
        self._loading = asyncio.create_task(self._load(self._listening), name="http")
        return self._listening.port

    async def stop(self) -> None:
        """Stop listening; wait at most a second for answers under way."""
        if self._loading is not None:
            await end(self._loading)
        if self.server is not None:
            await self.server.stop()
        if self._listening is not None:
            self._listening.close()

    async def _load(self, listening: Listening) -> None:
        await listening.first()
        while True:
            try:
                LONG_COLLECTIONS.expect_growth(RETRY_S)
                # The daemon goes on meanwhile.
                for module in self._modules:
                    await asyncio.to_thread(import_module, module)
                self.server = self._make()
                break
            except (OSError, ImportError) as error:
                # No descriptor is free, or the installation is being replaced.
                _log.error("http_not_loaded", error=str(error), retry_in_s=RETRY_S)
                await asyncio.sleep(RETRY_S)
        # Modules slow down each collection of garbage.
        gc.freeze()
        await self.server.serve(listening)
