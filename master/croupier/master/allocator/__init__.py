"""The fairness engine: pure, exact, deterministic.

`Allocator` is the whole of it to the rest of the master; the modules beside it hold
one noun each: `share` (how much a client holds), `tree` (who is neediest), `pool` (what
agents have free), `filters` (what was refused), `reasons` (why not), `cycle` (a pass).
"""

from croupier.master.allocator.allocator import Allocator
from croupier.master.allocator.cycle import Grant
from croupier.master.allocator.reasons import Cause, PassedOver

__all__ = ["Allocator", "Cause", "Grant", "PassedOver"]
