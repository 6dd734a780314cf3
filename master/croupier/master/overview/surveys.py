"""The answers to the calls about the whole cluster, for each set of permissions."""

from __future__ import annotations

from collections.abc import Hashable

from croupier.master.core.state import State
from croupier.master.leadership.leadership import Leadership
from croupier.master.leadership.roster import Roster
from croupier.master.overview.heatmap import make_heatmap
from croupier.master.overview.shared import Budget, Made, Shared
from croupier.master.overview.totals import make_totals
from croupier.master.services.visibility import Visibility
from croupier.model.access import AccessPolicy
from croupier.model.clock import Clock
from croupier.model.principal import Principal
from croupier.v1 import operator_pb2 as pb


class Surveys:
    """Makes and shares the answers; callers must not change them."""

    def __init__(self, leadership: Leadership, clock: Clock, roster: Roster) -> None:
        """Survey the current term."""
        self._leadership, self._clock, self._roster = leadership, clock, roster
        self._totals: Shared[pb.GetOverviewResponse] = Shared(clock)
        self._heatmaps: Shared[pb.GetHeatmapResponse] = Shared(clock)
        self._budget = Budget(clock)
        # Answers for one policy do not serve under another.
        self._access: AccessPolicy | None = None
        self._policies = 0

    async def overview(self, caller: Principal) -> pb.GetOverviewResponse:
        """Return the totals that the caller may view.

        Raises:
            Unavailable: if too many callers with other permissions ask.
            CroupierError: as `Leadership.read`.
        """
        key, budget = self._key(caller)
        return await self._totals.get(key, lambda: self._make_totals(caller), budget)

    async def heatmap(self, caller: Principal) -> pb.GetHeatmapResponse:
        """Return the map of agents that the caller may view; raises as `overview`."""
        key, budget = self._key(caller)
        return await self._heatmaps.get(
            key, lambda: make_heatmap(self._leadership.read, caller), budget
        )

    async def history(self, caller: Principal) -> pb.GetHistoryResponse:
        """Return what the caller may view of the last hour; raises as `overview`."""
        history = self._leadership.term().history

        def view(state: State) -> pb.GetHistoryResponse:
            return history.view(Visibility(state, caller))

        return await self._leadership.read(view)

    async def _make_totals(self, caller: Principal) -> Made[pb.GetOverviewResponse]:
        made = await make_totals(self._leadership.read, caller, self._clock)
        made.answer.masters.extend(self._roster.masters())
        return made

    def _key(self, caller: Principal) -> tuple[Hashable, Budget | None]:
        """Return the key of an answer, and what it may cost; None: it is for most callers.

        All who may view everything have the same key.

        Raises:
            NotLeader: if this master follows.
        """
        term = self._leadership.term()
        state = term.driver.state
        if state.access is not self._access:
            self._access = state.access
            self._policies += 1
        visible = Visibility(state, caller)
        if visible.has_all and visible.has_cluster:
            return (term.epoch, ""), None
        return (term.epoch, self._policies, caller), self._budget
