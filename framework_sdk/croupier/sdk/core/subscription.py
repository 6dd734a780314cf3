"""What a framework must say of itself whenever it subscribes.

Rule: a demand counts from the moment it is sent, since the master may have taken it even
if its verdict was lost; a refused one gives way to the one before. The count falls with
every task launched, as it does at the master.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from croupier.model.demand import Demand, counted_for
from croupier.model.errors import InvalidRequest
from croupier.model.ids import DEFAULT_ROLE, Role
from croupier.model.resources import Resources

Demands = tuple[Demand, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """What an ACCEPT is to launch: in the role of its offers, tasks that take this much each.

    Attributes:
        facts: attributes of the agent as text, which constraints are about.
    """

    role: Role
    tasks: tuple[Resources, ...]
    facts: Mapping[str, str] = field(default_factory=dict)


class Standing:
    """Roles, demands and suppression of one framework, and its id once it has one."""

    def __init__(
        self,
        framework_id: str = "",
        demands: Demands = (),
        roles: Sequence[Role] = (DEFAULT_ROLE,),
    ) -> None:
        """Start with `framework_id` (empty: not given yet), `demands` and `roles`."""
        self.framework_id = framework_id
        self.roles = tuple(roles)
        self._suppressed: set[Role] = set()
        self._settled = demands
        self._settled_seq = 0
        self._sent: dict[int, Demands] = {}

    @property
    def demands(self) -> Demands:
        """What to tell the master now."""
        return next(reversed(self._sent.values())) if self._sent else self._settled

    @property
    def suppressed(self) -> tuple[Role, ...]:
        """The roles without offers, in the order of `roles`."""
        return tuple(role for role in self.roles if role in self._suppressed)

    def own(self, roles: Iterable[str]) -> tuple[Role, ...]:
        """`roles`, if they are the framework's.

        Raises:
            InvalidRequest: if one is not.
        """
        chosen = tuple(Role(role) for role in roles)
        for role in chosen:
            if role not in self.roles:
                raise InvalidRequest(f"role {role[:80]!r} is not one of the framework's")
        return chosen

    def suppress(self, roles: Sequence[Role]) -> None:
        """No offers in these roles; none named are all."""
        self._suppressed |= set(roles or self.roles)

    def revive(self, roles: Sequence[Role]) -> None:
        """Offers again in these roles; none named are all."""
        self._suppressed -= set(roles or self.roles)

    def on_demands_sent(self, seq: int, demands: Demands) -> None:
        """`demands` went out as call `seq`."""
        assert seq > self._settled_seq
        self._sent[seq] = demands

    def on_demands_answered(self, seq: int, taken: bool) -> None:
        """The verdict on the demands of call `seq` arrived."""
        if seq not in self._sent:
            return
        demands = self._sent.pop(seq)
        if taken and seq > self._settled_seq:
            self._settled, self._settled_seq = demands, seq

    def on_launched(self, seq: int, launch: Launch, before: bool) -> bool:
        """The ACCEPT of call `seq` launched these tasks.

        `before` says that an earlier stream carried the call: its offers died with that
        stream, so the master had taken it before this stream's SUBSCRIBE told it a demand
        without these tasks. Returns whether the master must be told the demand again.
        """
        if seq < self._settled_seq:
            return False
        left = counted_down(self._settled, self.roles[0], launch)
        changed, self._settled = left != self._settled, left
        return changed and before and not self._sent

    def check(self) -> None:
        """Assert every invariant; O(demands under way)."""
        assert list(self._sent) == sorted(self._sent)
        assert self._settled_seq >= 0
        assert self._suppressed <= set(self.roles)


def counted_down(demands: Demands, first: Role, launch: Launch) -> Demands:
    """`demands` after a launch; `first` is the role of those that name none."""
    mine = [n for n, demand in enumerate(demands) if (demand.role or first) == launch.role]
    left = list(demands)
    for task in launch.tasks:
        place = counted_for([left[n] for n in mine], task, launch.facts)
        if place is not None:
            left[mine[place]] = left[mine[place]].counted_down()
    return tuple(left)
