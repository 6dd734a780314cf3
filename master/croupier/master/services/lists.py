"""The lists that operators may ask for: what is in them, in which order, and one item of each.

Keys are ids; of a task its framework's id and its own; of a role its path, so that a parent comes
right before what is below it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from croupier.master.core.agent_status import agent_status
from croupier.master.core.frameworks import Framework
from croupier.master.core.role_status import known_roles, stand_role, with_those_below
from croupier.master.core.state import State
from croupier.master.core.tasks import TaskSnapshot
from croupier.master.services import agent_views, views
from croupier.master.services.paging import Listed, Read
from croupier.model.clock import Clock
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.v1 import operator_pb2 as pb

# A few ms of counting.
TASKS_AT_ONCE: Final = 10_000
# What sorts before any character of a component.
_BETWEEN: Final = "\0"


def all_agents(clock: Clock) -> Listed[pb.AgentView]:
    """Agents that are known; none that is gone."""

    def view(state: State, key: str) -> pb.AgentView | None:
        agent = state.agents.get(AgentId(key))
        if agent is None:
            return None
        return agent_views.view_agent(agent_status(state, agent, clock.now()))

    return Listed("agents", lambda state: list(state.agents), view)


def all_frameworks(clock: Clock) -> Listed[pb.FrameworkView]:
    """Frameworks that were not removed, and those removed whose tasks still end."""

    def view(state: State, key: str) -> pb.FrameworkView | None:
        framework = state.frameworks.get(FrameworkId(key))
        return None if framework is None else views.view_framework(state, framework, clock.now())

    return Listed("frameworks", lambda state: list(state.frameworks), view)


def all_offers(clock: Clock) -> Listed[pb.OfferView]:
    """Outstanding offers."""

    def view(state: State, key: str) -> pb.OfferView | None:
        offer = state.offers.get(OfferId(key))
        return None if offer is None else views.view_offer(state, offer, clock.now())

    return Listed("offers", lambda state: list(state.offers), view)


def all_roles(tasks: Counter[Role]) -> Listed[pb.RoleView]:
    """Roles that have frameworks or settings, and all above them; `tasks` are those of each."""

    def keys(state: State) -> list[str]:
        return [role.replace("/", _BETWEEN) for role in known_roles(state)]

    def view(state: State, key: str) -> pb.RoleView:
        role = Role(key.replace(_BETWEEN, "/"))
        return views.view_role(stand_role(state, role, tasks[role]))

    return Listed("roles", keys, view)


def tasks_of(framework_id: FrameworkId, *, with_commands: bool) -> Listed[pb.TaskView]:
    """Tasks of a framework, or of all if that is empty; also those that have ended lately."""

    def keys(state: State) -> list[str]:
        found = [
            f"{framework.framework_id}/{task_id}"
            for framework in _chosen(state, framework_id)
            for task_id in framework.tasks
        ]
        for ended in state.ended:
            mine, task_id = ended.framework_id, ended.info.task_id
            framework = state.frameworks.get(mine)
            is_live = framework is not None and task_id in framework.tasks
            if framework_id in ("", mine) and not is_live:
                found.append(f"{mine}/{task_id}")
        return found

    def view(state: State, key: str) -> pb.TaskView | None:
        task = _find_task(state, key)
        return None if task is None else views.view_task(task, with_command=with_commands)

    return Listed(f"tasks/{framework_id}", keys, view)


async def count_tasks(read: Read) -> Counter[Role]:
    """How many tasks that have not ended are in each role and below it.

    Raises:
        CroupierError: as for `Leadership.read`.
    """
    counts: Counter[Role] = Counter()
    waiting = await read(lambda state: list(state.frameworks))
    while waiting:
        await read(lambda state: _count_some(state, waiting, counts))
    return with_those_below(counts)


def _count_some(state: State, waiting: list[FrameworkId], counts: Counter[Role]) -> None:
    """Count tasks of some frameworks, and take these off the list."""
    looked = 0
    while waiting and looked < TASKS_AT_ONCE:
        framework = state.frameworks.get(waiting.pop())
        if framework is not None:
            tasks = framework.tasks.values()
            counts.update(task.role for task in tasks if not task.state.is_terminal)
            looked += 1 + len(tasks)


def _chosen(state: State, framework_id: FrameworkId) -> Iterable[Framework]:
    """The framework of this id, if there is one; all if it is empty."""
    if not framework_id:
        return state.frameworks.values()
    framework = state.frameworks.get(framework_id)
    return () if framework is None else (framework,)


def _find_task(state: State, key: str) -> TaskSnapshot | None:
    framework, _, task = key.partition("/")
    framework_id, task_id = FrameworkId(framework), TaskId(task)
    known = state.frameworks.get(framework_id)
    if known is not None and task_id in known.tasks:
        return known.tasks[task_id].snapshot()
    return state.ended.get(framework_id, task_id)
