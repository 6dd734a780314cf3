"""The cluster at a glance: totals and maps by permission, the history, and what is shared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from croupier.api.objects import as_object
from croupier.master.core.agent_commands import Drain, OperateAgent
from croupier.master.core.calls import Acknowledge
from croupier.master.core.state import State
from croupier.master.leadership.roster import Candidate, Roster
from croupier.master.overview.history import SAMPLES, History
from croupier.master.overview.shared import (
    AT_ONCE,
    BURST_S,
    KEPT_S,
    LOAD,
    MOST_KEPT,
    Budget,
    Made,
    Shared,
)
from croupier.master.overview.surveys import Surveys, make_heatmap, make_totals
from croupier.master.services.visibility import Visibility
from croupier.model.access import AccessPolicy
from croupier.model.errors import Unavailable
from croupier.model.ids import TaskId
from croupier.model.principal import ANONYMOUS
from croupier.model.task import Reason, TaskState
from tests.harness.secured_world import SecuredWorld, caller
from tests.harness.still_clock import StillClock
from tests.harness.world import World, make_task

T = TypeVar("T")


def reader(world: World) -> Any:
    async def read(query: Callable[[State], T]) -> T:
        await asyncio.sleep(0)
        return query(world.state)

    return read


class Scene(SecuredWorld):
    """Anna runs a task in ads/prod on a1; bob has a framework in web. Vera may view all."""

    def __init__(self) -> None:
        super().__init__(
            "anna client/anna register role:**",
            "bob client/bob register role:web",
            "users client/anna run-as user:(agent)",
            "vera client/vera view *",
            "hugo client/hugo view agent:a1",
            "op client/op operate-agents,view *",
        )
        self.secured_agent("a1")
        anna = self.owned("anna", "ads/prod")
        assert self.accept(anna, make_task("t1", "cpus:1;mem:1GB")).error is None
        self.secured_agent("a2")
        self.ask(OperateAgent(1, "a2", Drain(None), "me", caller("op")))
        self.owned("bob", "web")


async def test_totals_are_those_that_the_caller_may_view() -> None:
    scene = Scene()

    async def seen(name: str) -> Any:
        return as_object((await make_totals(reader(scene), caller(name), StillClock())).answer)

    everything = await seen("vera")
    assert everything["total"]["milli"] == {"cpus": 8_000, "mem": 8_192_000}
    assert everything["used"]["milli"] == {"cpus": 1_000, "mem": 1_024_000}
    for name, total in everything["total"]["milli"].items():
        parts = everything["free"][name] + everything["used"]["milli"][name]
        assert parts + everything["offered"]["milli"].get(name, 0) == total
    assert everything["agents"] == {"connected": 1, "drained": 1}
    assert everything["frameworks"] == {"connected": 2}
    assert everything["tasks"] == {"STAGING": 1}
    assert everything["offers"] == len(scene.state.offers)
    annas = await seen("anna")
    assert (annas["agents"], annas["frameworks"], annas["tasks"]) == (
        {},
        {"connected": 1},
        {"STAGING": 1},
    )
    bobs = await seen("bob")
    assert (bobs["frameworks"], bobs["tasks"]) == ({"connected": 1}, {})
    assert annas["total"]["milli"] == bobs["total"]["milli"] == {}
    assert (await seen("hugo"))["agents"] == {"connected": 1}


async def test_failures_are_listed_with_names_and_counted() -> None:
    world = World()
    agent, session = world.agent("cpus:99;mem:99GB", "node1"), world.framework(name="sweep")
    framework_id = world.framework_id(session)
    world.accept(session, *(make_task(f"t{at}", "cpus:1;mem:1GB") for at in range(14)))
    states = {0: TaskState.FINISHED, 1: TaskState.KILLED}
    for at in range(13):
        state = states.get(at, TaskState.FAILED)
        world.report(agent, framework_id, f"t{at}", state, 1, time_ms=1000 + at)
        if at % 2:
            update = (world.agent_id(agent), TaskId(f"t{at}"), 1)
            world.call(session, Acknowledge((update,)))
    made = await make_totals(reader(world), ANONYMOUS, StillClock())
    found = as_object(made.answer)
    assert found["failed"] == 11
    assert [each["task_id"] for each in found["failures"]] == [f"t{at}" for at in range(12, 2, -1)]
    first = found["failures"][0]
    assert (first["framework_name"], first["hostname"]) == ("sweep", "node1")
    assert (first["ended_ms"], first["command"]) == (1012, None)


async def test_failures_are_those_that_the_caller_may_view() -> None:
    scene = Scene()
    anna = next(each for each in scene.state.frameworks.values() if each.tasks)
    task = anna.tasks[TaskId("t1")]
    task.move(task.master_made(TaskState.LOST, Reason.NONE, "it is lost"))

    async def failed(name: str) -> int:
        made = await make_totals(reader(scene), caller(name), StillClock())
        return len(made.answer.failures)

    assert [await failed(name) for name in ("anna", "vera", "bob", "hugo")] == [1, 1, 0, 0]


async def test_the_map_shows_agents_that_the_caller_may_view() -> None:
    scene = Scene()

    async def seen(name: str) -> Any:
        return as_object((await make_heatmap(reader(scene), caller(name))).answer)

    everything = await seen("vera")
    assert (everything["prefix"], everything["agents"]) == ("a", ["1", "2"])
    assert [everything["states"][each] for each in everything["state"]] == ["connected", "drained"]
    assert everything["used"] == {"cpus": [250, 0], "mem": [250, 0]}
    one = await seen("hugo")
    assert (one["prefix"], one["agents"], one["used"]["cpus"]) == ("", ["a1"], [250])
    assert (await seen("anna"))["agents"] == []


async def test_the_history_is_bounded_and_filtered() -> None:
    scene, clock = Scene(), StillClock()
    history, read = History(clock), reader(scene)
    for _ in range(SAMPLES + 5):
        await history.sample(read)
        clock.at += 10.0
    # The wall clock jumps; samples stay 10 s apart.
    clock.wall += 3_600_000
    everything = as_object(history.view(Visibility(scene.state, caller("vera"))))
    times = everything["times_ms"]
    assert (len(times), times[-1] - times[0]) == (SAMPLES, (SAMPLES - 1) * 10_000)
    assert times[-1] == clock.wall - 10_000
    assert everything["used"] == {"cpus": [125] * SAMPLES, "mem": [125] * SAMPLES}
    assert set(everything["shares"]) <= {"ads", "web"}
    assert everything["others"] == [0] * SAMPLES
    nothing = as_object(history.view(Visibility(scene.state, caller("eve"))))
    assert (nothing["shares"], nothing["used"], nothing["others"]) == ({}, {}, None)


async def test_roles_beyond_the_largest_are_summed_up() -> None:
    world, clock = World(), StillClock()
    for number in range(40):
        world.framework(f"r{number}")
    for _ in range(40):
        world.agent("cpus:1;mem:1GB")
    history = History(clock)
    await history.sample(reader(world))
    view = as_object(history.view(Visibility(world.state, ANONYMOUS)))
    # Each is offered one agent of 40.
    assert list(view["shares"].values()) == [[25]] * 12
    assert view["others"] == [28 * 25]


async def test_an_answer_is_made_once_for_all_who_may_view_the_same() -> None:
    clock, made, gate = StillClock(), [], asyncio.Event()

    async def make() -> Made[int]:
        made.append(1)
        await gate.wait()
        return Made(len(made), cost_s=0.1)

    shared: Shared[int] = Shared(clock)
    waiting = [asyncio.create_task(shared.get("", make)) for _ in range(20)]
    await asyncio.sleep(0)
    # One that leaves ends it for no other.
    waiting[0].cancel()
    gate.set()
    assert [await each for each in waiting[1:]] == [1] * 19
    # It cost 0.1 s, so it serves for 5 s.
    clock.at = 4.9
    assert await shared.get("", make) == 1
    assert await shared.get("other", make) == 2
    clock.at = 5.1
    assert await shared.get("", make) == 3


async def test_answers_for_many_callers_cost_a_bounded_part_of_the_time() -> None:
    clock, work, refused = StillClock(), [0.0], 0
    shared: Shared[float] = Shared(clock)
    budget = Budget(clock)

    async def make() -> Made[float]:
        work[0] += 0.01
        return Made(clock.at, cost_s=0.01)

    async def ask(name: int) -> float | None:
        try:
            return await shared.get(name, make, budget)
        except Unavailable:
            return None

    # 40 callers each second, and others who come once.
    for second in range(120):
        clock.at = float(second)
        names = [*range(40), *range(1_000 + 10 * second, 1_010 + 10 * second)]
        found = await asyncio.gather(*map(ask, names))
        ages = [clock.at - each for each in found[:40] if each is not None]
        refused += 50 - len(ages) - sum(each is not None for each in found[40:])
        assert all(age < KEPT_S for age in ages)
        assert work[0] <= BURST_S + LOAD * second + AT_ONCE * 0.01
        assert len(shared) <= MOST_KEPT
    # Most of those who stay are served all the time.
    assert len(ages) > 30
    # What everybody may view is always made anew.
    assert await shared.get("", make) == clock.at
    clock.at += 1.1
    assert await shared.get("", make) == clock.at
    assert refused


async def test_a_caller_that_gets_no_new_answer_gets_the_last_one_for_a_minute() -> None:
    clock = StillClock()
    shared: Shared[float] = Shared(clock)
    budget = Budget(clock)

    async def make() -> Made[float]:
        return Made(clock.at, cost_s=0.02)

    async def expensive() -> Made[float]:
        return Made(clock.at, cost_s=100.0)

    assert await shared.get("bob", make, budget) == 0.0
    await shared.get("anna", expensive, budget)
    clock.at = KEPT_S - 1.0
    assert await shared.get("bob", make, budget) == 0.0
    with pytest.raises(Unavailable, match="try again in a few seconds"):
        await shared.get("eve", make, budget)
    clock.at = KEPT_S
    with pytest.raises(Unavailable):
        await shared.get("bob", make, budget)
    clock.at = 1_000.0
    assert await shared.get("bob", make, budget) == 1_000.0


async def test_a_change_of_permissions_shows_at_once() -> None:
    scene, clock = Scene(), StillClock()
    term = SimpleNamespace(epoch=1, driver=SimpleNamespace(state=scene.state))
    leadership = SimpleNamespace(term=lambda: term, read=reader(scene), leader="")
    roster = Roster(cast("Any", leadership), lambda: Candidate("h:1"))
    surveys = Surveys(cast("Any", leadership), clock, roster)
    hugo = caller("hugo")
    assert (await surveys.overview(hugo)).agents == {"connected": 1}
    assert (await surveys.overview(hugo)).agents == {"connected": 1}
    scene.state.set_access(AccessPolicy(True))
    assert (await surveys.overview(hugo)).agents == {}
    assert len((await surveys.heatmap(hugo)).agents) == 0


async def test_an_error_is_not_shared_later() -> None:
    shared: Shared[int] = Shared(StillClock())

    async def fail() -> Made[int]:
        raise Unavailable("no")

    async def make() -> Made[int]:
        return Made(1, 0.0)

    with pytest.raises(Unavailable):
        await shared.get("", fail)
    assert await shared.get("", make) == 1


async def test_kept_answers_are_bounded_by_number_time_and_bytes() -> None:
    clock, made = StillClock(), 0
    shared: Shared[int] = Shared(clock, most=3, kept_s=1.0, most_bytes=100)

    async def ask(key: str, size: int = 10) -> int:
        async def make() -> Made[int]:
            nonlocal made
            made += 1
            return Made(made, size=size)

        return await shared.get(key, make)

    assert [await ask(key) for key in "abcd"] == [1, 2, 3, 4]
    assert len(shared) == 3
    assert [await ask("d"), await ask("a")] == [4, 5]
    # It displaces all others; what is larger than all of them is not kept.
    assert [await ask("large", 95), await ask("large"), await ask("larger", 101)] == [6, 6, 7]
    assert len(shared) == 1
    assert [await ask("larger", 101), await ask("a")] == [8, 9]
    clock.at = 1.0
    assert [await ask("a"), await ask("b")] == [10, 11]
    assert len(shared) == 2
