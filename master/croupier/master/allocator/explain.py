"""Explanations for operators: why a framework is not dealt more.

Rule: an explanation names another framework only if that one exists, and is ahead now or has the
agent kept for it now.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import islice, takewhile

from croupier.master.allocator import limits
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.back_off import PATIENCE_S
from croupier.master.allocator.comparison import guaranteed_node, taker_text
from croupier.master.allocator.dealt import Rejection
from croupier.master.allocator.eligibility import BOUND
from croupier.master.allocator.gangs import GangSearch, value_of
from croupier.master.allocator.node import Amounts, Leaf, Turn, add_amounts
from croupier.master.allocator.pending_demand import PendingDemand
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.reasons import (
    AtLimit,
    Cause,
    DeviceShortage,
    PassedOver,
    Shortage,
    asked_text,
    passed_over,
)
from croupier.master.allocator.room import agent_of, check_agent, checked_agents
from croupier.master.allocator.state import AllocatorState
from croupier.master.allocator.tree import Tree
from croupier.model.attributes import bound_to
from croupier.model.durations import duration_text
from croupier.model.gang import HOST
from croupier.model.ids import AgentId
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import format_amounts

# Causes that no end of a task changes, and those that one may.
_FOR_GOOD = (Cause.DOES_NOT_FIT, Cause.CONSTRAINT)
_FULL = (Cause.IN_USE, Cause.NOT_USEFUL)
# Gangs that are told of.
_MOST_GANGS = 4


def of_leaf(leaf: Leaf, state: AllocatorState, now: float) -> Iterator[PassedOver | None]:
    """Yield why the leaf is not dealt more, and None at moments for other work. O(agents)."""
    tree, pool, last = state.tree, state.agents, state.back_off.active(now)
    cause = _with_any_agent(leaf, tree)
    if cause is not None:
        yield cause
        return
    active = sum(agent.is_active and agent.owner is None for agent in pool.agents.values())
    if not active:
        detail = "no agent takes tasks now" if pool.agents else "no agent is registered"
        yield PassedOver(Cause.NO_AGENTS, 0, detail, leaf.role)
        return
    found: list[PassedOver] = []
    turn, why_last, role = tree.turn_of(leaf)
    if turn is Turn.LAST:
        detail = f"{why_last}: other roles come first"
        found.append(PassedOver(Cause.BUDGET, 0, detail, leaf.role, role))
    if leaf.party in last and not leaf.queued:
        found.append(_backing_off(leaf, last[leaf.party] - now))
    found += _making_room(leaf, pool)
    found += _fits_nowhere(leaf, pool)
    for gang in _gangs(leaf, state, now):
        if gang is not None:
            found.append(gang)
        yield None
    yield from found
    causes = {each.cause for each in found}
    is_told = bool(found)
    for reason in _now(leaf, state, now):
        if reason is None or reason.cause not in causes:
            is_told |= reason is not None
            yield reason
    if not is_told:
        yield _outranked(leaf, tree, active)


def _now(leaf: Leaf, state: AllocatorState, now: float) -> Iterator[PassedOver | None]:
    """Yield why active agents are not dealt to the leaf now, by cause; see `of_leaf`.

    Agents that it could be dealt are left out: the next pass decides about them.
    """
    cases: dict[Cause, tuple[set[AgentId], PooledAgent, object]] = {}
    for each in checked_agents(leaf, state, now):
        if each is None:
            yield None
            continue
        agent, found = each
        if not agent.serves(leaf) and not _is_missed(leaf, agent):
            continue
        if isinstance(found, Rejection) and not _fits_but_for_holds(leaf, agent, found):
            ids, _, _ = cases.get(found.cause, (set(), agent, ""))
            ids.add(agent_of(agent))  # an agent and a hold on it are one agent
            cases[found.cause] = ids, agent, found.detail
    reasons = [
        passed_over(cause, len(ids), _told(agent, detail), leaf.role, agent_of(agent), detail)
        for cause, (ids, agent, detail) in cases.items()
    ]
    reasons.sort(key=lambda each: (each.cause in _FOR_GOOD, -each.agents, each.cause.value))
    for reason in reasons:
        is_full = reason.cause in _FULL
        yield _ranked(reason, leaf, state.tree) if is_full else reason


def _told(agent: PooledAgent, detail: object) -> str:
    """Return the detail with the agent that it is about, and the hold if it is of one."""
    agent_id = agent_of(agent)
    if agent.cut_from is None:
        return f"agent {agent_id}: {detail}"
    hold_id = agent.agent_id.removeprefix(f"{agent_id}/")
    return f"agent {agent_id}: hold {hold_id} ({agent.total}): {detail}"


def _fits_but_for_holds(leaf: Leaf, agent: PooledAgent, found: Rejection) -> bool:
    """Return whether the agent is large enough, and holds for others, which say so, keep it."""
    if found.cause is not Cause.DOES_NOT_FIT or not agent.holds or _held(leaf, agent) is None:
        return False
    return any(
        agent.units_within(unit, pending.needs_of(unit), agent.whole, 1)
        for pending, unit in _wanted(leaf)
    )


def _wanted(leaf: Leaf) -> list[tuple[PendingDemand, Resources]]:
    """Return what the leaf wants, each with the amounts that one agent must have room for."""
    wanted = [each for each in leaf.pending or () if each.left != 0]
    return [(each, piece) for each in wanted for piece in each.pieces]


def _is_missed(leaf: Leaf, hold: PooledAgent) -> bool:
    """Return whether a hold has what the leaf needs and its agent has too little of.

    A volume is not missed: it is never offered, and its release deletes files.
    """
    assert hold.cut_from is not None
    if hold.is_kept:
        return False
    free, has = hold.cut_from.free, {*hold.total.scalars, *hold.total.ranges}
    return leaf.pending is None or any(
        name in has and not Resources({name: milli}).units_within(free, 1)
        for _, unit in _wanted(leaf)
        for name, milli in unit.scalars.items()
    )


def _held(leaf: Leaf, agent: PooledAgent) -> PassedOver | None:
    """Return the largest part of an agent that the leaf lacks for others' holds; None without."""
    others = (hold for hold in agent.holds.values() if not hold.serves(leaf))
    holds = [hold for hold in others if _is_missed(leaf, hold)]
    if not holds:
        return None
    hold = max(holds, key=lambda each: sorted(each.total.scalars.values(), reverse=True))
    owner = hold.owner
    assert owner is not None
    detail = f"{hold.total} of it is held for {hold.held_for}"
    role, rival = owner.role, owner.framework_id
    return PassedOver(Cause.HELD, 1, detail, leaf.role, role, rival)


