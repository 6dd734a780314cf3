"""Why one framework cannot be dealt one agent, in words that are made when somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.master.allocator.node import Leaf, RoleNode
from croupier.master.allocator.policies.level import needy
from croupier.model.attributes import Constraint
from croupier.model.resources import Resources
from croupier.model.roles import format_amounts
from croupier.model.scalar import format_scalar


def free_text(left: Resources) -> str:
    """How much is free, in words."""
    return f"only {left} is free" if left else "nothing is free"


@dataclass(frozen=True, slots=True)
class Shortage:
    """So many units do not fit in what is free."""

    unit: Resources
    least: int
    left: Resources
    total: Resources

    def __str__(self) -> str:
        whole = self._short(self.total)
        if whole:
            return f"needs {self._units}, but the agent has only {', '.join(whole)} in all"
        free = self._short(self.left)
        if not free:
            return f"needs {self._units}, but {free_text(self.left)}"
        return f"needs {self._units}, but only {', '.join(free)} is free"

    @property
    def _units(self) -> str:
        return f"{self.least} units of <{self.unit}>" if self.least > 1 else str(self.unit)

    def _short(self, room: Resources) -> list[str]:
        """The amounts in `room` of the resources of which it has too little."""
        names = (*self.unit.scalars, *self.unit.ranges, *self.unit.sets)
        return [_amount(room, name) for name in names if self._is_short(name, room)]

    def _is_short(self, name: str, room: Resources) -> bool:
        unit = self.unit
        alone = Resources(
            {n: milli for n, milli in unit.scalars.items() if n == name},
            {n: ranges for n, ranges in unit.ranges.items() if n == name},
            {n: items for n, items in unit.sets.items() if n == name},
        )
        return alone.units_within(room, self.least) < self.least


def _amount(room: Resources, name: str) -> str:
    """How much of one resource there is, such as `cpus:0.5`; also if that is nothing."""
    part = Resources(
        {n: milli for n, milli in room.scalars.items() if n == name},
        {n: ranges for n, ranges in room.ranges.items() if n == name},
        {n: items for n, items in room.sets.items() if n == name},
    )
    return str(part) or f"{name}:0"


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
    """A role's limit leaves no room, with the amounts at that moment: the limit may change."""

    role: str
    resource: str
    held: int
    limit: int

    @classmethod
    def of(cls, pool: RoleNode, resource: str) -> AtLimit:
        """The limit of `pool` as it is now."""
        held, limit = pool.held.get(resource, 0), pool.settings.limit[resource]
        return cls(pool.role, resource, held, limit)

    def __str__(self) -> str:
        held, limit = (format_scalar(self.resource, each) for each in (self.held, self.limit))
        return f"role {self.role} holds {self.resource}:{held} of its limit of {limit}"


@dataclass(frozen=True, slots=True)
class KeptFor:
    """The agent is kept for a framework that comes first, if its unit does not fit yet.

    Attributes:
        below: the role at or above it that is below its guarantee; None if none is.
    """

    leaf: Leaf
    below: RoleNode | None = None

    @classmethod
    def now(cls, leaf: Leaf) -> KeptFor:
        """As it stands now."""
        below = (node for node in leaf.path if isinstance(node, RoleNode) and needy(node))
        return cls(leaf, next(below, None))

    @property
    def role(self) -> str:
        """Its role."""
        return self.leaf.role

    def __str__(self) -> str:
        if self.below is not None:
            promised = format_amounts(self.below.settings.guarantee)
            return (
                f"kept for {self.leaf.framework_id},"
                f" below the guarantee of {self.below.role} ({promised})"
            )
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
