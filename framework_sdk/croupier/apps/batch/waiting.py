"""Messages about why a batch waits, one for each reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from croupier.apps.batch.machine import NodeState
from croupier.apps.batch.runner import Runner
from croupier.apps.controller.waiting import WaitReasons
from croupier.cli.flags import Target

PATIENCE_S: Final = 3.0
_LOOK_S: Final = 1.0


class WaitWatch:
    """Reports why no task runs although some are queued, after 3 s without an update."""

    def __init__(self, runner: Runner, target: Target, tell: Callable[[str], None]) -> None:
        self._runner, self._reasons, self._tell = runner, WaitReasons(target), tell
        self._reported = ""

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        waits_since = loop.time()
        while True:
            await asyncio.sleep(_LOOK_S)
            queued = self._runner.machine.counts[NodeState.ACTIVE]
            if self._runner.running or not queued:
                waits_since, self._reported = loop.time(), ""
            elif loop.time() - max(waits_since, self._runner.updated_at) >= PATIENCE_S:
                await self._check(queued)

    async def _check(self, queued: int) -> None:
        found = await self._reasons.find(self._runner.framework_id)
        if not self._runner.running and found.kind != self._reported:
            self._reported = found.kind
            tasks = "1 task" if queued == 1 else f"{queued} tasks"
            self._tell(f"waiting to run {tasks}: {found.text}")
