"""The invariants of an allocator: of its share tree, and of agents and frameworks together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from croupier.master.allocator import Allocator, limits
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.charges import Charges
from croupier.master.allocator.kinds import Entry, Groups, Kind, parts_of
from croupier.master.allocator.node import (
    Amounts,
    Branch,
    Leaf,
    RoleNode,
    Turn,
    add_amounts,
    limited_at,
)
from croupier.master.allocator.pooled_agent import PooledAgent
from croupier.master.allocator.profiles import Profiles
from croupier.master.allocator.tree import Tree
from croupier.model.devices import without_slots


def check_allocator(allocator: Allocator) -> None:
    """Assert every invariant, such as that all resources are either free or charged."""
    tree, agents = allocator._tree, allocator._agents
    check_tree(tree)
    _check_profiles(allocator._profiles, agents.agents.values())
    _check_holdings(tree, agents, allocator.charges)
    assert all(allocator._members.leaf(*key) is leaf for key, leaf in tree.leaves.items())


def check_tree(tree: Tree) -> None:
    """Assert every invariant of the tree."""
    _check_branch(tree, tree.root)
    for role_node in (tree.root, *tree.roles.values()):
        assert list(role_node.order) == sorted(role_node.order)
        assert all(role_node in leaf.waits_at for leaf in role_node.waiting)
        above = [each.role for each in (role_node, *role_node.path) if isinstance(each, RoleNode)]
        turns = [tree.turns[role][0] for role in above if role in tree.turns]
        assert role_node.turn == max(turns, default=Turn.USUAL)
    for key, leaf in tree.leaves.items():
        assert leaf.parent is not None
        assert leaf.parent.leaves[key[0]] is leaf
        assert leaf.is_listed == leaf.is_willing == (leaf.willing == 1), leaf.name
        assert leaf.limited == limited_at(leaf.role_node)
        assert leaf.signature == leaf.kind.alone
        waiting = {part for each in leaf.pending or () if each.left for part in parts_of(each)}
        assert waiting <= set(leaf.kind.parts), leaf.name
        assert all(leaf in each.waiting and each in leaf.limited for each in leaf.waits_at)
        assert leaf.parked_by is None or leaf.parked_by in leaf.waits_at
        assert all(leaf.used.get(name, 0) <= milli for name, milli in leaf.held.items())


def _check_branch(tree: Tree, role: Branch) -> None:
    held: Amounts = {}
    used: Amounts = {}
    surplus: Amounts = {}
    slots = willing = alive = 0
    direction_sum: Amounts = {}
    kinds: Counter[Kind] = Counter()
    for node in role.below():
        if isinstance(node, Branch):
            if isinstance(node, RoleNode):
                assert tree.roles[node.role] is node
                assert node.weight == tree.weight_of(node.role, node.settings)
            assert not node.is_empty
            _check_branch(tree, node)
        for mine, theirs in ((held, node.held), (used, node.used), (surplus, node.surplus)):
            add_amounts(mine, theirs, 1)
        slots, willing = slots + node.slots, willing + node.willing
        if isinstance(node, Branch):
            kinds.update(node.kinds)
        elif isinstance(node, Leaf) and node.is_listed:
            kinds[node.kind] += 1
        alive += node.is_alive
        assert node.is_alive == (node.weighted_direction is not None), node
        add_amounts(direction_sum, node.weighted_direction or {}, 1)
        assert (node.entry is not None) == (node.willing > 0)
        if node.entry is not None:
            assert node.entry in role.order
            if not tree.ordering.is_stale:
                assert node.entry == tree.ordering.entry(node)
    assert role.willing == willing
    assert role.kinds == kinds
    if role.groups is not None:
        check_groups(role.groups, role.order)
    assert role.alive == alive
    assert {n: p for n, p in role.direction_sum.items() if p} == direction_sum
    if role is not tree.root:
        assert (role.held, role.used, role.slots) == (held, used, slots), role
        assert role.surplus == surplus, role


def _check_holdings(tree: Tree, pool: AgentPool, charges: Charges) -> None:
    """Assert that each unit of each agent is free or charged, exactly once."""
    free: Amounts = {}
    for capacity in charges.absent.values():
        add_amounts(free, capacity, 1)
    add_amounts(free, charges.absent_held, -1)
    held: Amounts = {}
    for agent in pool.agents.values():
        assert agent.free <= agent.total, agent.agent_id
        if agent.owner is None:
            # All of a hold is charged.
            add_amounts(free, agent.free.scalars, 1)
        else:
            assert agent.cut_from is not None
            assert agent.cut_from.holds[agent.agent_id] is agent
            assert agent.cut_from.tasks is agent.tasks
    users = Counter(agent.owner for agent in pool.agents.values() if not agent.is_kept)
    assert all(leaf.holds == users[leaf] for leaf in tree.leaves.values())
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


def check_groups(groups: Groups, entries: Iterable[Entry]) -> None:
    """Assert that the groups hold these entries, each in its group."""
    for signature, group in groups._groups.items():
        assert list(group) == sorted(group)
        assert all(entry[-1].signature == signature for entry in group)
        assert all(entry[-1].group is group for entry in group)
    assert sorted(each for group in groups._groups.values() for each in group) == list(entries)
    assert groups._empty == sum(not group for group in groups._groups.values())


def _check_profiles(profiles: Profiles, agents: Iterable[PooledAgent]) -> None:
    """Assert that each agent has its profile, and count misfits."""
    counts = Counter(agent.profile for agent in agents if agent.profile is not None)
    known = profiles._by_key.values()
    assert counts == {each: each.agents for each in known}
    for agent in agents:
        total = agent.total if agent.inventory is None else without_slots(agent.total)
        assert agent.profile is None or agent.profile.total == total
    assert profiles._learned == sum(len(each.misfits) + len(each.usable) for each in known)
