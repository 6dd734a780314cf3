"""Messages about why a run waits, one for each reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from croupier.apps.controller.waiting import WaitReasons
from croupier.apps.run.job import Job
from croupier.apps.run.launcher import Launcher
from croupier.cli.connection import connected
from croupier.cli.flags import Target
from croupier.model.errors import CroupierError

PATIENCE_S: Final = 2.0
# While no copy is pending, only the master is checked, and less often.
PRESENCE_S: Final = 5.0
_LOOK_S: Final = 1.0
_ABSENT: Final = "absent"
_ADVICE: Final = " (--wait-for-resources TIME gives up)"


class Watch:
    """Reports why copies are pending for over 2 s, and that no master can be reached."""

    def __init__(
        self,
        job: Job,
        launcher: Launcher,
        target: Target,
        tell: Callable[[str], None],
        *,
        is_bounded: bool = True,
    ) -> None:
        """Report by `tell`; once also how to bound the wait, unless `is_bounded`."""
        self._job, self._launcher, self._target, self._tell = job, launcher, target, tell
        self._reasons = WaitReasons(target)
        self._reported = ""
        self._advice = "" if is_bounded else _ADVICE

    async def run(self) -> None:
        """Watch until cancelled."""
        loop = asyncio.get_running_loop()
        begun = checked_at = loop.time()
        while True:
            await asyncio.sleep(_LOOK_S)
            now = loop.time()
            if not self._launcher.progress.pending:
                if now - checked_at >= PRESENCE_S:
                    checked_at = now
                    await self._check_master()
            elif now - max(begun, self._launcher.launched_at) >= PATIENCE_S:
                await self._check_pending()

    async def reason(self) -> str:
        """Return what tasks wait for."""
        found = await self._reasons.find(self._launcher.framework_id)
        return f"{waiting_text(self._job, self._launcher.progress.pending)}: {found.text}"

    async def _check_pending(self) -> None:
        found = await self._reasons.find(self._launcher.framework_id)
        pending = self._launcher.progress.pending
        if pending and found.kind != self._reported:
            self._reported = found.kind
            self._tell(f"{waiting_text(self._job, pending)}: {found.text}{self._advice}")
            self._advice = ""

    async def _check_master(self) -> None:
        try:
            async with connected(self._target):
                self._reported = ""
        except CroupierError as error:
            if self._reported != _ABSENT:
                self._reported = _ABSENT
                self._tell(f"{error}; waiting for a master; running tasks continue")


def waiting_text(job: Job, pending: int) -> str:
    """Return what the job waits for."""
    if job.count == 1:
        return f"waiting to run the task ({job.unit})"
    return f"waiting to run {pending} of {job.count} tasks ({job.unit} each)"
