"""Demand: what a framework says it wants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from croupier.model import ranges as rng
from croupier.model.attributes import Constraint, check_constraints
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role, check_role
from croupier.model.resources import Resources

MAX_COUNT = 10**9
MAX_PER_OFFER = 10**6
MAX_SHAPES = 64
# A unit takes at least one of these amounts, in thousandths: the same as is offered to a framework
# that declares no demand. Units are dealt one by one, and a large agent holds millions of smaller.
LEAST = {"cpus": 10, "mem": 32_000, "disk": 32_000}
LEAST_OF_OTHERS = 10
# Instructions of all patterns of one framework, which every agent may be held against.
MAX_PROGRAMS = 10_000


@dataclass(frozen=True, slots=True)
class Demand:
    """`count` units of a shape, beyond what already runs, on agents that pass all constraints.

    Attributes:
        unit: what one task takes. A scalar that agents hold as ranges counts numbers:
            `ports:2` is any two ports.
        count: None means without end. Counted down as the framework launches tasks.
        min_per_offer: an offer of this shape has at least so many units, of one agent; or
            all that are left of `count`.
        max_per_offer: and at most so many; None is no bound.
        role: which of the framework's roles it is offered in; None is the first.
    """

    unit: Resources
    count: int | None = None
    constraints: tuple[Constraint, ...] = ()
    min_per_offer: int = 1
    max_per_offer: int | None = None
    role: Role | None = None

    def check(self) -> None:
        """Look for what can never be dealt.

        Raises:
            InvalidRequest: if there is such a thing.
        """
        if not self.unit.scalars or self.unit.ranges or self.unit.sets:
            raise InvalidRequest("a demand's unit is made of scalars (ports:2 asks for two ports)")
        if self.count is not None and not 0 <= self.count <= MAX_COUNT:
            raise InvalidRequest(f"a demand's count must be between 0 and {MAX_COUNT}")
        if not 1 <= self.min_per_offer <= MAX_PER_OFFER:
            raise InvalidRequest(
                f"a demand's least units per offer must be between 1 and {MAX_PER_OFFER},"
                f" not {self.min_per_offer}"
            )
        most = self.max_per_offer
        if most is not None and not self.min_per_offer <= most <= MAX_PER_OFFER:
            raise InvalidRequest(
                f"a demand's most units per offer must be between its least,"
                f" {self.min_per_offer}, and {MAX_PER_OFFER}, not {most}"
            )
        if self.role is not None:
            check_role(self.role)
        check_constraints(self.constraints)
        self._check_size()

    def _check_size(self) -> None:
        """Refuse units that an agent has room for many thousands of: each is dealt by itself."""
        for name, milli in self.unit.scalars.items():
            if milli * self.min_per_offer >= LEAST.get(name, LEAST_OF_OTHERS):
                return
        raise InvalidRequest(
            f"a demand's unit, <{self.unit}>, is too small: it needs at least 0.01 cpus, 32 MB of"
            " mem or disk, or 0.01 of another resource (or a minimum per offer that comes to that)"
        )

    def is_unit(self, task: Resources) -> bool:
        """Whether `task` takes just what one unit does; numbers of ranges count as scalars."""
        numbers = {name: 1000 * rng.count(ranges) for name, ranges in task.ranges.items()}
        return not task.sets and self.unit.scalars == {**task.scalars, **numbers}

    def suits(self, facts: Mapping[str, str]) -> bool:
        """Whether an agent with these attributes passes all constraints."""
        return all(each.holds(facts) for each in self.constraints)

    def counted_down(self, units: int = 1) -> Demand:
        """What is wanted once so many more units are launched."""
        return self if self.count is None else replace(self, count=max(self.count - units, 0))

    def __str__(self) -> str:
        wanted = "any number of" if self.count is None else str(self.count)
        return f"{wanted} <{self.unit}>{self._portions()}{self._place()}"

    def _portions(self) -> str:
        if self.max_per_offer is not None:
            return f", {self.min_per_offer} to {self.max_per_offer} at once"
        return f", at least {self.min_per_offer} at once" if self.min_per_offer > 1 else ""

    def _place(self) -> str:
        role = "" if self.role is None else f", in role {self.role}"
        return role + "".join(f", {constraint}" for constraint in self.constraints)


def counted_for(demands: Sequence[Demand], task: Resources, facts: Mapping[str, str]) -> int | None:
    """Return the place of the demand that a launched task counts for; None if none wants more.

    It is a demand whose unit is what the task takes; else one whose unit fits in that; else any.
    Of several it is the first whose constraints the agent passes, else the first. Master and
    SDK both count by this rule, so that they agree on what is left.

    Args:
        demands: those of the role that the task is launched in.
        task: what the task takes.
        facts: of the agent that the task is launched on.
    """
    wanted = [place for place, demand in enumerate(demands) if demand.count != 0]
    if len(wanted) > 1:
        wanted.sort(key=lambda place: not demands[place].suits(facts))
    for place in wanted:
        if demands[place].is_unit(task):
            return place
    for place in wanted:
        if demands[place].unit.units_within(task, 1):
            return place
    return wanted[0] if wanted else None


def check_demands(demands: Iterable[Demand], roles: Sequence[Role] = ()) -> tuple[Demand, ...]:
    """Return `demands` as a tuple, if one framework may want all of them.

    Takes no more of them than it must, so that a stream of them is not made in vain.

    Args:
        demands: each is checked by itself too.
        roles: the framework's; if there are none, demands may name any.

    Raises:
        InvalidRequest: if there are over 64, two are of one shape, role and constraints, their
            patterns are too much together, or one names a role that the framework has not.
    """
    kept: list[Demand] = []
    seen: set[tuple[object, ...]] = set()
    programs = 0
    for demand in demands:
        if len(kept) == MAX_SHAPES:
            raise InvalidRequest(f"more than {MAX_SHAPES} shapes are demanded")
        demand.check()
        if roles and demand.role is not None and demand.role not in roles:
            raise InvalidRequest(f"demand for role {demand.role!r}, which the framework has not")
        role = roles[0] if roles and demand.role is None else demand.role
        key = (demand.unit, role, frozenset(demand.constraints))
        if key in seen:
            raise InvalidRequest(f"<{demand.unit}> is demanded twice: give one count for both")
        seen.add(key)
        programs += sum(each.pattern.size for each in demand.constraints if each.pattern)
        if programs > MAX_PROGRAMS:
            raise InvalidRequest("the patterns of all demands are too complex together")
        kept.append(demand)
    return tuple(kept)
