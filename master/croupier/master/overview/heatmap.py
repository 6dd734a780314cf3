"""The map of agents: the state and the load of each, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from croupier.master.core.agents import Agent
from croupier.master.core.state import State
from croupier.master.overview.shared import Made
from croupier.master.overview.slices import Walk
from croupier.master.overview.totals import state_word
from croupier.master.services.paging import Read
from croupier.master.services.visibility import Visibility
from croupier.model.ids import AgentId
from croupier.model.principal import Principal
from croupier.v1 import operator_pb2 as pb

FULL: Final = 1_000
# Other resources have no column.
COLUMNS: Final = ("cpus", "mem", "gpus")


async def make_heatmap(read: Read, caller: Principal) -> Made[pb.GetHeatmapResponse]:
    """Return the map of the agents that the caller may view.

    Raises:
        CroupierError: as `Leadership.read`.
    """
    walk, found = Walk(read), _Columns(caller)
    await walk.over(lambda state: sorted(state.agents), found.add)
    return Made(found.to_wire(), walk.cost_s)


class _Columns:
    """Values of the agents that a caller may view."""

    def __init__(self, caller: Principal) -> None:
        self._caller = caller
        self._ids: list[AgentId] = []
        self._states: dict[str, int] = {}
        self._state: list[int] = []
        self._used: tuple[list[int], ...] = tuple([] for _ in COLUMNS)

    def add(self, state: State, ids: Sequence[AgentId]) -> None:
        """Add agents."""
        visible = Visibility(state, self._caller)
        for agent_id in ids:
            agent = state.agents.get(agent_id)
            if agent is None or not visible.has_agent(agent_id):
                continue
            self._ids.append(agent_id)
            word = state_word(agent)
            self._state.append(self._states.setdefault(word, len(self._states)))
            for column, load in zip(self._used, _loads(agent), strict=True):
                column.append(load)

    def to_wire(self) -> pb.GetHeatmapResponse:
        """Return the map; columns without any load are left out, except those of cpus and mem."""
        prefix = _shared_start(self._ids)
        wire = pb.GetHeatmapResponse(
            prefix=prefix,
            agents=[each[len(prefix) :] for each in self._ids],
            states=self._states,
            state=self._state,
        )
        for name, column in zip(COLUMNS, self._used, strict=True):
            if name != "gpus" or any(column):
                wire.used.add(resource=name, per_mille=column)
        return wire


def _shared_start(ids: Sequence[str]) -> str:
    """Return what sorted ids all begin with; nothing of a single one."""
    if len(ids) < 2:
        return ""
    pairs = zip(ids[0], ids[-1], strict=False)
    length = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return ids[0][:length]


def _loads(agent: Agent) -> list[int]:
    """Return what tasks use of the agent's total, in thousandths. O(its tasks)."""
    used = [0] * len(COLUMNS)
    for task in agent.tasks.values():
        if task.is_counted:
            amounts = task.info.resources.scalars
            for place, name in enumerate(COLUMNS):
                used[place] += amounts.get(name, 0)
    totals = agent.total.scalars
    return [
        min(FULL, FULL * milli // totals[name]) if milli and totals.get(name) else 0
        for name, milli in zip(COLUMNS, used, strict=True)
    ]
