"""Why the framework of a command gets no more offers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from croupier.cli.connection import connected
from croupier.cli.flags import Target
from croupier.cli.missing_credential import missing_credential
from croupier.cli.viewing import TOTALS, may_view
from croupier.model.errors import CroupierError, Unavailable
from croupier.v1 import operator_pb2 as pb


@dataclass(frozen=True, slots=True)
class WaitReason:
    """The reason why a run waits. It is printed again only if `kind` changes."""

    kind: str
    text: str


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


def _reason_text(reason: pb.PassedOver) -> str:
    if not reason.agents:
        return reason.detail or reason.cause
    where = "1 agent" if reason.agents == 1 else f"{reason.agents} agents"
    return f"{reason.cause} on {where}" + (f" ({reason.detail})" if reason.detail else "")
