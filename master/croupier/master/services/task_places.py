"""Places of the output and the files of tasks, for callers that may read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from croupier.master.access.caller import Caller
from croupier.master.core.authorisation import may_on_role, require
from croupier.master.core.state import State
from croupier.master.journal.watch import check_credential
from croupier.master.leadership.term import Term
from croupier.model.access import AccessPolicy, Action, Permissions, role_object
from croupier.model.errors import InvalidRequest, NotFound
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId

_FORGOTTEN: Final = "; if it has ended long ago, name its framework and its agent"


@dataclass(frozen=True, slots=True)
class NamedTask:
    """A task as a request names it.

    Attributes:
        framework_id: may be empty if no other framework has a task of this id.
        agent_id: of a task that the master has forgotten, or empty.
    """

    task_id: TaskId
    framework_id: FrameworkId
    agent_id: AgentId

    @classmethod
    def of(cls, request: Any) -> NamedTask:
        """Return the task that a request names by fields of these names."""
        return cls(
            TaskId(request.task_id), FrameworkId(request.framework_id), AgentId(request.agent_id)
        )


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task and its agent.

    Attributes:
        agent_id: empty while the task is queued.
        http_address: of the agent; empty while it is not registered.
        is_live: whether the task may still write, so far as the master knows.
        roles: the role of the task; all roles of its framework if the task is forgotten.
        owner: of its framework.
        executor_id: the task whose process runs it; empty for a task with its own.
    """

    framework_id: FrameworkId
    task_id: TaskId
    agent_id: AgentId
    http_address: str
    is_live: bool
    roles: tuple[Role, ...]
    owner: str
    executor_id: str = ""

    @property
    def named(self) -> NamedTask:
        """The task by all of its ids."""
        return NamedTask(self.task_id, self.framework_id, self.agent_id)

    def require(self, action: Action, permissions: Permissions) -> None:
        """Raise PermissionDenied if the principal may not do `action` on the task."""
        for role in self.roles:
            require(permissions, action, role_object(role), self.owner)


def find_place(
    state: State, named: NamedTask, action: Action, permissions: Permissions
) -> TaskPlace:
    """Return where a task is, for a caller of `action`. O(frameworks) if none is named.

    Raises:
        NotFound: if there is no such task, or the caller may not view it.
        PermissionDenied: if the caller may view it, but not do the action.
        InvalidRequest: if several frameworks have a task of this id, and none is named.
    """

    def may(place: TaskPlace, what: Action) -> bool:
        return all(may_on_role(permissions, what, role, place.owner) for role in place.roles)

    found = [
        place for place in places_of(state, named) if may(place, Action.VIEW) or may(place, action)
    ]
    live = [place for place in found if place.is_live]
    if len(found) > 1 and len(live) != 1:
        ids = ", ".join(place.framework_id for place in found)
        raise InvalidRequest(f"several frameworks have a task {named.task_id!r}: {ids}; name one")
    if not found:
        within = f" of framework {named.framework_id}" if named.framework_id else ""
        # A forgotten task can be found on its agent, but nothing can run beside it.
        hint = "" if action is Action.EXEC else _FORGOTTEN
        raise NotFound(f"no task {named.task_id!r}{within}{hint}")
    place = live[0] if len(live) == 1 else found[0]
    place.require(action, permissions)
    return place


def places_of(state: State, named: NamedTask) -> list[TaskPlace]:
    """Return the tasks of this id, or the place where a forgotten one may have been."""
    wanted, task_id = named.framework_id, named.task_id
    found: dict[FrameworkId, TaskPlace] = {}

    def add(
        framework_id: FrameworkId,
        agent_id: AgentId,
        roles: tuple[Role, ...],
        owner: str,
        *,
        is_live: bool,
        executor_id: str = "",
    ) -> None:
        agent = state.agents.get(agent_id)
        address = "" if agent is None else agent.http_address
        place = TaskPlace(
            framework_id, task_id, agent_id, address, is_live, roles, owner, executor_id
        )
        found.setdefault(framework_id, place)

    for framework_id in (wanted,) if wanted else tuple(state.frameworks):
        framework = state.frameworks.get(framework_id)
        task = None if framework is None else framework.tasks.get(task_id)
        if framework is not None and task is not None:
            is_live, executor_id = not task.state.is_terminal, task.info.executor_id
            roles, owner = (task.role,), framework.owner
            add(framework_id, task.agent_id, roles, owner, is_live=is_live, executor_id=executor_id)
    for ended in [state.ended.get(wanted, task_id)] if wanted else state.ended:
        if ended is not None and ended.info.task_id == task_id:
            agent_id, executor_id = ended.status.agent_id, ended.info.executor_id
            roles, owner = (ended.role,), ended.owner
            add(ended.framework_id, agent_id, roles, owner, is_live=False, executor_id=executor_id)
    framework = state.frameworks.get(wanted)
    if not found and framework is not None and named.agent_id in state.agents:
        add(wanted, named.agent_id, framework.roles, framework.owner, is_live=False)
    return list(found.values())


def rechecks(
    term: Callable[[], Term], place: TaskPlace, action: Action, caller: Caller
) -> Callable[[], None]:
    """Return a check, to make twice a second, that a call about a task is still permitted.

    It raises a CroupierError if the term has ended, or the credential or permission was withdrawn.
    The permission is checked again only if the policy has changed.
    """
    checked: AccessPolicy | None = None

    def check() -> None:
        nonlocal checked
        check_credential(term(), caller)
        state = term().driver.state
        if state.access is not checked:
            place.require(action, state.permissions(caller.principal))
            checked = state.access

    return check
