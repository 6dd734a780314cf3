"""The lists that operators may request: their keys, order and items.

Keys are ids. The key of a task is its framework's id and its own. The key of a role is its path,
so that a parent comes right before its children.

A list holds what its caller may view: the keys are filtered when the first page is made, and each
item again when it is viewed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from croupier.master.core.access_records import TokenId
from croupier.master.core.agent_status import agent_status
from croupier.master.core.authorisation import require_administer
from croupier.master.core.frameworks import Framework
from croupier.master.core.role_status import known_roles, role_status, with_those_below
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.master.services import agent_views, views
from croupier.master.services.paging import Listed, Read
from croupier.master.services.visibility import Visibility
from croupier.master.wire.access import token_to_wire
from croupier.model.clock import Clock
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.principal import ANONYMOUS, Principal
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb

# Tasks counted at once: a few ms of work.
TASKS_AT_ONCE: Final = 10_000
# Sorts before any character of a role's name.
_BETWEEN: Final = "\0"


def all_agents(clock: Clock, caller: Principal = ANONYMOUS) -> Listed[pb.AgentView]:
    """List the agents that the caller may view, except those declared gone."""

    def keys(state: State) -> list[str]:
        visible = Visibility(state, caller)
        return [agent_id for agent_id in state.agents if visible.has_agent(agent_id)]

    def view(state: State, key: str) -> pb.AgentView | None:
        visible, agent = Visibility(state, caller), state.agents.get(AgentId(key))
        if agent is None or not visible.has_agent(agent.agent_id):
            return None
        return agent_views.view_agent(agent_status(state, agent, clock.now()), visible)

    return Listed("agents", keys, view, caller.name)


def all_frameworks(clock: Clock, caller: Principal = ANONYMOUS) -> Listed[pb.FrameworkView]:
    """List the frameworks that the caller may view; also removed ones that still have tasks."""

    def keys(state: State) -> list[str]:
        visible = Visibility(state, caller)
        return [key for key, each in state.frameworks.items() if visible.has_framework(each)]

    def view(state: State, key: str) -> pb.FrameworkView | None:
        visible, framework = Visibility(state, caller), state.frameworks.get(FrameworkId(key))
        if framework is None or not visible.has_framework(framework):
            return None
        return views.view_framework(state, framework, clock.now(), visible)

    return Listed("frameworks", keys, view, caller.name)


def all_offers(clock: Clock, caller: Principal = ANONYMOUS) -> Listed[pb.OfferView]:
    """List the outstanding offers that the caller may view."""

    def keys(state: State) -> list[str]:
        visible = Visibility(state, caller)
        return [key for key, each in state.offers.items() if visible.has_offer(each)]

    def view(state: State, key: str) -> pb.OfferView | None:
        offer = state.offers.get(OfferId(key))
        if offer is None or not Visibility(state, caller).has_offer(offer):
            return None
        return views.view_offer(state, offer, clock.now())

    return Listed("offers", keys, view, caller.name)


def all_roles(tasks: Counter[Role], caller: Principal = ANONYMOUS) -> Listed[pb.RoleView]:
    """List roles with frameworks or settings, and their parents; `tasks` counts those of each.

    The caller gets those that it may view.
    """

    def keys(state: State) -> list[str]:
        found = Visibility(state, caller).roles(known_roles(state))
        return [role.replace("/", _BETWEEN) for role in found]

    def view(state: State, key: str) -> pb.RoleView | None:
        role = Role(key.replace(_BETWEEN, "/"))
        if not Visibility(state, caller).has_role(role):
            return None
        return views.view_role(role_status(state, role, tasks[role]))

    return Listed("roles", keys, view, caller.name)


def tasks_of(
    framework_id: FrameworkId,
    *,
    with_commands: bool,
    caller: Principal = ANONYMOUS,
    named: TaskId | None = None,
) -> Listed[pb.TaskView]:
    """List tasks of a framework, or of all if the id is empty; also recently ended ones.

    The caller gets those that it may view; with `named`, only tasks of that id.
    """

    def keys(state: State) -> list[str]:
        visible = Visibility(state, caller)
        found = [
            f"{framework.framework_id}/{task_id}"
            for framework in _chosen(state, framework_id)
            for task_id, task in _tasks_called(framework, named)
            if visible.in_role(task.role, framework.owner)
        ]
        for ended in state.ended:
            if named not in (None, ended.info.task_id):
                continue
            mine, task_id = ended.framework_id, ended.info.task_id
            framework = state.frameworks.get(mine)
            is_live = framework is not None and task_id in framework.tasks
            if framework_id in ("", mine) and not is_live and visible.has_task(ended):
                found.append(f"{mine}/{task_id}")
        return found

    def view(state: State, key: str) -> pb.TaskView | None:
        task = _find_task(state, key)
        if task is None or not Visibility(state, caller).has_task(task):
            return None
        return views.view_task(task, with_command=with_commands)

    return Listed(f"tasks/{framework_id}/{named or ''}", keys, view, caller.name)


def all_tokens(caller: Principal) -> Listed[access_pb2.Token]:
    """List tokens for an administrator."""

    def keys(state: State) -> list[str]:
        require_administer(state, caller)
        return [token.token_id for token in state.tokens]

    def view(state: State, key: str) -> access_pb2.Token | None:
        require_administer(state, caller)
        token = state.tokens.get(TokenId(key))
        return None if token is None else token_to_wire(token)

    return Listed("tokens", keys, view, caller.name)


async def count_tasks(read: Read) -> Counter[Role]:
    """Count the live tasks of each role and of the roles below it.

    Raises:
        CroupierError: as for `Leadership.read`.
    """
    counts: Counter[Role] = Counter()
    waiting = await read(lambda state: list(state.frameworks))
    while waiting:
        await read(lambda state: _count_some(state, waiting, counts))
    return with_those_below(counts)


def _count_some(state: State, waiting: list[FrameworkId], counts: Counter[Role]) -> None:
    """Count tasks of some frameworks, and remove these from `waiting`."""
    looked = 0
    while waiting and looked < TASKS_AT_ONCE:
        framework = state.frameworks.get(waiting.pop())
        if framework is not None:
            tasks = framework.tasks.values()
            counts.update(task.role for task in tasks if not task.state.is_terminal)
            looked += 1 + len(tasks)


def _chosen(state: State, framework_id: FrameworkId) -> Iterable[Framework]:
    """Return the framework of this id, if it exists; all if the id is empty."""
    if not framework_id:
        return state.frameworks.values()
    framework = state.frameworks.get(framework_id)
    return () if framework is None else (framework,)


def _tasks_called(framework: Framework, named: TaskId | None) -> Iterable[tuple[TaskId, Task]]:
    """Return the framework's tasks by their ids; with `named`, only the one of that id."""
    if named is None:
        return framework.tasks.items()
    task = framework.tasks.get(named)
    return () if task is None else ((named, task),)


def _find_task(state: State, key: str) -> TaskSnapshot | None:
    framework, _, task = key.partition("/")
    framework_id, task_id = FrameworkId(framework), TaskId(task)
    known = state.frameworks.get(framework_id)
    if known is not None and task_id in known.tasks:
        return known.tasks[task_id].snapshot()
    return state.ended.get(framework_id, task_id)
