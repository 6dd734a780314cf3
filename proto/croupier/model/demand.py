"""Declared demand of frameworks, and the placement of submitted tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from croupier.model import ranges as rng
from croupier.model.attributes import Constraint, check_constraints
from croupier.model.devices import DEVICES, DeviceRequest
from croupier.model.durations import duration_text
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role, check_role
from croupier.model.isolation import MAX_COMPLETION_MS
from croupier.model.resources import Resources

MAX_COUNT = 10**9
MAX_PER_OFFER = 10**6
MAX_SHAPES = 64
# A unit has at least one of these amounts, in thousandths: the minimum offer to a framework
# without a demand. Units are allocated one by one; a large agent holds millions of smaller ones.
LEAST = {"cpus": 10, "mem": 32_000, "disk": 32_000}
LEAST_OF_OTHERS = 10
# Instructions of all patterns of one framework, which may be matched with every agent.
MAX_PROGRAMS = 10_000
MAX_PER_AGENT = 10**6


@dataclass(frozen=True, slots=True)
class Demand:
    """`count` units of a shape, beyond running tasks, on agents that pass all constraints.

    Attributes:
        unit: resources of one task. A scalar that agents hold as ranges counts numbers:
            `ports:2` is any two ports.
        count: counted down as the framework launches tasks; None is unlimited.
        min_per_offer: minimum units of one agent in an offer; fewer only at the end of `count`.
        max_per_offer: maximum units in an offer; None means no bound.
        role: the framework's role for the offers; None is its first.
        max_completion_ms: each task is ended this long after its start; 0: never. Agents that are
            reserved later are offered only for tasks that end before.
        devices: what a unit asks of its named devices; None: any will do.
    """

    unit: Resources
    count: int | None = None
    constraints: tuple[Constraint, ...] = ()
    min_per_offer: int = 1
    max_per_offer: int | None = None
    role: Role | None = None
    max_completion_ms: int = 0
    devices: DeviceRequest | None = None

    def check(self) -> None:
        """Raise InvalidRequest if no offer can ever meet the demand."""
        if not self.unit.scalars or self.unit.ranges or self.unit.sets:
            raise InvalidRequest("a demand's unit is made of scalars (ports:2 asks for two ports)")
        if self.count is not None and not 0 <= self.count <= MAX_COUNT:
            raise InvalidRequest(f"a demand's count must be between 0 and {MAX_COUNT}")
        if not 1 <= self.min_per_offer <= MAX_PER_OFFER:
            raise InvalidRequest(
                f"a demand's minimum units per offer must be between 1 and {MAX_PER_OFFER},"
                f" not {self.min_per_offer}"
            )
        most = self.max_per_offer
        if most is not None and not self.min_per_offer <= most <= MAX_PER_OFFER:
            raise InvalidRequest(
                f"a demand's maximum units per offer must be between its minimum,"
                f" {self.min_per_offer}, and {MAX_PER_OFFER}, not {most}"
            )
        if self.role is not None:
            check_role(self.role)
        if self.devices is not None:
            self.devices.check(self.unit)
        if not 0 <= self.max_completion_ms <= MAX_COMPLETION_MS:
            raise InvalidRequest("the time of a demand's tasks must be between 0 and 366 days")
        check_constraints(self.constraints)
        self._check_size()

    def _check_size(self) -> None:
        """Refuse tiny units: each is allocated by itself, and an agent has room for thousands."""
        for name, milli in self.unit.scalars.items():
            if milli * self.min_per_offer >= LEAST.get(name, LEAST_OF_OTHERS):
                return
        raise InvalidRequest(
            f"a demand's unit, <{self.unit}>, is too small: it needs at least 0.01 cpus, 32 MB of"
            " mem or disk, or 0.01 of another resource (or a minimum per offer that comes to that)"
        )

    def is_unit(self, task: Resources) -> bool:
        """Return whether `task` equals one unit; numbers of ranges count as scalars."""
        numbers = {name: 1000 * rng.count(ranges) for name, ranges in task.ranges.items()}
        return task.sets.keys() <= {DEVICES} and self.unit.scalars == {**task.scalars, **numbers}

    def suits(self, facts: Mapping[str, str]) -> bool:
        """Return whether an agent with these attributes passes all constraints."""
        return all(each.holds(facts) for each in self.constraints)

    def counted_down(self, units: int = 1) -> Demand:
        """Return the demand after the launch of `units` more."""
        return self if self.count is None else replace(self, count=max(self.count - units, 0))

    def __str__(self) -> str:
        wanted = "any number of" if self.count is None else str(self.count)
        return f"{wanted} <{self.unit}>{self._portions()}{self._time()}{self._place()}"

    def _portions(self) -> str:
        if self.max_per_offer is not None:
            return f", {self.min_per_offer} to {self.max_per_offer} at once"
        return f", at least {self.min_per_offer} at once" if self.min_per_offer > 1 else ""

    def _time(self) -> str:
        ends_s = self.max_completion_ms / 1000
        return f", each for at most {duration_text(ends_s)}" if ends_s else ""

    def _place(self) -> str:
        role = "" if self.role is None else f", in role {self.role}"
        return role + "".join(f", {constraint}" for constraint in self.constraints)


def counted_for(demands: Sequence[Demand], task: Resources, facts: Mapping[str, str]) -> int | None:
    """Return the index of the demand that a launched task counts for; None if all are met.

    It is a demand whose unit equals the task's resources; else one whose unit fits in them; else
    any. Of several it is the first whose constraints the agent passes, else the first. Master and
    SDK both use this rule, so that they agree on the remaining demand.

    Args:
        demands: of the role that the task is launched in.
        task: resources of the task.
        facts: attributes of its agent.
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
    """Return `demands` as a tuple; reading stops at the first one that is invalid.

    Args:
        demands: of one framework; each is checked by itself too.
        roles: the framework's; if there are none, demands may name any.

    Raises InvalidRequest if there are over 64, two have the same shape, role and constraints, their
    patterns are too complex together, or one names a role that the framework does not have.
    """
    kept: list[Demand] = []
    seen: set[tuple[object, ...]] = set()
    programs = 0
    for demand in demands:
        if len(kept) == MAX_SHAPES:
            raise InvalidRequest(f"more than {MAX_SHAPES} demands")
        demand.check()
        if roles and demand.role is not None and demand.role not in roles:
            raise InvalidRequest(
                f"demand for role {demand.role!r}, which the framework does not have"
            )
        role = roles[0] if roles and demand.role is None else demand.role
        key = (demand.unit, role, frozenset(demand.constraints), demand.devices)
        if key in seen:
            raise InvalidRequest(f"<{demand.unit}> is demanded twice: give one count for both")
        seen.add(key)
        programs += sum(each.pattern.size for each in demand.constraints if each.pattern)
        if programs > MAX_PROGRAMS:
            raise InvalidRequest("the patterns of all demands are too complex together")
        kept.append(demand)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Placement:
    """Agents on which the master may place a submitted task.

    Attributes:
        constraints: all must hold on the agent.
        max_per_agent: the agent runs fewer tasks of the framework than this; None: no bound.
    """

    constraints: tuple[Constraint, ...] = ()
    max_per_agent: int | None = None

    def check(self) -> None:
        """Raise InvalidRequest if no agent can ever pass, or the patterns are too complex."""
        check_constraints(self.constraints)
        if sum(each.pattern.size for each in self.constraints if each.pattern) > MAX_PROGRAMS:
            raise InvalidRequest("the patterns of all constraints are too complex together")
        most = self.max_per_agent
        if most is not None and not 1 <= most <= MAX_PER_AGENT:
            raise InvalidRequest(
                f"the maximum of tasks per agent must be between 1 and {MAX_PER_AGENT}, not {most}"
            )


ANYWHERE = Placement()
