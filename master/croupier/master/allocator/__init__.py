"""The fairness engine: pure, exact, deterministic.

`Allocator` is the whole of it to the rest of the master; the modules beside it hold one noun
each: `account` (what is told of the books), `share` (how much a client holds), `node`, `ordering`
and `tree` (who is neediest), `policies` (by what measure), `directions` (what siblings can have
together), `limits` and `barriers`, `want` (declared demand), `pool` and `queue` (what agents have
free, and which is next), `filters` (what was refused), `look` (what one agent is to each) and
`visit` (dealing it), `refusals`, `reasons` and `explain` (why not), `what_if`; `standing`,
`starvation`, `preemption` and `preemptor` (making room).
"""

from croupier.master.allocator.allocator import Allocator
from croupier.master.allocator.grant import Grant, Units
from croupier.master.allocator.reasons import Cause, PassedOver
from croupier.master.allocator.rules import Rules

__all__ = ["Allocator", "Cause", "Grant", "PassedOver", "Rules", "Units"]
