"""The answers to the calls about the whole cluster, for each set of permissions."""

from __future__ import annotations

from collections.abc import Hashable

from croupier.master.core.state import State
from croupier.master.leadership import Leadership
from croupier.master.overview.heatmap import make_heatmap
from croupier.master.overview.shared import Made, Shared
from croupier.master.overview.totals import make_totals
from croupier.master.roster import Roster
from croupier.master.services.visibility import Visibility
from croupier.model.clock import Clock
from croupier.model.principal import Principal
from croupier.v1 import operator_pb2 as pb


class Surveys:
    """Makes and shares the answers; callers must not change them."""

    def __init__(self, leadership: Leadership, clock: Clock, roster: Roster) -> None:
        """Survey the current term."""
        self._leadership, self._roster = leadership, roster
        self._totals: Shared[pb.GetOverviewResponse] = Shared(clock)
        self._heatmaps: Shared[pb.GetHeatmapResponse] = Shared(clock)

    async def overview(self, caller: Principal) -> pb.GetOverviewResponse:
        """Return the totals that the caller may view.

        Raises:
            CroupierError: as `Leadership.read`.
        """
        return await self._totals.get(self._key(caller), lambda: self._make_totals(caller))

    async def heatmap(self, caller: Principal) -> pb.GetHeatmapResponse:
        """Return the map of agents that the caller may view; raises as `overview`."""
        return await self._heatmaps.get(
            self._key(caller), lambda: make_heatmap(self._leadership.read, caller)
        )

    async def history(self, caller: Principal) -> pb.GetHistoryResponse:
        """Return what the caller may view of the last hour; raises as `overview`."""
        history = self._leadership.term().history

        def view(state: State) -> pb.GetHistoryResponse:
            return history.view(Visibility(state, caller))

        return await self._leadership.read(view)

    async def _make_totals(self, caller: Principal) -> Made[pb.GetOverviewResponse]:
        made = await make_totals(self._leadership.read, caller)
        made.answer.masters.extend(self._roster.masters())
        return made

    def _key(self, caller: Principal) -> Hashable:
        """Return the same key for callers that may view the same; all who may view everything.

        Raises:
            NotLeader: if this master follows.
        """
        term = self._leadership.term()
        visible = Visibility(term.driver.state, caller)
        sees_all = visible.has_all and visible.has_cluster
        return term.epoch, "" if sees_all else caller
