"""Faults between processes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.chaos.virtual import registry as reg
from tests.chaos.virtual.faults import Fault

if TYPE_CHECKING:
    from tests.chaos.virtual.world import World


def cut(world: World, fault: Fault) -> bool:
    one, two = _pair(world, fault)
    world.cut_off(one, two, fault.lasts)
    world.cut_off(two, one, fault.lasts)
    return True


def cut_one_way(world: World, fault: Fault) -> bool:
    one, two = _pair(world, fault)
    if fault.salt & 1:
        one, two = two, one
    world.cut_off(one, two, fault.lasts)
    return True


def cut_registry(world: World, fault: Fault) -> bool:
    if len(world.masters) == 1:
        return False
    name = world.master(fault).name
    if fault.salt % 3 != 0:
        world.cut_off(name, reg.NAME, fault.lasts)
    if fault.salt % 3 != 1:
        world.cut_off(reg.NAME, name, fault.lasts)
    return True


def slow(world: World, fault: Fault) -> bool:
    process = world.processes[fault.who % len(world.processes)]
    world.network.slow(process.name, float(2 + fault.salt % 100))
    world.later(fault.lasts, lambda: world.network.slow(process.name, 1.0))
    return True


def slow_registry(world: World, fault: Fault) -> bool:
    world.registry.slow_s = (fault.salt % 50) / 10
    world.later(fault.lasts, partial(setattr, world.registry, "slow_s", 0.0))
    return True


def reset(world: World, fault: Fault) -> bool:
    return _break(world, fault, (True, True))


def half_reset(world: World, fault: Fault) -> bool:
    return _break(world, fault, (True, False) if fault.salt & 1 else (False, True))


def hang(world: World, fault: Fault) -> bool:
    process = world.processes[fault.who % len(world.processes)]
    streams = [
        end
        for end in world.network.streams_of(process.name)
        if reg.NAME not in (end.name, end.peer_name)
    ]
    if streams:
        world.network.hang(streams[fault.other % len(streams)])
    return bool(streams)


def _pair(world: World, fault: Fault) -> tuple[str, str]:
    """Return a master and another process."""
    others = [each.name for each in (*world.agents, *world.frameworks)]
    return world.master(fault).name, others[fault.other % len(others)]


def _break(world: World, fault: Fault, notified: tuple[bool, bool]) -> bool:
    process = world.processes[fault.who % len(world.processes)]
    streams = world.network.streams_of(process.name)
    if not streams:
        return False
    end = streams[fault.other % len(streams)]
    if reg.NAME in (end.name, end.peer_name):
        notified = (True, True)
    world.network.reset(end, bool(fault.salt & 2), notified)
    return True
