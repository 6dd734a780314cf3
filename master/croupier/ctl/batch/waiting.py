"""Messages about why a batch waits, one for each reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from croupier.ctl.batch.machine import NodeState
from croupier.ctl.batch.runner import Runner
from croupier.ctl.flags import Target
from croupier.ctl.run.waiting import find_wait_reason

PATIENCE_S: Final = 3.0
_LOOK_S: Final = 1.0


class WaitWatch:
    """Reports why no task runs although some are queued, for over 3 s."""

    def __init__(self, runner: Runner, target: Target, tell: Callable[[str], None]) -> None:
        self._runner, self._target, self._tell = runner, target, tell
        self._reported = ""

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        busy_at = loop.time()
        while True:
            await asyncio.sleep(_LOOK_S)
            counts = self._runner.machine.counts
            if self._runner.running or not counts[NodeState.ACTIVE]:
                busy_at, self._reported = loop.time(), ""
            elif loop.time() - busy_at >= PATIENCE_S:
                await self._check(counts[NodeState.ACTIVE])

    async def _check(self, queued: int) -> None:
        found = await find_wait_reason(self._target, self._runner.framework_id)
        if not self._runner.running and found.kind != self._reported:
            self._reported = found.kind
            self._tell(f"waiting to run {queued} tasks: {found.text}")
