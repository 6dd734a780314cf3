"""Passes over the dirty agents, in slices."""

from __future__ import annotations

from croupier.master.allocator.agent_allocation import AgentAllocation, Pass
from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.back_off import BackOff
from croupier.master.allocator.grant import Grant, merged
from croupier.master.allocator.limit_waiters import LimitWaiters
from croupier.master.allocator.memberships import Memberships
from croupier.master.allocator.profiles import Profiles
from croupier.master.allocator.rules import Rules
from croupier.master.allocator.sweeps import Sweep
from croupier.master.allocator.tree import Tree


class Passes:
    """Visits the dirty agents.

    Attributes:
        number: how many passes began.
    """

    def __init__(
        self,
        tree: Tree,
        agents: AgentPool,
        profiles: Profiles,
        members: Memberships,
        waiters: LimitWaiters,
        back_off: BackOff,
        rules: Rules,
    ) -> None:
        self._tree, self._agents, self._profiles = tree, agents, profiles
        self._members, self._waiters = members, waiters
        self._back_off, self._rules = back_off, rules
        self.number = 0
        self._in_pass = False

    def run(self, now: float, budget: int) -> list[Grant]:
        """Run a slice of a pass, or begin one; see `Allocator.run`."""
        if not self._in_pass:
            if not self._tree.has_willing:
                self._agents.mark_all_clean()
            if not self._agents.line_up():
                return []
            self.number += 1
        self._tree.refresh()
        last = self._back_off.active(now)
        this_pass = Pass(
            self._tree,
            self._agents,
            self._profiles,
            self._waiters,
            self._rules,
            last,
            self.number,
            now,
        )
        grants: list[Grant] = []
        sweep = Sweep(self._agents, self._profiles, self.number)
        while budget > 0:
            found = self._agents.take_dirty()
            if found is None:
                break
            agent, leaves = found
            if leaves is not None and sweep.skips(agent, leaves):
                budget -= 1
                continue
            sweep.tell()
            visit = AgentAllocation(agent, this_pass)
            grants += visit.run(leaves)
            budget -= visit.checks + visit.work + 1
        sweep.tell()
        self._in_pass = self._agents.is_dirty
        return grants if self._rules.order != "spread" else merged(grants, self._is_one_offer)

    def _is_one_offer(self, grant: Grant) -> bool:
        """Return whether one offer may have all units of the grant."""
        pending = self._members.leaf(grant.framework_id, grant.role).declared
        if grant.shape is not None:
            return True
        if pending is None:
            return False
        most = {each.demand.unit: each.demand.max_per_offer for each in pending}
        bounds = ((number, most.get(unit)) for unit, number in grant.units)
        return all(bound is None or number <= bound for number, bound in bounds)
