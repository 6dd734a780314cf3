"""Demand: what a framework says it wants."""

from __future__ import annotations

from dataclasses import dataclass

from croupier.model.attributes import Constraint, check_constraints
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources

MAX_COUNT = 10**9


@dataclass(frozen=True, slots=True)
class Demand:
    """`count` units of a shape, beyond what already runs, on agents that pass all constraints.

    Attributes:
        unit: what one task takes. A scalar that agents hold as ranges counts numbers:
            `ports:2` is any two ports.
        count: None means without end. Counted down as the framework launches tasks.
    """

    unit: Resources
    count: int | None = None
    constraints: tuple[Constraint, ...] = ()

    def check(self) -> None:
        """Look for what can never be dealt.

        Raises:
            InvalidRequest: if there is such a thing.
        """
        if not self.unit.scalars or self.unit.ranges or self.unit.sets:
            raise InvalidRequest("a demand's unit is made of scalars (ports:2 asks for two ports)")
        if self.count is not None and not 0 <= self.count <= MAX_COUNT:
            raise InvalidRequest(f"a demand's count must be between 0 and {MAX_COUNT}")
        check_constraints(self.constraints)

    def __str__(self) -> str:
        wanted = "any number of" if self.count is None else str(self.count)
        tests = "".join(f", {constraint}" for constraint in self.constraints)
        return f"{wanted} <{self.unit}>{tests}"
