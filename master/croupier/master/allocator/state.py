"""The state of the allocator: every part of it works on this."""

from __future__ import annotations

from collections.abc import Mapping

from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.back_off import BackOff
from croupier.master.allocator.limits import LimitWaiters
from croupier.master.allocator.memberships import Memberships
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.profiles import Profiles
from croupier.master.allocator.rules import Rules
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings


class AllocatorState:
    """The share tree, the agents, and what is remembered of both.

    Attributes:
        members: the leaves of each framework.
        waiters: leaves that wait for headroom under a limit.
        back_off: parties that left offers unanswered, and come last for some time.
    """

    def __init__(
        self, policy: Policy | None, rules: Rules, roles: Mapping[Role, RoleSettings] | None
    ) -> None:
        self.rules = rules
        self.totals = Totals()
        self.tree = Tree(self.totals, policy, roles)
        self.agents = AgentPool(rules.order, rules.seed, rules.scarce)
        self.profiles = Profiles(self.tree.kinds, remembers=rules.skips and rules.remembers_misfits)
        self.members = Memberships(self.tree, self.agents)
        self.waiters = LimitWaiters(self.tree, self.agents)
        self.back_off = BackOff()
