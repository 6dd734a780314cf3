"""Why a framework has not more than it has."""

from __future__ import annotations

from itertools import takewhile

from croupier.master.allocator import limits
from croupier.master.allocator.agent_pool import AgentPool, PooledAgent
from croupier.master.allocator.comparison import guaranteed_node, taker_text
from croupier.master.allocator.eligibility import Look
from croupier.master.allocator.node import Leaf
from croupier.master.allocator.reasons import Cause, PassedOver
from croupier.master.allocator.refusals import AtLimit, KeptFor
from croupier.master.allocator.rules import Rules
from croupier.master.allocator.tree import Tree
from croupier.model.ids import AgentId


class _Still(AgentPool):
    """Where one who only looks may ask to be woken: to ask why changes nothing."""

    def wake_at(self, agent_id: AgentId, at: float) -> None:
        """Nothing."""


def of_leaf(leaf: Leaf, tree: Tree, pool: AgentPool) -> list[PassedOver]:
    """What kept agents from the leaf, the latest first."""
    plain = _whatever_the_agent(leaf)
    if plain is not None:
        return [plain]
    if not pool.agents:
        return [PassedOver(Cause.NO_AGENTS, 0, "no agent is registered", leaf.role)]
    told = _making_room(leaf, pool) + leaf.reasons.tell(leaf.role)
    return told or [_outranked(leaf, tree, len(pool.agents))]


def of_agent(leaf: Leaf, agent: PooledAgent, tree: Tree, rules: Rules, now: float) -> PassedOver:
    """What keeps one agent from the leaf now; ELIGIBLE if nothing does."""
    plain = _whatever_the_agent(leaf)
    if plain is not None:
        return plain
    if not agent.is_active:
        return PassedOver(Cause.AGENT_AWAY, 1, "the agent is not connected", leaf.role)
    refusal = Look(agent, tree, _Still(), rules, now).refusal(leaf)
    if refusal is not None:
        cause, about = refusal
        told = getattr(about, "role", "") or agent.agent_id
        return PassedOver(cause, 1, str(about), leaf.role, told)
    holders = [
        other
        for other in tree.leaves.values()
        if other is not leaf and other.reservations.is_kept(agent.agent_id, now)
    ]
    keeper = Look(agent, tree, _Still(), rules, now).keeper(leaf, holders)
    if keeper is not None:
        return PassedOver(Cause.KEPT, 1, str(KeptFor.now(keeper)), leaf.role, keeper.role)
    detail = f"it can use the agent; {_outranked(leaf, tree, 1).detail}"
    return PassedOver(Cause.ELIGIBLE, 1, detail, leaf.role, agent.agent_id)


def _whatever_the_agent(leaf: Leaf) -> PassedOver | None:
    if not leaf.is_connected:
        detail = "the framework is not connected"
        return PassedOver(Cause.DISCONNECTED, 0, detail, leaf.role)
    if leaf.is_suppressed:
        detail = "the framework asked for no offers"
        return PassedOver(Cause.SUPPRESSED, 0, detail, leaf.role)
    if not leaf.has_pending:
        wanted = (
            "; ".join(str(want.demand) for want in leaf.pending or ()) or "nothing in this role"
        )
        return PassedOver(Cause.NO_DEMAND, 0, f"it wants {wanted}", leaf.role)
    if leaf.parked_by is not None:
        bound = next((each for _, each in limits.blocked_demand(leaf) if each is not None), None)
        if bound is not None:
            return PassedOver(Cause.LIMIT, 0, str(AtLimit.of(*bound)), leaf.role, bound[0].role)
    return None


def _outranked(leaf: Leaf, tree: Tree, agents: int) -> PassedOver:
    """Nothing kept the leaf from any agent but that others came first."""
    others = [taker for taker in tree.takers if taker[0] is not leaf]
    before = sum(1 for _ in takewhile(lambda other: other is not leaf, tree.in_order()))
    mine = f"{before} stand before it" if before else "it is next"
    if tree.policy.name == "drf":
        # Under other policies no entitlement decides.
        entitled, has = float(tree.entitlement(leaf)), float(tree.share_of(leaf))
        mine = f"it is entitled to {entitled:.3f} of the cluster and has {has:.3f}; {mine}"
    if not others:
        return PassedOver(Cause.IN_USE, agents, f"nothing is free; {mine}", leaf.role)
    taker, needs, _ = others[-1]
    guaranteed = guaranteed_node(taker) if needs else None
    cause = Cause.GUARANTEE if needs else Cause.OUTRANKED
    role = taker.role if guaranteed is None else guaranteed.role
    told = f"{taker_text(taker, needs=needs, verb=' was dealt to last')}; {mine}"
    return PassedOver(cause, agents, told, leaf.role, role)


def _making_room(leaf: Leaf, pool: AgentPool) -> list[PassedOver]:
    return [
        PassedOver(
            Cause.MAKING_ROOM,
            1,
            f"it starved: {agent.earmark.amount} of agent {agent.agent_id} is kept for it"
            " as soon as those who were asked for it have ended",
            leaf.role,
            agent.agent_id,
        )
        for agent in pool.earmarked.values()
        if agent.earmark is not None and agent.earmark.leaf is leaf
    ]
