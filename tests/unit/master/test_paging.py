"""Lists in pages: each item once despite changes, bounded work, checked tokens."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import TypeVar

import pytest

from croupier.master.core import task_moves
from croupier.master.core.calls import Submit
from croupier.master.core.state import State
from croupier.master.core.tasks import TaskSnapshot
from croupier.master.services.lists import all_agents, all_offers, all_roles, all_tasks, count_tasks
from croupier.master.services.paging import (
    MOST_LISTINGS,
    PAGE_BYTES,
    PAGE_ITEMS,
    SLICE_ITEMS,
    Listed,
    Pages,
    ViewT,
)
from croupier.master.services.views import WallTime
from croupier.model.errors import InvalidRequest
from croupier.model.ids import FrameworkId, Role, TaskId
from croupier.model.task import Command, TaskInfo, TaskState, TaskStatus
from croupier.v1 import operator_pb2 as pb
from tests.harness.world import World, make_task

T = TypeVar("T")


class Stopped:
    """A clock that only the test advances."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def wall_ms(self) -> int:
        return 0


WALL = WallTime(Stopped())


class Lister:
    """Lists the contents of a world and counts reads."""

    def __init__(self, world: World) -> None:
        self.world, self.clock = world, Stopped()
        self.wall = WallTime(self.clock)
        self.reads, self.keyed, self.shown = 0, 0, 0
        self.pages = Pages(self._read, self.clock)

    async def page(
        self, listed: Listed[ViewT], token: str = "", size: int = 0
    ) -> tuple[list[ViewT], str]:
        request = pb.ListTasksRequest(page_size=size, page_token=token)
        return await self.pages.page(self._counted(listed), request)

    async def all(self, listed: Listed[ViewT], size: int = 0) -> list[list[ViewT]]:
        found, token = await self.page(listed, size=size)
        pages = [found]
        while token:
            found, token = await self.page(listed, token, size)
            pages.append(found)
        return pages

    async def _read(self, query: Callable[[State], T]) -> T:
        self.reads += 1
        return query(self.world.state)

    def _counted(self, listed: Listed[ViewT]) -> Listed[ViewT]:
        def keys(state: State) -> Iterable[str]:
            self.keyed += 1
            return listed.keys(state)

        def view(state: State, key: str) -> ViewT | None:
            self.shown += 1
            return listed.view(state, key)

        return replace(listed, keys=keys, view=view)


def with_agents(number: int) -> Lister:
    world = World()
    for at in range(number):
        world.agent("cpus:1", f"h{at}", agent_id=f"a{at:04}")
    return Lister(world)


def ids(pages: list[list[pb.AgentView]]) -> list[list[str]]:
    return [[view.agent.agent_id for view in page] for page in pages]


def ended(world: World, framework_id: str, task_id: str, shell: str = "true") -> TaskSnapshot:
    status = TaskStatus(FrameworkId(framework_id), TaskId(task_id), "", TaskState.FINISHED)  # type: ignore[arg-type]
    snapshot = TaskSnapshot(
        make_task(task_id, shell=shell), FrameworkId(framework_id), Role("*"), status
    )
    world.state.ended.add(snapshot)
    return snapshot


async def test_list_comes_in_pages_sorted_by_id() -> None:
    lister = with_agents(7)
    pages = ids(await lister.all(all_agents(pb.ListAgentsRequest(), lister.wall), 3))
    assert [len(page) for page in pages] == [3, 3, 1]
    assert list(chain.from_iterable(pages)) == [f"a{at:04}" for at in range(7)]
    assert lister.keyed == 1
    assert lister.shown == 7
    assert not len(lister.pages)
    assert await lister.all(all_offers(pb.ListOffersRequest(), lister.wall)) == [[]]


async def test_lasting_items_are_listed_once_despite_changes() -> None:
    lister = with_agents(40)
    listed, world = all_agents(pb.ListAgentsRequest(), lister.wall), lister.world
    found, token = await lister.page(listed, size=5)
    names = [view.agent.agent_id for view in found]
    turn = 0
    while token:
        gone = world.state.agents.get(f"a{turn * 4 + 1:04}")  # type: ignore[call-overload]
        if gone is not None and turn % 2:
            del world.state.agents[gone.agent_id]
        world.agent("cpus:1", f"new{turn}", agent_id=f"a{turn * 3:04}x", allocate=False)
        found, token = await lister.page(listed, token, size=5)
        names += [view.agent.agent_id for view in found]
        turn += 1
    stayed = {f"a{at:04}" for at in range(40)} & set(world.state.agents)
    assert stayed <= set(names)
    assert len(names) == len(set(names))
    assert names == sorted(names)


