"""The part of the state that one caller may view, at one moment.

Rule: everything that leaves the state for a caller passes here. The owner of a framework may view
it with its offers and tasks; everything else needs a rule.
"""

from __future__ import annotations

from typing import Final

from croupier.master.core.authorisation import may_on_role, may_view_agent, may_view_framework
from croupier.master.core.frameworks import Framework
from croupier.master.core.offers import Offer
from croupier.master.core.state import State
from croupier.master.core.tasks import TaskSnapshot
from croupier.model.access import ALL_ROLES, ANY, CLUSTER, Action, agent_object, role_object
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.principal import Principal

_EVERY_ROLE: Final = role_object(ALL_ROLES)
_EVERY_AGENT: Final = agent_object(ANY)


class Visibility:
    """What a caller may view. Cheap to make; valid for one read of the state."""

    def __init__(self, state: State, caller: Principal) -> None:
        self._state = state
        self._permissions = state.permissions(caller)
        self._in_role: dict[tuple[Role, str], bool] = {}

    @property
    def has_all(self) -> bool:
        """Whether the caller may view all roles and agents."""
        decide = self._permissions.decide
        return bool(decide(Action.VIEW, _EVERY_ROLE) and decide(Action.VIEW, _EVERY_AGENT))

    @property
    def has_cluster(self) -> bool:
        """Whether the caller may view the totals of the cluster."""
        return bool(self._permissions.decide(Action.VIEW, CLUSTER))

    def has_role(self, role: Role) -> bool:
        """Return whether the caller may view the role."""
        return bool(self._permissions.decide(Action.VIEW, role_object(role)))

    def has_agent(self, agent_id: AgentId) -> bool:
        """Return whether the caller may view the agent."""
        return may_view_agent(self._permissions, agent_id)

    def has_framework(self, framework: Framework) -> bool:
        """Return whether the caller may view the framework, in at least one role."""
        return may_view_framework(self._permissions, framework)

    def has_framework_id(self, framework_id: FrameworkId) -> bool:
        """Return whether there is such a framework that the caller may view."""
        framework = self._state.frameworks.get(framework_id)
        return framework is not None and self.has_framework(framework)

    def in_role(self, role: Role, owner: str) -> bool:
        """Return whether the caller may view what `owner` has in the role."""
        known = self._in_role.get((role, owner))
        if known is None:
            known = bool(may_on_role(self._permissions, Action.VIEW, role, owner))
            self._in_role[role, owner] = known
        return known

    def roles_of(self, framework: Framework) -> tuple[Role, ...]:
        """Return the roles of a framework in which the caller may view it."""
        return tuple(role for role in framework.roles if self.in_role(role, framework.owner))

    def has_offer(self, offer: Offer) -> bool:
        """Return whether the caller may view the offer."""
        return self.in_role(offer.role, self.owner_of(offer.framework_id))

    def has_task(self, task: TaskSnapshot) -> bool:
        """Return whether the caller may view the task."""
        return self.in_role(task.role, self.owner_of(task.framework_id) or task.owner)

    def owner_of(self, framework_id: FrameworkId) -> str:
        """Return the owner of a framework; empty if it has none, or is not known."""
        framework = self._state.frameworks.get(framework_id)
        return "" if framework is None else framework.owner
