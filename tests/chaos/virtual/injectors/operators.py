"""Actions of operators at inconvenient times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from croupier.master.core.agent_commands import Deactivate, Drain, MarkGone, Reactivate
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange
from croupier.model.ids import Role
from croupier.model.roles import MIN_HALF_LIFE_MS, RoleSettings
from tests.chaos.virtual.faults import Fault
from tests.chaos.virtual.variety import ROLES

if TYPE_CHECKING:
    from tests.chaos.virtual.world import World


def drain(world: World, fault: Fault) -> bool:
    return world.operate(world.agent(fault).name, Drain((None, 0, 1000)[fault.salt % 3]))


def deactivate(world: World, fault: Fault) -> bool:
    return world.operate(world.agent(fault).name, Deactivate())


def reactivate(world: World, fault: Fault) -> bool:
    return world.operate(world.agent(fault).name, Reactivate())


def gone(world: World, fault: Fault) -> bool:
    # The answer arrives late: from now on the agent may be gone.
    world.judge.gone.add(world.agent(fault).name)
    return world.operate(world.agent(fault).name, MarkGone())


def operator_kill(world: World, fault: Fault) -> bool:
    live = [run for machine in world.machines for run in machine.live]
    if not live:
        return False
    framework_id, task_id = live[fault.other % len(live)].key
    world.judge.histories[task_id].killers.add("operator")
    return world.ask(
        lambda request: OperatorKill(request, task_id, framework_id, None), lambda _: None
    )


def weight(world: World, fault: Fault) -> bool:
    half_life_ms = MIN_HALF_LIFE_MS if fault.salt % 2 else 0
    settings = RoleSettings(1 + fault.salt % 5000, half_life_ms=half_life_ms)
    change = RoleChange(Role(ROLES[fault.who % len(ROLES)]), settings)
    return world.ask(lambda request: UpdateRoles(request, (change,)), lambda _: None)
