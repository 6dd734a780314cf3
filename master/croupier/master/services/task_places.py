"""Where the output and the files of a task are, for callers that may read them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from croupier.master.core.authorisation import may_on_role, require
from croupier.master.core.state import State
from croupier.model.access import Action, Permissions, role_object
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


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """A task and its agent.

    Attributes:
        agent_id: empty while the task is queued.
        http_address: of the agent; empty while it is not registered.
        is_live: whether the task may still write, so far as the master knows.
        roles: the role of the task; all roles of its framework if the task is forgotten.
        owner: of its framework.
    """

    framework_id: FrameworkId
    task_id: TaskId
    agent_id: AgentId
    http_address: str
    is_live: bool
    roles: tuple[Role, ...]
    owner: str

    @property
    def named(self) -> NamedTask:
        """The task by all of its ids."""
        return NamedTask(self.task_id, self.framework_id, self.agent_id)

    def require(self, action: Action, permissions: Permissions) -> None:
        """Check that the principal may do `action` on the task.

        Raises:
            PermissionDenied: if it may not.
        """
        for role in self.roles:
            require(permissions, action, role_object(role), self.owner)


@dataclass(frozen=True, slots=True)
class _Known:
    """A task that a request may mean.

    Attributes:
        roles: the role of the task; all roles of its framework if the task is forgotten.
    """

    framework_id: FrameworkId
    agent_id: AgentId
    roles: tuple[Role, ...]
    owner: str
    is_live: bool


def find_place(
    state: State, named: NamedTask, action: Action, permissions: Permissions
) -> TaskPlace:
    """Return where a task is, for a caller of `action`. O(frameworks) if none is named.

    Raises:
        NotFound: if there is no such task, or the caller may not view it.
        PermissionDenied: if the caller may view it, but not do the action.
        InvalidRequest: if several frameworks have a task of this id, and none is named.
    """

    def may(known: _Known, what: Action) -> bool:
        return all(may_on_role(permissions, what, role, known.owner) for role in known.roles)

    found = [
        known for known in _known(state, named) if may(known, Action.VIEW) or may(known, action)
    ]
    live = [known for known in found if known.is_live]
    if len(found) > 1 and len(live) != 1:
        ids = ", ".join(known.framework_id for known in found)
        raise InvalidRequest(f"several frameworks have a task {named.task_id!r}: {ids}; name one")
    if not found:
        within = f" of framework {named.framework_id}" if named.framework_id else ""
        # A forgotten task can be found on its agent, but nothing can run beside it.
        hint = "" if action is Action.EXEC else _FORGOTTEN
        raise NotFound(f"no task {named.task_id!r}{within}{hint}")
    known = live[0] if len(live) == 1 else found[0]
    agent = state.agents.get(known.agent_id)
    place = TaskPlace(
        known.framework_id,
        named.task_id,
        known.agent_id,
        "" if agent is None else agent.http_address,
        known.is_live,
        known.roles,
        known.owner,
    )
    place.require(action, permissions)
    return place


def _known(state: State, named: NamedTask) -> list[_Known]:
    """Return the tasks of this id, or the place where a forgotten one may have been."""
    wanted, task_id = named.framework_id, named.task_id
    frameworks = (wanted,) if wanted else tuple(state.frameworks)
    found: dict[FrameworkId, _Known] = {}
    for framework in filter(None, map(state.frameworks.get, frameworks)):
        task = framework.tasks.get(task_id)
        if task is not None:
            found[framework.framework_id] = _Known(
                framework.framework_id,
                task.agent_id,
                (task.role,),
                framework.owner,
                not task.state.is_terminal,
            )
    ended = [state.ended.get(wanted, task_id)] if wanted else state.ended
    for each in ended:
        if each is not None and each.info.task_id == task_id:
            found.setdefault(
                each.framework_id,
                _Known(each.framework_id, each.status.agent_id, (each.role,), each.owner, False),
            )
    framework_or_none = state.frameworks.get(wanted)
    if not found and framework_or_none is not None and named.agent_id in state.agents:
        framework = framework_or_none
        known = _Known(wanted, named.agent_id, framework.roles, framework.owner, False)
        found[wanted] = known
    return list(found.values())
