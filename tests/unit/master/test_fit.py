"""What could start now, and what would have to end for one more."""

from __future__ import annotations

import pytest

from croupier.master.core import calls
from croupier.master.core.effects import Pause, SessionId
from croupier.master.services.fit import view_fit
from croupier.master.wire.from_operator import fit_from_wire
from croupier.model.errors import InvalidRequest, PermissionDenied
from croupier.model.principal import ANONYMOUS, Principal
from croupier.model.resources import Resources
from croupier.model.task import TaskInfo
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_to_wire
from tests.harness.secured_world import SecuredWorld, caller
from tests.harness.world import World, in_gang, in_group, make_task, with_executor


def fit(world: World, unit: str, role: str = "", caller: Principal = ANONYMOUS) -> pb.FitResponse:
    request = pb.FitRequest(unit=resources_to_wire(Resources.parse(unit)), role=role)
    counting = view_fit(world.state, fit_from_wire(request), world.now, caller)
    while True:
        try:
            assert isinstance(next(counting), Pause)
        except StopIteration as over:
            found: pb.FitResponse = over.value
            return found


def running(world: World, framework: SessionId, *tasks: TaskInfo) -> None:
    """Submit tasks one after the other, a second apart."""
    for task in tasks:
        assert not world.call(framework, calls.Submit((task,))).tasks[0].error
        world.now += 1.0


def a_world(*tasks: TaskInfo, agents: int = 1) -> World:
    world = World()
    for number in range(agents):
        world.agent("cpus:4;mem:8GB", f"h{number}", agent_id=f"a{number}")
    framework = world.framework(name="train", suppressed=True)
    running(world, framework, *tasks)
    return world


def ended(found: pb.FitResponse) -> list[str]:
    return [task.task_id for task in found.move.tasks]


def test_the_fewest_tasks_would_end_and_the_newest_first() -> None:
    small = [make_task(f"s{number}", "cpus:1;mem:1GB") for number in range(4)]
    world = a_world(*small, make_task("big", "cpus:3;mem:1GB"), agents=2)
    found = fit(world, "cpus:2;mem:1GB")
    assert (found.units, len(found.agents)) == (0, 0)
    assert [(each.cause, each.agents) for each in found.reasons] == [("in use", 2)]
    assert (found.move.hostname, ended(found)) == ("h1", ["big"])
    assert found.move.tasks[0].age_ms == 1000
    alone = a_world(*small)
    assert ended(fit(alone, "cpus:2;mem:1GB")) == ["s3", "s2"]


def test_other_work_has_its_turn_while_many_agents_are_weighed() -> None:
    world = a_world(agents=25)
    request = pb.FitRequest(unit=resources_to_wire(Resources.parse("cpus:1;mem:1GB")))
    pauses = sum(1 for _ in view_fit(world.state, fit_from_wire(request), world.now, ANONYMOUS))
    assert pauses == 0, "no agent is full"
    running_on_all = [make_task(f"t{number}", "cpus:4;mem:1GB") for number in range(25)]
    running(world, world.framework(name="more", suppressed=True), *running_on_all)
    pauses = sum(1 for _ in view_fit(world.state, fit_from_wire(request), world.now, ANONYMOUS))
    assert pauses == 2


def test_tasks_that_do_not_help_stay() -> None:
    world = a_world(make_task("old", "cpus:3;mem:1GB"), make_task("new", "cpus:1;mem:7GB"))
    assert ended(fit(world, "cpus:1;mem:1GB")) == ["new"]
    # The newer one has too few cpus.
    assert ended(fit(world, "cpus:2;mem:1GB")) == ["old"]
    assert ended(fit(world, "cpus:4;mem:1GB")) == ["new", "old"]
    assert not fit(world, "cpus:5;mem:1GB").HasField("move")
    assert [each.cause for each in fit(world, "cpus:5;mem:1GB").reasons] == ["does not fit"]


def test_room_that_is_left_counts_for_one_more() -> None:
    world = a_world(make_task("t", "cpus:2;mem:1GB"))
    found = fit(world, "cpus:1;mem:1GB")
    assert [(each.hostname, each.units) for each in found.agents] == [("h0", 2)]
    assert (found.units, ended(found)) == (2, ["t"])
    # An empty agent has room for two of them, and for no third.
    assert not fit(a_world(), "cpus:2;mem:1GB").HasField("move")


