"""The kinds of resources that a cluster has: those of its agents, and at most 64.

Rule: an agent is refused only for new kinds of its own. A kind that no agent has does not count.
"""

from __future__ import annotations

from croupier.master.core.events import Register
from croupier.master.core.state import State
from croupier.model.errors import Conflict
from croupier.model.resources import FIRST, MAX_NAMES, Resources

# Kinds for which there is always room.
STANDARD = frozenset({*FIRST, "ports"})
# The error names at most this many kinds.
_NAMED = 8


def check_kinds(state: State, event: Register) -> None:
    """Check that the cluster has room for the agent's kinds.

    O(kinds) if all are known scalars, else O(agents).

    Raises:
        Conflict: if it has none.
    """
    mine = _names(event.total) - STANDARD
    if mine <= _scalars_of_others(state, event):
        return
    others = set(STANDARD)
    for agent in state.agents.values():
        if agent.in_pool and agent.agent_id != event.agent_id:
            others |= _names(agent.total)
    new = sorted(mine - others)
    if new and len(others) + len(new) > MAX_NAMES:
        named = ", ".join(new[:_NAMED])
        more = f" and {len(new) - _NAMED} more" if len(new) > _NAMED else ""
        raise Conflict(
            f"a cluster has at most {MAX_NAMES} kinds of resources, and no room for {named}{more},"
            " which only this agent has; start it without them (--resources), or end agents that"
            " brought kinds of their own"
        )


def _scalars_of_others(state: State, event: Register) -> set[str]:
    agent = state.agents.get(event.agent_id)
    own = agent.total if agent is not None and agent.in_pool else None
    total = state.allocator.queries.total
    return {name for name, milli in total.items() if own is None or milli != own[name]}


def _names(resources: Resources) -> set[str]:
    return {*resources.scalars, *resources.ranges, *resources.sets}
