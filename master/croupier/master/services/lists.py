"""The lists that operators may request: their keys, order and items.

Keys are ids. The key of a task is its rank, its framework's id and its own. The key of a role is
its path, so that a parent comes right before its children.

A list holds what its caller may view: the keys are filtered when the first page is made, and each
item again when it is viewed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from croupier.master.core.access_records import TokenId
from croupier.master.core.agent_status import agent_status
from croupier.master.core.authorisation import require_administer
from croupier.master.core.frameworks import Framework
from croupier.master.core.offers import Offer
from croupier.master.core.roles import known_roles, role_status, with_those_below
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.master.services import views
from croupier.master.services.filters import (
    ANY_AGENT,
    ANY_TEXT,
    AgentFilter,
    TaskFilter,
    TaskTest,
    TextFilter,
)
from croupier.master.services.paging import NOT_LISTED, Listed, Read
from croupier.master.services.views import WallTime
from croupier.master.services.visibility import Visibility
from croupier.master.wire.access import token_to_wire
from croupier.model.clock import Clock
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.task import TaskState
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb

# Tasks counted at once: a few ms of work.
TASKS_AT_ONCE: Final = 10_000
# Sorts before any character of a role's name.
_BETWEEN: Final = "\0"


def all_agents(
    wall: WallTime, caller: Principal = ANONYMOUS, chosen: AgentFilter = ANY_AGENT
) -> Listed[pb.AgentView]:
    """List the agents that the caller may view and that pass, except those declared gone."""

    def keys(state: State) -> Iterator[str]:
        visible = Visibility(state, caller)
        for agent_id in list(state.agents):
            agent = state.agents.get(agent_id)
            passes = agent is not None and chosen.passes(agent) and visible.has_agent(agent_id)
            yield agent_id if passes else NOT_LISTED

    def view(state: State, key: str) -> pb.AgentView | None:
        visible, agent = Visibility(state, caller), state.agents.get(AgentId(key))
        if agent is None or not visible.has_agent(agent.agent_id) or not chosen.passes(agent):
            return None
        return views.view_agent(agent_status(state, agent, wall.clock.now()), visible, wall)

    return Listed(_name("agents", chosen.key), keys, view, caller.name)


def all_frameworks(
    wall: WallTime, caller: Principal = ANONYMOUS, chosen: TextFilter = ANY_TEXT
) -> Listed[pb.FrameworkView]:
    """List the frameworks that the caller may view; also removed ones that still have tasks."""

    def passes(each: Framework) -> bool:
        return chosen.passes(each.framework_id, each.name, *each.roles)

    def keys(state: State) -> list[str]:
        visible = Visibility(state, caller)
        return [
            key
            for key, each in state.frameworks.items()
            if passes(each) and visible.has_framework(each)
        ]

    def view(state: State, key: str) -> pb.FrameworkView | None:
        visible, framework = Visibility(state, caller), state.frameworks.get(FrameworkId(key))
        if framework is None or not visible.has_framework(framework):
            return None
        return views.view_framework(state, framework, wall.clock.now(), visible, wall)

    return Listed(_name("frameworks", chosen.key), keys, view, caller.name)


def all_offers(
    clock: Clock, caller: Principal = ANONYMOUS, chosen: TextFilter = ANY_TEXT
) -> Listed[pb.OfferView]:
    """List the outstanding offers that the caller may view."""

    def passes(each: Offer) -> bool:
        return chosen.passes(each.offer_id, each.framework_id, each.agent_id, each.role)

    def keys(state: State) -> list[str]:
        visible = Visibility(state, caller)
        return [
            key for key, each in state.offers.items() if passes(each) and visible.has_offer(each)
        ]

    def view(state: State, key: str) -> pb.OfferView | None:
        offer = state.offers.get(OfferId(key))
        if offer is None or not Visibility(state, caller).has_offer(offer):
            return None
        return views.view_offer(state, offer, clock.now())

    return Listed(_name("offers", chosen.key), keys, view, caller.name)


def all_roles(
    tasks: Counter[Role], caller: Principal = ANONYMOUS, chosen: TextFilter = ANY_TEXT
) -> Listed[pb.RoleView]:
    """List roles with frameworks or settings, and their parents; `tasks` counts those of each.

    The caller gets those that it may view.
    """

    def keys(state: State) -> list[str]:
        found = filter(Visibility(state, caller).has_role, known_roles(state))
        return [role.replace("/", _BETWEEN) for role in found if chosen.passes(role)]

    def view(state: State, key: str) -> pb.RoleView | None:
        role = Role(key.replace(_BETWEEN, "/"))
        if not Visibility(state, caller).has_role(role):
            return None
        return views.view_role(role_status(state, role, tasks[role]))

    return Listed(_name("roles", chosen.key), keys, view, caller.name)


def tasks_of(
    chosen: TaskFilter, wall: WallTime, *, with_commands: bool, caller: Principal = ANONYMOUS
) -> Listed[pb.TaskView]:
    """List the tasks that pass and that the caller may view; also recently ended ones.

    Those with an agent come first, then those in a queue, then those that have ended.
    """
    now_ms = wall.now_ms
    passes: TaskTest | None = None

    def test(state: State, visible: Visibility) -> TaskTest:
        nonlocal passes
        passes = passes or chosen.test(state, visible, wall, now_ms)
        return passes

    def keys(state: State) -> Iterator[str]:
        visible = Visibility(state, caller)
        passes = test(state, visible)
        # The live ones first: a task that ends meanwhile is found again among the ended ones.
        live: set[str] = set()
        for owner, task in _live_tasks(state, chosen):
            if task is None or not passes(task) or not visible.in_role(task.role, owner):
                yield NOT_LISTED
            else:
                live.add(key := f"{task.framework_id}/{task.info.task_id}")
                yield _rank(task.state) + key
        for ended in _ended_tasks(state, chosen):
            if ended is None or not passes(ended) or not visible.has_task(ended):
                yield NOT_LISTED
            else:
                key = f"{ended.framework_id}/{ended.info.task_id}"
                yield NOT_LISTED if key in live else _rank(ended.status.state) + key

    def view(state: State, key: str) -> pb.TaskView | None:
        task, visible = _find_task(state, key[1:]), Visibility(state, caller)
        if task is None or not visible.has_task(task) or not test(state, visible)(task):
            return None
        return views.view_task(task, wall, with_command=with_commands)

    return Listed(f"tasks/{chosen.key}", keys, view, caller.name)


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
    """Count the live tasks of each role and of the roles below it. Raises as `Leadership.read`."""
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


def _name(name: str, key: str) -> str:
    return f"{name}/{key}" if key else name


def _live_tasks(state: State, chosen: TaskFilter) -> Iterator[tuple[str, Task | None]]:
    """Yield owners with tasks of the chosen frameworks; None for one that has ended meanwhile."""
    for framework_id in [chosen.framework_id] if chosen.framework_id else list(state.frameworks):
        framework = state.frameworks.get(framework_id)
        if framework is None:
            continue
        named = chosen.named
        for task_id in list(framework.tasks) if named is None else [named]:
            yield framework.owner, framework.tasks.get(task_id)


def _ended_tasks(state: State, chosen: TaskFilter) -> Iterator[TaskSnapshot | None]:
    for ended in list(state.ended):
        framework_id, task_id = ended.framework_id, ended.info.task_id
        framework = state.frameworks.get(framework_id)
        is_live = framework is not None and task_id in framework.tasks
        is_chosen = chosen.framework_id in ("", framework_id) and chosen.named in (None, task_id)
        yield ended if is_chosen and not is_live else None


def _rank(state: TaskState) -> str:
    """Return the first part of a task's key."""
    return "c" if state.is_terminal else "b" if state is TaskState.QUEUED else "a"


def _find_task(state: State, key: str) -> TaskSnapshot | None:
    framework, _, task = key.partition("/")
    framework_id, task_id = FrameworkId(framework), TaskId(task)
    known = state.frameworks.get(framework_id)
    if known is not None and task_id in known.tasks:
        return state.snapshot(known.tasks[task_id])
    return state.ended.get(framework_id, task_id)
