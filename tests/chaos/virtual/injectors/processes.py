"""Faults of processes and of their machines."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from croupier.agent.core import events as ev
from tests.chaos.virtual.faults import Fault
from tests.chaos.virtual.framework import FrameworkProcess

if TYPE_CHECKING:
    from tests.chaos.virtual.world import World

MOST_FRAMEWORKS = 6


def master_crash(world: World, fault: Fault) -> bool:
    master = world.master(fault)
    injected = world.crash(master, fault)
    world.registry.crashed(master.name)
    return injected


def old_store(world: World, fault: Fault) -> bool:
    """Restore a copy of the store while no master runs."""
    if world.registry.durable.master is None:
        return False
    copy = world.registry.copy()

    def put_back() -> None:
        newest = world.registry.copy()
        world.put_back(copy)
        world.newest = newest if fault.salt & 1 else None
        for master in world.masters:
            world.later(0.5, master.start)

    world.later(fault.lasts, put_back)
    return True


def master_pause(world: World, fault: Fault) -> bool:
    return world.pause(world.master(fault), fault)


def agent_crash(world: World, fault: Fault) -> bool:
    return world.crash(world.agent(fault), fault)


def agent_pause(world: World, fault: Fault) -> bool:
    return world.pause(world.agent(fault), fault)


def framework_crash(world: World, fault: Fault) -> bool:
    return world.crash(world.framework(fault), fault)


def framework_pause(world: World, fault: Fault) -> bool:
    return world.pause(world.framework(fault), fault)


def twin(world: World, fault: Fault) -> bool:
    """Start a newer run of a program while the older one runs or is paused."""
    older = world.framework(fault)
    if not older.framework_id or older.is_retired or len(world.frameworks) > MOST_FRAMEWORKS:
        return False
    if fault.salt & 1:
        world.pause(older, fault)
    twin = FrameworkProcess(
        f"{older.name}t",
        world.clock,
        world.network,
        str(world.seed),
        world.settings,
        older.masters,
        older.habits,
        world.judge,
    )
    if twin.name in {each.name for each in world.frameworks}:
        return False
    twin.take_over(older)
    world.frameworks.append(twin)
    twin.start()
    return True


def framework_deaf(world: World, fault: Fault) -> bool:
    framework = world.framework(fault)
    framework.deaf_until = world.clock.now() + fault.lasts
    return True


def invent(world: World, fault: Fault) -> bool:
    """Restart an agent, which then lists a task that no master launched."""
    agent, framework = world.agent(fault), world.frameworks[fault.other % len(world.frameworks)]
    if not framework.framework_id:
        return False
    agent.invents = framework.framework_id
    return world.crash(agent, fault)


def shim_kill(world: World, fault: Fault) -> bool:
    machine = world.machines[fault.who % len(world.machines)]
    live = machine.live
    if live:
        machine.kill_shim(live[fault.other % len(live)])
    return bool(live)


def reboot(world: World, fault: Fault) -> bool:
    agent = world.agent(fault)
    agent.crash(loses=True)
    agent.machine.reboot()
    world.later(fault.lasts, agent.start)
    return True


def damage(world: World, fault: Fault) -> bool:
    """Lose some of an agent's records; it starts from the rest."""
    agent = world.agent(fault)
    agent.damage = 1 + fault.salt % 3
    world.judge.damaged.add(agent.name)
    return world.crash(agent, fault)


def lost_tail(world: World, fault: Fault) -> bool:
    """Lose the last records of an agent; the rest are intact.

    The mark beside the disk may be lost too, if a process without a record shows the loss.
    """
    agent = world.agent(fault)
    machine = agent.machine
    if not agent.is_up or not machine.disk:
        return False
    agent.crash(bool(fault.salt & 1))
    del machine.disk[-(1 + fault.salt % min(40, len(machine.disk))) :]
    world.judge.damaged.add(agent.name)
    # The agent may have lost the record of the newest master that it obeyed.
    world.judge.obeyed.pop(agent.name, None)
    machine.is_cut = not machine.unrecorded() or bool(fault.salt & 2)
    world.later(fault.lasts if machine.is_cut else 0.0, agent.start)
    return True


def disk_full(world: World, fault: Fault) -> bool:
    """Leave room on the disk for terminal updates only."""
    agent = world.agent(fault)
    agent.is_full = True
    if agent.is_up:
        agent.put(ev.DiskFull())
    world.later(fault.lasts, partial(setattr, agent, "is_full", False))
    return True


def work_dir_gone(world: World, fault: Fault) -> bool:
    """Move the work dir away and back; the agent cannot start meanwhile."""
    agent = world.agent(fault)
    agent.is_dir_gone = True
    world.later(fault.lasts, partial(setattr, agent, "is_dir_gone", False))
    # A service manager would repeat a failed start.
    world.later(fault.lasts + 0.1, agent.start)
    return True


def slow_disk(world: World, fault: Fault) -> bool:
    agent = world.agent(fault)
    agent.slow_s = (fault.salt % 20) / 10
    world.later(fault.lasts, partial(setattr, agent, "slow_s", 0.0))
    return True


def no_spawn(world: World, fault: Fault) -> bool:
    agent = world.agent(fault)
    agent.cannot_spawn = True
    world.later(fault.lasts, partial(setattr, agent, "cannot_spawn", False))
    return True


def stop(world: World, fault: Fault) -> bool:
    agent = world.agent(fault)
    if agent.is_up:
        agent.stop()
        world.later(fault.lasts + 5.0, agent.start)
    return agent.is_up


def teardown(world: World, fault: Fault) -> bool:
    framework = world.framework(fault)
    if framework.is_up and framework.framework_id:
        framework.tear_down()
    return framework.is_up