async def test_task_that_ends_between_two_pages_is_listed() -> None:
    world = World()
    agent, session = world.agent("cpus:4;mem:4GB"), world.framework()
    framework_id = world.framework_id(session)
    world.accept(session, *(make_task(f"t{at}", "cpus:1;mem:1GB") for at in range(3)))
    ended(world, framework_id, "t9")
    lister = Lister(world)
    listed = all_tasks(pb.ListTasksRequest(framework_id=framework_id), lister.wall)
    (first,), token = await lister.page(listed, size=1)
    assert first.task.task_id == "t0"
    world.report(agent, framework_id, "t1", TaskState.FINISHED, 1)
    task = world.state.frameworks[FrameworkId(framework_id)].tasks[TaskId("t1")]
    world.state.ended.add(world.state.snapshot(task))
    del world.state.frameworks[FrameworkId(framework_id)].tasks[TaskId("t1")]
    rest, token = await lister.page(listed, token)
    assert [view.task.task_id for view in rest] == ["t1", "t2", "t9"]
    assert not token


async def test_one_task_is_listed_by_its_id() -> None:
    world = World()
    world.agent("cpus:4;mem:4GB")
    session = world.framework()
    world.accept(session, *(make_task(f"t{at}", "cpus:1;mem:1GB") for at in range(3)))
    ended(world, "f", "t1")
    ended(world, "f", "t9")
    found = []
    for task_id in ("t1", "t9", "t7"):
        listed = all_tasks(pb.ListTasksRequest(task_id=task_id), WALL)
        pages = await Lister(world).all(listed)
        found.append(sorted(view.framework_id for page in pages for view in page))
    assert found == [sorted(["f", world.framework_id(session)]), ["f"], []]


async def test_commands_and_labels_are_listed_on_request() -> None:
    world = World()
    info = TaskInfo(
        TaskId("t"),
        Command(shell="true", environment={"SECRET": "x"}),
        make_task("t").resources,
        labels=(("k", "v"),),
    )
    world.state.ended.add(replace(ended(world, "f", "t"), info=info))
    lister = Lister(world)
    ((view,),) = await lister.all(all_tasks(pb.ListTasksRequest(), WALL))
    assert (view.task.task_id, view.task.HasField("command")) == ("t", False)
    assert not view.task.labels
    ((view,),) = await lister.all(all_tasks(pb.ListTasksRequest(with_commands=True), WALL))
    assert view.task.command.environment == {"SECRET": "x"}
    assert len(view.task.labels) == 1


async def test_pages_are_bounded_by_bytes_and_hold_at_least_one_item() -> None:
    world = World()
    half, whole = "x" * (PAGE_BYTES // 2 - 200), "x" * (PAGE_BYTES + 1)
    for at, shell in enumerate([half, half, half, whole, "true"]):
        ended(world, "f", f"t{at}", shell)
    pages = await Lister(world).all(all_tasks(pb.ListTasksRequest(with_commands=True), WALL))
    assert [len(page) for page in pages] == [2, 1, 1, 1]


async def test_pages_are_bounded_by_number_and_made_in_slices() -> None:
    lister = with_agents(0)
    listed = Listed(
        "numbers",
        lambda _: [f"{at:09}" for at in range(PAGE_ITEMS + 1)],
        lambda _, key: pb.AgentView(state=key),
    )
    for size in (0, PAGE_ITEMS * 2):
        lister.reads = 0
        pages = await lister.all(listed, size)
        assert [len(page) for page in pages] == [PAGE_ITEMS, 1]
        assert lister.reads >= PAGE_ITEMS // SLICE_ITEMS


async def test_work_on_a_page_is_bounded_by_time() -> None:
    lister = with_agents(0)

    def slow(_: State, key: str) -> pb.AgentView:
        lister.clock.at += 0.003
        return pb.AgentView(state=key)

    listed = Listed("slow", lambda _: [f"{at:09}" for at in range(20)], slow)
    assert len(list(chain.from_iterable(await lister.all(listed)))) == 20
    assert lister.reads == 1 + 20 // 2


async def test_evicted_listing_continues_after_its_last_key() -> None:
    lister = with_agents(10)
    listed = all_agents(pb.ListAgentsRequest(), lister.wall)
    first, token = await lister.page(listed, size=4)
    for _ in range(MOST_LISTINGS):
        await lister.page(listed, size=1)
    assert len(lister.pages) == MOST_LISTINGS
    before = lister.keyed
    rest, _ = await lister.page(listed, token)
    assert lister.keyed == before + 1
    assert len(first) + len(rest) == 10
    lister.clock.at += 3600.0
    await lister.page(listed, size=10)
    assert not len(lister.pages)


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "!!!!",
        "\u00e9",
        "a" * 100_000,
        base64.urlsafe_b64encode(b"agents").decode(),
        base64.urlsafe_b64encode(b"agents\n1\n2\n3").decode(),
        base64.urlsafe_b64encode(b"agents\n\xff\n2").decode(),
        base64.urlsafe_b64encode(b"tasks/\n1\n2").decode(),
    ],
)
async def test_invalid_token_is_refused(token: str) -> None:
    lister = with_agents(2)
    with pytest.raises(InvalidRequest, match="page_token"):
        await lister.page(all_agents(pb.ListAgentsRequest(), lister.wall), token)


