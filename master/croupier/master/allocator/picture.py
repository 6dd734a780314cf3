"""A picture of the allocator at one moment, on which ends of tasks can be rehearsed.

Rule: it shares no mutable state with the allocator, so it stays as it is while time passes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from croupier.master.allocator.node import Amounts, Leaf, Turn, add_amounts
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.reservations import Reservation
from croupier.master.allocator.state import AllocatorState, Rules
from croupier.model.demand import Demand
from croupier.model.devices import Inventory
from croupier.model.ids import NO_FRAMEWORK, AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings

# Returns the seconds that a task runs on, of a quantile in thousandths; None if it is unknown.
Lasting = Callable[[int], float | None]


@dataclass(frozen=True, slots=True)
class Running:
    """A task, or an offer of which a task is expected; it ends after `at_most_s` at the latest."""

    agent_id: AgentId
    framework_id: FrameworkId
    role: Role
    resources: Resources
    lasts: Lasting
    at_most_s: float = inf


@dataclass(frozen=True, slots=True)
class Waiting:
    """A framework, with what it wants.

    Attributes:
        demands: what it wants beyond its offers, in roles in which it takes offers.
        queued: its submitted tasks that wait, by role and shape.
        held: what it holds beside the running tasks of the picture.
        lasts: how long a further task of it runs, by role.
    """

    framework_id: FrameworkId
    roles: Sequence[Role]
    owner: str
    demands: Sequence[Demand]
    queued: Sequence[tuple[Role, Shape, int]]
    held: Mapping[Role, Resources]
    lasts: Mapping[Role, Lasting]


@dataclass(frozen=True, slots=True)
class Place:
    """An agent. Of one that takes no tasks, the capacity counts in shares alone."""

    agent_id: AgentId
    total: Resources
    facts: Mapping[str, str]
    is_active: bool
    reservations: Sequence[Reservation] = ()
    inventory: Inventory | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """All that a rehearsal needs to know, at one moment.

    Attributes:
        now: seconds on the clock of the allocator's caller.
        lined: how many tasks are lined up at an agent behind tasks like them.
        dealt: who was dealt to, the latest last.
        turns: the roles that are dealt to last or never.
    """

    now: float
    policy: str
    rules: Rules
    settings: Mapping[Role, RoleSettings]
    places: Sequence[Place]
    frameworks: Sequence[Waiting]
    running: Sequence[Running]
    lined: Mapping[tuple[AgentId, FrameworkId, Role], int]
    dealt: Sequence[tuple[FrameworkId, Role]]
    turns: Mapping[Role, Turn]


def take(
    state: AllocatorState,
    running: Sequence[Running],
    lined: Mapping[tuple[AgentId, FrameworkId, Role], int],
    lasts: Callable[[FrameworkId, Role], Lasting],
    now: float,
) -> Picture:
    """Return a picture with the tasks that run; `lasts` says how long further ones last.

    O(agents + frameworks + tasks).
    """
    places = [
        Place(
            each.agent_id,
            each.total,
            each.facts,
            each.is_active,
            each.reservations,
            each.inventory,
        )
        for each in state.agents.agents.values()
        if each.owner is None
    ]
    active = {place.agent_id for place in places if place.is_active}
    running = [task for task in running if task.agent_id in active]
    held: dict[FrameworkId, dict[Role, Amounts]] = {}
    for task in running:
        of_role = held.setdefault(task.framework_id, {}).setdefault(task.role, {})
        add_amounts(of_role, task.resources.scalars, 1)
    leaves: dict[FrameworkId, list[Leaf]] = {}
    for leaf in state.tree.leaves.values():
        if leaf.framework_id != NO_FRAMEWORK:
            leaves.setdefault(leaf.framework_id, []).append(leaf)
    frameworks = [
        _waiting(each, held.get(framework_id, {}), lasts) for framework_id, each in leaves.items()
    ]
    every = (leaf for of_framework in leaves.values() for leaf in of_framework if leaf.dealt_at)
    return Picture(
        now,
        state.tree.policy.name,
        state.rules,
        {
            role: replace(settings, weight=state.tree.weight_of(role, settings))
            for role, settings in state.tree.settings.items()
        },
        places,
        frameworks,
        running,
        lined,
        [(leaf.framework_id, leaf.role) for leaf in sorted(every, key=lambda leaf: leaf.dealt_at)],
        {role: turn for role, (turn, _) in state.tree.turns.items()},
    )


def _waiting(
    leaves: Sequence[Leaf],
    running: Mapping[Role, Mapping[str, int]],
    lasts: Callable[[FrameworkId, Role], Lasting],
) -> Waiting:
    """Return what a framework wants in its leaves, one or more.

    `running`: by role, what its tasks in the picture hold.
    """
    demands = [
        replace(each.demand, count=None if each.demand.count is None else each.left, role=leaf.role)
        for leaf in leaves
        for each in leaf.declared or ()
        if leaf.is_connected and leaf.is_member and not leaf.is_suppressed
    ]
    queued = [
        (leaf.role, shape, each.left)
        for leaf in leaves
        for shape, each in leaf.queued.items()
        if leaf.is_connected and leaf.is_member
    ]
    held = {
        leaf.role: Resources(
            {
                name: max(milli - running.get(leaf.role, {}).get(name, 0), 0)
                for name, milli in leaf.held.items()
            }
        )
        for leaf in leaves
    }
    first = leaves[0]
    roles = [leaf.role for leaf in leaves]
    lasting = {role: lasts(first.framework_id, role) for role in roles}
    return Waiting(first.framework_id, roles, first.owner, demands, queued, held, lasting)
