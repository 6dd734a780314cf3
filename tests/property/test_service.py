"""A service's controller under random faults: it converges, and it ends no more than it may."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from croupier.apps.service.core import events
from croupier.apps.service.core.rules import Check, Restart, Rules, Update
from croupier.apps.service.core.state import RolloutState
from croupier.model.task import TaskState
from tests.harness.effort import portion
from tests.harness.service_world import CRASHES, GOOD, SICK, World


def world_of(seed: int, *, calm: bool = False) -> World:
    random = Random(seed)
    max_unavailable = random.randint(0, 3)
    surge = random.randint(0 if max_unavailable else 1, 2)
    rules = Rules(
        random.randint(1, 7),
        random.choice(("", "rack")),
        unreachable_s=20,
        restart=Restart(0.5, 20, 30),
        update=Update(max_unavailable, surge, healthy_within_s=90, settle_s=4, failures=3),
    )
    return World(random, rules, random.choice((Check.HTTP, Check.NONE, Check.TCP)), calm)


def is_converged(world: World) -> bool:
    service = world.service
    running = [task for task in world.tasks.values() if task.state is TaskState.RUNNING]
    return (
        service.rollout.state in (RolloutState.DONE, RolloutState.ROLLED_BACK)
        and len(running) == len(world.tasks) == world.rules.instances
        and not service.unavailable(world.now)
        and all(task.version == service.target for task in running)
    )


def settle(world: World, seconds: float = 900) -> None:
    end = world.now + seconds
    while not is_converged(world):
        assert world.now < end, world.service
        world.step()


def disturb(world: World) -> None:
    """Do something that makes life hard."""
    random = world.random
    match random.randint(0, 11):
        case 0:
            machine = random.choice(world.machines)
            if not machine.is_lost and sum(each.is_lost for each in world.machines) < 2:
                world.lose(machine)
        case 1:
            for machine in world.machines:
                if machine.is_lost:
                    world.find(machine)
        case 2 | 3:
            world.restart_controller()
        case 4 if world.tasks:
            world.crash(random.choice(list(world.tasks.values())))
        case 5 if world.tasks:
            random.choice(list(world.tasks.values())).is_hung = True
        case 6:
            world.scale(random.randint(1, 8))
        case 7:
            version = world.service.next_version
            behaviours = (GOOD, CRASHES) if world.check is Check.NONE else (GOOD, CRASHES, SICK)
            world.apply(f"d{version}", random.choice(behaviours))
        case 8:
            events.restart(world.service, world.now)
            number = world.service.target
            world.behaviour[number] = world.behaviour[number - 1]
        case _:
            pass


@pytest.mark.parametrize("seed", range(portion(60)))
def test_it_converges_after_faults(seed: int) -> None:
    world = world_of(seed)
    settle(world)
    for _ in range(40):
        disturb(world)
        for _ in range(world.random.randint(1, 30)):
            world.step()
    for machine in world.machines:
        if machine.is_lost:
            world.find(machine)
    # A last good version ends whatever was tried.
    world.apply("last", GOOD)
    settle(world)
    assert world.service.versions[world.service.target].digest == "last"


@pytest.mark.parametrize("seed", range(portion(60)))
def test_a_bad_version_is_rolled_back_and_never_costs_more_than_allowed(seed: int) -> None:
    world = world_of(seed, calm=True)
    settle(world)
    least = world.rules.instances - world.rules.update.max_unavailable
    bad = CRASHES if world.check is Check.NONE or seed % 2 else SICK
    for behaviour, state in ((bad, RolloutState.ROLLED_BACK), (GOOD, RolloutState.DONE)):
        world.apply(f"d-{behaviour}", behaviour)
        while not is_converged(world):
            world.step()
            serving = sum(world.is_serving(task) for task in world.tasks.values())
            if behaviour in (GOOD, SICK):
                assert serving >= least
            assert world.now < 5000
        assert world.service.rollout.state is state
        assert world.service.versions[world.service.target].digest == (
            "d1" if behaviour == bad else "d-good"
        )


@pytest.mark.parametrize("seed", range(portion(20)))
def test_instances_are_spread_over_racks(seed: int) -> None:
    world = world_of(seed, calm=True)
    world.rules = replace(world.rules, instances=9, spread="rack")
    world.service.rules = world.rules
    settle(world)
    racks = [world._machine(task.agent_id).rack for task in world.tasks.values()]
    assert sorted(map(racks.count, set(racks))) == [3, 3, 3]


def test_without_room_on_a_rack_the_others_are_used() -> None:
    world = world_of(1, calm=True)
    for machine in world.machines:
        machine.room = 0 if machine.rack == "r2" else 12
    world.rules = replace(world.rules, instances=6, spread="rack")
    world.service.rules = world.rules
    settle(world, 120)


def test_a_stopped_service_ends_all_and_launches_none() -> None:
    world = world_of(3)
    settle(world)
    world.service.is_stopping = True
    starts = world.starts
    world.run(30)
    assert not world.tasks
    assert not world.service.instances
    assert world.starts == starts
