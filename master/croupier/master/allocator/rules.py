"""Rules of a pass, whatever the policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.master.allocator.agent_pool import Useful

SCARCE = frozenset({"gpus"})


@dataclass(frozen=True, slots=True)
class Rules:
    """How agents are dealt.

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
