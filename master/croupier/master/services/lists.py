"""The lists that operators may request: their keys, order and items.

Keys are ids. The key of a task is its rank, its framework's id and its own. The key of a role is
its path, so that a parent comes right before its children.

A list holds what its caller may view: the keys are filtered when the first page is made, and each
item again when it is viewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from croupier.master.core.access_records import TokenId
from croupier.master.core.agent_status import agent_status
from croupier.master.core.authorisation import require_administer
from croupier.master.core.hold_commands import hold_status
from croupier.master.core.holds import Hold
from croupier.master.core.on_hold import holds_and_orphans
from croupier.master.core.reservation_commands import reservation_status
from croupier.master.core.roles import TaskCounts, known_roles
from croupier.master.core.state import State
from croupier.master.core.tasks import Task, TaskSnapshot
from croupier.master.services import filters, views
from croupier.master.services.paging import NOT_LISTED, Listed, Read, ViewT
from croupier.master.services.reservations import view_reservation
from croupier.master.services.views import WallTime
from croupier.master.services.visibility import Visibility
from croupier.master.wire.access import token_to_wire
from croupier.model.ids import FrameworkId, Role, TaskId
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.task import TaskState
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb

# Tasks counted at once: a few ms of work.
TASKS_AT_ONCE: Final = 10_000
# Sorts before any character of a role's name.
_BETWEEN: Final = "\0"

ItemT = TypeVar("ItemT")


def all_agents(
    request: pb.ListAgentsRequest, wall: WallTime, caller: Principal = ANONYMOUS
) -> Listed[pb.AgentView]:
    """List the agents that the caller may view and that pass, except those declared gone."""
    passes = filters.agent_filter(request)
    return _listed(
        "agents",
        request,
        caller,
        lambda state: state.agents,
        lambda agent, visible: passes(agent) and visible.has_agent(agent.agent_id),
        lambda state, agent, visible: views.view_agent(
            agent_status(state, agent, wall.clock.now()), visible, wall
        ),
    )


def all_frameworks(
    request: pb.ListFrameworksRequest, wall: WallTime, caller: Principal = ANONYMOUS
) -> Listed[pb.FrameworkView]:
    """List the frameworks that the caller may view; also removed ones that still have tasks."""
    has_text = filters.text_filter(request.text)
    return _listed(
        "frameworks",
        request,
        caller,
        lambda state: state.frameworks,
        lambda each, visible: (
            has_text(each.framework_id, each.name, *each.roles) and visible.has_framework(each)
        ),
        lambda state, each, visible: views.view_framework(
            state, each, wall.clock.now(), visible, wall
        ),
    )


def all_offers(
    request: pb.ListOffersRequest, wall: WallTime, caller: Principal = ANONYMOUS
) -> Listed[pb.OfferView]:
    """List the outstanding offers that the caller may view."""
    has_text = filters.text_filter(request.text)
    return _listed(
        "offers",
        request,
        caller,
        lambda state: state.offers,
        lambda each, visible: (
            has_text(each.offer_id, each.framework_id, each.agent_id, each.role)
            and visible.has_offer(each)
        ),
        lambda state, each, _: views.view_offer(state, each, wall.clock.now()),
    )


def all_holds(
    request: pb.ListHoldsRequest, wall: WallTime, caller: Principal = ANONYMOUS
) -> Listed[pb.HoldView]:
    """List the holds that the caller may view: by their role, or as their framework's owner."""
    has_text = filters.text_filter(request.text)

    def is_listed(hold: Hold, visible: Visibility) -> bool:
        ids = (hold.hold_id, hold.framework_id, hold.agent_id, hold.role)
        return (
            (hold.volume or not request.volumes)
            and has_text(*ids)
            and visible.in_role(hold.role, visible.owner_of(hold.framework_id))
        )

    return _listed(
        "holds",
        request,
        caller,
        holds_and_orphans,
        is_listed,
        lambda state, hold, _: views.view_hold(hold_status(state, hold, wall.clock.now())),
    )


def all_reservations(
    request: pb.ListReservationsRequest, caller: Principal = ANONYMOUS
) -> Listed[pb.ReservationView]:
    """List the reservations of roles that the caller may view."""
    has_text = filters.text_filter(request.text)
    return _listed(
        "reservations",
        request,
        caller,
        lambda state: state.reservations,
        lambda each, visible: (
            has_text(each.reservation_id, each.role) and visible.has_role(each.role)
        ),
        lambda state, each, _: view_reservation(reservation_status(state, each, caller)),
    )