def _ranked(reason: PassedOver, leaf: Leaf, tree: Tree) -> PassedOver:
    """Return the framework that comes first as the reason of a lack of room, if there is one."""
    ranked = _outranked(leaf, tree, reason.agents)
    return ranked if ranked.cause is not Cause.IN_USE or _only_holder(leaf, tree) else reason


def of_agent(leaf: Leaf, agent: PooledAgent, state: AllocatorState, now: float) -> PassedOver:
    """Return the reason why the leaf is not dealt one agent now; ELIGIBLE if it would be."""
    cause = _with_any_agent(leaf, state.tree)
    if cause is not None:
        return cause
    if not agent.is_active:
        return PassedOver(Cause.AGENT_AWAY, 1, "the agent is not connected", leaf.role)
    tree, last = state.tree, state.back_off.active(now)
    others = tree.leaves.values()
    found = check_agent(agent, leaf, others, state, now, last)
    for hold in agent.holds.values():
        if isinstance(found, Rejection) and hold.serves(leaf) and not hold.is_kept:
            found = check_agent(hold, leaf, others, state, now, last)
    if isinstance(found, Rejection):
        held = _held(leaf, agent)
        if held is not None and (found.cause in _FULL or _fits_but_for_holds(leaf, agent, found)):
            return held
        return passed_over(
            found.cause, 1, str(found.detail), leaf.role, agent.agent_id, found.detail
        )
    if leaf.party in last and (found.pending is None or found.pending.shape is None):
        return _backing_off(leaf, last[leaf.party] - now, agent.agent_id)
    detail = f"it can use the agent; {_outranked(leaf, tree, 1).detail}"
    return PassedOver(Cause.ELIGIBLE, 1, detail, leaf.role, agent.agent_id)


def _with_any_agent(leaf: Leaf, tree: Tree) -> PassedOver | None:
    """Return the reason why the leaf is dealt no agent at all; None if there is none."""
    if not leaf.is_connected:
        detail = "the framework is not connected"
        return PassedOver(Cause.DISCONNECTED, 0, detail, leaf.role)
    if leaf.is_suppressed and not leaf.queued:
        wanted = "; ".join(str(each.demand) for each in leaf.declared or () if each.left != 0)
        if wanted:
            detail = f"the framework suppressed offers, though it wants {wanted}"
            return PassedOver(Cause.SUPPRESSED, 0, detail, leaf.role)
        detail = "no task that it submitted waits for an agent, and it suppressed offers"
        return PassedOver(Cause.NO_DEMAND, 0, detail, leaf.role)
    if not leaf.has_pending:
        is_offered = any(each.demand.count for each in leaf.pending or ())
        met = "all that it wants is offered to it" if is_offered else "it wants nothing more"
        detail = met if leaf.pending else "it wants nothing in this role"
        return PassedOver(Cause.NO_DEMAND, 0, detail, leaf.role)
    turn, reason, role = tree.turn_of(leaf)
    if turn is Turn.NEVER:
        detail = f"{reason}: nothing new is started in it"
        return PassedOver(Cause.BUDGET, 0, detail, leaf.role, role)
    if leaf.parked_by is not None:
        bound = next((each for _, each in limits.blocked_demand(leaf) if each is not None), None)
        if bound is not None:
            return PassedOver(Cause.LIMIT, 0, str(AtLimit.of(*bound)), leaf.role, bound[0].role)
    return None


