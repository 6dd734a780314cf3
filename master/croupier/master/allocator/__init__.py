"""The fairness engine: pure, exact, deterministic.

The rest of the master uses `Allocator` and its parts `charges` and `queries`. The other modules:

- the share tree: `node`, `tree`, `ordering`, `share`, `entitlements`, `policies`, `limits`
- the agents: `agent_pool`, `queue`, `filters`, `absent_agents`
- frameworks: `memberships`, `pending_demand`, `limit_waiters`, `soft_reservations`, `precedence`
- a pass: `agent_allocation`, `eligibility`, `grant`, `rules`, `prng`
- answers: `reasons`, `rejections`, `comparison`, `explain`, `what_if`
- preemption: `share_projection`, `starvation`, `preemption`, `preemptor`
"""

from croupier.master.allocator.allocator import Allocator
from croupier.master.allocator.grant import Grant, Units
from croupier.master.allocator.reasons import Cause, PassedOver
from croupier.master.allocator.rules import Rules

__all__ = ["Allocator", "Cause", "Grant", "PassedOver", "Rules", "Units"]
