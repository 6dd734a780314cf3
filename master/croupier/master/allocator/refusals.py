"""Why one framework cannot be dealt one agent, in words that are made when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.master.allocator.node import Amounts, Leaf, Pool
from croupier.master.allocator.share import Totals
from croupier.model.attributes import Constraint
from croupier.model.resources import Resources
from croupier.model.roles import format_amounts
from croupier.model.scalar import format_scalar


def free_text(left: Resources) -> str:
    """How much is free, in words."""
    return f"only {left} is free" if left else "nothing is free"


@dataclass(frozen=True, slots=True)
class Shortage:
    """The unit does not fit in what is free."""

    unit: Resources
    left: Resources
    total: Resources

    def __str__(self) -> str:
        if not self.unit.units_within(self.total, 1):
            return f"needs {self.unit}, but the agent has only {self.total} in all"
        return f"needs {self.unit}, but {free_text(self.left)}"


@dataclass(frozen=True, slots=True)
class TooFew:
    """Fewer units fit than an offer must have."""

    unit: Resources
    units: int
    least: int

    def __str__(self) -> str:
        return f"an offer needs {self.least} units of <{self.unit}>, but only {self.units} fit"


@dataclass(frozen=True, slots=True)
class TooSmall:
    """What is left is not worth an offer."""

    left: Resources

    def __str__(self) -> str:
        return free_text(self.left)


@dataclass(frozen=True, slots=True)
class FilteredFor:
    """The framework refused it."""

    seconds: float

    def __str__(self) -> str:
        if self.seconds <= 0:
            return "the framework refused it, and others are asked first"
        return f"the framework refused it for another {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Unmet:
    """A constraint does not hold."""

    constraint: Constraint

    def __str__(self) -> str:
        return f"does not pass {self.constraint}"


@dataclass(frozen=True, slots=True)
class AtLimit:
    """A role's limit leaves no room."""

    pool: Pool
    resource: str

    @property
    def role(self) -> str:
        """The role whose limit it is."""
        return self.pool.role

    def __str__(self) -> str:
        most = format_scalar(self.resource, self.pool.settings.limit[self.resource])
        held = format_scalar(self.resource, self.pool.held.get(self.resource, 0))
        return f"role {self.role} holds {self.resource}:{held} of its limit of {most}"


@dataclass(frozen=True, slots=True)
class KeptFor:
    """The agent is kept for a framework that holds less."""

    leaf: Leaf

    @property
    def role(self) -> str:
        """Its role."""
        return self.leaf.role

    def __str__(self) -> str:
        return f"kept for {self.leaf.framework_id}, which holds less"


@dataclass(frozen=True, slots=True)
class EarmarkedFor:
    """Room was made on the agent for another framework."""

    leaf: Leaf
    amount: Resources

    @property
    def role(self) -> str:
        """Its role."""
        return self.leaf.role

    def __str__(self) -> str:
        return f"{self.amount} was freed for {self.leaf.framework_id}, which starved"


@dataclass(frozen=True, slots=True)
class ScarceHere:
    """The agent has what others ask for and this framework does not."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"has {', '.join(self.names)}, which is kept for those who ask for it"


@dataclass(frozen=True, slots=True)
class FullOffer:
    """The framework's offers have at most so many units."""

    most: int

    def __str__(self) -> str:
        return f"it is offered {self.most} units of it, the most that it takes at once"


@dataclass(frozen=True, slots=True)
class TakenBy:
    """It was dealt to somebody who came first.

    Attributes:
        needs: whether the taker was below a guarantee.
        theirs: what the taker held before.
        mine: what who was passed over held at that time.
    """

    taker: Leaf
    needs: bool
    theirs: Amounts
    mine: Amounts
    totals: Totals

    @property
    def role(self) -> str:
        """The role of who took it."""
        return self.taker.role

    @property
    def briefly(self) -> str:
        """Who took it, without a comparison: who asks may have come since."""
        had = float(self.totals.share(self.theirs))
        return f"{self._who} was dealt to last, when its share was {had:.3f}{self._need}"

    @property
    def _who(self) -> str:
        return f"{self.taker.framework_id} in role {self.role}"

    @property
    def _need(self) -> str:
        if self.needs:
            for node in self.taker.path:
                if isinstance(node, Pool) and any(node.settings.guarantee.values()):
                    promised = format_amounts(node.settings.guarantee)
                    return f", below the guarantee of {node.role} ({promised})"
        return ""

    def __str__(self) -> str:
        if self.needs:
            return f"went to {self._who}{self._need}"
        theirs, mine = float(self.totals.share(self.theirs)), float(self.totals.share(self.mine))
        return f"went to {self._who}, whose share was {theirs:.3f}; its own was {mine:.3f}"
