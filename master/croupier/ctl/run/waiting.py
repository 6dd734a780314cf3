"""Telling the user what a run waits for, once for each reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from croupier.ctl.connection import connected
from croupier.ctl.flags import Target
from croupier.ctl.run.job import Job
from croupier.ctl.run.launcher import Launcher
from croupier.model.errors import CroupierError
from croupier.v1 import operator_pb2 as pb

PATIENCE_S: Final = 2.0
# While nothing is pending only the master's presence is looked after, and less often.
PRESENCE_S: Final = 5.0
_LOOK_S: Final = 1.0
_ABSENT: Final = "absent"


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why a run waits. `kind` is what must change for it to be told again."""

    kind: str
    text: str


class Watch:
    """Tells why copies are pending that have been for 2 s, and when the master is gone."""

    def __init__(
        self, job: Job, launcher: Launcher, target: Target, tell: Callable[[str], None]
    ) -> None:
        """Watch over `launcher`; `tell` the user."""
        self._job, self._launcher, self._target, self._tell = job, launcher, target, tell
        self._told = ""

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        begun = looked_at = loop.time()
        while True:
            await asyncio.sleep(_LOOK_S)
            now = loop.time()
            if not self._launcher.progress.pending:
                if now - looked_at >= PRESENCE_S:
                    looked_at = now
                    await self._look_after_master()
            elif now - max(begun, self._launcher.launched_at) >= PATIENCE_S:
                await self._look_after_pending()

    async def _look_after_pending(self) -> None:
        found = await hindrance(self._target, self._launcher.framework_id)
        pending = self._launcher.progress.pending
        if pending and found.kind != self._told:
            self._told = found.kind
            self._tell(f"{wish(self._job, pending)}: {found.text}")

    async def _look_after_master(self) -> None:
        try:
            async with connected(self._target):
                self._told = ""
        except CroupierError as error:
            if self._told != _ABSENT:
                self._told = _ABSENT
                self._tell(f"{error}; waiting for it, what runs goes on")


async def hindrance(target: Target, framework_id: str | None) -> Hindrance:
    """What keeps the framework from more offers, as the master sees it."""
    try:
        async with connected(target) as master:
            cluster = await master.ask(master.service.GetMaster, pb.GetMasterRequest())
            if not (cluster.total.cpus_milli or cluster.total.mem_milli):
                return Hindrance("no agents", "no agents are registered")
            if framework_id is None:
                return Hindrance("no session", "the master has not taken us in yet")
            request = pb.ExplainRequest(framework_id=framework_id)
            answer = await master.ask(master.service.Explain, request)
            return of_reasons(answer.reasons)
    except CroupierError as error:
        return Hindrance(f"error {type(error).__name__}", str(error))


def of_reasons(reasons: Iterable[pb.PassedOver]) -> Hindrance:
    """The hindrance that an answer of `Explain` means."""
    passed = list(reasons)
    if not passed:
        return Hindrance("none", "an offer should come soon")
    kind = ";".join(sorted(reason.cause for reason in passed))
    return Hindrance(kind, "; ".join(map(_reason_text, passed)))


def wish(job: Job, pending: int) -> str:
    """What is waited for."""
    if job.count == 1:
        return f"waiting to run the task ({job.unit})"
    return f"waiting to run {pending} of {job.count} tasks ({job.unit} each)"


def _reason_text(reason: pb.PassedOver) -> str:
    if not reason.agents:
        return reason.detail or reason.cause
    where = "1 agent" if reason.agents == 1 else f"{reason.agents} agents"
    return f"{reason.cause} on {where}" + (f" ({reason.detail})" if reason.detail else "")
