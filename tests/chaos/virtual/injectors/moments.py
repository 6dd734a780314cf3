"""Faults that wait for the worst moment."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from croupier.master.core.messages import Registered, Subscribed, Updated
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.model.agent_orders import AcknowledgeUpdate, KillTask, LaunchTask, ResendUpdates
from croupier.model.errors import CroupierError
from croupier.model.roles import RoleSettings
from croupier.model.verdict import Verdict
from tests.chaos.virtual import registry as reg
from tests.chaos.virtual.faults import Fault
from tests.chaos.virtual.injectors import processes
from tests.chaos.virtual.network import End
from tests.chaos.virtual.variety import LEASE_S

if TYPE_CHECKING:
    from tests.chaos.virtual.world import World

# The pause of a leader, in which another master leads and ends tasks.
USURPED_S = 6.0
MESSAGES = (
    Registered,
    LaunchTask,
    KillTask,
    AcknowledgeUpdate,
    ResendUpdates,
    Subscribed,
    Verdict,
    Updated,
)


def snap(world: World, fault: Fault) -> bool:
    """Break a stream while the next message of a kind is in flight."""

    def reset(_: str, end: End | None) -> None:
        if end is not None and not world.is_healed:
            world.network.reset(end, loses=True, notified=(True, True))

    kind = MESSAGES[fault.salt % len(MESSAGES)]
    world.judge.await_moment(kind.__name__, reset)
    return True


def worst_moment(world: World, fault: Fault) -> bool:
    """Kill a process between two related actions."""
    kinds = ("commit", "sync", "process", "end", *(kind.__name__ for kind in MESSAGES))
    named = {process.name: process for process in world.processes}

    def kill(name: str, _: End | None) -> None:
        process = named.get(name or reg.name_of(world.registry.leader))
        if process is not None and not world.is_healed and world.crash(process, fault):
            world.registry.crashed(process.name)

    world.judge.await_moment(kinds[fault.salt % len(kinds)], kill)
    return True


def torn_group(world: World, fault: Fault) -> bool:
    """Kill an agent while it writes a group, or an end with the kills that follow from it."""
    named = {agent.name: agent for agent in world.agents}

    def kill(name: str, _: End | None) -> None:
        if not world.is_healed:
            world.crash(named[name], fault)

    world.judge.await_moment(("group", "end of a group")[fault.salt >> 3 & 1], kill)
    return True


def lost_kill(world: World, fault: Fault) -> bool:
    """Kill a task while its agent is cut off, and then kill the master."""
    live = [run for machine in world.machines for run in machine.live]
    histories = [world.judge.histories[run.key[1]] for run in live]
    known = [
        n for n, history in enumerate(histories) if history.owner.is_subscribed and history.machine
    ]
    if not known:
        return False
    chosen = known[fault.other % len(known)]
    machine = histories[chosen].machine
    assert machine is not None
    for master in world.masters:
        world.cut_off(master.name, machine.name, 1.5)
    histories[chosen].owner.kill(live[chosen].key[1])

    def kill_leader() -> None:
        processes.master_crash(world, replace(fault, who=1))

    world.later(1.0, kill_leader)
    return True


def limited(world: World, fault: Fault) -> bool:
    """Limit roles to what they use, and kill the leader and some agents together.

    The next leader starts soon, the agents later.
    """
    leaders = [each.term for each in world.masters if each.term is not None and each.is_up]
    usage = leaders[0].state.allocator.queries.used_by_role() if leaders else {}
    used = {role: held["cpus"] for role, held in usage.items() if "cpus" in held}
    changes = tuple(
        RoleChange(role, RoleSettings(limit={"cpus": milli}), (RolePart.LIMIT,))
        for role, milli in used.items()
    )

    def kill_all(answer: object) -> None:
        if world.is_healed or isinstance(answer, CroupierError):
            return
        for number, agent in enumerate(world.agents):
            if number == fault.who % len(world.agents) or fault.salt >> number & 1:
                world.crash(agent, replace(fault, lasts=fault.lasts + 2.0))
        processes.master_crash(world, replace(fault, who=1, lasts=0.1))

    return bool(changes) and world.ask(lambda request: UpdateRoles(request, changes), kill_all)


def usurp(world: World, fault: Fault) -> bool:
    """Pause the leader until another master leads; resume it just as agents reconnect."""
    if len(world.masters) == 1:
        return False

    def pause(name: str, _: End | None) -> None:
        master = {each.name: each for each in world.masters}[name]
        if world.is_healed or not world.pause(master, replace(fault, lasts=USURPED_S)):
            return
        for process in (*world.agents, *world.frameworks):
            world.later(LEASE_S + 1.0, lambda name=process.name: _reset_all(world, name))  # type: ignore[misc]
        world.later(USURPED_S - 0.2, lambda: _turn_to(world, name))

    world.judge.await_moment(LaunchTask.__name__, pause)
    return True


def _turn_to(world: World, master: str) -> None:
    """Let all agents reconnect, to this master first."""
    for agent in world.agents:
        agent.session.next_master = master
        _reset_all(world, agent.name)


def _reset_all(world: World, name: str) -> None:
    for end in world.network.streams_of(name):
        world.network.reset(end, loses=True, notified=(True, True))
