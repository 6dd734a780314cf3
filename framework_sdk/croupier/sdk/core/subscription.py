"""The state that a framework repeats in every SUBSCRIBE, and the arguments that it comes from.

Rule: a demand counts from the moment it is sent, because the master may have accepted it even if
its verdict was lost. A refused demand is replaced by the one before. The count falls with every
launched task, as it does at the master.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from croupier.model.attributes import Constraint
from croupier.model.demand import Demand, check_demands, counted_for
from croupier.model.errors import InvalidRequest
from croupier.model.ids import DEFAULT_ROLE, Role, check_role, check_roles
from croupier.model.resources import Resources

Demands = tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class AcceptedTasks:
    """The role of an ACCEPT's offers, its tasks' resources, and its agent's attributes as text."""

    role: Role
    tasks: tuple[Resources, ...]
    facts: Mapping[str, str] = field(default_factory=dict)


class Subscription:
    """Roles, demands and suppressed roles of one framework, and its id once it has one."""

    def __init__(
        self, framework_id: str = "", demands: Demands = (), roles: Sequence[Role] = (DEFAULT_ROLE,)
    ) -> None:
        self.framework_id = framework_id
        self.roles = tuple(roles)
        self._suppressed: set[Role] = set()
        self._settled = demands
        self._settled_seq = 0
        self._sent: dict[int, Demands] = {}

    @property
    def demands(self) -> Demands:
        """The latest demands that were sent and not refused."""
        return next(reversed(self._sent.values())) if self._sent else self._settled

    @property
    def suppressed(self) -> tuple[Role, ...]:
        """The suppressed roles, in the order of `roles`."""
        return tuple(role for role in self.roles if role in self._suppressed)

    def own(self, roles: Iterable[str]) -> tuple[Role, ...]:
        """Return `roles` if they are the framework's; raises InvalidRequest if one is not."""
        chosen = tuple(Role(role) for role in roles)
        for role in chosen:
            if role not in self.roles:
                raise InvalidRequest(f"role {role[:80]!r} is not one of the framework's")
        return chosen

    def suppress(self, roles: Sequence[Role]) -> None:
        """Suppress these roles, or all if none is named."""
        self._suppressed |= set(roles or self.roles)

    def revive(self, roles: Sequence[Role]) -> None:
        """Revive these roles, or all if none is named."""
        self._suppressed -= set(roles or self.roles)

    def on_demands_sent(self, seq: int, demands: Demands) -> None:
        """Record that call `seq` carries `demands`."""
        assert seq > self._settled_seq
        self._sent[seq] = demands

    def on_demands_answered(self, seq: int, is_taken: bool) -> None:
        """Record the verdict on the demands of call `seq`."""
        if seq not in self._sent:
            return
        demands = self._sent.pop(seq)
        if is_taken and seq > self._settled_seq:
            self._settled, self._settled_seq = demands, seq

    def on_launched(self, seq: int, launch: AcceptedTasks, is_resent: bool) -> bool:
        """Count the tasks that the ACCEPT of call `seq` launched.

        With `is_resent`, an earlier stream carried the call. Its offers ended with that stream, so
        the master decided the call before this stream's SUBSCRIBE, whose demand did not count the
        launch. Returns whether the demand must be sent again.
        """
        if seq < self._settled_seq:
            return False
        left = counted_down(self._settled, self.roles[0], launch)
        has_changed, self._settled = left != self._settled, left
        return has_changed and is_resent and not self._sent

    def check(self) -> None:
        """Assert every invariant; O(unanswered demands)."""
        assert list(self._sent) == sorted(self._sent)
        assert self._settled_seq >= 0
        assert self._suppressed <= set(self.roles)


def counted_down(demands: Demands, first: Role, launch: AcceptedTasks) -> Demands:
    """Return `demands` after a launch; `first` is the role of those that name none."""
    mine = [n for n, demand in enumerate(demands) if (demand.role or first) == launch.role]
    left = list(demands)
    for task in launch.tasks:
        place = counted_for([left[n] for n in mine], task, launch.facts)
        if place is not None:
            left[mine[place]] = left[mine[place]].counted_down()
    return tuple(left)


def roles_of(role: str | None, roles: Iterable[str] | None) -> tuple[Role, ...]:
    """Return the roles of a framework, given as one or several.

    Raises InvalidRequest if it gave both, one is illegal or given twice, or there are over 32.
    """
    if roles is None:
        return (check_role(DEFAULT_ROLE if role is None else role),)
    if role is not None:
        raise InvalidRequest("give one role or several, not both")
    if isinstance(roles, str):
        raise InvalidRequest("roles are a list; for a single one use role=...")
    return check_roles(roles)


def one_demand(
    unit: Resources | None, count: int | None, constraints: Iterable[Constraint] | None
) -> tuple[Demand, ...]:
    """Return the demand for one shape, or none.

    Raises InvalidRequest if no offer can ever meet it.
    """
    if unit is None:
        if count is not None or constraints:
            raise InvalidRequest("a count and constraints need a demand")
        return ()
    return check_demands([Demand(unit, count, tuple(constraints or ()))])


def demands_of(
    one: tuple[Demand, ...], several: Iterable[Demand], roles: tuple[Role, ...]
) -> tuple[Demand, ...]:
    """Return the demands of a framework, given as one shape or several.

    Raises InvalidRequest if it gave both, or one is invalid.
    """
    checked = check_demands(several, roles)
    if one and checked:
        raise InvalidRequest("give one demand or several, not both")
    return one or checked