def test_offers_end_before_tasks() -> None:
    world = a_world(make_task("t", "cpus:2;mem:1GB"))
    world.framework(name="idle")
    found = fit(world, "cpus:1;mem:1GB")
    assert (found.units, found.move.offers, ended(found)) == (0, 1, [])
    found = fit(world, "cpus:4;mem:1GB")
    assert (found.move.offers, ended(found)) == (1, ["t"])


def test_a_group_and_an_executor_end_as_a_whole() -> None:
    world = World()
    world.agent("cpus:4;mem:8GB", agent_id="a", features="groups,executors")
    framework = world.framework(suppressed=True)
    group = tuple(in_group("g", make_task(f"g{number}", "cpus:2;mem:1GB")) for number in (1, 2))
    assert not world.call(framework, calls.Submit(group)).tasks[0].error
    found = fit(world, "cpus:1;mem:1GB")
    assert (found.move.count, sorted(ended(found))) == (2, ["g1", "g2"])

    world = World()
    world.agent("cpus:4;mem:8GB", agent_id="a", features="groups,executors")
    framework = world.framework()
    executor = with_executor(make_task("x", "cpus:1;mem:1GB"))
    inside = with_executor(make_task("y", "cpus:3;mem:1GB"), "x")
    verdict = world.accept(framework, executor, inside)
    assert not any(each.error for each in verdict.tasks), verdict
    world.decline(framework, 60.0)
    assert ended(fit(world, "cpus:3;mem:1GB")) == ["y"]
    assert sorted(ended(fit(world, "cpus:4;mem:1GB"))) == ["x", "y"]


def test_a_gang_ends_as_a_whole_on_all_of_its_agents() -> None:
    world = World()
    for number in range(2):
        world.agent("cpus:4;mem:8GB", agent_id=f"a{number}", features="gangs")
    framework = world.framework(suppressed=True)
    members = in_gang("g", *(make_task(f"g{number}", "cpus:3;mem:1GB") for number in range(2)))
    assert not world.call(framework, calls.Submit(members)).tasks[0].error
    found = fit(world, "cpus:2;mem:1GB")
    assert (found.move.count, sorted(ended(found))) == (2, ["g0", "g1"])
    running(world, framework, make_task("x0", "cpus:1;mem:1GB"), make_task("x1", "cpus:1;mem:1GB"))
    # What ends elsewhere makes no room here.
    assert fit(world, "cpus:4;mem:1GB").move.count == 3


def test_an_agent_that_is_withheld_is_told_of() -> None:
    world = a_world(agents=2)
    world.state.agents["a1"].deactivated = True  # type: ignore[index]
    world.state.allocator.activate_agent(world.state.agents["a1"].agent_id, False)  # type: ignore[index]
    found = fit(world, "cpus:1;mem:1GB")
    assert found.units == 4
    assert [(each.cause, each.agents) for each in found.reasons] == [("agent is deactivated", 1)]


def test_callers_learn_what_they_may_view() -> None:
    world = SecuredWorld(
        "r1 client/user register role:ads",
        "r2 client/viewer view *",
        "r3 client/owner register,run-as *",
    )
    world.secured_agent("a1")
    framework = world.owned("owner", "ads", name="train", suppressed=True)
    running(world, framework, make_task("t", "cpus:4;mem:4GB"))
    unit = "cpus:1;mem:1GB"
    seen = fit(world, unit, "ads", caller("viewer"))
    assert (seen.move.agent_id, ended(seen), seen.reasons[0].detail != "") == ("a1", ["t"], True)
    told = fit(world, unit, "ads", caller("user"))
    assert (told.move.agent_id, told.move.count, ended(told)) == ("", 1, [])
    assert (told.reasons[0].agents, told.reasons[0].detail) == (1, "")
    for role in ("", "web"):
        with pytest.raises(PermissionDenied, match="name a role"):
            fit(world, unit, role, caller("user"))


@pytest.mark.parametrize("unit", ["", "ports:[1-2]"])
def test_a_unit_is_made_of_scalars(unit: str) -> None:
    with pytest.raises(InvalidRequest, match="made of scalars"):
        fit(World(), unit)