def _backing_off(leaf: Leaf, seconds: float, agent_id: str = "") -> PassedOver:
    """Return the reason of a leaf whose party backs off after unanswered offers."""
    whose = "its principal" if leaf.owner else "it"
    detail = (
        f"{whose} kept an agent for {PATIENCE_S:.0f} s or longer without launching a task: other"
        f" frameworks come first on every agent for another {seconds:.0f} s"
    )
    return PassedOver(Cause.BACKS_OFF, 1 if agent_id else 0, detail, leaf.role, agent_id)


def _outranked(leaf: Leaf, tree: Tree, agents: int) -> PassedOver:
    """Return that only frameworks ahead of the leaf kept agents from it, or that all is in use."""
    ahead = set(takewhile(lambda other: other is not leaf, tree.in_order()))
    mine = f"it is number {len(ahead) + 1} in order" if ahead else "it is next"
    if tree.policy.name == "drf":
        # Under other policies no entitlement decides.
        entitled, has = float(tree.entitlement(leaf)), float(tree.share_of(leaf))
        mine = f"it is entitled to {entitled:.3f} of the cluster and has {has:.3f}; {mine}"
    others = [taker for taker in tree.takers if taker[0] in ahead]
    if not others:
        own, is_answered = _only_holder(leaf, tree), leaf.held == leaf.used
        cause = Cause.BACKS_OFF if own and not is_answered else Cause.IN_USE
        detail = f"{own or 'nothing more is free for it'}; {mine}"
        return PassedOver(cause, agents, detail, leaf.role)
    taker, needs = others[-1]
    guaranteed = guaranteed_node(taker) if needs else None
    cause = Cause.GUARANTEE if needs else Cause.OUTRANKED
    role = taker.role if guaranteed is None else guaranteed.role
    text = taker_text(others[-1], leaf, tree.policy.name, tree.totals)
    return PassedOver(cause, agents, f"{text}; {mine}", leaf.role, role, taker.framework_id)


def _fits_nowhere(leaf: Leaf, pool: AgentPool) -> list[PassedOver]:
    """Return that a demand fits on no agent, even if that were empty. O(agents)."""
    agents = [agent for agent in pool.agents.values() if agent.owner is None]
    alike = {agent.profile or agent: agent for agent in agents}.values()
    # What is held of an agent may come free.
    whole = {agent: agent.whole if agent.holds else agent.total for agent in alike}
    for pending, unit in _wanted(leaf):
        needs, agent_id = pending.needs_of(unit), bound_to(pending.demand.constraints)
        if agent_id:
            agent = pool.agents.get(AgentId(agent_id))
            if agent is not None and not agent.units_within(unit, needs, agent.whole, 1):
                short: object = Shortage(unit, 1, agent.whole, agent.whole)
                if unit.units_within(agent.whole, 1):
                    short = DeviceShortage(unit, needs, agent, agent.whole)
                detail = f"{BOUND.format(agent_id)}: {short}"
                return [PassedOver(Cause.DOES_NOT_FIT, 1, detail, leaf.role, agent_id)]
        elif any(agent.units_within(unit, needs, total, 1) for agent, total in whole.items()):
            continue
        elif any(unit.units_within(total, 1) for total in whole.values()):
            detail = f"needs {asked_text(unit, needs)}, and no agent has such devices"
            return [PassedOver(Cause.DOES_NOT_FIT, len(agents), detail, leaf.role)]
        else:
            largest = max(alike, key=lambda agent: _room(unit, whole[agent]))
            has = ", ".join(Shortage(unit, 1, NOTHING, NOTHING).amounts(whole[largest]))
            named = f"agent {largest.agent_id}"
            detail = f"needs {unit}, which fits nowhere: {named}, the largest, has only {has}"
            number, about = len(agents), largest.agent_id
            return [PassedOver(Cause.DOES_NOT_FIT, number, detail, leaf.role, about)]
    return []


