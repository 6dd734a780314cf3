"""Invariants of the agents and frameworks together, for tests."""

from __future__ import annotations

from croupier.master.allocator import limits
from croupier.master.allocator.absent_agents import AbsentAgents
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.node import Amounts, add_amounts
from croupier.master.allocator.tree import Tree


def check_holdings(tree: Tree, pool: AgentPool, absent: AbsentAgents) -> None:
    """Assert that each unit of each agent is free or charged, exactly once."""
    free = absent.uncharged()
    held: Amounts = {}
    for agent in pool.agents.values():
        assert agent.free <= agent.total, agent.agent_id
        add_amounts(free, agent.free.scalars, 1)
    for leaf in tree.leaves.values():
        assert all(pending.outstanding >= 0 for pending in leaf.pending or ())
        assert all(agent_id in pool.agents for agent_id in leaf.reservations)
        assert leaf.surplus == (limits.surplus_of(leaf) if leaf.limited else {})
        add_amounts(held, leaf.held, 1)
    for name in {*tree.totals.amounts, *free, *held}:
        total = tree.totals.amounts.get(name, 0)
        assert free.get(name, 0) + held.get(name, 0) == total, name
    filters = sum(len(agent.filters) for agent in pool.agents.values())
    assert filters == sum(leaf.filters for leaf in tree.leaves.values())
