"""What bounds a pass, whatever the policy."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.master.allocator.agent_pool import Useful

SCARCE = frozenset({"gpus"})


@dataclass(frozen=True, slots=True)
class Rules:
    """How agents are dealt.

    Attributes:
        useful: the least remainder that is offered.
        hold_s: how long an agent may be kept for a framework, and how long that framework
            must then wait before another is; 0 keeps none.
        order: in which order agents are looked at; one of `queue.ORDERS`.
        seed: for the order that draws lots.
        scarce: resources that are kept for those who ask for them.
        skips: whether a framework whose unit does not fit is passed over. If not, an agent is
            done with when the neediest cannot use it (the regime of the DRF paper's Theorem 7).
    """

    useful: Useful = field(default_factory=Useful)
    hold_s: float = 30.0
    order: str = "arrival"
    seed: int = 0
    scarce: frozenset[str] = SCARCE
    skips: bool = True
