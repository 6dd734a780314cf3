"""Details of rejections: why one framework cannot be dealt one agent.

A detail is cheap to make in a pass; it is put into words only when an operator asks.
"""

from __future__ import annotations

from dataclasses import dataclass

from croupier.master.allocator.node import Leaf, RoleNode
from croupier.master.allocator.policies.level import needy
from croupier.model.attributes import Constraint
from croupier.model.resources import Resources
from croupier.model.roles import format_amounts
from croupier.model.scalar import format_scalar


@dataclass(frozen=True, slots=True)
class Shortage:
    """So many units do not fit in what is left."""

    unit: Resources
    least: int
    left: Resources
    total: Resources

    def __str__(self) -> str:
        units = f"{self.least} units of <{self.unit}>" if self.least > 1 else str(self.unit)
        whole = self._short(self.total)
        if whole:
            return f"needs {units}, but the agent has only {', '.join(whole)} in all"
        free = self._short(self.left)
        if not free:
            return f"needs {units}, but {_free_text(self.left)}"
        return f"needs {units}, but only {', '.join(free)} is free"

    def _short(self, room: Resources) -> list[str]:
        """Return the amounts in `room` of the resources that it has too little of."""
        names = (*self.unit.scalars, *self.unit.ranges, *self.unit.sets)
        return [
            # A resource that `room` has nothing of is named all the same.
            str(_only(name, room)) or f"{name}:0"
            for name in names
            if _only(name, self.unit).units_within(room, self.least) < self.least
        ]


def _only(name: str, resources: Resources) -> Resources:
    """Return one resource of several."""
    return Resources(
        {n: milli for n, milli in resources.scalars.items() if n == name},
        {n: ranges for n, ranges in resources.ranges.items() if n == name},
        {n: items for n, items in resources.sets.items() if n == name},
    )


def _free_text(left: Resources) -> str:
    return f"only {left} is free" if left else "nothing is free"


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
    """Less is left than is worth an offer."""

    left: Resources

    def __str__(self) -> str:
        return _free_text(self.left)


@dataclass(frozen=True, slots=True)
class Filtered:
    """The framework refused it."""

    seconds: float

    def __str__(self) -> str:
        if self.seconds <= 0:
            return "the framework refused it, and others are asked first"
        return f"the framework refused it for another {self.seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Unmet:
    """The agent does not pass a constraint."""

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
    def of(cls, node: RoleNode, resource: str) -> AtLimit:
        """Return the limit of a role as it is now."""
        return cls(node.role, resource, node.held.get(resource, 0), node.settings.limit[resource])

    def __str__(self) -> str:
        held, limit = (format_scalar(self.resource, each) for each in (self.held, self.limit))
        return f"role {self.role} holds {self.resource}:{held} of its limit of {limit}"


@dataclass(frozen=True, slots=True)
class _ForAnother:
    """Another framework comes first here."""

    leaf: Leaf

    @property
    def role(self) -> str:
        """The role of the other framework."""
        return self.leaf.role


@dataclass(frozen=True, slots=True)
class Reserved(_ForAnother):
    """The agent is reserved for another framework whose unit does not fit yet.

    Attributes:
        below: the role at or above it that is below its guarantee; None if none is.
    """

    below: RoleNode | None = None

    @classmethod
    def now(cls, leaf: Leaf) -> Reserved:
        """Return why it is reserved for `leaf` now."""
        below = (node for node in leaf.path if isinstance(node, RoleNode) and needy(node))
        return cls(leaf, next(below, None))

    def __str__(self) -> str:
        if self.below is None:
            return f"kept for {self.leaf.framework_id}, which holds less"
        promised = format_amounts(self.below.settings.guarantee)
        return (
            f"kept for {self.leaf.framework_id},"
            f" below the guarantee of {self.below.role} ({promised})"
        )


@dataclass(frozen=True, slots=True)
class Earmarked(_ForAnother):
    """Room was made on the agent for another framework."""

    amount: Resources

    def __str__(self) -> str:
        return f"{self.amount} was freed for {self.leaf.framework_id}, which starved"


@dataclass(frozen=True, slots=True)
class Scarce:
    """The agent has resources that other frameworks demand and this one does not."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"has {', '.join(self.names)}, which is kept for those who ask for it"


@dataclass(frozen=True, slots=True)
class FullOffer:
    """The framework's offer has the most units that it may have."""

    most: int

    def __str__(self) -> str:
        return f"it is offered {self.most} units of it, the most that it takes at once"
