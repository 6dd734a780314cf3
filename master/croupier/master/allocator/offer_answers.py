"""Answers to offers, and what is left of the time of offers that nobody answers; see `back_off`."""

from __future__ import annotations

from math import inf

from croupier.master.allocator.back_off import MOMENT_S
from croupier.master.allocator.state import AllocatorState
from croupier.model.ids import AgentId, FrameworkId


class OfferAnswers:
    """Notes which offers frameworks use, and how long they may keep the others."""

    def __init__(self, state: AllocatorState) -> None:
        self._back_off, self._tree = state.back_off, state.tree
        self._party_of = state.members.party
        self._others_wait = -inf, False

    def kept_since(self, framework_id: FrameworkId, agent_id: AgentId, now: float) -> float:
        """Return when the framework's party began to keep the agent, which it is offered now."""
        return self._back_off.row_since(self._party_of(framework_id), agent_id, now)

    def used(self, framework_id: FrameworkId, agent_id: AgentId) -> None:
        """Note that a task was launched from an offer."""
        self._back_off.answered(self._party_of(framework_id), agent_id)

    def unused(
        self, framework_id: FrameworkId, agent_id: AgentId, kept_since: float, now: float
    ) -> float | None:
        """Note that an offer ended without a launch; see `BackOff.ended`."""
        return self._back_off.ended(self._party_of(framework_id), agent_id, kept_since, now)

    def review_at(self, framework_id: FrameworkId, expires_at: float, now: float) -> float:
        """Return the time until which an offer is kept even if other frameworks wait.

        During a back-off that is a moment (`MOMENT_S`).
        """
        last = self._back_off.active(now)
        if expires_at <= now or not last or self._party_of(framework_id) not in last:
            return expires_at
        return min(now + MOMENT_S, expires_at)

    def others_wait(self, now: float) -> bool:
        """Return whether a framework could use more that does not back off, or has queued tasks.

        O(frameworks that back off), once for each `now`.
        """
        if self._others_wait[0] != now:
            last = self._back_off.active(now)
            waits = any(leaf.queued or leaf.party not in last for leaf in self._tree.in_order())
            self._others_wait = now, waits
        return self._others_wait[1]
