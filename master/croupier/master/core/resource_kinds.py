"""The kinds of resources that a cluster has: those of its agents, and at most 64.

Rule: an agent is refused only for new kinds of its own. A kind that no agent has any more does not
count.
"""

from __future__ import annotations

from collections.abc import Iterable

from croupier.master.core.events import Register
from croupier.master.core.state import State
from croupier.model.errors import Conflict
from croupier.model.resources import FIRST, MAX_NAMES, Resources

# Kinds for which there is always room.
STANDARD = frozenset({*FIRST, "ports"})
# The error names at most this many kinds.
_NAMED = 8


def refused_kinds(state: State, event: Register) -> tuple[str, ...]:
    """Return the agent's kinds for which the cluster has no room.

    O(kinds) if all are known scalars, else O(agents).
    """
    mine = _names(event.total) - STANDARD
    if mine <= _scalars_of_others(state, event):
        return ()
    others = {*STANDARD, *_kinds_of_others(state, event)}
    new = mine - others
    return tuple(sorted(new)) if new and len(others) + len(new) > MAX_NAMES else ()


def too_many_kinds(kinds: tuple[str, ...]) -> Conflict:
    """Return the refusal of an agent with these new kinds."""
    named = ", ".join(kinds[:_NAMED])
    more = f" and {len(kinds) - _NAMED} more" if len(kinds) > _NAMED else ""
    return Conflict(
        f"a cluster has at most {MAX_NAMES} kinds of resources, and no room for {named}{more},"
        " which only this agent has; start it without them (--resources), or end agents that"
        " brought kinds of their own"
    )


def _scalars_of_others(state: State, event: Register) -> set[str]:
    agent = state.agents.get(event.agent_id)
    own = agent.total if agent is not None and agent.in_pool else None
    total = state.allocator.queries.total
    return {name for name, milli in total.items() if own is None or milli != own[name]}


def _kinds_of_others(state: State, event: Register) -> Iterable[str]:
    for agent in state.agents.values():
        if agent.in_pool and agent.agent_id != event.agent_id:
            yield from _names(agent.total)


def _names(resources: Resources) -> set[str]:
    return {*resources.scalars, *resources.ranges, *resources.sets}
