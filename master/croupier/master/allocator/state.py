"""The state of the allocator, and its rules: every part of it works on these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from croupier.master.allocator.agent_pool import AgentPool
from croupier.master.allocator.back_off import BackOff
from croupier.master.allocator.backfill import EndsOf, no_ends
from croupier.master.allocator.gathering import Gatherings
from croupier.master.allocator.limits import LimitWaiters
from croupier.master.allocator.memberships import Memberships
from croupier.master.allocator.policies import Policy
from croupier.master.allocator.pooled_agent import Useful
from croupier.master.allocator.profiles import Profiles
from croupier.master.allocator.share import Totals
from croupier.master.allocator.tree import Tree
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings

SCARCE = frozenset({"gpus"})


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings of allocation passes.

    Attributes:
        useful: the minimum offer without declared demand.
        hold_s: seconds for which an agent may be reserved for a framework, and for which it then
            cannot be reserved for it again; 0 reserves none.
        order: the order in which agents are visited; one of `queue.ORDERS`.
        seed: for the random order.
        scarce: resources that are withheld from frameworks that do not demand them.
        skips: whether a framework whose unit does not fit is passed over. If not, a visit ends
            when the neediest cannot use the agent (the regime of the DRF paper's Theorem 7).
        remembers_misfits: whether visits skip what they learned before; see `profiles`. The grants
            are the same without, but a slice of a pass makes fewer: event logs of masters that did
            not remember replay without.
    """

    useful: Useful = field(default_factory=Useful)
    hold_s: float = 30.0
    order: str = "arrival"
    seed: int = 0
    scarce: frozenset[str] = SCARCE
    skips: bool = True
    remembers_misfits: bool = False


class AllocatorState:
    """The share tree, the agents, and what is remembered of both.

    Attributes:
        members: the leaves of each framework.
        waiters: leaves that wait for headroom under a limit.
        back_off: parties that left offers unanswered, and come last for some time.
        gatherings: gangs for which room is gathered.
        ends_of: returns when tasks of an agent end that have a declared time.
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
        self.gatherings = Gatherings(self.agents)
        self.ends_of: EndsOf = no_ends
