"""The room for more units of one shape: on which agents, and what keeps it from others.

Rule: a question changes nothing: no reservation is made, and a framework that does not exist stays
outside the share tree.

A `newcomer` stands for a framework that has just subscribed and holds nothing. It is checked like
any framework in a pass, so limits, holds, earmarks, reservations and scarce resources count for it.
That other frameworks may be served first does not count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass

from croupier.master.allocator import limits
from croupier.master.allocator.back_off import Party
from croupier.master.allocator.dealt import Fit, Rejection
from croupier.master.allocator.eligibility import Eligibility
from croupier.master.allocator.node import DEFAULT, Leaf, RoleNode, Turn, limited_at
from croupier.master.allocator.pending_demand import MANY, PendingDemand
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.reasons import AtLimit, Cause
from croupier.master.allocator.state import AllocatorState
from croupier.master.allocator.tree import Tree
from croupier.model.demand import Demand
from croupier.model.ids import NO_FRAMEWORK, AgentId
from croupier.model.resources import Resources
from croupier.model.roles import ancestors

# Agents that are checked between two moments for other work, in about 5 us each.
SLICE = 500
# An agent or a hold, and the part of it that a leaf could be dealt now.
Checked = tuple[PooledAgent, Fit | Rejection]


@dataclass(frozen=True, slots=True)
class Room:
    """The room for units of one shape, at one moment.

    Attributes:
        units: the units that could start now.
        fitting: the units that agents have room for, whatever limits roles have.
        agents: the agents with room and the number of units there, the most first.
        rejected: the number of agents without room, by cause, and a case in words.
        limit: the limit that leaves no more units, in words; empty if none does.
        full: the agents on which one more unit fits if something ends; what is free there beside
            the counted units.
    """

    units: int
    fitting: int
    agents: list[tuple[AgentId, int]]
    rejected: dict[Cause, tuple[int, str]]
    limit: str
    full: dict[AgentId, Resources]


def newcomer(tree: Tree, demand: Demand) -> Leaf:
    """Return a leaf outside the tree that wants `demand`; limits are left to `room_for`."""
    parent = tree.root
    for role in () if demand.role is None else (*reversed(ancestors(demand.role)), demand.role):
        node = tree.roles.get(role)
        if node is None:
            settings = tree.settings.get(role, DEFAULT)
            node = RoleNode(role, parent, 0, settings=settings, weight=settings.weight)
        parent = node
    leaf = Leaf(NO_FRAMEWORK, parent, 0)
    leaf.pending = [PendingDemand(demand)]
    return leaf


def room_for(demand: Demand, state: AllocatorState, now: float) -> Generator[None, None, Room]:
    """Count the units that a new framework with this demand could be dealt now. O(agents).

    Without a role, no limit counts. Yields at moments for other work.
    """
    leaf, unit, needs = newcomer(state.tree, demand), demand.unit, PendingDemand(demand).needs
    fits: list[tuple[PooledAgent, int]] = []
    rejected: dict[Cause, tuple[set[AgentId], str]] = {}
    full: dict[AgentId, Resources] = {}
    for each in checked_agents(leaf, state, now):
        if each is None:
            yield
            continue
        agent, found = each
        units, free = 0, agent.free
        if isinstance(found, Fit):
            units = agent.units_within(unit, needs, found.room, MANY)
            free = found.room - agent.carve(unit, needs, found.room, units)[0]
            fits.append((agent, units))
        elif agent.owner is None:
            agent_id = agent.agent_id
            ids, _ = rejected.setdefault(found.cause, (set(), f"agent {agent_id}: {found.detail}"))
            ids.add(agent_id)
        may_grow = isinstance(found, Fit) or found.cause is Cause.IN_USE
        is_whole = agent.owner is None and agent.earmark is None
        fits_more = agent.units_within(unit, needs, agent.total, units + 1) > units
        if may_grow and is_whole and fits_more:
            full[agent.agent_id] = free
    leaf.limited = limited_at(leaf.role_node)
    on_agents: Counter[AgentId] = Counter()
    in_holds = 0
    for place, units in fits:
        on_agents[agent_of(place)] += units
        if place.owner is not None:
            # The role of the hold is charged for them already.
            headroom = limits.headroom(leaf, place.owner)
            in_holds += limits.units_within(unit.scalars, headroom, units)
    fitting = on_agents.total()
    beside = fitting - sum(units for place, units in fits if place.owner is not None)
    beside = limits.units_within(unit.scalars, limits.headroom(leaf), beside)
    turn, blocked, _ = state.tree.turn_of(leaf)
    is_blocked = turn is Turn.NEVER
    return Room(
        0 if is_blocked else in_holds + beside,
        fitting,
        sorted(on_agents.items(), key=lambda each: (-each[1], each[0])),
        {
            cause: (len(ids - on_agents.keys()), text)
            for cause, (ids, text) in rejected.items()
            if ids - on_agents.keys()
        },
        blocked if is_blocked else _limit_text(leaf, unit, beside + 1),
        full,
    )


def _limit_text(leaf: Leaf, unit: Resources, units: int) -> str:
    """Return in words the limit that so many units would exceed; empty if none."""
    needed = {name: milli * units for name, milli in unit.scalars.items()}
    bound = limits.binding(leaf, needed)
    return "" if bound is None else str(AtLimit.of(*bound))


def checked_agents(leaf: Leaf, state: AllocatorState, now: float) -> Iterator[Checked | None]:
    """Yield active agents and holds with what the leaf could be dealt of each; see `check_agent`.

    Yields None at moments for other work. Agents on which room is being made for the leaf are left
    out.
    """
    last = state.back_off.active(now)
    holders: dict[AgentId, list[Leaf]] = {}
    for other in state.tree.leaves.values():
        for agent_id in other.reservations:
            holders.setdefault(agent_id, []).append(other)
    for checked, (agent_id, agent) in enumerate(state.agents.agents.items()):
        if checked % SLICE == SLICE - 1:
            yield None
        if agent.is_active and not (agent.earmark is not None and agent.earmark.leaf is leaf):
            yield agent, check_agent(agent, leaf, holders.get(agent_id, ()), state, now, last)


def check_agent(
    agent: PooledAgent,
    leaf: Leaf,
    others: Iterable[Leaf],
    state: AllocatorState,
    now: float,
    backing_off: Mapping[Party, float],
) -> Fit | Rejection:
    """Return the part of the agent that the leaf could be dealt now, or the reason why none.

    `others`: the leaves for which the agent may be reserved.
    """
    eligibility = Eligibility(agent, state, now, backing_off)
    eligibility.is_asked = True
    if leaf.party in backing_off:
        eligibility.ahead = frozenset(others)
    for other in others:
        # A reservation may come before the leaf: let the check find its starved framework first.
        if other is not leaf and other.reservations.has(agent.agent_id, now):
            eligibility.check(other)
    return eligibility.check(leaf)


def agent_of(place: PooledAgent) -> AgentId:
    """Return the id of an agent, or of the agent of a hold."""
    return place.agent_id if place.cut_from is None else place.cut_from.agent_id
