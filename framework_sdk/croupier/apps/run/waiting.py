"""Messages about why a run waits, one for each reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from croupier.apps.run.job import Job
from croupier.apps.run.launcher import Launcher
from croupier.cli.connection import connected
from croupier.cli.flags import Target
from croupier.cli.missing_credential import missing_credential
from croupier.cli.viewing import TOTALS, may_view
from croupier.model.errors import CroupierError, Unavailable
from croupier.v1 import operator_pb2 as pb

PATIENCE_S: Final = 2.0
# While no copy is pending, only the master is checked, and less often.
PRESENCE_S: Final = 5.0
_LOOK_S: Final = 1.0
_ABSENT: Final = "absent"
_ADVICE: Final = " (--wait-for-resources TIME gives up)"


@dataclass(frozen=True, slots=True)
class WaitReason:
    """The reason why a run waits. It is printed again only if `kind` changes."""

    kind: str
    text: str


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


class WaitReasons:
    """Finds out why the framework of a command gets no more offers."""

    def __init__(self, target: Target) -> None:
        self._target, self._missing = target, missing_credential(target)

    async def find(self, framework_id: str | None) -> WaitReason:
        """Return the master's reason, or why it cannot be asked."""
        try:
            async with connected(self._target) as master:
                cluster = await master.ask(master.service.GetMaster, pb.GetMasterRequest())
                is_empty = not (cluster.total.cpus_milli or cluster.total.mem_milli)
                if is_empty and await may_view(master, TOTALS):
                    return WaitReason("no agents", "no agents are registered")
                if framework_id is None:
                    return self._not_admitted()
                request = pb.ExplainRequest(framework_id=framework_id)
                answer = await master.ask(master.service.Explain, request)
                return wait_reason_of(answer.reasons)
        except CroupierError as error:
            # The text of a refusal has its own advice.
            advice = self._missing.advice() if isinstance(error, Unavailable) else ""
            return WaitReason(f"error {type(error).__name__}", f"{error}{advice}")

    def _not_admitted(self) -> WaitReason:
        text = f"the master has not admitted this command yet{self._missing.advice()}"
        return WaitReason("no session", text)


def wait_reason_of(reasons: Iterable[pb.PassedOver]) -> WaitReason:
    """Return the reason in a response of `Explain`."""
    passed = list(reasons)
    if not passed:
        return WaitReason("none", "an offer should come soon")
    kind = ";".join(sorted(reason.cause for reason in passed))
    return WaitReason(kind, "; ".join(map(_reason_text, passed)))


def waiting_text(job: Job, pending: int) -> str:
    """Return what the job waits for."""
    if job.count == 1:
        return f"waiting to run the task ({job.unit})"
    return f"waiting to run {pending} of {job.count} tasks ({job.unit} each)"


def _reason_text(reason: pb.PassedOver) -> str:
    if not reason.agents:
        return reason.detail or reason.cause
    where = "1 agent" if reason.agents == 1 else f"{reason.agents} agents"
    return f"{reason.cause} on {where}" + (f" ({reason.detail})" if reason.detail else "")