def _gangs(leaf: Leaf, state: AllocatorState, now: float) -> Iterator[PassedOver | None]:
    """Yield how much of the first gangs could be placed now, and None between. O(agents) each."""
    waiting = (each for each in leaf.pending or () if each.gang is not None and each.left)
    for pending in islice(waiting, _MOST_GANGS):
        yield None
        places = GangSearch(state, now, state.back_off.active(now)).best(leaf, pending)
        fit, size = sum(map(bool, places)), len(places)
        if fit < size:
            yield None
            detail = (
                f"a gang of {size} tasks waits until all fit at once, {pending.demand.unit}:"
                f" {_never_fits(pending, state.agents) or f'{fit} of them fit now'}"
            )
            gathering = state.gatherings.of(pending)
            if gathering is not None:
                left = duration_text(max(gathering.until - now, 0))
                number = len(gathering.agents)
                where = "1 agent" if number == 1 else f"{number} agents"
                detail += f"; room on {where} is reserved for it, for another {left}"
            yield PassedOver(Cause.GANG, 0, detail, leaf.role)


def _never_fits(pending: PendingDemand, pool: AgentPool) -> str:
    """Return why no agents have room for a gang even if all are free; empty if some may. O(agents).

    A member is counted as if it asked only for what all of them ask for, of any devices. So the
    answer is sure, but not every such gang is found.
    """
    gang = pending.gang
    assert gang is not None
    size, same, spread = len(gang.members), gang.placement.same, gang.placement.spread
    first, *others = gang.units
    common = {name: min(each[name] for each in (first, *others)) for name in first.scalars}
    least = Resources(common)
    # By the value that all share: how many members fit on each agent, or on those of one value.
    rooms: dict[str, dict[str, int]] = {}
    for agent in pool.agents.values():
        shared = value_of(agent, same) if same else ""
        own = value_of(agent, spread) if spread else agent.agent_id
        is_open = agent.owner is None and all(
            each.holds(agent.facts) for each in pending.demand.constraints
        )
        if is_open and shared is not None and own is not None:
            # What is held of it may come free.
            whole = agent.whole if agent.holds else agent.total
            members = least.units_within(whole, 1 if spread else size)
            room = rooms.setdefault(shared, {})
            room[own] = max(room.get(own, 0), members)
    most = max((sum(room.values()) for room in rooms.values()), default=0)
    if most >= size:
        return ""
    never = "no set of agents has room for it, even if all were free"
    for name in filter(None, (same, spread)):
        if all(value_of(agent, name) is None for agent in pool.agents.values()):
            return f"{never}: no agent has the attribute {name}"
    together = {"": "", HOST: "on one agent"}.get(same, f"on agents with the same {same}")
    apart = {"": "", HOST: "on different agents"}.get(spread, f"with another {spread} for each")
    where = ", ".join(filter(None, (together, apart))) or "on all agents"
    return f"{never}: at most {most} of its tasks fit {where}"


def _room(unit: Resources, total: Resources) -> list[Fraction]:
    """Return the parts of the amounts in `unit` that `total` has, the smallest first."""
    return sorted(min(Fraction(total[n], milli), Fraction(1)) for n, milli in unit.scalars.items())


def _only_holder(leaf: Leaf, tree: Tree) -> str:
    """Return that the leaf's own tasks or offers hold all; empty if others hold what it wants."""
    totals, pending = tree.totals.amounts, leaf.pending or ()
    wanted = {name for each in pending for name in each.demand.unit.scalars} or set(totals)
    held = {name: milli for name, milli in leaf.held.items() if name in wanted}
    in_all: Amounts = {}
    for node in tree.root.below():
        add_amounts(in_all, node.held, 1)
    if not held or any(in_all.get(name, 0) != held.get(name, 0) for name in wanted):
        return ""
    whole = {name: milli for name, milli in held.items() if milli == totals.get(name)}
    holds = f"all of {format_amounts(whole)}" if whole else format_amounts(held)
    rest = "" if whole else ", and no other framework holds any"
    offered = {name: milli - leaf.used.get(name, 0) for name, milli in leaf.held.items()}
    if any(offered.values()):
        return f"it holds {holds}{rest}; it has not answered offers of {Resources(offered)} of it"
    return f"it holds {holds}{rest}: it waits for its own tasks to end"


def _making_room(leaf: Leaf, pool: AgentPool) -> list[PassedOver]:
    return [
        PassedOver(
            Cause.MAKING_ROOM,
            1,
            f"it was starving: {mark.amount} of agent {agent.agent_id} is earmarked for it,"
            " and free once the preempted tasks have ended",
            leaf.role,
            agent.agent_id,
        )
        for agent, mark in pool.earmarks_of(leaf)
    ]