def _listed(
    name: str,
    request: Message,
    caller: Principal,
    items_of: Callable[[State], Mapping[Any, ItemT]],
    is_listed: Callable[[ItemT, Visibility], bool],
    view_of: Callable[[State, ItemT, Visibility], ViewT],
) -> Listed[ViewT]:
    """List the items, by their ids, for which `is_listed` is true."""

    def keys(state: State) -> Iterator[str]:
        visible, items = Visibility(state, caller), items_of(state)
        for key in list(items):
            item = items.get(key)
            yield key if item is not None and is_listed(item, visible) else NOT_LISTED

    def view(state: State, key: str) -> ViewT | None:
        visible, item = Visibility(state, caller), items_of(state).get(key)
        if item is None or not is_listed(item, visible):
            return None
        return view_of(state, item, visible)

    return Listed(_name(name, request), keys, view, caller.name)


def all_roles(
    request: pb.ListRolesRequest, tasks: TaskCounts, caller: Principal = ANONYMOUS
) -> Listed[pb.RoleView]:
    """List visible roles with frameworks or settings, and parents; `tasks` counts those of each."""
    has_text = filters.text_filter(request.text)

    def keys(state: State) -> list[str]:
        found = filter(Visibility(state, caller).has_role, known_roles(state))
        return [role.replace("/", _BETWEEN) for role in found if has_text(role)]

    def view(state: State, key: str) -> pb.RoleView | None:
        role = Role(key.replace(_BETWEEN, "/"))
        if not Visibility(state, caller).has_role(role):
            return None
        status = state.allocator.queries.role_status(role, *tasks.of(role))
        return views.view_role(status, state.budgets.get(role))

    return Listed(_name("roles", request), keys, view, caller.name)


def all_tasks(
    request: pb.ListTasksRequest, wall: WallTime, caller: Principal = ANONYMOUS
) -> Listed[pb.TaskView]:
    """List the visible tasks that pass: those with an agent, then queued, then recently ended."""
    chosen = filters.TaskFilter(request, wall)
    passes: filters.TaskTest | None = None

    def test(state: State, visible: Visibility) -> filters.TaskTest:
        nonlocal passes
        passes = passes or chosen.test(state, visible)
        return passes

    def keys(state: State) -> Iterator[str]:
        visible = Visibility(state, caller)
        passes = test(state, visible)
        # The live ones first: a task that ends meanwhile is found again among the ended ones.
        live: set[str] = set()
        for owner, task in _live_tasks(state, request):
            if task is None or not passes(task) or not visible.in_role(task.role, owner):
                yield NOT_LISTED
            else:
                live.add(key := f"{task.framework_id}/{task.info.task_id}")
                yield _rank(task.state) + key
        for ended in _ended_tasks(state, request):
            if ended is None or not passes(ended) or not visible.has_task(ended):
                yield NOT_LISTED
            else:
                key = f"{ended.framework_id}/{ended.info.task_id}"
                yield NOT_LISTED if key in live else _rank(ended.status.state) + key

    def view(state: State, key: str) -> pb.TaskView | None:
        task, visible = _find_task(state, key[1:]), Visibility(state, caller)
        if task is None or not visible.has_task(task) or not test(state, visible)(task):
            return None
        return views.view_task(task, wall, with_command=request.with_commands)

    return Listed(_name("tasks", request), keys, view, caller.name)


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


async def count_tasks(read: Read) -> TaskCounts:
    """Count the live tasks of each role and of the roles below it. Raises as `Leadership.read`."""
    counts = TaskCounts()
    waiting = await read(lambda state: list(state.frameworks))
    while waiting:
        await read(lambda state: _count_some(state, waiting, counts))
    return counts


def _count_some(state: State, waiting: list[FrameworkId], counts: TaskCounts) -> None:
    """Count tasks of some frameworks, and remove these from `waiting`."""
    looked = 0
    while waiting and looked < TASKS_AT_ONCE:
        framework = state.frameworks.get(waiting.pop())
        if framework is not None:
            counts.add(framework.tasks.values())
            looked += 1 + len(framework.tasks)


def _name(name: str, request: Message) -> str:
    key = filters.filter_key(request)
    return f"{name}/{key}" if key else name


def _live_tasks(state: State, chosen: pb.ListTasksRequest) -> Iterator[tuple[str, Task | None]]:
    """Yield owners with tasks of the chosen ids; None for one that has ended meanwhile."""
    named = FrameworkId(chosen.framework_id)
    for framework_id in [named] if named else list(state.frameworks):
        framework = state.frameworks.get(framework_id)
        if framework is None:
            continue
        for task_id in [TaskId(chosen.task_id)] if chosen.task_id else list(framework.tasks):
            yield framework.owner, framework.tasks.get(task_id)


def _ended_tasks(state: State, chosen: pb.ListTasksRequest) -> Iterator[TaskSnapshot | None]:
    wanted, named = chosen.framework_id, chosen.task_id
    for ended in list(state.ended):
        framework_id, task_id = ended.framework_id, ended.info.task_id
        framework = state.frameworks.get(framework_id)
        is_live = framework is not None and task_id in framework.tasks
        is_chosen = wanted in ("", framework_id) and named in ("", task_id)
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
