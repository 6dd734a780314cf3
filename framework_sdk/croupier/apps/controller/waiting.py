"""Reasons why the framework of a command gets no more offers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from croupier.apps.controller.engine import Engine
from croupier.cli.connection import TOTALS, connected, may_view, missing_credential
from croupier.cli.flags import Target
from croupier.model.errors import CroupierError, Unavailable
from croupier.net.credential_search import MissingCredential
from croupier.v1 import operator_pb2 as pb

_LOOK_S: Final = 1.0
_PRESENCE_S: Final = 5.0
_NONE, _ABSENT = "none", "absent"
# Of a detail about demand that is larger than each agent.
_NOWHERE: Final = "which fits nowhere"


@dataclass(frozen=True, slots=True)
class WaitReason:
    """The reason why a run waits. It is printed again only if `kind` changes."""

    kind: str
    text: str


async def find_reason(
    target: Target, framework_id: str | None, missing: MissingCredential
) -> WaitReason:
    """Return the master's reason why a framework gets no more offers, or why it cannot be asked."""
    try:
        async with connected(target) as master:
            cluster = await master.ask(master.service.GetMaster, pb.GetMasterRequest())
            is_empty = not (cluster.total.cpus_milli or cluster.total.mem_milli)
            if is_empty and await may_view(master, TOTALS):
                return WaitReason("no agents", "no agents are registered")
            if framework_id is None:
                text = "the master has not admitted this command yet"
                return WaitReason("no session", f"{text}{missing.advice()}")
            request = pb.ExplainRequest(framework_id=framework_id)
            answer = await master.ask(master.service.Explain, request)
            return wait_reason_of(answer.reasons)
    except CroupierError as error:
        # The text of a refusal has its own advice.
        advice = missing.advice() if isinstance(error, Unavailable) else ""
        return WaitReason(f"error {type(error).__name__}", f"{error}{advice}")


class WaitWatch:
    """Tells why tasks of a framework wait, once for each reason."""

    def __init__(
        self, framework: Engine, target: Target, tell: Callable[[str], None], patience_s: float
    ) -> None:
        """Report waits that last for `patience_s`."""
        self._framework, self._target, self._tell = framework, target, tell
        self._patience_s, self._missing = patience_s, missing_credential(target)
        self._told = ""

    async def run(
        self, *, advice: str = "", checks_master: bool = False, tells_soon: bool = True
    ) -> None:
        """Watch until cancelled.

        The first message ends with `advice`. With `checks_master`, also tell that no master can be
        reached while nothing waits; with `tells_soon`, that an offer should come soon.
        """
        loop = asyncio.get_running_loop()
        idle_at = checked_at = loop.time()
        while True:
            await asyncio.sleep(_LOOK_S)
            now = loop.time()
            if not self._framework.waiting():
                idle_at = now
                if not checks_master:
                    self._told = ""
                elif now - checked_at >= _PRESENCE_S:
                    checked_at = now
                    await self._check_master()
            elif now - max(idle_at, self._framework.moved_at) >= self._patience_s:
                found = await self._find()
                if (what := self._framework.waiting()) and found.kind != self._told:
                    self._told = found.kind
                    if found.kind != _NONE or tells_soon:
                        self._tell(f"{_sentence(what, found.text)}{advice}")
                        advice = ""

    async def reason(self) -> str:
        """Return the reason to report: what waits, and why."""
        what = self._framework.waiting()
        found = await self._find()
        return _sentence(what, found.text)

    async def _find(self) -> WaitReason:
        return await find_reason(self._target, self._framework.framework_id, self._missing)

    async def _check_master(self) -> None:
        try:
            async with connected(self._target):
                self._told = ""
        except CroupierError as error:
            if self._told != _ABSENT:
                self._told = _ABSENT
                self._tell(f"{error}; waiting for a master; running tasks continue")


def _sentence(what: str, reason: str) -> str:
    """Return what waits and why; resources that end `what` are left out if the reason has them."""
    short, _, brackets = what.partition(" (")
    resources = brackets.removesuffix(")").removesuffix(" each")
    return f"{short if resources and resources in reason else what}: {reason}"


def wait_reason_of(reasons: Iterable[pb.PassedOver]) -> WaitReason:
    """Return the reason in a response of `Explain`."""
    passed = list(reasons)
    if not passed:
        return WaitReason(_NONE, "an offer should come soon")
    kind = ";".join(sorted(reason.cause for reason in passed))
    return WaitReason(kind, "; ".join(map(_reason_text, passed)))


def _reason_text(reason: pb.PassedOver) -> str:
    if not reason.agents:
        return reason.detail or reason.cause
    if _NOWHERE in reason.detail:
        # The detail says all: that it fits on none of them, and what it lacks.
        return reason.detail
    where = "1 agent" if reason.agents == 1 else f"{reason.agents} agents"
    return f"{reason.cause} on {where}" + (f" ({reason.detail})" if reason.detail else "")
