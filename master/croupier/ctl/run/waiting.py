"""Telling the user what a run waits for, once for each reason."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from croupier.ctl.connection import connected
from croupier.ctl.run.job import Job
from croupier.ctl.run.launcher import Launcher
from croupier.ctl.target import Target
from croupier.model.errors import CroupierError
from croupier.v1 import operator_pb2 as pb

PATIENCE_S: Final = 2.0
_LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Hindrance:
    """Why a run waits. `kind` is what must change for it to be told again."""

    kind: str
    text: str


async def tell_why(
    job: Job, launcher: Launcher, target: Target, tell: Callable[[str], None]
) -> None:
    """Watch until cancelled; tell why copies are pending that have been for 2 s."""
    loop = asyncio.get_running_loop()
    waiting_since, told = loop.time(), ""
    while True:
        await asyncio.sleep(_LOOK_S)
        pending = launcher.progress.pending
        waiting_since = max(waiting_since, launcher.launched_at)
        if not pending or loop.time() - waiting_since < PATIENCE_S:
            continue
        found = await hindrance(target, launcher.framework_id)
        if found.kind != told and launcher.progress.pending:
            told = found.kind
            tell(f"{wish(job, launcher.progress.pending)}: {found.text}")


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
        return f"waiting for room for the task ({job.unit})"
    return f"waiting for room for {pending} of {job.count} tasks ({job.unit} each)"


def _reason_text(reason: pb.PassedOver) -> str:
    if not reason.agents:
        return reason.detail or reason.cause
    where = "1 agent" if reason.agents == 1 else f"{reason.agents} agents"
    return f"{reason.cause} on {where}" + (f" ({reason.detail})" if reason.detail else "")
