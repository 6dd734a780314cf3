"""What there is to do: tasks, and what they ask for and really use."""

from __future__ import annotations

from dataclasses import dataclass, field

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand
from croupier.model.resources import Resources
from croupier.sim.machine import Size


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """What tasks of one kind ask for, and what they use: not the same for slots.

    Two shapes are never equal, so tasks to be counted together must share one.
    """

    ask: Resources
    use: Size
    constraints: tuple[Constraint, ...] = ()

    def demand(self, count: int | None, max_per_offer: int | None = None) -> Demand:
        """`count` of it, as a framework declares it."""
        return Demand(self.ask, count, self.constraints, max_per_offer=max_per_offer)


@dataclass(slots=True, eq=False)
class Work:
    """One task to be done.

    Attributes:
        seconds: how long it takes on a node that is not overcommitted.
        fails: whether it ends FAILED instead of FINISHED.
        submitted_at, started_at: virtual seconds; None before that.
        job: whoever it belongs to.
    """

    shape: Shape
    seconds: float
    fails: bool = False
    submitted_at: float = 0.0
    started_at: float | None = None
    job: object = field(default=None, repr=False)
