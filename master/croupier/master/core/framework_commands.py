"""Operator commands for frameworks and their tasks."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from croupier.master.core.authorisation import finds_framework, finds_in_role, require
from croupier.master.core.effects import Close, Effect, Happened
from croupier.master.core.events import OperatorCommand
from croupier.master.core.facts import FrameworkTornDown
from croupier.master.core.frameworks import Framework
from croupier.master.core.on_framework import remove
from croupier.master.core.on_task import kill
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.model.access import Action, Permissions, role_object
from croupier.model.errors import Conflict, InvalidRequest, NotFound, Removed
from croupier.model.ids import FrameworkId, Role, TaskId
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.task import Reason
from croupier.model.task_checks import check_grace


@dataclass(frozen=True, slots=True)
class TornDown:
    """The answer to a teardown; `tasks` is the number of tasks that have yet to end."""

    framework_id: FrameworkId
    name: str
    tasks: int


@dataclass(frozen=True, slots=True)
class TeardownFramework(OperatorCommand[TornDown]):
    """Remove a framework for good, once; `operator` is the operator's address, for the log."""

    framework_id: FrameworkId
    operator: str = ""
    caller: Principal = ANONYMOUS

    def execute(self, state: State, now: float) -> Generator[Effect, None, TornDown]:
        """Remove the framework; its tasks are killed.

        Raises NotFound if there is no such framework, or the caller may not view it;
        PermissionDenied if the caller may not tear down the frameworks of all its roles.
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


@dataclass(frozen=True, slots=True)
class OperatorKill(OperatorCommand[TaskSnapshot]):
    """Kill a task.

    Attributes:
        framework_id: may be empty if no other framework has a task of this id.
        grace_ms: None: the task's own.
    """

    task_id: TaskId
    framework_id: FrameworkId
    grace_ms: int | None
    caller: Principal = ANONYMOUS

    def execute(self, state: State, now: float) -> Generator[Effect, None, TaskSnapshot]:
        """Order the kill and return the task.

        Raises:
            NotFound: if there is no such task, or the caller may not view it.
            PermissionDenied: if the caller may not kill it.
            Conflict: if it has ended.
        """
        check_grace(self.grace_ms or 0)
        permissions = state.permissions(self.caller)
        task = self._find(state, permissions)
        owner = state.frameworks[task.framework_id].owner
        require(permissions, Action.KILL, role_object(task.role), owner)
        yield from kill(state, task, self.grace_ms, Reason.KILLED_BY_OPERATOR, now)
        return state.snapshot(task)

    def _find(self, state: State, permissions: Permissions) -> Task:
        """Return the task if exactly one matches and has not ended."""
        task_id = self.task_id

        def finds(role: Role, owner: str) -> bool:
            return finds_in_role(permissions, Action.KILL, role, owner)

        frameworks = (self.framework_id,) if self.framework_id else tuple(state.frameworks)
        found = [
            framework.tasks[task_id]
            for framework in map(state.frameworks.get, frameworks)
            if framework is not None
            and task_id in framework.tasks
            and finds(framework.tasks[task_id].role, framework.owner)
        ]
        if len(found) > 1:
            ids = ", ".join(task.framework_id for task in found)
            raise InvalidRequest(f"several frameworks have a task {task_id!r}: {ids}; name one")
        if found and (not found[0].state.is_terminal or found[0].is_kept_back):
            return found[0]
        ended = [task.status for task in found] or [
            task.status
            for task in state.ended
            if task.info.task_id == task_id
            and self.framework_id in ("", task.framework_id)
            and finds(task.role, task.owner)
        ]
        if ended:
            raise Conflict(f"task {task_id} has ended: {ended[-1].state.name}")
        raise NotFound(f"no task {task_id!r}")
