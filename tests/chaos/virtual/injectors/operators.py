"""Actions of operators at inconvenient times."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from croupier.master.core.agent_commands import Deactivate, Drain, MarkGone, Reactivate
from croupier.master.core.events import AccountingDue
from croupier.master.core.framework_commands import OperatorKill
from croupier.master.core.reservation_commands import CreateReservation
from croupier.master.core.reservations import NewReservation, Times
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange
from croupier.model.ids import Role
from croupier.model.reservation import DAY_MS
from croupier.model.roles import MIN_HALF_LIFE_MS, RoleSettings
from tests.chaos.virtual.faults import Fault
from tests.chaos.virtual.variety import ROLES

if TYPE_CHECKING:
    from tests.chaos.virtual.world import World

# 2026-11-27 12:00 UTC.
EPOCH_MS: Final = 1_795_780_800_000
# Accounting steps after a half-life was set.
ACCOUNTED_S: Final = (3.0, 10.0, 30.0)


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


def account(world: World) -> None:
    """End an accounting step, which changes weights by past use."""
    # The time of day is that at which the master handles it, as if it had not waited in its inbox.
    world.ask(lambda _: AccountingDue(EPOCH_MS + round(world.clock.now() * 1000)), lambda _: None)


def weight(world: World, fault: Fault) -> bool:
    half_life_ms = MIN_HALF_LIFE_MS if fault.salt % 2 else 0
    settings = RoleSettings(1 + fault.salt % 5000, half_life_ms=half_life_ms)
    change = RoleChange(Role(ROLES[fault.who % len(ROLES)]), settings)
    for delay_s in ACCOUNTED_S if half_life_ms else ():
        world.clock.after(delay_s, partial(account, world))
    return world.ask(lambda request: UpdateRoles(request, (change,)), lambda _: None)


def reserve(world: World, fault: Fault) -> bool:
    """Reserve some agents for a role, from now on or a little later, once or daily."""
    wall_ms = EPOCH_MS + round(world.clock.now() * 1000)
    begin_ms = wall_ms + fault.salt % 3 * 2_000
    every_ms = DAY_MS if fault.salt % 5 == 0 else 0
    times = Times(begin_ms, begin_ms + max(1, round(1000 * fault.lasts)), every_ms)
    role = Role(ROLES[fault.who % len(ROLES)])
    wanted = NewReservation(role, 1 + fault.other % 2, times, notice_ms=fault.salt % 4 * 1_000)
    return world.ask(lambda request: CreateReservation(request, wanted, wall_ms), lambda _: None)