async def test_token_of_another_filter_is_refused() -> None:
    world = World()
    for at in range(3):
        ended(world, "f", f"t{at}")
    lister = Lister(world)
    _, token = await lister.page(all_tasks(pb.ListTasksRequest(framework_id="f"), WALL), size=1)
    with pytest.raises(InvalidRequest, match="page_token"):
        await lister.page(all_tasks(pb.ListTasksRequest(framework_id="g"), WALL), token)


async def test_roles_are_listed_in_tree_order_over_pages() -> None:
    world = World()
    session = world.framework("a/b", "cpus:1;mem:1GB", 1)
    world.agent("cpus:1;mem:1GB")
    world.accept(session, make_task("t"))
    for roles in (("a/b", "a-b"), ("a/c/d",), ("b",)):
        world.framework(roles=roles)
    lister = Lister(world)
    tasks = await count_tasks(lister._read)
    pages = await lister.all(all_roles(pb.ListRolesRequest(), tasks), 2)
    views = list(chain.from_iterable(pages))
    assert [view.role for view in views] == ["a", "a/b", "a/c", "a/c/d", "a-b", "b"]
    assert [view.frameworks for view in views] == [3, 2, 1, 1, 1, 1]
    assert [view.tasks for view in views] == [1, 1, 0, 0, 0, 0]


async def test_pages_are_for_the_principal_that_asked_for_them() -> None:
    lister = with_agents(7)

    def listed(name: str) -> Listed[pb.AgentView]:
        return replace(all_agents(pb.ListAgentsRequest(), lister.wall), caller=name)

    _, token = await lister.page(listed("client/alice"), size=1)
    for other in ("client/bob", ""):
        with pytest.raises(InvalidRequest, match="page_token"):
            await lister.page(listed(other), token, size=1)
    # The id of another's listing in a token of one's own.
    name, listing_id, last = base64.urlsafe_b64decode(token).decode().split("\n")
    forged = "\n".join((name.replace("alice", "bob"), listing_id, last))
    kept = dict(lister.pages._listings)
    _, fresh = await lister.page(
        listed("client/bob"), base64.urlsafe_b64encode(forged.encode()).decode(), size=1
    )
    assert base64.urlsafe_b64decode(fresh).decode().split("\n")[1] not in kept


async def test_numbers_in_ids_count_by_their_value() -> None:
    world = World()
    for name in ("n10", "n9", "n100", "m", "n2x3", "n2x20"):
        world.agent("cpus:1", name, agent_id=name)
    lister = Lister(world)
    pages = ids(await lister.all(all_agents(pb.ListAgentsRequest(), lister.wall), 2))
    assert list(chain.from_iterable(pages)) == ["m", "n2x3", "n2x20", "n9", "n10", "n100"]


async def test_tasks_with_an_agent_come_before_queued_and_ended_ones() -> None:
    world = World()
    world.agent("cpus:2;mem:9GB", "node1")
    session = world.framework(name="sweep", suppressed=True)
    for number in (2, 10, 1):
        ended(world, world.framework_id(session), f"a-{number}")
    world.call(session, Submit(tuple(make_task(f"run-{at}") for at in range(12))))
    lister = Lister(world)
    listed = all_tasks(pb.ListTasksRequest(), lister.wall)
    views = list(chain.from_iterable(await lister.all(listed, 5)))
    run = [f"run-{at}" for at in range(12)]
    assert [view.task.task_id for view in views] == [*run, "a-1", "a-2", "a-10"]
    assert [view.hostname for view in views[:3]] == ["node1", "node1", ""]
    assert {view.framework_name for view in views[:12]} == {"sweep"}


async def test_a_task_that_ends_during_the_search_is_listed_once() -> None:
    world = World()
    agent, session = world.agent("cpus:2;mem:9GB"), world.framework(framework_id="f")
    world.accept(session, make_task("t1"))
    keys = iter(all_tasks(pb.ListTasksRequest(), WALL).keys(world.state))
    found = [next(keys)]
    world.finish(agent, "f", "t1")
    framework = world.state.frameworks[FrameworkId("f")]
    task_moves.drop_task(world.state, framework.tasks[TaskId("t1")])
    assert [key for key in (*found, *keys) if key] == ["af/t1"]
