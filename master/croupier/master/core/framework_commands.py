"""Operator commands for frameworks."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from croupier.master.core.authorisation import finds_framework, require
from croupier.master.core.effects import Close, Effect, Happened
from croupier.master.core.events import OperatorCommand
from croupier.master.core.facts import FrameworkTornDown
from croupier.master.core.frameworks import Framework
from croupier.master.core.on_framework import remove
from croupier.master.core.state import State
from croupier.model.access import Action, role_object
from croupier.model.errors import NotFound, Removed
from croupier.model.ids import FrameworkId
from croupier.model.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class TornDown:
    """The answer to a teardown.

    Attributes:
        tasks: the number of tasks that have yet to end.
    """

    framework_id: FrameworkId
    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class TeardownFramework(OperatorCommand[TornDown]):
    """Remove a framework for good. A second teardown changes nothing.

    Attributes:
        operator: the operator's address, for the log.
    """

    framework_id: FrameworkId
    operator: str = ""
    caller: Principal = ANONYMOUS

    def execute(self, state: State, now: float) -> Generator[Effect, None, TornDown]:
        """Remove the framework; its tasks are killed.

        Raises:
            NotFound: if there is no such framework, or the caller may not view it.
            PermissionDenied: if the caller may not tear down the frameworks of all its roles.
        """
        framework_id, permissions = self.framework_id, state.permissions(self.caller)
        framework = state.frameworks.get(framework_id)
        if framework is None:
            # Its owner is no longer known.
            may_know = any(map(permissions.allows_somewhere, (Action.TEARDOWN, Action.REGISTER)))
            if framework_id not in state.removed or not may_know:
                raise NotFound(f"no framework {framework_id!r}")
            return TornDown(framework_id, "", 0)
        if not finds_framework(permissions, Action.TEARDOWN, framework):
            raise NotFound(f"no framework {framework_id!r}")
        for role in framework.roles:
            require(permissions, Action.TEARDOWN, role_object(role), framework.owner)
        if not framework.is_removed:
            message = "an operator has torn it down"
            if framework.session is not None:
                yield Close(framework.session, Removed(f"framework {framework_id}: {message}"))
            yield from remove(state, framework, message, now)
            left = _count_live(framework)
            yield Happened(FrameworkTornDown(framework_id, framework.name, left, self.operator))
        return TornDown(framework_id, framework.name, _count_live(framework))


def _count_live(framework: Framework) -> int:
    return sum(not task.state.is_terminal for task in framework.tasks.values())


FrameworkCommand = TeardownFramework
