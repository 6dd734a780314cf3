"""Injectors: one per kind of fault. An injector returns False if the fault has no target.

Rule: each effect is undone after the fault's duration, or when the world is healed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.chaos.virtual.faults import Fault
from tests.chaos.virtual.injectors import moments, network, operators, processes

if TYPE_CHECKING:
    from tests.chaos.virtual.world import World

INJECTORS: dict[str, Callable[[World, Fault], bool]] = {
    "master_crash": processes.master_crash,
    "master_pause": processes.master_pause,
    "old_store": processes.old_store,
    "agent_crash": processes.agent_crash,
    "agent_pause": processes.agent_pause,
    "framework_crash": processes.framework_crash,
    "framework_pause": processes.framework_pause,
    "twin": processes.twin,
    "framework_deaf": processes.framework_deaf,
    "shim_kill": processes.shim_kill,
    "reboot": processes.reboot,
    "damage": processes.damage,
    "lost_tail": processes.lost_tail,
    "disk_full": processes.disk_full,
    "work_dir_gone": processes.work_dir_gone,
    "slow_disk": processes.slow_disk,
    "no_spawn": processes.no_spawn,
    "stop": processes.stop,
    "teardown": processes.teardown,
    "cut": network.cut,
    "cut_one_way": network.cut_one_way,
    "cut_registry": network.cut_registry,
    "slow": network.slow,
    "slow_registry": network.slow_registry,
    "reset": network.reset,
    "half_reset": network.half_reset,
    "hang": network.hang,
    "snap": moments.snap,
    "worst_moment": moments.worst_moment,
    "lost_kill": moments.lost_kill,
    "limited": moments.limited,
    "usurp": moments.usurp,
    "drain": operators.drain,
    "deactivate": operators.deactivate,
    "reactivate": operators.reactivate,
    "gone": operators.gone,
    "operator_kill": operators.operator_kill,
    "weight": operators.weight,
    "invent": processes.invent,
}
